"""A text in one spelling: small letters without marks, so that a phrase is found however it was written. Pure."""

from __future__ import annotations

import re
import unicodedata

_LOST = re.compile("(?<=[a-z])[?\ufffd]{1,3}(?=[a-z])|\ufffd{1,3}")
_LETTERS = {
    "ß": "ss",
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ı": "i",
    "ð": "d",
    "þ": "th",
    "’": "'",
    "`": "'",
}


def _flattened(letter: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", letter) if not unicodedata.combining(c))


_FLAT = str.maketrans(
    {chr(code): _flattened(chr(code)) for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))} | _LETTERS
)


def folded(text: str) -> str:
    """In small letters without marks, compatible forms made plain (ＩＰ: ip), a lost letter within a word as "?"."""
    lowered = text.lower()
    if lowered.isascii() and "?" not in lowered:
        return lowered
    flat = unicodedata.normalize("NFKC", lowered).translate(_FLAT)
    return _LOST.sub("?", flat)
