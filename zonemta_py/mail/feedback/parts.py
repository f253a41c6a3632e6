"""A message taken apart, in bounded time and room: what its parts are, and their text.

The email package's parser reads all of a message, and its cost can grow with the square of what an attacker sends; a
report is understood by its first pages. So: MESSAGE_BYTES_MAX of a message are looked at, PARTS_MAX parts, DEPTH_MAX
levels, and of each part as much as its kind needs. Line ends of any kind become LF. Broken MIME (a boundary that never
comes, parts without an end) leaves what can be had. Never raises.
"""

from __future__ import annotations

import binascii
import html
import quopri
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import unquote

from zonemta_py.mail.charsets import codec_of, text_of
from zonemta_py.mail.feedback.addresses import address_of
from zonemta_py.mail.headers import decode

MESSAGE_BYTES_MAX = 262_144
PART_BYTES_MAX = 65_536
HEADER_BYTES_MAX = 32_768
TEXT_CHARACTERS_MAX = 32_768
"""Of all human-readable parts together."""
_PLACEHOLDER_CHARACTERS = 80
"""A text that is shorter asks for a program that shows HTML, or says no more than that does."""
PARTS_MAX = 40
DEPTH_MAX = 5
FIELDS_MAX = 400
VALUE_CHARACTERS_MAX = 2_000

_FIELD = re.compile(r"^([A-Za-z][\w-]{0,60})[ \t]{0,4}:[ \t]*([^\n]*(?:\n[ \t][^\n]*)*)", re.MULTILINE | re.ASCII)
_FOLD = re.compile(r"\s*\n[ \t]+")
_BLANK = "\n\n"
_BLANKS = re.compile(r"\n{3,}")
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
_PARAMETER = r'\b{}\s*=\s*(?:"([^"\n]{{1,200}})"|([^\s;"]{{1,200}}))'
_BOUNDARY = re.compile(_PARAMETER.format("boundary"), re.IGNORECASE)
_CHARSET = re.compile(_PARAMETER.format("charset"), re.IGNORECASE)
_ORIGINALS = frozenset(("message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers"))
_STATUSES = frozenset(("message/delivery-status", "message/global-delivery-status"))
_DISPOSITIONS = frozenset(("message/disposition-notification", "message/global-disposition-notification"))

_HIDDEN = re.compile(r"<(/?)(?:style|script|title)\b", re.IGNORECASE)
_BREAK = re.compile(r"</?(?:br|p|div|tr|li|h\d|table|blockquote|pre)\b[^<>]{0,400}>", re.IGNORECASE)
_CELL = re.compile(r"</?(?:td|th|dt|dd)\b[^<>]{0,400}>", re.IGNORECASE)
_TAG = re.compile(r"<[/!?A-Za-z][^<>]{0,2000}>")
_LINK = re.compile(r"<a\b([^<>]{0,1000})>([^<>]{0,200})", re.IGNORECASE)
_MAILTO = re.compile(r"\bhref\s{0,3}=\s{0,3}[\"']?mailto:([^\"'?<>\s]{3,320})", re.IGNORECASE)
_NO_CHARACTER = re.compile(r"&#\d{8,};?")
"""A reference by a number that no character has, of as many digits as Python may refuse to read."""
_ADDRESS_TAG = re.compile(r"<([^<>\s@]{1,64}@[^<>\s@]{1,255})>")


@dataclass(slots=True)
class Parts:
    """fields: of the message, by lower-case name, unfolded, as they came. text: what people are told, plain. status,
    feedback, disposition: the machine-readable parts. original: the enclosed message, its header at least; enclosed:
    its bytes. from_html: the text is the HTML's."""

    fields: dict[str, str]
    kind: str = ""
    text: str = ""
    status: str = ""
    feedback: str = ""
    disposition: str = ""
    original: str = ""
    enclosed: bytes = b""
    html: str = ""
    from_html: bool = False
    own_lines: list[str] | None = field(default=None, repr=False)
    """What of the text is not quoted, once somebody has asked (`own_words`)."""
    count: int = field(default=0, repr=False)
    multiparts: int = field(default=0, repr=False)

    def decoded(self, name: str) -> str:
        """A field of the message, readable."""
        return decode(self.fields.get(name, ""))

    def sender_host(self) -> str:
        """The domain of its From, "" if it has none."""
        return address_of(self.decoded("from")).partition("@")[2].lower()


