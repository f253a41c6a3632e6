"""Return paths that carry message and recipient."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.address import parse_mail
from zonemta_py.mail.addresses.verp import VerpRefused, decode, encode

SECRET, TODAY, ID = "0123456789abcdef", 20_000, "0199aabbccddeeff"
LOCALS = st.text('abc019.+-=~_!%"\\@ üß', min_size=1, max_size=20)


@given(LOCALS, st.sampled_from(["d.example", "bücher.example", "[192.0.2.1]", "[IPv6:2001:db8::1]"]))
def test_there_and_back(local: str, host: str) -> None:
    """Any recipient; what goes out is an ordinary address in ASCII, and never too long for a server."""
    path = encode(ID, f"{local}@{host}", "b.example", SECRET, TODAY)
    assert path.isascii()
    assert len(path.rpartition("@")[0]) <= 64
    assert parse_mail(f"<{path}>").address == path
    found = decode(path, SECRET, TODAY + 3, 21)
    assert (found.id, found.days) == (ID, 3)
    assert found.is_to(f"{local}@{host}")
    assert not found.is_to(f"{local}x@{host}")
    assert found.mark or found.recipient == f"{local}@{host}"


def test_what_it_looks_like() -> None:
    """24 characters, then the recipient that people can read; 39 of it fit the 64 of RFC 5321."""
    path = encode(ID, "ann.b+list@news.d.example", "b.example", SECRET, TODAY)
    local = path.rpartition("@")[0]
    assert local[24:] == "-ann.b+list=news.d.example"
    assert len(encode(ID, "a" * 29 + "@d.example", "b.example", SECRET, TODAY).rpartition("@")[0]) == 64


@given(st.integers(30, 64))
def test_long_recipients(length: int) -> None:
    """A mark stands for a recipient that does not fit; whoever has the list of recipients finds it, in any case."""
    path = encode(ID, "a" * length + "@d.example", "b.example", SECRET, TODAY)
    assert len(path.rpartition("@")[0]) == 47
    found = decode(path.upper(), SECRET, TODAY, 21)
    assert (found.id, found.recipient) == (ID, "")
    assert found.is_to("A" * length + "@d.example")
    assert not found.is_to("a" * (length - 1) + "@d.example")
    with pytest.raises(VerpRefused, match="not ours"):
        decode(path.replace(found.mark, "a" * 22), SECRET, TODAY, 21)


def test_case_may_change() -> None:
    """All of it but the recipient's own case survives."""
    path = encode(ID, "Ann@d.example", "b.example", SECRET, TODAY)
    assert decode(path.upper(), SECRET, TODAY, 21)[:3] == (ID, "ANN@D.EXAMPLE", 0)


def test_postmaster_without_a_domain() -> None:
    """The one recipient that may be named so."""
    path = encode(ID, "postmaster", "b.example", SECRET, TODAY)
    assert decode(path, SECRET, TODAY, 21).recipient == "postmaster"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [("ann", "eve", "not ours"), ("bra", "brb", "not ours"), ("=", "", "not a VERP"), ("-", "", "not a VERP")],
)
def test_forged(old: str, new: str, says: str) -> None:
    """Whatever is changed, it is ours no more."""
    path = encode(ID, "ann@d.example", "b.example", SECRET, TODAY)
    with pytest.raises(VerpRefused, match=says):
        decode(path.replace(old, new, 1), SECRET, TODAY, 21)


def test_old_and_other_secret() -> None:
    """A bounce that comes after weeks, and one of a time when the secret was another."""
    path = encode(ID, "ann@d.example", "b.example", SECRET, TODAY)
    with pytest.raises(VerpRefused, match="22 days old"):
        decode(path, SECRET, TODAY + 22, 21)
    with pytest.raises(VerpRefused, match="not ours"):
        decode(path, "another secret 16", TODAY, 21)


@given(st.text(max_size=60))
def test_anything_else(text: str) -> None:
    """Never another error."""
    with pytest.raises(VerpRefused):
        decode(text, SECRET, TODAY, 21)


def test_too_long() -> None:
    """None at all, rather than one that no server takes."""
    assert encode(ID, "a@d.example", "b" * 220, SECRET, TODAY) == ""
