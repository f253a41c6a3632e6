"""Header fields made of untrusted text (RFC 5322 2.2, 3.4; RFC 2047; RFC 6532).

Every function gives a whole field, folded, with its CRLF. Controls and line separators become a space each run, so no
text can end a field; addresses are parsed, and refused where they are invalid.
"""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote

from zonemta_py.mail.address import AddressRefused, parse_rcpt
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.fields import CONTROLS
from zonemta_py.merge.problems import RenderRefused

_LINE = 78
_WORD_MAX = 500  # a longer one would bring a line near the 998 octets of RFC 5322 2.1.1
_ENCODED_BYTES = 45  # 60 characters of base64, within the 75 of an encoded word
_CONTROLS = re.compile(f"[{CONTROLS}]+")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_FOLDABLE = re.compile(r" (?=[^ ])")
MEDIA_TYPE = re.compile(r"(?!multipart/|message/)[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}", re.IGNORECASE)
"""Of an attachment (RFC 6838 4.2)."""
CONTENT_ID = re.compile(r"[!#-&*-;=?-\[\]-~]{1,200}")
_URL = re.compile(r"(?:https?://|mailto:)[^\s]+", re.IGNORECASE)
_URL_SAFE = "!#$%&'()*+,/:;=?@[]~-._"


def clean(text: str) -> str:
    """One line without controls."""
    return text.strip(" ") if text.isprintable() else _CONTROLS.sub(" ", text).strip(" ")


def unstructured(name: str, text: str) -> bytes:
    """Subject and the like: ASCII as it is, everything else in encoded words. Raises UnicodeEncodeError for
    surrogates."""
    text = clean(text)
    if not text.isascii() or "=?" in text or max(map(len, text.split(" "))) > _WORD_MAX:
        return f"{name}: {_encoded_words(text, len(name) + 2)}\r\n".encode()
    return _folded(f"{name}: {text}").encode()


def mailbox(name: str, display: str, address: str) -> bytes:
    """From, To and Reply-To: a display name ("" for none) and one address. Raises RenderRefused."""
    spec = addr_spec(name, address)
    display = clean(display)
    if not display:
        return f"{name}: {spec}\r\n".encode()
    phrase = _phrase(display, len(name) + 2)
    last = len(phrase) - phrase.rfind("\n") + len(name) + 2
    gap = " " if last + len(spec) + 3 <= _LINE else "\r\n "
    return f"{name}: {phrase}{gap}<{spec}>\r\n".encode()


def addr_spec(name: str, address: str) -> str:
    """The address with its domain in A-labels; UTF-8 (SMTPUTF8) only where the local part needs it. RenderRefused."""
    address = address.strip(" ")
    try:
        found = parse_rcpt(f"<{address}>", smtputf8=True)[0].address
    except AddressRefused:
        found = ""
    if found.lower() != address.lower() or "@" not in found or not found.isprintable():
        raise RenderRefused(f"{name}: {address[:100]!a} is not an email address; write name@domain")
    if found.isascii():
        return found
    local, _, domain = found.rpartition("@")
    return f"{local}@{canonical(domain)}"


def url(name: str, text: str) -> bytes:
    """A URL in angle brackets (RFC 2369); what cannot stand in one is percent-encoded. Raises RenderRefused."""
    text = clean(text)
    if not _URL.match(text):
        raise RenderRefused(f"{name}: {text[:100]!a} is not a URL; it must begin with https:// or mailto:")
    encoded = quote(text, safe=_URL_SAFE)
    if len(encoded) > 900:
        raise RenderRefused(f"{name}: the URL has {len(encoded)} characters; shorten it to 900")
    gap = " " if len(name) + len(encoded) + 4 <= _LINE else "\r\n "
    return f"{name}:{gap}<{encoded}>\r\n".encode()


def media_type(kind: str) -> str:
    """The field Content-Type of a file, without its CRLF. Raises RenderRefused."""
    if not MEDIA_TYPE.fullmatch(kind):
        raise RenderRefused(f"{kind[:80]!a} is not a media type of a file; write it like application/pdf")
    return f"Content-Type: {kind}"


def content_id(name: str) -> str:
    """The field Content-ID, without its CRLF. Raises RenderRefused."""
    if not CONTENT_ID.fullmatch(name):
        raise RenderRefused(f"{name[:80]!a} cannot name an inline image; use letters, digits, dots and hyphens")
    return f"Content-ID: <{name}>"


def parameter(name: str, value: str) -> str:
    """A MIME parameter, quoted, or by RFC 2231 where it is not ASCII."""
    value = clean(value)
    if value.isascii():
        return f'{name}="{_escaped(value)}"'
    return f"{name}*=UTF-8''{quote(value, safe='')}"


def _phrase(display: str, taken: int) -> str:
    if not display.isascii() or "=?" in display or len(display) > _LINE * 3:
        return _encoded_words(display, taken)
    if _ATOMS.fullmatch(display):
        return display
    return f'"{_escaped(display)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _encoded_words(text: str, taken: int) -> str:
    """UTF-8 in base64, cut between characters. taken: columns of the first line already used."""
    words: list[bytes] = []
    chunk: list[bytes] = []
    room, size = max(15, (_ENCODED_BYTES - taken) // 3 * 3), 0
    for character in text:
        octets = character.encode()
        if size + len(octets) > room:
            words.append(b"".join(chunk))
            chunk, size, room = [], 0, _ENCODED_BYTES
        chunk.append(octets)
        size += len(octets)
    words.append(b"".join(chunk))
    return "\r\n ".join(f"=?utf-8?b?{b64encode(word).decode()}?=" for word in words)


def _folded(field: str) -> str:
    """Broken before spaces so that lines have 78 characters where words allow it."""
    if len(field) <= _LINE:
        return field + "\r\n"
    lines = []
    line, *words = _FOLDABLE.split(field)
    for word in words:
        if len(line) + 1 + len(word) > _LINE and line.strip(" ") and not line.endswith(":"):
            lines.append(line)
            line = " " + word
        else:
            line += " " + word
    lines.append(line)
    return "\r\n".join(lines) + "\r\n"
