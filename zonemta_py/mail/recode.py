"""A message made fit for the wire: no line over 998 octets (RFC 5321 4.5.3.1.6), and, where a server does not offer
8BITMIME, no octet over 127 (RFC 6152 3).

Only what needs it changes: a part gets quoted-printable or base64, a header field is folded or gets encoded words;
every other byte stays. What readers see stays the same. What has been signed or encrypted as it stands
(multipart/signed, multipart/encrypted) is never changed.

Pure. Failures: `recoded` raises NotRecodable, with a few words for the sender.
"""

from __future__ import annotations

import binascii
import re
from email import policy
from email.message import Message
from typing import NamedTuple

from zonemta_py.mail.headers import Headers, split
from zonemta_py.mail.lines import LINE_OCTETS_MAX, has_long_line

_DEPTH_MAX = 30
_PLAIN = ("", "7bit", "8bit", "binary")
_REPORTS = ("message/delivery-status", "message/disposition-notification", "message/feedback-report")
_SEALED = ("multipart/signed", "multipart/encrypted")
_MESSAGES = ("message/rfc822", "message/global")
_FIELDS = ("text/rfc822-headers", "message/global-headers")
_ADDRESS = re.compile(r"[^\s<>,;:\"]*@[^\s<>,;:\"]*")
_BASE64_LINE = 57
"""Bytes that make a line of 76 characters."""
_HIGH = bytes(range(128, 256))
_SEVEN = bytes(range(128)) + b"?" * 128


class NotRecodable(ValueError):
    """Why, as the end of a sentence."""


class _Kind(NamedTuple):
    """A part's media type, in lower case; its boundary; whether a Content-Type field says so; its coding."""

    media: str
    boundary: bytes
    said: bool
    coding: str


def fit(data: bytes, seven: bool) -> bool:
    """Whether it may leave as it is. seven: no octet may be over 127."""
    return not has_long_line(data) and (not seven or data.isascii())


def recoded(message: bytes, seven: bool) -> bytes:
    """The whole message, its lines ending in CRLF. Raises NotRecodable."""
    made = _entity(message, seven, "text/plain", 0)
    if not fit(made, seven):
        raise NotRecodable("it has a line that cannot be broken")
    return made


def _entity(entity: bytes, seven: bool, usual: str, depth: int) -> bytes:
    """A message or a part. usual: its media type if it names none."""
    if fit(entity, seven):
        return entity
    if depth > _DEPTH_MAX:
        raise NotRecodable("its parts are nested too deep")
    headers, end = split(entity)
    body = entity[end:]
    gap = b"\r\n" if body.startswith(b"\r\n") else b""
    body = body[len(gap) :]
    kind = _kind(headers, usual)
    if not fit(body, seven):
        body = _body(headers, kind, body, seven, depth)
    elif seven and kind.coding in ("8bit", "binary"):
        _say(headers, b"7bit")
    fields = b"".join(_field(field, seven) + b"\r\n" for field in headers.fields)
    return fields + (gap or b"\r\n") + body


def _kind(headers: Headers, usual: str) -> _Kind:
    message = Message()
    message["Content-Type"] = headers.get("content-type").encode("utf-8", "surrogateescape").decode("latin-1")
    said = "content-type" in headers
    boundary = str(message.get_boundary("")).encode("latin-1", "replace") if said else b""
    coding = headers.get("content-transfer-encoding").partition(";")[0].strip().lower()
    return _Kind(message.get_content_type() if said else usual, boundary, said, coding)


def _body(headers: Headers, kind: _Kind, body: bytes, seven: bool, depth: int) -> bytes:
    """The part's body; its fields say how it is coded now."""
    if kind.media in _SEALED:
        raise NotRecodable(f"what is inside {kind.media} must stay as it is")
    if kind.media.startswith("multipart/"):
        made = _multipart(kind, body, seven, depth)
    elif kind.media in _MESSAGES and kind.coding in _PLAIN:
        made = _entity(body, seven, "text/plain", depth + 1)
    elif kind.media in _FIELDS and kind.coding in _PLAIN:
        made = _section(body, seven)
    elif kind.media in _REPORTS and kind.coding in _PLAIN:
        ascii_only = body.translate(_SEVEN) if seven else body
        made = b"\r\n\r\n".join(_section(group, seven) for group in ascii_only.split(b"\r\n\r\n"))
    elif kind.media.startswith("message/") and not kind.media.startswith("message/global-"):
        raise NotRecodable(f"{kind.media} must stay as it is")
    else:
        return _leaf(headers, kind, body, depth)
    if seven and kind.coding in ("8bit", "binary"):
        _say(headers, b"7bit")
    return made


