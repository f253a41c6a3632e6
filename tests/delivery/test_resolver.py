"""Answers and their cache, asked of a name server on loopback that answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from zonemta_py.delivery.dns.answer import Answer, Found
from zonemta_py.delivery.dns.query import NEGATIVE_MAX_S
from zonemta_py.delivery.dns.resolver import FAILURE_S, Cache, Resolver, ascii_name
from zonemta_py.mail.classify import NoRoute

RECORDS: dict[tuple[str, str], list[str]] = {
    ("ok.test.", "MX"): ["20 B.test.", "10 a.test."],
    ("ok.test.", "A"): ["192.0.2.1"],
    ("ok.test.", "AAAA"): ["2001:db8::1"],
    ("ok.test.", "TXT"): ['"v=spf1 " "-all"'],
    ("_25._tcp.ok.test.", "TLSA"): ["3 1 0 aa00"],
    ("short.test.", "A"): ["192.0.2.9"],
    ("alias.test.", "CNAME"): ["ok.test."],
}
NAMES = {name for name, _ in RECORDS}
SOA = "ns.test. root.test. 1 1 1 1 {minimum}"


class NameServer(asyncio.DatagramProtocol):
    """Answers from RECORDS with a TTL of 300 s (short.test: 0), validated; broken.test fails, silent.test is silent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.minimum = 60

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
        response.flags |= dns.flags.RA | dns.flags.AD
        if name == "broken.test.":
            response.set_rcode(dns.rcode.SERVFAIL)
        elif (name, kind) in RECORDS:
            self._add(response, name, kind, 0 if name == "short.test." else 300)
        elif (name, "CNAME") in RECORDS:
            self._add(response, name, "CNAME", 100)
            self._add(response, "ok.test.", kind, 300)
        else:
            if name not in NAMES:
                response.set_rcode(dns.rcode.NXDOMAIN)
            soa = SOA.format(minimum=self.minimum)
            response.authority.append(dns.rrset.from_text("test.", 86400, "IN", "SOA", soa))
        asyncio.get_running_loop().call_later(0.01, self.transport.sendto, response.to_wire(), addr)

    def _add(self, response: dns.message.Message, name: str, kind: str, ttl: int) -> None:
        response.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, *RECORDS[(name, kind)]))


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    yield protocol
    transport.close()


def asking(server: NameServer, timeout_s: float = 20) -> Resolver:
    return Resolver(["127.0.0.1"], server.transport.get_extra_info("sockname")[1], timeout_s=timeout_s, dnssec=True)


@pytest.fixture
def resolver(server: NameServer) -> Resolver:
    return asking(server)


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("OK.test.", "MX", {(10, "a.test"), (20, "b.test")}),
        ("ok.test", "A", {"192.0.2.1"}),
        ("ok.test", "AAAA", {"2001:db8::1"}),
        ("ok.test", "TXT", {"v=spf1 -all"}),
        ("_25._tcp.ok.test", "TLSA", {(3, 1, 0, b"\xaa\x00")}),
    ],
)
async def test_records_are_plain_values(name: str, kind: str, values: set[Any], resolver: Resolver) -> None:
    """Each kind as numbers, texts and bytes; names in lower case without the final dot; strings of a TXT joined."""
    answer = await resolver.records(name, kind, 0)
    assert (set(answer.values), answer.exists, answer.secure, answer.ttl_s) == (values, True, True, 300)


async def test_texts(resolver: Resolver) -> None:
    """TXT records as they are; none where the name does not exist."""
    assert await resolver.texts("ok.test") == ["v=spf1 -all"]
    assert await resolver.texts("gone.test") == []


async def test_cname(resolver: Resolver) -> None:
    """A CNAME is followed; the answer says where it led, and lives as long as the shortest of the chain."""
    answer = await resolver.records("alias.test", "A", 0)
    assert (answer.values, answer.name, answer.ttl_s) == (("192.0.2.1",), "ok.test", 100)


@pytest.mark.parametrize(("name", "exists"), [("gone.test", False), ("short.test", True)])
async def test_nothing_there(name: str, exists: bool, resolver: Resolver) -> None:
    """No such name, and no record of the kind, are answers, and not the same one."""
    answer = await resolver.records(name, "MX", 0)
    assert (answer.values, answer.exists, answer.secure) == ((), exists, True)


async def test_ad_counts_only_where_configured(server: NameServer) -> None:
    """Without dns.dnssec nobody vouches for anything, whatever the resolver claims."""
    resolver = Resolver(["127.0.0.1"], server.transport.get_extra_info("sockname")[1])
    assert not (await resolver.records("ok.test", "MX", 0)).secure


