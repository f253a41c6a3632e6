"""From a domain to its site: which hosts, in which order, and which reply where there is no way."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config, Listener, ServerSection
from zonemta_py.delivery.dns.answer import Answer
from zonemta_py.delivery.dns.destination import HOSTS_MAX, DnsDestinationResolver
from zonemta_py.delivery.dns.resolver import FAILURE_S, ascii_name
from zonemta_py.delivery.dns.system import HostsFile
from zonemta_py.mail.classify import NoRoute

Book = dict[tuple[str, str], Any]

BOOK: Book = {
    ("ok.test", "MX"): [(20, "b.test"), (10, "a.test")],
    ("twin.test", "MX"): [(10, "a.test"), (20, "b.test")],
    ("a.test", "A"): ["192.0.2.1", "192.0.2.2"],
    ("a.test", "AAAA"): ["2001:db8::1"],
    ("b.test", "A"): ["192.0.2.3"],
    ("plain.test", "A"): ["192.0.2.4"],
    ("six.test", "AAAA"): ["2001:db8::6"],
    ("null.test", "MX"): [(0, ".")],
    ("mixed.test", "MX"): [(0, "."), (10, "a.test")],
    ("dead.test", "MX"): [(10, "nowhere.test")],
    ("half.test", "MX"): [(10, "nowhere.test"), (20, "b.test")],
    ("later.test", "MX"): [(10, "broken.test"), (20, "b.test")],
    ("even.test", "MX"): [(10, "a.test"), (10, "b.test")],
    ("empty.test", "TXT"): ["x"],
    ("xn--bcher-kva.test", "MX"): [(10, "a.test")],
    ("badmx.test", "MX"): [(10, "broken.test"), (20, "nowhere.test")],
    ("oddmx.test", "MX"): [(10, "bad\\032name.test"), (20, "b.test")],
    ("many.test", "MX"): [(number, f"h{number}.test") for number in range(100)],
    ("google.test", "MX"): [(1, "aspmx.l.google.com")],
    ("aspmx.l.google.com", "A"): ["192.0.2.5"],
    ("loop.test", "MX"): [(10, "a.test"), (20, "us.test"), (20, "c.test"), (30, "b.test")],
    ("c.test", "A"): ["192.0.2.7"],
    ("us.test", "A"): ["192.0.2.99"],
    ("selfish.test", "MX"): [(10, "us.test"), (20, "b.test")],
    ("disguised.test", "MX"): [(10, "other.test"), (20, "b.test")],
    ("other.test", "A"): ["127.0.0.25"],
    ("here.test", "A"): ["127.0.0.25"],
    ("_25._tcp.a.test", "TLSA"): [(3, 1, 1, b"x" * 32)],
    ("_25._tcp.plain.test", "TLSA"): [(3, 1, 1, b"x" * 32)],
    ("broken.test", "A"): None,
    ("wobbly.test", "A"): ["192.0.2.8"],
    ("wobbly.test", "AAAA"): None,
} | {(f"h{number}.test", "A"): [f"192.0.2.{number}"] for number in range(100)}

INSECURE = {"plain.test", "_25._tcp.plain.test"}


class Names:
    """A resolver that knows a book: None is a failure, and what is not in it does not exist."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def records(self, name: str, kind: str, now: float) -> Answer:
        name = ascii_name(name)
        self.asked.append((name, kind))
        values = BOOK.get((name, kind), [])
        if values is None or (name == "broken.test"):
            raise NoRoute(451, "4.4.3", "name server failure")
        exists = any(known == name for known, _ in BOOK)
        return Answer(tuple(values), exists, name not in INSECURE, name, 100.0 if kind == "MX" else 50.0)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def resolver(names: Names) -> DnsDestinationResolver:
    listeners = [Listener(name="in", address="127.0.0.25", port=25)]
    config = Config(server=ServerSection(hostname="us.test"), listeners=listeners)
    return DnsDestinationResolver(config, random.Random(1), names)  # type: ignore[arg-type]


async def test_mx_by_preference(resolver: DnsDestinationResolver) -> None:
    """Lowest preference first, each host with all its addresses, IPv4 before IPv6; the shortest TTL counts."""
    site = await resolver.site("ok.test", 0)
    (first, addresses), second = site.hosts
    assert (first, second) == ("a.test", ("b.test", ("192.0.2.3",)))
    assert (sorted(addresses[:2]), addresses[2:]) == (["192.0.2.1", "192.0.2.2"], ("2001:db8::1",))
    assert (site.ttl_s, site.secure, site.mx) == (50.0, True, ((10, "a.test"), (20, "b.test")))


