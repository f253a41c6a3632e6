"""Which addresses take what comes back: what nobody has made is never one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.addresses import leaving, srs, verp
from zonemta_py.mail.addresses.ours import NotOurs, ReturnDomains

OLD, NEW, TODAY, ID = "0123456789abcdef", "fedcba9876543210", 20_000, "0199aabbccddeeff"
OURS = ReturnDomains(
    "b.example", "s.example", "u.example", frozenset({"bounce@c.example"}), frozenset({"fbl@c.example"}), (NEW, OLD)
)


def paths(secret: str = NEW, today: int = TODAY) -> dict[str, str]:
    """One of each kind."""
    return {
        "verp": verp.encode(ID, "ann@d.example", "b.example", secret, today),
        "srs": srs.rewrite("ann@there.example", "s.example", secret, today),
        "unsubscribe": leaving.encode(ID, "ann@d.example", "campaigns", "u.example", secret, today),
    }


@pytest.mark.parametrize("tag", ["prvs=0a1b2c3d4e=", "PRVS=1234abcdef=", "btv1==0a1b2c3d4e5==", "msprvs1=17000abc="])
def test_what_others_put_before_it(tag: str) -> None:
    """Servers on the way tag return paths, to know their own bounces (BATV): ours are still found behind it."""
    for purpose, address in paths().items():
        for spelt in (tag + address, '"' + tag + address.replace("@", '"@')):
            found = OURS.find(spelt, TODAY)
            assert found is not None
            assert (found.purpose, found.address) == (purpose, spelt)
    found = OURS.find(f"{tag}bounce@c.example", TODAY)
    assert found is not None
    assert found.purpose == "bounce"
    assert OURS.find(f"{tag}ann@b.example", TODAY) is None
    with pytest.raises(NotOurs):
        OURS.find(tag + paths("another secret!!")["verp"], TODAY)


@pytest.mark.parametrize("purpose", ["verp", "srs", "unsubscribe"])
@pytest.mark.parametrize("secret", [OLD, NEW])
def test_signed(purpose: str, secret: str) -> None:
    """By the secret in force or an earlier one, whatever became of the case; too old is refused by a sentence."""
    address = paths(secret)[purpose]
    for spelt in (address, address.upper(), address.swapcase()):
        found = OURS.find(spelt, TODAY + 20)
        assert found is not None
        assert found.purpose == purpose
        assert found.forward.lower() == ("ann@there.example" if purpose == "srs" else "")
        if found.returned:
            assert (found.returned.id, found.returned.recipient.lower()) == (ID, "ann@d.example")
    with pytest.raises(NotOurs, match="days old"):
        OURS.find(address, TODAY + 400)
    with pytest.raises(NotOurs, match="not ours, or the secret has changed"):
        replace(OURS, secrets=("0" * 16,)).find(address, TODAY)


@given(st.sampled_from(["verp", "srs", "unsubscribe"]), st.integers(0, 80), st.characters(codec="utf-8"))
def test_one_character_changed(purpose: str, at: int, other: str) -> None:
    """Wherever it is: the address is refused, or it was only the case that changed."""
    address = paths()[purpose]
    local, _, domain = address.partition("@")
    at %= len(local)
    changed = f"{local[:at]}{other}{local[at + 1 :]}"
    try:
        found = OURS.find(f"{changed}@{domain}", TODAY)
    except NotOurs:
        return
    assert found is None or changed.lower() == local.lower()


@pytest.mark.parametrize(
    "trick",
    [
        "victim%elsewhere.example@b.example", "elsewhere.example!victim@b.example",
        '"victim@elsewhere.example"@b.example',
        "victim@b.example.elsewhere.example", "victim@elsewhere.example",
        "SRS0=aaaaaaaa=aa=elsewhere.example=victim@b.example",
        "b@b.example", "bounce@b.example", "", "@b.example", "fbl@b.example", "bounce+x@c.example", "\u212a@b.example",
        "ann@x.b.example", "b\u017f" + "a" * 21 + "-x=y@b.example",
    ],
)  # fmt: skip
def test_tricks(trick: str) -> None:
    """Nothing of what has made relays of servers is an address of ours."""
    assert OURS.find(trick, TODAY) is None


def test_a_forged_path_leads_nowhere() -> None:
    """The form alone is worth nothing."""
    for forged in (
        "SRS0=aaaaaaaa=aa=elsewhere.example=victim@s.example",
        "SRS1=aaaaaaaa=x.example==a=aa=y=z@s.example",
    ):
        with pytest.raises(NotOurs, match="tag is not ours"):
            OURS.find(forged, TODAY)


def test_a_tag_serves_one_purpose() -> None:
    """What proves a bounce unsubscribes nobody, and the other way round."""
    local = paths()["verp"].partition("@")[0]
    both = replace(OURS, unsubscribe="b.example")
    with pytest.raises(NotOurs):
        both.find(f"u{local[1:24]}s{local[24:]}@b.example", TODAY)


def test_named_addresses() -> None:
    """As configured, whatever the case; and the two that every domain must have."""
    assert [OURS.find(one, TODAY).purpose for one in ("Bounce@C.example", "FBL@c.example.")] == ["bounce", "complaint"]  # type: ignore[union-attr]
    assert OURS.find("postmaster@c.example", TODAY) is None
    assert OURS.find("Postmaster@b.example", TODAY).purpose == "postmaster"  # type: ignore[union-attr]
    assert OURS.find("abuse@u.example", TODAY).purpose == "complaint"  # type: ignore[union-attr]
    assert ReturnDomains().find("postmaster@", TODAY) is None


@given(
    st.text('abc019.+-=_"\\@ üß', min_size=1, max_size=70), st.sampled_from(["campaign", "list", "campaigns", "all"])
)
def test_unsubscribe_addresses(local: str, scope: str) -> None:
    """Any recipient, found again by the address or, of a long one, by its hash; never too long for a server."""
    recipient = f"{local}@d.example"
    address = leaving.encode(ID, recipient, scope, "u.example", NEW, TODAY)
    assert len(address.rpartition("@")[0]) <= 64
    found = leaving.decode(address, NEW, TODAY, 365)
    assert (found.returned.id, found.scope) == (ID, scope)
    assert found.returned.is_to(recipient)
