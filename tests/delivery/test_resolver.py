"""Where mail goes, asked of a real DNS server on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from zonemta_py.delivery.resolver import NEGATIVE_S, Cache, Found, Resolver, Target
from zonemta_py.mail.classify import NoRoute

RECORDS: dict[tuple[str, str], list[str]] = {
    ("ok.test.", "MX"): ["20 b.test.", "10 a.test."],
    ("a.test.", "A"): ["192.0.2.1", "192.0.2.2"],
    ("a.test.", "AAAA"): ["2001:db8::1"],
    ("b.test.", "A"): ["192.0.2.3"],
    ("plain.test.", "A"): ["192.0.2.4"],
    ("six.test.", "AAAA"): ["2001:db8::6"],
    ("null.test.", "MX"): ["0 ."],
    ("dead.test.", "MX"): ["10 nowhere.test."],
    ("half.test.", "MX"): ["10 nowhere.test.", "20 b.test."],
    ("even.test.", "MX"): ["10 a.test.", "10 b.test."],
    ("empty.test.", "TXT"): ["x"],
    ("xn--bcher-kva.test.", "MX"): ["10 a.test."],
    ("badmx.test.", "MX"): ["10 broken.test."],
}
NAMES = {name for name, _ in RECORDS}


class NameServer(asyncio.DatagramProtocol):
    """Answers from RECORDS with a TTL of 300 s; broken.test fails, silent.test never answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text().lower(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        if name == "silent.test.":
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if name == "broken.test.":
            response.set_rcode(dns.rcode.SERVFAIL)
        elif name not in NAMES:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif (name, kind) in RECORDS:
            response.answer.append(dns.rrset.from_text(name, 300, "IN", kind, *RECORDS[(name, kind)]))
        asyncio.get_running_loop().call_later(0.01, self.transport.sendto, response.to_wire(), addr)


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    yield protocol
    transport.close()


@pytest.fixture
def resolver(server: NameServer) -> Resolver:
    port = server.transport.get_extra_info("sockname")[1]
    return Resolver(["127.0.0.1"], port, random.Random(1), timeout_s=0.5)


async def test_mx_by_preference(resolver: Resolver) -> None:
    """Lowest preference first, each host with all its addresses, IPv4 before IPv6."""
    first, second = await resolver.targets("ok.test", 0)
    assert (first.host, second) == ("a.test", Target("b.test", ("192.0.2.3",)))
    assert (sorted(first.addresses[:2]), first.addresses[2:]) == (["192.0.2.1", "192.0.2.2"], ("2001:db8::1",))


async def test_equal_preferences_share(resolver: Resolver) -> None:
    """Hosts of one preference are tried in random order (RFC 5321 5.1)."""
    firsts = {(await resolver.targets("even.test", 0))[0].host for _ in range(30)}
    assert firsts == {"a.test", "b.test"}


@pytest.mark.parametrize(("domain", "address"), [("plain.test", "192.0.2.4"), ("six.test", "2001:db8::6")])
async def test_without_mx_the_domain_itself(domain: str, address: str, resolver: Resolver) -> None:
    """No MX: the domain's own A or AAAA (RFC 5321 5.1)."""
    [target] = await resolver.targets(domain, 0)
    assert target.addresses == (address,)


@pytest.mark.parametrize(
    ("domain", "enhanced", "temporary"),
    [
        ("gone.test", "5.1.2", False),
        ("null.test", "5.1.10", False),
        ("empty.test", "5.1.2", False),
        ("dead.test", "5.4.4", False),
        ("broken.test", "4.4.3", True),
        ("badmx.test", "4.4.3", True),
        ("silent.test", "4.4.3", True),
        ("[192.0.2]", "5.1.2", False),
        ("a..test", "5.1.2", False),
        ("", "5.1.2", False),
        ("x" * 70 + ".test", "5.1.2", False),
    ],
)
async def test_no_way(domain: str, enhanced: str, temporary: bool, resolver: Resolver) -> None:
    """What can never work is permanent; what DNS fails to say now is temporary."""
    with pytest.raises(NoRoute) as caught:
        await resolver.targets(domain, 0)
    assert caught.value.reply.enhanced == enhanced
    assert caught.value.temporary is temporary
    assert caught.value.stage == "dns"


async def test_one_dead_host_does_not_matter(resolver: Resolver) -> None:
    """A host without addresses is left out while another has some."""
    assert [target.host for target in await resolver.targets("half.test", 0)] == ["b.test"]


@pytest.mark.parametrize(
    ("domain", "address"),
    [("[192.0.2.1]", "192.0.2.1"), ("[IPv6:2001:db8::1]", "2001:db8::1"), ("127.0.0.1", "127.0.0.1")],
)
async def test_address_literals(domain: str, address: str, resolver: Resolver, server: NameServer) -> None:
    """Literals need no DNS (RFC 5321 4.1.3)."""
    assert await resolver.targets(domain, 0) == [Target(address, (address,))]
    assert await resolver.addresses(domain, 0) == (address,)
    assert server.asked == []


async def test_international_domain(resolver: Resolver) -> None:
    """Non-ASCII domains are asked for as A-labels."""
    assert (await resolver.targets("Bücher.test", 0))[0].host == "a.test"


async def test_addresses_of_a_named_host(resolver: Resolver, server: NameServer) -> None:
    """A smart host is looked up by address, never by MX."""
    assert await resolver.addresses("plain.test", 0) == ("192.0.2.4",)
    assert all(kind != "MX" for _, kind in server.asked)
    with pytest.raises(NoRoute):
        await resolver.addresses("gone.test", 0)


async def test_cache_lives_as_long_as_the_ttl(resolver: Resolver, server: NameServer) -> None:
    """Within the TTL nothing is asked again; after it everything."""
    await resolver.targets("ok.test", 0)
    asked = len(server.asked)
    await resolver.targets("OK.test", 299)
    assert len(server.asked) == asked
    await resolver.targets("ok.test", 301)
    assert len(server.asked) == 2 * asked


async def test_negative_answers_are_kept_briefly(resolver: Resolver, server: NameServer) -> None:
    """A domain that does not exist is not asked for again at once."""
    for now in (0.0, NEGATIVE_S - 1, NEGATIVE_S + 1):
        with pytest.raises(NoRoute):
            await resolver.targets("gone.test", now)
    assert server.asked.count(("gone.test.", "MX")) == 2


async def test_never_the_same_question_twice_at_once(resolver: Resolver, server: NameServer) -> None:
    """A hundred recipients of a domain make one question; a cancelled asker takes nobody down."""
    first = asyncio.create_task(resolver.targets("ok.test", 0))
    await asyncio.sleep(0)
    others = [asyncio.create_task(resolver.targets("ok.test", 0)) for _ in range(100)]
    await asyncio.sleep(0)
    first.cancel()
    assert all(len(targets) == 2 for targets in await asyncio.gather(*others))
    assert len(server.asked) == len(set(server.asked)) == 5


async def test_cache_is_bounded() -> None:
    """The least recently used answer goes first."""
    cache: Cache[int] = Cache(2)
    asked: list[str] = []

    async def ask(question: str) -> Found[int]:
        asked.append(question)
        return Found(1, 100)

    for question in ("a", "b", "a", "c", "a", "b"):
        await cache.get(question, 0, ask)
    assert asked == ["a", "b", "c", "b"]