async def test_equal_sets_are_one_site(resolver: DnsDestinationResolver) -> None:
    """Domains with the same exchangers share a key, whatever the order of the records; others do not."""
    keys = [(await resolver.site(domain, 0)).key for domain in ("ok.test", "twin.test", "even.test")]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0].startswith("a.test+")


async def test_equal_preferences_share(resolver: DnsDestinationResolver) -> None:
    """Hosts of one preference are tried in random order (RFC 5321 5.1)."""
    assert {(await resolver.site("even.test", 0)).hosts[0][0] for _ in range(30)} == {"a.test", "b.test"}


@pytest.mark.parametrize(("domain", "address"), [("plain.test", "192.0.2.4"), ("six.test", "2001:db8::6")])
async def test_without_mx_the_domain_itself(domain: str, address: str, resolver: DnsDestinationResolver) -> None:
    """No MX: the domain's own A or AAAA (RFC 5321 5.1)."""
    site = await resolver.site(domain, 0)
    assert (site.key, site.hosts, site.mx) == (domain, ((domain, (address,)),), ())


@pytest.mark.parametrize(
    ("domain", "enhanced", "temporary"),
    [
        ("gone.test", "5.1.2", False),
        ("null.test", "5.1.10", False),
        ("empty.test", "5.1.2", False),
        ("dead.test", "5.4.4", False),
        ("broken.test", "4.4.3", True),
        ("badmx.test", "4.4.3", True),
        ("selfish.test", "5.4.6", False),
        ("disguised.test", "5.4.6", False),
        ("here.test", "5.4.6", False),
        ("us.test", "5.4.6", False),
        ("[127.0.0.25]", "5.4.6", False),
        ("[192.0.2]", "5.1.2", False),
        ("a..test", "5.1.2", False),
        ("", "5.1.2", False),
        ("x" * 70 + ".test", "5.1.2", False),
    ],
)
async def test_no_way(domain: str, enhanced: str, temporary: bool, resolver: DnsDestinationResolver) -> None:
    """What can never work is permanent; what DNS fails to say now is temporary."""
    with pytest.raises(NoRoute) as caught:
        await resolver.site(domain, 0)
    assert (caught.value.reply.enhanced, caught.value.temporary, caught.value.stage) == (enhanced, temporary, "dns")


@pytest.mark.parametrize(("domain", "hosts"), [("half.test", ["b.test"]), ("mixed.test", ["a.test"]),
                                               ("oddmx.test", ["b.test"])])  # fmt: skip
async def test_hosts_that_cannot_be(domain: str, hosts: list[str], resolver: DnsDestinationResolver) -> None:
    """Hosts without addresses, the root among others, and names that are none are left out while one is good."""
    assert [host for host, _ in (await resolver.site(domain, 0)).hosts] == hosts


async def test_a_host_that_dns_fails_for_stays_known(resolver: DnsDestinationResolver) -> None:
    """It keeps its place without addresses, and the site is looked up again soon: it may be the better one."""
    site = await resolver.site("later.test", 0)
    assert (site.hosts, site.ttl_s) == ((("broken.test", ()), ("b.test", ("192.0.2.3",))), FAILURE_S)


async def test_half_an_answer_is_good_enough(resolver: DnsDestinationResolver) -> None:
    """IPv4 addresses count even where the question for IPv6 fails."""
    assert (await resolver.site("wobbly.test", 0)).hosts == (("wobbly.test", ("192.0.2.8",)),)


async def test_we_and_everything_behind_us_is_cut_off(resolver: DnsDestinationResolver) -> None:
    """From our own preference on nobody is asked, our equals neither (RFC 5321 5.1); the key is the whole set's."""
    site = await resolver.site("loop.test", 0)
    assert ([host for host, _ in site.hosts], site.mx) == (["a.test"], ((10, "a.test"),))
    assert site.key != (await resolver.site("xn--bcher-kva.test", 0)).key


async def test_hosts_are_bounded(resolver: DnsDestinationResolver, names: Names) -> None:
    """A hundred exchangers make no two hundred questions."""
    site = await resolver.site("many.test", 0)
    assert [host for host, _ in site.hosts] == [f"h{number}.test" for number in range(HOSTS_MAX)]
    assert len(names.asked) == 1 + 2 * HOSTS_MAX


@pytest.mark.parametrize(
    ("domain", "address"),
    [("[192.0.2.1]", "192.0.2.1"), ("[IPv6:2001:DB8::1]", "2001:db8::1"), ("127.0.0.1", "127.0.0.1")],
)
async def test_address_literals(domain: str, address: str, resolver: DnsDestinationResolver, names: Names) -> None:
    """Literals need no DNS (RFC 5321 4.1.3), and are their own site."""
    site = await resolver.site(domain, 0)
    assert (site.key, site.hosts) == (f"[{address}]", ((address, (address,)),))
    assert await resolver.addresses(domain, 0) == (address,)
    assert names.asked == []


