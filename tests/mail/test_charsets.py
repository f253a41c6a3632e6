"""Character sets of mail."""

from __future__ import annotations

import encodings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.charsets import codec_of, text_of


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("UTF-8", "utf_8"), ("us-ascii", "ascii"), ("iso-8859-1", "latin_1"), ("ISO-8859-15", "iso8859_15"),
        ("iso-8859-8-i", ""), ("windows-1252", "cp1252"), ("GB2312", "gb2312"), ("ks_c_5601-1987", "euc_kr"),
        ("Shift_JIS", "shift_jis"), ("iso-2022-jp", "iso2022_jp"), ("koi8-r", "koi8_r"), ("big5", "big5"),
        ("punycode", ""), ("idna", ""), ("unicode_escape", ""), ("raw-unicode-escape", ""), ("rot13", ""),
        ("zip", ""), ("undefined", ""), ("", ""), ("../../etc/passwd", ""), ("mbcs", ""),
    ],
)  # fmt: skip
def test_only_character_sets_of_mail_are_known(charset: str, codec: str) -> None:
    """By all their names; what Python calls an encoding beside them is none."""
    assert codec_of(charset) == codec


@given(st.binary(max_size=50), st.text(max_size=50))
def test_any_name_and_any_bytes_make_text(content: bytes, charset: str) -> None:
    """And Python's table of names, which forgets nothing, does not grow by what strangers write."""
    before = len(encodings._cache)  # type: ignore[attr-defined]
    assert isinstance(text_of(content, "x-" + charset), str)
    assert len(encodings._cache) == before  # type: ignore[attr-defined]
