"""Return paths of other domains, made ours and taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.address import parse_mail
from zonemta_py.mail.addresses.srs import SrsRefused, reverse, rewrite

ONE, TWO, THREE = "the first secret.", "the second secret", "the third secret."
TODAY = 20_000
ATOM = st.text("abcXYZ019!#$%&'*+-/=?^_`{|}~", min_size=1, max_size=12)
LOCALS = st.one_of(
    st.lists(ATOM, min_size=1, max_size=3).map(".".join),
    st.text('ab @,.<>"\\()', min_size=1, max_size=8).map(
        lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    ),
)


def content(address: str) -> tuple[str, str]:
    local, _, host = address.rpartition("@")
    if local[0] == '"':
        local = local[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return local, host


@given(LOCALS.filter(lambda local: not local.strip('"').lower().startswith(("srs0", "srs1"))), st.integers(0, 21))
def test_there_and_back(local: str, days: int) -> None:
    """Any local part, quoted ones too; what goes out is an address that servers take, or the return path as it was."""
    sender = f"{local}@there.example"
    rewritten = rewrite(sender, "ours.example", ONE, TODAY)
    if rewritten == sender:
        assert len(local) + len("SRS0=tttttttt=dd=there.example=") + 2 > 64
        return
    assert len(rewritten.rpartition("@")[0].encode()) <= 64
    assert rewritten.endswith("@ours.example")
    assert parse_mail(f"<{rewritten}>").address == rewritten
    assert content(reverse(rewritten, ONE, TODAY + days, 21)) == content(sender)


def test_what_it_looks_like() -> None:
    """The form that others know: SRS0=tag=day=domain=local, SRS1=tag=first server==…"""
    first = rewrite("ann@there.example", "one.example", ONE, TODAY)
    assert first.startswith("SRS0=")
    assert first.endswith("=there.example=ann@one.example")
    second = rewrite(first, "two.example", TWO, TODAY)
    assert second.startswith("SRS1=")
    assert f"=one.example=={first[5:].rpartition('@')[0]}@two.example" in second
    third = rewrite(second, "three.example", THREE, TODAY)
    assert len(third) <= len(second) + 2
    assert reverse(third, THREE, TODAY, 21) == first
    assert reverse(second, TWO, TODAY, 21) == first


def test_other_separators() -> None:
    """Other rewriters put + or - behind SRS0; it comes back with what it had."""
    foreign = "SRS0+aBcD=XY=there.example=ann@one.example"
    assert reverse(rewrite(foreign, "two.example", TWO, TODAY), TWO, TODAY, 21) == foreign


def test_case_may_change() -> None:
    """Some servers shout, some whisper."""
    rewritten = rewrite("Ann@there.example", "one.example", ONE, TODAY)
    assert reverse(rewritten.lower(), ONE, TODAY, 21) == "ann@there.example"
    assert reverse(rewritten.upper(), ONE, TODAY, 21) == "ANN@THERE.EXAMPLE"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ann@one.example", "not an SRS address"),
        ("SRS0=abc@one.example", "not a complete SRS0"),
        ("SRS1=abc@one.example", "not a complete SRS1"),
        ("SRS0=aaaaaaaa=ra=there.example=ann@one.example", "not ours"),
        ("SRS0=aaaaaaaa=..=there.example=ann@one.example", "not ours"),
        ("SRS1=aaaaaaaa=one.example==x@two.example", "not ours"),
    ],
)
def test_refused(address: str, says: str) -> None:
    """Only what carries our tag is taken back: nobody relays through us by inventing one."""
    with pytest.raises(SrsRefused, match=says):
        reverse(address, ONE, TODAY, 21)


def test_changed_or_old() -> None:
    """Another recipient under the same tag, a tag of another secret, one too old."""
    rewritten = rewrite("ann@there.example", "one.example", ONE, TODAY)
    for bad, secret in ((rewritten.replace("ann", "eve"), ONE), (rewritten, TWO)):
        with pytest.raises(SrsRefused, match="not ours"):
            reverse(bad, secret, TODAY, 21)
    with pytest.raises(SrsRefused, match="22 days old"):
        reverse(rewritten, ONE, TODAY + 22, 21)


def test_longest() -> None:
    """A local part has 64 octets at most (RFC 5321 4.5.3.1.1), quotes and all: 33 are left beside there.example."""
    for fits, local in ((True, "a" * 33), (False, "a" * 34), (True, f'"{"a" * 30} "'), (False, f'"{"a" * 31} "')):
        sender = f"{local}@there.example"
        rewritten = rewrite(sender, "ours.example", ONE, TODAY)
        assert (rewritten != sender) is fits
        assert not fits or len(rewritten.rpartition("@")[0]) == 64
    assert rewrite("ü" * 17 + "@there.example", "ours.example", ONE, TODAY).startswith("ü")


@pytest.mark.parametrize(
    "sender",
    [
        "", f"{'a' * 60}@{'d' * 60}.{'e' * 60}.{'f' * 60}.example", "SRS1=@x.example", "SRS1=tag@x.example",
        "SRS1=tag==inner@x.example", "SRS1=tag=one.example=@x.example", "SRS1=tag=one.example=abc@x.example",
    ],
)  # fmt: skip
def test_left_alone(sender: str) -> None:
    """The null return path, one that would not fit any more, and SRS1 that leads nowhere (it would come back other)."""
    assert rewrite(sender, "ours.example", ONE, TODAY) == sender


@pytest.mark.parametrize(
    "address", ["user..name.@d.test", ".u@d.test", '"user..name"@d.test', '"a b"@d.test', "a.b@d.test"]
)
def test_a_local_part_goes_back_as_it_came(address: str) -> None:
    """Quoted or not: some servers know only one of both."""
    path = rewrite(address, "ours.test", "0123456789abcdef", 20_000)
    assert path != address
    parse_mail(f"<{path}>")
    assert reverse(path, "0123456789abcdef", 20_000, 7) == address
