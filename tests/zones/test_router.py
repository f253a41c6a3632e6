"""Routing: which rule wins, and that answers do not depend on how often or in which order one asks."""

import ipaddress
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config import Zone
from zonemta_py.zones import router
from zonemta_py.zones.router import Router

ZONES = [
    Zone(name="bulk", sender_domains=["news.example.com", "*.news.example.com"], origins=["10.0.0.0/8"]),
    Zone(name="trade", sender_domains=["*.example.com"], recipient_domains=["big.example"], origins=["10.1.0.0/16"]),
    Zone(name="usual", default=True, origins=["2001:db8::/32"]),
    Zone(name="local", recipient_domains=["*", "*.big.example", "bücher.example"], origins=["10.1.2.3/32"]),
]


@pytest.fixture
def routes() -> Router:
    return Router(ZONES)


@pytest.mark.parametrize(
    ("sender", "zone", "reason"),
    [
        ("a@news.example.com", "bulk", "sender domain news.example.com"),
        ("a@NEWS.Example.Com", "bulk", "sender domain news.example.com"),
        ("a@x.y.news.example.com", "bulk", "sender domain *.news.example.com"),
        ("a@shop.example.com", "trade", "sender domain *.example.com"),
        ("a@news.example.com.", "bulk", "sender domain news.example.com"),
        ("a@example.com", "local", "recipient domain *"),
        ("a@notexample.com", "local", "recipient domain *"),
        ("", "local", "recipient domain *"),
    ],
)
def test_the_most_exact_sender_rule_wins(routes: Router, sender: str, zone: str, reason: str) -> None:
    """Exact before wildcard, longer wildcard before shorter; a wildcard does not match its own domain."""
    assert routes.route(sender, "b@other.org") == (zone, reason)


@pytest.mark.parametrize(
    ("recipient", "zone"),
    [("b@big.example", "trade"), ("b@x.big.example", "local"), ("b@xn--bcher-kva.example", "local")],
)
def test_recipient_rules_come_after_sender_rules(routes: Router, recipient: str, zone: str) -> None:
    """Where no rule claims the sender, the recipient's domain decides, however it is spelt (U- or A-labels)."""
    assert routes.route("a@nowhere.org", recipient).zone == zone
    assert routes.route("a@news.example.com", recipient).zone == "bulk"


@pytest.mark.parametrize(
    ("origin", "zone", "reason"),
    [
        ("10.9.9.9", "bulk", "origin 10.0.0.0/8"),
        ("10.1.9.9", "trade", "origin 10.1.0.0/16"),
        ("10.1.2.3", "local", "origin 10.1.2.3/32"),
        ("::ffff:10.1.2.3", "local", "origin 10.1.2.3/32"),
        ("2001:db8::5", "usual", "origin 2001:db8::/32"),
        ("192.0.2.1", "usual", "default"),
        ("", "usual", "default"),
        ("not an address", "usual", "default"),
    ],
)
def test_the_longest_network_wins(origin: str, zone: str, reason: str) -> None:
    """Origins count where neither address is claimed; what is no address matches no network."""
    routes = Router([z.model_copy(update={"recipient_domains": []}) for z in ZONES])
    assert routes.route("a@nowhere.org", "b@other.org", origin) == (zone, reason)


@pytest.mark.parametrize(
    ("header", "zone"),
    [("usual", "usual"), (" Usual\r\n", "usual"), ("no-such-zone", "bulk"), ("", "bulk"), (None, "bulk")],
)
def test_the_header_comes_first_if_it_names_a_zone(routes: Router, header: str | None, zone: str) -> None:
    """X-Sending-Zone beats every rule; a zone that does not exist is as good as no header."""
    assert routes.route("a@news.example.com", "b@other.org", "10.1.2.3", header).zone == zone


def test_without_a_default_the_first_zone_is_it() -> None:
    """As the configuration documents it."""
    assert Router([Zone(name="one"), Zone(name="two")]).route("a@b.c", "d@e.f") == ("one", "default")


LABEL = st.sampled_from(["a", "b", "example", "com"])
DOMAIN = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
NETWORK = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(
    lambda pair: str(ipaddress.ip_network(pair, strict=False))
)


@settings(max_examples=100, deadline=None)
@given(st.sets(DOMAIN | DOMAIN.map(lambda d: f"*.{d}"), max_size=8), DOMAIN)
def test_domain_rules_agree_with_their_definition(rules: set[str], domain: str) -> None:
    """The compiled tables find what a plain walk over all rules finds: the longest rule that matches."""
    zones = [Zone(name="none", default=True), *(Zone(name=f"z{n}", sender_domains=[r]) for n, r in enumerate(rules))]
    matching = [r for r in rules if r == domain or (r[0] == "*" and domain.endswith(r[1:]))]
    best = max(matching, key=lambda r: (r == domain, len(r)), default=None)
    assert Router(zones).route(f"a@{domain}", "b@c").reason == (f"sender domain {best}" if best else "default")


@settings(max_examples=100, deadline=None)
@given(st.sets(NETWORK, max_size=8), st.integers(0, 2**32 - 1))
def test_network_rules_agree_with_their_definition(rules: set[str], number: int) -> None:
    """The compiled tables find what ipaddress finds: the smallest network the address is in."""
    zones = [Zone(name="none", default=True), *(Zone(name=f"z{n}", origins=[r]) for n, r in enumerate(rules))]
    address = ipaddress.ip_address(number)
    matching = [network for network in map(ipaddress.ip_network, rules) if address in network]
    best = max(matching, key=lambda network: network.prefixlen, default=None)
    assert Router(zones).route("a@b", "c@d", str(address)).reason == (f"origin {best}" if best else "default")


def test_the_order_of_zones_does_not_matter() -> None:
    """Every order of the same zones routes alike."""
    questions = [("a@x.news.example.com", "b@c", ""), ("a@b", "c@x.big.example", ""), ("a@b", "c@d", "10.1.2.3")]
    answers = {tuple(Router(list(z)).route(*q) for q in questions) for z in itertools.permutations(ZONES)}
    assert len(answers) == 1


def test_answers_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch, routes: Router) -> None:
    """A flood of new domains costs no memory beyond the bound, and changes no answer."""
    monkeypatch.setattr(router, "_CACHE_ENTRIES_MAX", 10)
    first = [routes.route(f"a@d{n}.example.com", "b@c") for n in range(50)]
    assert len(routes._cache) <= 10
    assert [routes.route(f"a@d{n}.example.com", "b@c") for n in range(50)] == first
