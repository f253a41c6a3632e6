"""Text in the character sets of mail. A name from outside never reaches Python's codec machinery unchecked.

There, `punycode` takes quadratic time, other names run transformations that are not character sets, and each unknown
name is cached for ever. So names are looked up in Python's table of aliases, and only the modules named here are
used, each in linear time. Never raises.
"""

from __future__ import annotations

from encodings.aliases import aliases
from functools import lru_cache

_PARTS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "13", "14", "15", "16")
_CHARSETS = frozenset(
    (
        "ascii", "utf_8", "utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le", "latin_1",
        *(f"iso8859_{part}" for part in _PARTS),
        *(f"cp{page}" for page in (437, 850, 852, 855, 858, 862, 866, 874, 932, 936, 949, 950, *range(1250, 1259))),
        "koi8_r", "koi8_u", "mac_roman", "mac_cyrillic", "tis_620",
        "big5", "big5hkscs", "gb2312", "gbk", "gb18030", "hz",
        "euc_jp", "shift_jis", "iso2022_jp", "iso2022_jp_1", "iso2022_jp_2", "iso2022_jp_3", "iso2022_jp_ext",
        "euc_kr", "iso2022_kr", "johab",
    )
)  # fmt: skip
_NAME_CHARACTERS_MAX = 40


def text_of(content: bytes, charset: str) -> str:
    """Decodes it; invalid bytes become U+FFFD. An unknown character set is taken for Latin-1."""
    codec = codec_of(charset) if len(charset) <= _NAME_CHARACTERS_MAX else ""
    return content.decode(codec or "latin-1", "replace")


@lru_cache(256)
def codec_of(charset: str) -> str:
    """Python's name for a character set of mail, "" for any other word."""
    words = "".join(letter if letter.isalnum() else " " for letter in charset.lower()).split()
    name = "_".join(words)
    module = aliases.get(name) or aliases.get(name.replace("iso_8859", "iso8859")) or name
    return module if module in _CHARSETS else ""