def take_apart(message: bytes) -> Parts:
    """The parts of a message with line ends of any kind."""
    message = _line_feeds(message[:MESSAGE_BYTES_MAX])
    if message.startswith(b"From "):  # as it stands in a mailbox file
        message = message.partition(b"\n")[2]
    head, body = _split(message)
    parts = Parts(fields_of(head))
    _walk(parts, parts.fields, body, 0)
    if parts.html and len(parts.text.strip()) < _PLACEHOLDER_CHARACTERS:
        parts.text, parts.from_html = _BLANKS.sub(_BLANK, plain(parts.html))[:TEXT_CHARACTERS_MAX], True
    return parts


def attachments(message: bytes) -> Iterator[bytes]:
    """The parts of a message that are not made of parts, decoded, whole, whatever they are called: also of messages
    that it encloses. The message may be its only part."""
    head, body = _split(_line_feeds(message))
    return islice(_attached(fields_of(head), body, 0), PARTS_MAX)


def _attached(fields: dict[str, str], body: bytes, depth: int) -> Iterator[bytes]:
    declared = fields.get("content-type", "")
    found = _MEDIA_TYPE.search(declared)
    kind = found[0].lower() if found else ""
    sections = _sections(body, declared) if kind.startswith("multipart/") and depth < DEPTH_MAX else []
    for section in sections:
        head, inner = _split(section)
        yield from _attached(fields_of(head), inner, depth + 1)
    if sections:
        return
    coding = fields.get("content-transfer-encoding", "").strip().lower()
    content = _base64(body) if coding == "base64" else body
    content = quopri.decodestring(body) if coding == "quoted-printable" else content
    if kind in _ORIGINALS and depth < DEPTH_MAX:
        head, inner = _split(_line_feeds(content))
        yield from _attached(fields_of(head), inner, depth + 1)
    else:
        yield content


def fields_of(text: str) -> dict[str, str]:
    """The first field of each name, unfolded and trimmed; lines that belong to none are passed over."""
    found: dict[str, str] = {}
    for number, match in enumerate(_FIELD.finditer(text)):
        if number >= FIELDS_MAX:
            break
        value = match[2][:VALUE_CHARACTERS_MAX]
        found.setdefault(match[1].lower(), (_FOLD.sub(" ", value) if "\n" in value else value).strip())
    return found


def plain(text: str) -> str:
    """HTML as text: its tags gone, a line for each block, a space between cells; <a@example.com> stays."""
    text = _LINK.sub(_linked, _ADDRESS_TAG.sub(r"&lt;\1&gt;", _shown(text)))
    text = _TAG.sub("", _CELL.sub(" ", _BREAK.sub("\n", text)))
    return html.unescape(_NO_CHARACTER.sub("\ufffd", text)).replace("\xa0", " ")


def _linked(found: re.Match[str]) -> str:
    """A link that writes to somebody, whose address its words may not have."""
    written = _MAILTO.search(found[1]) if "@" not in found[2] else None
    return f"&lt;{html.escape(unquote(html.unescape(written[1])))}&gt; {found[2]}" if written else found[0]


def _shown(text: str) -> str:
    """Without style sheets, scripts and the title."""
    kept, start, hidden = list[str](), 0, False
    for match in _HIDDEN.finditer(text):
        if match[1] and hidden:
            start, hidden = match.start(), False
        elif not match[1] and not hidden:
            kept.append(text[start : match.start()])
            hidden = True
    return "".join(kept) + ("" if hidden else text[start:])


