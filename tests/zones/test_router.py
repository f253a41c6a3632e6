"""Routing: which rule wins, and that answers do not depend on how often or in which order one asks."""

import ipaddress
import itertools
import re

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


HEADED = [
    Zone(name="usual", default=True),
    Zone(name="bulk", headers={"List-Id": "*<news.example.com>*", "Precedence": "bulk"}),
    Zone(name="spring", headers={"list-id": "*<spring.news.example.com>*", "X-Campaign": "spring-*"}),
    Zone(name="any", headers={"Feedback-ID": "*"}, sender_domains=["news.example.com"]),
]


@pytest.mark.parametrize(
    ("headers", "zone", "reason"),
    [
        ({"list-id": "News <news.example.com>"}, "bulk", "header list-id: *<news.example.com>*"),
        ({"list-id": "<SPRING.news.example.com>"}, "spring", "header list-id: *<spring.news.example.com>*"),
        ({"precedence": "Bulk"}, "bulk", "header precedence: bulk"),
        ({"precedence": "bulk mail"}, "any", "sender domain news.example.com"),
        ({"precedence": "bulk", "x-campaign": "spring-1"}, "bulk", "header precedence: bulk"),
        ({"feedback-id": "", "x-campaign": "spring-"}, "spring", "header x-campaign: spring-*"),
        ({"feedback-id": ""}, "any", "header feedback-id: *"),
        ({"subject": "bulk"}, "any", "sender domain news.example.com"),
        ({}, "any", "sender domain news.example.com"),
        (None, "any", "sender domain news.example.com"),
    ],
)
def test_headers_come_before_domains(headers: dict[str, str] | None, zone: str, reason: str) -> None:
    """The most exact pattern wins: without * before others, longer before shorter; case does not matter."""
    routes = Router(HEADED)
    for _ in range(2):  # the second answer comes from memory
        assert routes.route("a@news.example.com", "b@c", headers=headers) == (zone, reason)
    assert routes.route("a@news.example.com", "b@c", "", "usual", headers).zone == "usual"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("ab*."), max_size=6).map("".join), st.lists(st.sampled_from("abc.\n"), max_size=8))
def test_header_patterns_agree_with_their_definition(pattern: str, letters: list[str]) -> None:
    """* stands for any text, also none and also line ends; everything else for itself."""
    value, zones = "".join(letters), [Zone(name="none", default=True), Zone(name="hit", headers={"X": pattern})]
    matches = bool(re.fullmatch(pattern.replace(".", "[.]").replace("*", "[^~]*"), value))
    assert (Router(zones).route("", "b@c", headers={"x": value}).zone == "hit") == matches


def test_explaining_tells_of_every_kind_of_rule() -> None:
    """In the order of the rules: what was looked at, what matched, which one decides, and why the others do not."""
    steps = Router(ZONES).explain("a@news.example.com", "b@bücher.example", "10.1.2.3", "nowhere", {"list-id": "x"})
    assert [(s.kind, s.looked_at, s.zone, s.decides, s.why) for s in steps] == [
        ("header X-Sending-Zone", "nowhere", "", False, "no zone has the name 'nowhere'"),
        ("other headers", "", "", False, "no zone has such a rule"),
        ("sender domain", "news.example.com", "bulk", True, "decides"),
        ("recipient domain", "xn--bcher-kva.example", "local", False, "matches too, but comes later"),
        ("origin network", "10.1.2.3", "local", False, "matches too, but comes later"),
        ("default", "", "usual", False, "matches too, but comes later"),
    ]
    steps = Router(HEADED).explain("", "b@c", "", None, {"precedence": "first-class"})
    assert [s.why for s in steps] == [
        "the message has none",
        "no rule matches",
        "nothing to look at",
        "no zone has such a rule",
        "no zone has such a rule",
        "decides",
    ]
    assert steps[1].looked_at == "precedence: first-class"


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["", "a@news.example.com", "a@b.org"]), st.sampled_from(["b@big.example", "b@c"]),
    st.sampled_from(["", "10.1.2.3", "192.0.2.1"]), st.none() | st.sampled_from(["bulk", "x"]),
    st.none() | st.dictionaries(st.sampled_from(["list-id", "precedence"]), st.sampled_from(["bulk", "x"])),
)  # fmt: skip
def test_the_explanation_is_the_decision(
    sender: str, recipient: str, origin: str, wish: str | None, headers: dict[str, str] | None
) -> None:
    """Exactly one step decides, and it is what `route` says."""
    zones = [*ZONES, Zone(name="headed", headers={"Precedence": "bulk"})]
    routes, question = Router(zones), (sender, recipient, origin, wish, headers)
    (decisive,) = [step for step in routes.explain(*question) if step.decides]
    assert (decisive.zone, decisive.rule) == routes.route(*question)


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


def test_header_patterns_take_no_time() -> None:
    """Whatever a stranger writes into a field: a regular expression of this pattern would take years."""
    zones = [Zone(name="none", default=True), Zone(name="hit", headers={"X": "*a" * 12 + "*b"})]
    assert Router(zones).route("", "b@c", headers={"x": "a" * 200}).zone == "none"
    assert Router(zones).route("", "b@c", headers={"x": "a" * 200 + "b"}).zone == "hit"