@pytest.mark.parametrize(("name", "timeout_s"), [("broken.test", 20), ("silent.test", 0.5)])
async def test_failures_are_temporary_and_kept_briefly(name: str, timeout_s: float, server: NameServer) -> None:
    """SERVFAIL and silence are 4.4.3; the same question is not put again for a moment."""
    resolver = asking(server, timeout_s)
    for now, fresh in ((0.0, True), (FAILURE_S - 1, False), (FAILURE_S + 1, True)):
        before = len(server.asked)
        with pytest.raises(NoRoute) as caught:
            await resolver.records(name, "MX", now)
        assert (caught.value.reply.enhanced, caught.value.temporary) == ("4.4.3", True)
        assert (len(server.asked) > before) is fresh


async def test_cache_lives_as_long_as_the_ttl(resolver: Resolver, server: NameServer) -> None:
    """Within the TTL nothing is asked again, and the answer says how much of it is left."""
    await resolver.records("ok.test", "MX", 0)
    assert (await resolver.records("OK.TEST.", "MX", 299)).ttl_s == 1
    assert len(server.asked) == 1
    await resolver.records("ok.test", "MX", 301)
    assert len(server.asked) == 2


async def test_ttl_of_zero(resolver: Resolver, server: NameServer) -> None:
    """Even such an answer is kept for a second, for all recipients that come together."""
    for now in (0.0, 0.5, 1.5):
        await resolver.records("short.test", "A", now)
    assert len(server.asked) == 2


@pytest.mark.parametrize(("minimum", "kept_s"), [(60, 60.0), (86_400, NEGATIVE_MAX_S)])
async def test_negative_answers_are_bounded(
    minimum: int, kept_s: float, resolver: Resolver, server: NameServer
) -> None:  # fmt: skip
    """That there is nothing is believed for the SOA's minimum (RFC 2308 5), but never longer than our own bound."""
    server.minimum = minimum
    for kind, name in (("MX", "gone.test"), ("MX", "short.test")):
        assert (await resolver.records(name, kind, 0)).ttl_s == kept_s
        await resolver.records(name, kind, kept_s - 1)
        assert server.asked.count((f"{name}.", kind)) == 1
        await resolver.records(name, kind, kept_s + 1)
        assert server.asked.count((f"{name}.", kind)) == 2


async def test_never_the_same_question_twice_at_once(resolver: Resolver, server: NameServer) -> None:
    """A hundred askers make one question; a cancelled asker takes nobody down."""
    first = asyncio.create_task(resolver.records("ok.test", "MX", 0))
    await asyncio.sleep(0)
    others = [asyncio.create_task(resolver.records("ok.test", "MX", 0)) for _ in range(100)]
    await asyncio.sleep(0)
    first.cancel()
    assert all(len(answer.values) == 2 for answer in await asyncio.gather(*others))
    assert len(server.asked) == 1


async def test_cache_is_bounded() -> None:
    """The least recently used answer goes first."""
    cache = Cache(2)
    asked: list[str] = []

    async def ask(name: str, kind: str) -> Found:
        asked.append(name)
        return Answer((1,), True, False, name, 100)

    for question in ("a", "b", "a", "c", "a", "b"):
        await cache.get(question, "A", 0, ask)
    assert asked == ["a", "b", "c", "b"]


async def test_international_names() -> None:
    """A-labels (IDNA 2008): ß stays itself, unlike in IDNA 2003; ASCII that IDNA would refuse goes as it is."""
    assert ascii_name("Bücher.Example.") == "xn--bcher-kva.example"
    assert ascii_name("straße.example") == "xn--strae-oqa.example"
    assert ascii_name("_dmarc.bücher.example") == "_dmarc.xn--bcher-kva.example"
    assert ascii_name("a--b_c.example") == "a--b_c.example"


@pytest.mark.parametrize(
    "name", ["", ".", "a..test", "x" * 64 + ".test", "a b.test", "a\\.test", "☃\u200b.test", "a@b"]
)
async def test_no_names_at_all(name: str, resolver: Resolver, server: NameServer) -> None:
    """What cannot be in DNS is refused for good, and nobody is asked."""
    with pytest.raises(NoRoute) as caught:
        await resolver.records(name, "MX", 0)
    assert (caught.value.reply.enhanced, caught.value.temporary, server.asked) == ("5.1.2", False, [])