async def test_international_domain(resolver: DnsDestinationResolver) -> None:
    """Non-ASCII domains are asked for as A-labels."""
    assert (await resolver.site("Bücher.test", 0)).key == "a.test"


async def test_provider(resolver: DnsDestinationResolver) -> None:
    """The shipped groups know whose the exchangers are."""
    assert (await resolver.site("google.test", 0)).provider == "google"
    assert (await resolver.site("ok.test", 0)).provider == ""


async def test_targets(resolver: DnsDestinationResolver) -> None:
    """The same hosts, for who connects without a queue in front."""
    assert [(target.host, len(target.addresses)) for target in await resolver.targets("ok.test", 0)] == [
        ("a.test", 3), ("b.test", 1),
    ]  # fmt: skip


async def test_addresses_of_a_named_host(resolver: DnsDestinationResolver, names: Names) -> None:
    """A smart host is looked up by address, never by MX, and a mistake in its name bounces nothing."""
    assert await resolver.addresses("plain.test", 0) == ("192.0.2.4",)
    assert {kind for _, kind in names.asked} == {"A", "AAAA"}
    for host in ("gone.test", "broken.test", "a..b"):
        with pytest.raises(NoRoute) as caught:
            await resolver.addresses(host, 0)
        assert caught.value.temporary


async def test_txt(resolver: DnsDestinationResolver) -> None:
    """Texts, and whether they are vouched for."""
    assert await resolver.txt("empty.test", 0) == (True, ["x"])
    assert await resolver.txt("gone.test", 0) == (True, [])


async def test_tlsa_only_of_secure_hosts(resolver: DnsDestinationResolver, names: Names) -> None:
    """Hosts whose addresses are not secure are not even asked about (RFC 7672 2.2.2)."""
    assert await resolver.tlsa("a.test", 25, 0) == (True, [(3, 1, 1, b"x" * 32)])
    assert await resolver.tlsa("plain.test", 25, 0) == (False, [])
    assert ("_25._tcp.plain.test", "TLSA") not in names.asked
    with pytest.raises(NoRoute):
        await resolver.tlsa("broken.test", 25, 0)


@pytest.fixture
def written(tmp_path: Any) -> Callable[[str], Config]:
    def write(text: str) -> Config:
        (tmp_path / "providers.toml").write_text(text)
        return Config.model_validate({"dns": {"providers": tmp_path / "providers.toml"}})

    return write


async def test_own_groups(written: Callable[[str], Config], names: Names) -> None:
    """dns.providers names a file that takes the place of the shipped one."""
    resolver = DnsDestinationResolver(written('[[providers]]\nname = "mine"\nmx = ["a.test"]'), random.Random(1), names)  # type: ignore[arg-type]
    assert (await resolver.site("ok.test", 0)).provider == "mine"


async def test_named_hosts_are_found_as_by_every_program(names: Names, tmp_path: Path) -> None:
    """The hosts file first, localhost without one, then DNS; MX hosts and other people's names by DNS alone."""
    file = tmp_path / "hosts"
    file.write_text(
        "# ours\n10.0.0.7\tRelay.intranet relay # the\nnonsense x\n10.0.0.8 relay\n::1 six\n10.0.0.9 a.test\n"
    )
    config = Config.model_validate({"dns": {"servers": ["192.0.2.53"]}})
    resolver = DnsDestinationResolver(config, random.Random(1), names, HostsFile(file))  # type: ignore[arg-type]
    assert set(await resolver.named("RELAY", 0)) == {"10.0.0.7", "10.0.0.8"}
    assert await resolver.named("relay.intranet", 0) == ("10.0.0.7",)
    assert await resolver.named("six", 0) == ("::1",)
    assert set(await resolver.named("localhost", 0)) == {"127.0.0.1", "::1"}
    assert not names.asked
    assert await resolver.named("plain.test", 0) == ("192.0.2.4",)
    assert await resolver.named("a.test", 0) == ("10.0.0.9",)
    assert (await resolver.site("ok.test", 0)).hosts[0][1] != ("10.0.0.9",)
    file.write_text("10.0.0.10 relay\n")
    os.utime(file, ns=(1, 1))
    assert await resolver.named("relay", 0) == ("10.0.0.10",)
    with pytest.raises(NoRoute, match=r"host relay\.intranet has no address"):
        await resolver.named("relay.intranet", 0)
    file.unlink()
    with pytest.raises(NoRoute):
        await resolver.named("relay", 0)
