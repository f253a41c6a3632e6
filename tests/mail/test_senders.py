"""Whom one may send as, and who the authors of a message are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.addresses.authors import author_domain, authors
from zonemta_py.mail.addresses.senders import ANYBODY, UNBOUND, Senders

ANN = Senders(["ann@bank.test", "news.test", "*.shop.test", "bücher.test"])


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("ann@bank.test", True), ("Ann@BANK.test", True), ("ceo@bank.test", False), ("x@news.test", True),
        ("x@a.news.test", False), ("x@shop.test", False), ("x@a.shop.test", True), ("x@a.b.SHOP.test", True),
        ("x@evilshop.test", False), ("", True), ("x@xn--bcher-kva.test", True), ("ann@bank.test@evil.test", False),
        ("bank.test", False), ("ann", False),
    ],
)  # fmt: skip
def test_patterns(address: str, allowed: bool) -> None:
    """Addresses, domains, subdomains; names are compared without regard to case, as A-labels."""
    assert ANN.may(address) is allowed
    assert ANYBODY.may(address)
    assert Senders(["*"]).may(address)
    assert not address or not Senders([]).may(address)


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("ann@bank.test", None), ('"Ann, A." <ann@bank.test> (me)', None), ("x@news.test, ann@bank.test", None),
        ("ceo@bank.test", "ceo@bank.test"), ("Ann <ann@bank.test>, ceo@bank.test", "ceo@bank.test"),
        ("ceo@bank.test <ann@bank.test>", "ceo@bank.test"), ("<ann@bank.test> ceo@bank.test", "ceo@bank.test"),
        ("<ann@bank.test><ceo@bank.test>", "ceo@bank.test"), ('"ceo@bank.test" <ann@bank.test>', None),
        ("(ceo@bank.test) ann@bank.test", None), ("ceo @ bank.test", "ceo@bank.test"),
        ("staff: ann@bank.test, ceo@bank.test;", "ceo@bank.test"), ("Ann", "Ann"), ("", ""),
        ("=?utf-8?q?ceo=40bank.test?=", "=?utf-8?q?ceo=40bank.test?="), ("ann@bank.test" + " " * 9_000, ""),
        ("ceo@bank.test\r\n <ann@bank.test>", "ceo@bank.test"),
    ],
)  # fmt: skip
def test_authors_that_are_not_allowed(value: str, refused: str | None) -> None:
    """All whom a reader might take for the author are looked at; what names nobody is nobody's."""
    found = ANN.refused([value])
    assert found == refused or (refused == "" and found is not None)
    assert ANYBODY.refused([value]) is UNBOUND.refused([value]) is None


def test_every_from_field_counts() -> None:
    """Readers differ in which of two they show. Without any there is nobody to be taken for."""
    assert ANN.refused(["ann@bank.test", "ceo@bank.test"]) == "ceo@bank.test"
    assert ANN.refused([]) is None


@given(st.text('ab@.<>()",:; \\\t', max_size=30))
def test_whom_signatures_go_by_is_among_the_authors(value: str) -> None:
    """Nobody gets a signature of a domain that was not asked for."""
    domain = author_domain(value)
    assert not domain or domain in {address.rpartition("@")[2] for address in authors(value)}
