"""The text of a reply as it was meant: bytes read in a wrong charset, encoded words, entities.

Servers send what an administrator typed once, in whatever charset; what arrives may be UTF-8 read as Latin-1
("pleinÃ©"), Shift_JIS, RFC 2047 encoded words, quoted-printable, ISO-2022-JP with its escapes. Pure; never raises; a
text of plain ASCII costs next to nothing.
"""

from __future__ import annotations

import html
import re
from email.errors import HeaderParseError
from email.header import decode_header

from zonemta_py.mail.vocabulary.matcher import tokens
from zonemta_py.mail.vocabulary.spelling import folded

_MOJIBAKE = re.compile("[\xc2-\xf4\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192][\x80-\xbf\u0152-\u2122]")
_QUOTED = re.compile(r"(?:=[0-9A-Fa-f]{2})+")
_ENCODED_WORD = re.compile(r"=\?[\w-]{1,40}\?[bBqQ]\?[^?\s]{0,200}\?=")
_HIGH = re.compile("[\x80-\xff]{2,}")
_CHARSETS = ("cp1251", "koi8-r", "gbk", "shift_jis", "euc-jp", "euc-kr", "big5")


def repaired(text: str) -> str:
    """As it was meant, as far as that can be told; with its letters and case."""
    if text.isascii() and "=" not in text and "&" not in text and "\x1b" not in text:
        return text  # the usual case, for little
    if "=?" in text:
        text = _ENCODED_WORD.sub(_decoded_word, text)
    if "=" in text:
        text = _QUOTED.sub(_unquoted, text)
    if "&" in text:
        text = html.unescape(text)
    if "\x1b" in text:
        text = _read_as(text, "iso2022_jp")
    return _read_again(text)


def _read_again(text: str) -> str:
    """Text whose bytes were taken for Latin-1 or Windows-1252."""
    if _MOJIBAKE.search(text):
        for charset in ("latin-1", "cp1252"):
            try:
                return text.encode(charset).decode("utf-8")
            except UnicodeError:
                continue
    if not _HIGH.search(text) or any(ord(c) > 0xFF for c in text):
        return text
    return max((text, *(_read_as(text, charset) for charset in _CHARSETS)), key=_sense)


def _sense(text: str) -> int:
    """How much of it can be read: what the vocabulary covers."""
    return sum(token.end - token.start for token in tokens(folded(text)))


def _read_as(text: str, charset: str) -> str:
    try:
        return text.encode("latin-1").decode(charset)
    except UnicodeError:
        return text


def _decoded_word(found: re.Match[str]) -> str:
    try:
        return "".join(
            part.decode(charset or "ascii", "replace") if isinstance(part, bytes) else part
            for part, charset in decode_header(found[0])
        )
    except (HeaderParseError, LookupError, ValueError):
        return found[0]


def _unquoted(found: re.Match[str]) -> str:
    raw = bytes.fromhex(found[0].replace("=", ""))
    if raw.isascii():
        return found[0]
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
