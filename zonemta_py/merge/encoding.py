"""Bodies as they travel: quoted-printable piece by piece, or base64 (RFC 2045 6.7, 6.8). All of it is 7-bit.

Pieces of quoted-printable that are the same in all messages are encoded once, and joined with what is a recipient's
own; a soft line break stands between two only where they find no room on one line.
No encoded line has "=_" in it: a boundary that begins so cannot stand in any part, whatever the fields say. And none
begins with a dot, so that SMTP has none to double (RFC 5321 4.5.2): looking is a fifth of the work of doubling.
"""

from __future__ import annotations

import re
from base64 import encodebytes
from binascii import b2a_qp

_SOFT = b"=\r\n"
Piece = tuple[bytes, int, int]
"""Encoded text; octets of its first line, with the "=" of a soft line break; of its last line, -1 if that is ended."""
_LINE_MAX = 75  # and the "=" of a soft line break
_TOO_LONG = re.compile(rb"^([^\n]{74,75})(=(?:20|09))$", re.MULTILINE)
"""Where b2a_qp encodes a space at a line's end it forgets to count: 77 or 78 octets."""
_PLAIN = re.compile(r"[!-\-/-<>-~](?:[ -<>-~]{0,70}[!-<>-~])?")
_DOTS = re.compile(rb"^\.+", re.MULTILINE)


def quoted_printable(piece: str) -> bytes:
    """Lines that decode to the piece, its line ends as CRLF; "" for "". Raises UnicodeEncodeError for surrogates."""
    if _PLAIN.fullmatch(piece):
        return piece.encode() + _SOFT
    if not piece:
        return b""
    encoded = _DOTS.sub(_escaped, _TOO_LONG.sub(rb"\1=\n\2", b2a_qp(_unix(piece), istext=True)))
    encoded = encoded.replace(b"\n", b"\r\n")
    if encoded.endswith(b"\r\n"):
        return encoded
    last = encoded.rfind(b"\n") + 1
    if len(encoded) - last > _LINE_MAX:
        cut = last + _LINE_MAX - 3
        while b"=" in encoded[cut - 2 : cut]:
            cut -= 1
        rest = encoded[cut:]
        encoded = encoded[:cut] + _SOFT + (b"=2E" + rest[1:] if rest[:1] == b"." else rest)
    return encoded + _SOFT


def _escaped(dots: re.Match[bytes]) -> bytes:
    """Each on a line of its own, for the rest may be as long as a line can be."""
    return b"=2E=\n" * len(dots[0])


def piece(text: str) -> Piece:
    """For `join`. Raises UnicodeEncodeError for surrogates."""
    if _PLAIN.fullmatch(text):
        return text.encode(), len(text) + 1, len(text)
    encoded = quoted_printable(text)
    last = -1
    if encoded.endswith(_SOFT):
        encoded = encoded[:-3]
        last = len(encoded) - encoded.rfind(b"\n") - 1
    first = encoded.find(b"\r")
    return encoded, first if first >= 0 else len(encoded) + 1, last


def join(pieces: list[Piece]) -> bytes:
    """A body of quoted-printable pieces, without a soft line break at its end."""
    made: list[bytes] = []
    line = 0
    for encoded, first, last in pieces:
        if not encoded:
            continue
        if line and line + first > _LINE_MAX + 1:
            made.append(_SOFT)
            line = 0
        made.append(encoded)
        if first > len(encoded):  # all of it is in the line
            line += last
        else:
            line = max(last, 0)
    return b"".join(made)


def base64(text: str) -> bytes:
    """A whole text, its line ends as CRLF, in base64, without the CRLF that ends it."""
    return base64_bytes(_unix(text).replace(b"\n", b"\r\n"))


def base64_bytes(content: bytes) -> bytes:
    return encodebytes(content).replace(b"\n", b"\r\n")[:-2]


def _unix(text: str) -> bytes:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.encode()