def _walk(parts: Parts, fields: dict[str, str], body: bytes, depth: int) -> None:
    declared = fields.get("content-type", "")
    found = _MEDIA_TYPE.search(declared)
    kind = found[0].lower() if found else "text/plain"
    if not depth:
        parts.kind = kind
    if kind.startswith("multipart/") and depth < DEPTH_MAX and parts.multiparts < PARTS_MAX:
        parts.multiparts += 1
        sections = _sections(body, declared)
        for section in sections:
            head, inner = _split(section)
            _walk(parts, fields_of(head), inner, depth + 1)
        if sections:
            return
    parts.count += 1
    if parts.count <= PARTS_MAX:
        _leaf(parts, kind, fields, body)


def _leaf(parts: Parts, kind: str, fields: dict[str, str], body: bytes) -> None:
    content = _decoded(body[:PART_BYTES_MAX], fields.get("content-transfer-encoding", ""))
    text = _text(content, fields.get("content-type", ""))
    if kind in _ORIGINALS:
        parts.original, parts.enclosed = parts.original or text, parts.enclosed or content
    elif kind in _STATUSES:
        parts.status += text + "\n\n"
    elif kind == "message/feedback-report":
        parts.feedback = parts.feedback or text
    elif kind in _DISPOSITIONS:
        parts.disposition = parts.disposition or text
    elif kind == "text/html":
        parts.html = parts.html or text
    elif kind.startswith(("text/", "multipart/")) and len(parts.text) < TEXT_CHARACTERS_MAX:
        parts.text = f"{parts.text}{_BLANKS.sub(_BLANK, text)}\n"[:TEXT_CHARACTERS_MAX]


def _sections(body: bytes, declared: str) -> list[bytes]:
    """What stands between the boundaries (RFC 2046 5.1.1); the last one may have no end."""
    found = _BOUNDARY.search(declared)
    if not found:
        return []
    boundary = (found[1] or found[2]).rstrip().encode("utf-8", "replace")
    line = re.compile(rb"\n--" + re.escape(boundary) + rb"(--)?[ \t]*(?=\n|\Z)")
    body = b"\n" + body
    sections, start = list[bytes](), -1
    for match in line.finditer(body):
        if start >= 0:
            sections.append(body[start : match.start()])
        start = -1 if match[1] else match.end() + 1
        if len(sections) >= PARTS_MAX:
            return sections
    if start >= 0:
        sections.append(body[start:])
    return sections


def _split(message: bytes) -> tuple[str, bytes]:
    """Header section and body."""
    if message.startswith(b"\n"):
        return "", message[1:]
    head, _, body = message.partition(b"\n\n")
    return _utf8(head[:HEADER_BYTES_MAX]), body


def _line_feeds(message: bytes) -> bytes:
    return message.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in message else message


def _decoded(content: bytes, coding: str) -> bytes:
    coding = coding.strip().lower()
    if coding == "base64":
        return _line_feeds(_base64(content))
    return _line_feeds(quopri.decodestring(content)) if coding == "quoted-printable" else content


def _base64(content: bytes) -> bytes:
    """What is not base64 behind it (a footer, a cut) is left out."""
    letters = re.sub(rb"[^A-Za-z0-9+/]", b"", content.partition(b"=")[0] if b"=\n" in content else content)
    try:
        return binascii.a2b_base64(letters[: len(letters) // 4 * 4] + _padding(letters))
    except binascii.Error:
        return content


def _padding(letters: bytes) -> bytes:
    rest = letters[len(letters) // 4 * 4 :]
    return rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b""


def _text(content: bytes, declared: str) -> str:
    """What is not ASCII, and is good UTF-8, is UTF-8 whatever it says: no other character set looks like it."""
    if content.isascii() and b"\x1b" not in content:
        return content.decode()
    found = _CHARSET.search(declared)
    charset = (found[1] or found[2]) if found else ""
    codec = codec_of(charset)
    if b"\x1b$" in content and content.isascii() and not codec.startswith("iso2022"):
        return text_of(content, "iso-2022-jp")  # it does not say so
    if content.isascii() or (codec and not _is_utf8(content)):
        return text_of(content, charset)
    return _utf8(content)


def _utf8(content: bytes) -> str:
    return content.decode("utf-8", "replace") if _is_utf8(content) else content.decode("latin-1")


def _is_utf8(content: bytes) -> bool:
    """But for a character that is cut off at its end."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.start > len(content) - 4
    return True
