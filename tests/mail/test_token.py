"""Marks of our own: short, without regard to case, good for one purpose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.addresses import token

SECRET = "0123456789abcdef"


@given(st.text(max_size=20), st.text(max_size=20))
def test_genuine_whatever_the_case(one: str, other: str) -> None:
    """Servers may change the case of a local part on its way."""
    tag = token.tag(SECRET, "verp", one, other)
    assert len(tag) == 8
    assert token.genuine(tag.upper(), SECRET, "verp", one, other)


@pytest.mark.parametrize(
    ("secret", "purpose", "parts"),
    [
        ("another secret 16", "verp", ("a", "b")),
        (SECRET, "srs0", ("a", "b")),
        (SECRET, "verp", ("ab", "")),
        (SECRET, "verp", ("a", "c")),
    ],
)
def test_not_genuine(secret: str, purpose: str, parts: tuple[str, ...]) -> None:
    """Another secret, purpose, or division into parts makes another tag."""
    assert not token.genuine(token.tag(SECRET, "verp", "a", "b"), secret, purpose, *parts)


def test_not_genuine_whatever_its_length() -> None:
    """A shorter tag is not a prefix that passes."""
    tag = token.tag(SECRET, "verp", "a")
    assert not any(token.genuine(other, SECRET, "verp", "a") for other in (tag[:-1], tag + "a", "", "ü"))


@given(st.integers(0, 50_000), st.integers(0, 1022))
def test_age(day: int, days: int) -> None:
    """Days since the stamp; a stamp of tomorrow is one of today."""
    stamp = token.stamp(day)
    assert token.age(stamp.upper(), day + days) == days
    assert token.age(token.stamp(day + 1), day) == 0


@given(st.integers(0, 2**64 - 1))
def test_numbers(number: int) -> None:
    """There and back, in a fixed number of digits."""
    packed = token.packed(number, 13)
    assert len(packed) == 13
    assert token.unpacked(packed.upper()) == number


def test_numbers_too_large() -> None:
    """An error, not a wrong number."""
    with pytest.raises(ValueError, match="more than 2 digits"):
        token.packed(1024, 2)
    with pytest.raises(ValueError, match="two characters"):
        token.age("a", 1)