def _multipart(kind: _Kind, body: bytes, seven: bool, depth: int) -> bytes:
    if not kind.boundary or kind.coding not in _PLAIN:
        raise NotRecodable(f"its {kind.media} is malformed")
    line = re.compile(rb"(?:\A|\r\n)--" + re.escape(kind.boundary) + rb"(--)?[ \t]*(?=\r\n|\Z)")
    lines = list(line.finditer(body))
    last = next((number for number, found in enumerate(lines) if found[1]), len(lines))
    lines = lines[: last + 1]
    if not lines or lines[0][1]:
        raise NotRecodable(f"its {kind.media} is malformed")
    usual = "message/rfc822" if kind.media == "multipart/digest" else "text/plain"
    made = [_unread(body[: lines[0].start()], seven)]
    ends = [*(found.start() for found in lines[1:]), len(body)]
    for found, until in zip(lines, ends, strict=True):
        part = body[found.end() : until]
        made.append(found[0])
        if found[1]:
            made.append(_unread(part, seven))
        elif part.startswith(b"\r\n"):
            made += (b"\r\n", _entity(part[2:], seven, usual, depth + 1))
        else:
            made.append(part)
    return b"".join(made)


def _unread(text: bytes, seven: bool) -> bytes:
    """What stands before the first part and behind the last one, which no reader shows."""
    if fit(text, seven):
        return text
    if seven:
        text = text.translate(_SEVEN)
    return b"\r\n".join(_broken(line) for line in text.split(b"\r\n"))


def _leaf(headers: Headers, kind: _Kind, body: bytes, depth: int) -> bytes:
    if kind.coding == "base64":
        return _base64(_decoded64(body))
    if kind.coding == "quoted-printable":
        return _quoted(binascii.a2b_qp(body))
    if kind.coding not in _PLAIN:
        raise NotRecodable(f"its Content-Transfer-Encoding {kind.coding[:40]!a} is not known")
    if not kind.said and not body.isascii():
        headers.replace("Content-Type", f"{kind.media}; charset={'utf-8' if _is_utf8(body) else 'unknown-8bit'}")
    if not depth and "mime-version" not in headers:
        headers.add("MIME-Version", "1.0")
    text = kind.media.startswith(("text/", "message/"))
    if text and 3 * (len(body) - len(body.translate(None, _HIGH))) < len(body):
        _say(headers, b"quoted-printable")
        return _quoted(body)
    _say(headers, b"base64")
    return _base64(body)


def _say(headers: Headers, coding: bytes) -> None:
    headers.replace("Content-Transfer-Encoding", coding.decode())


def _quoted(data: bytes) -> bytes:
    """Text with CRLF lines."""
    made = binascii.b2a_qp(data.replace(b"\r\n", b"\n"), quotetabs=False, istext=True)
    return made.replace(b"\n", b"\r\n")


def _decoded64(body: bytes) -> bytes:
    try:
        return binascii.a2b_base64(body)
    except binascii.Error:
        raise NotRecodable("it has base64 that cannot be read") from None


def _base64(data: bytes) -> bytes:
    lines = (
        binascii.b2a_base64(data[at : at + _BASE64_LINE], newline=False) for at in range(0, len(data), _BASE64_LINE)
    )
    return b"\r\n".join(lines) + b"\r\n"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# header fields


def _section(text: bytes, seven: bool) -> bytes:
    """Header fields as the body of a part."""
    headers, end = split(text)
    rest = _unread(text[end:], seven)
    return b"".join(_field(field, seven) + b"\r\n" for field in headers.fields)[: None if rest or end else -2] + rest


def _field(field: bytes, seven: bool) -> bytes:
    """A raw field, without its last CRLF."""
    if seven and not field.isascii():
        field = _encoded(field)
    if has_long_line(field):
        field = b"\r\n".join(_broken(line) for line in field.split(b"\r\n"))
    return field


def _encoded(field: bytes) -> bytes:
    """With encoded words, or by RFC 2231 in parameters. Raises NotRecodable for an international address."""
    name, _, value = field.partition(b":")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    text = " ".join(text.replace("\r\n", "").split())
    if any(not address.isascii() for address in _ADDRESS.findall(text)):
        raise NotRecodable("an address in its header section is international")
    try:
        header = policy.SMTP.header_factory(name.decode(), text)
        made = header.fold(policy=policy.SMTP).encode()
    except (LookupError, ValueError, AttributeError, TypeError):  # its parser stumbles over some malformed fields
        made = b""
    if not made.isascii() or not re.fullmatch(rb"[^\r\n]+(\r\n[ \t][^\r\n]*)*\r\n", made):
        raise NotRecodable(f"its field {name.decode()[:40]} is not ASCII")
    return bytes(made[:-2])


def _broken(line: bytes) -> bytes:
    """A long line, folded before blanks, else behind commas, else anywhere."""
    lines: list[bytes] = []
    while len(line) > LINE_OCTETS_MAX:
        at = _place(line)
        lines.append(line[:at])
        line = line[at:] if line[at : at + 1] in (b" ", b"\t") else b" " + line[at:]
    return b"\r\n".join((*lines, line))


def _place(line: bytes) -> int:
    first = len(line) - len(line.lstrip(b" \t")) + 1
    blank = max(line.rfind(b" ", first, LINE_OCTETS_MAX), line.rfind(b"\t", first, LINE_OCTETS_MAX))
    if blank > 0 and line[:blank].strip(b" \t"):
        return blank
    comma = line.rfind(b",", first, LINE_OCTETS_MAX - 1)
    if comma > 0:
        return comma + 1
    at = LINE_OCTETS_MAX - 1
    while at > 1 and line[at] & 0xC0 == 0x80:  # not within a character
        at -= 1
    return at
