"""Links that say by themselves what they are for: nothing is lost in them, and nobody else can make one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.addresses import link
from zonemta_py.mail.addresses.link import PURPOSES, WIDENING, Link, LinkRefused, age, decode, encode
from zonemta_py.web.links import forms

SECRET = "0123456789abcdef"
WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=60)
LINKS = st.builds(
    Link, st.sampled_from(PURPOSES), st.integers(0, 2**64 - 1).map("{:016x}".format), WORDS.filter(bool), WORDS, WORDS,
    st.sampled_from(WIDENING), st.integers(0, 2**16 - 1), WORDS, WORDS,
)  # fmt: skip


@given(LINKS)
def test_what_is_in_it_comes_back(link: Link) -> None:
    """Under each secret that is known; its characters need no escape in a URL."""
    token = encode(link, [SECRET, "not used to sign"])
    assert decode(token, ["another one", SECRET]) == link
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    with pytest.raises(LinkRefused):
        decode(token, ["another one"])


@given(LINKS, st.data())
def test_no_other_text_is_it(link: Link, data: st.DataObject) -> None:
    """Any bit that is another one, any character more or less, and another spelling of the same bytes."""
    token = encode(link, [SECRET])
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    last = token[:-1] + data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
    for wrong in {changed, token[:-1], token + "A", token + "=", " " + token, token.swapcase(), last} - {token}:
        with pytest.raises(LinkRefused):
            decode(wrong, [SECRET])


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    with pytest.raises(LinkRefused):
        decode(text, [SECRET])


@pytest.mark.parametrize(
    ("token", "link"),
    [
        (
            "EFQCTiABmaq7zN3u_2FubkBleGFtcGxlLmNvbQBzcHJpbmcAYWNtZQWCf_0m_tSDc6rFCU_7gPQ",
            Link("unsubscribe", "0199aabbccddeeff", "ann@example.com", "spring", "acme", "all", 20_000),
        ),
        (
            "E1QATiABmaq7zN3u_2FubkBleGFtcGxlLmNvbQAAYWNtZQBodHRwczovL3guZXhhbXBsZS_Ogpsc8RfKYa8W6nc4hHbl",
            Link("click", "0199aabbccddeeff", "ann@example.com", "", "acme", "campaign", 20_000, "https://x.example/"),
        ),
    ],
)
def test_links_that_are_out(token: str, link: Link) -> None:
    """Those of versions that knew no lists are read, and made, as they were."""
    assert decode(token, [SECRET]) == link
    assert encode(link, [SECRET]) == token


@pytest.mark.parametrize(
    ("changed", "scope"),
    [
        ({}, "list:acme/weekly.example"),
        ({"tenant": ""}, "list:weekly.example"),
        ({"list_name": ""}, "campaigns:acme"),
        ({"list_name": "", "tenant": ""}, "campaigns"),
    ],
)
def test_what_leaving_a_list_stops(changed: dict[str, str], scope: str) -> None:
    """Where the link knows of none, as much as leaving all campaigns."""
    link = Link("unsubscribe", "0" * 16, "a@b.example", "spring", "acme", "list", list_name="weekly.example")
    assert link._replace(**changed).entry_scope == scope


def test_age() -> None:
    """A stamp made by a clock that is ahead is of today; it comes again after 179 years."""
    link = Link("unsubscribe", "0" * 16, "a@b.example", day=20_000)
    assert [age(link, today) for today in (20_000, 20_001, 19_999, 20_400)] == [0, 1, 0, 400]


@given(st.text(max_size=80), st.binary(max_size=300))
def test_no_body_breaks_the_form(kind: str, body: bytes) -> None:
    """Whatever is sent is fields, or none."""
    for one in (kind, "multipart/form-data; boundary=x", f"multipart/{kind}"):
        assert all(isinstance(value, str) for value in forms.fields(one, body).values())


@pytest.mark.parametrize(("purpose", "scope"), [(4, 0), (15, 0), (0, 200), (3, 255)])
def test_a_link_of_a_newer_version_is_refused(purpose: int, scope: int) -> None:
    """Signed by us, and about what is not known here: a page that says so, and no fault."""
    said = link._HEAD.pack(link._VERSION << 4 | purpose, link._number(SECRET), scope, 1, 1) + b"a@b.test"
    token = base64.urlsafe_b64encode(said + link._tag(SECRET, said)).rstrip(b"=").decode()
    with pytest.raises(LinkRefused, match="newer"):
        decode(token, [SECRET])
