"""Destinations asked of real servers: NSD with a signed zone, and a validating Unbound in front of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.mail.classify import NoRoute

CERTIFICATE = "ab" * 32

SIGNED = f"""
@ IN MX 20 second
@ IN MX 10 first
first IN A 127.0.0.2
first IN AAAA ::1
second IN A 127.0.0.3
_25._tcp.first IN TLSA 3 1 1 {CERTIFICATE}
even IN MX 10 first
even IN MX 10 second
null IN MX 0 .
plain IN A 127.0.0.4
text IN TXT "v=STSv1; " "id=1;"
aliased IN MX 10 alias
alias IN CNAME first
dead IN MX 10 nowhere
foreign IN MX 10 mx.unsigned.test.
xn--bcher-kva IN MX 10 first
short 2 IN A 127.0.0.5
"""
UNSIGNED = f"""
@ IN MX 10 mx
mx IN A 127.0.0.6
_25._tcp.mx IN TLSA 3 1 1 {CERTIFICATE}
"""
BOGUS = """
@ IN MX 10 mx
mx IN A 127.0.0.7
"""


@pytest.fixture(scope="module")
def servers(dns_servers: Callable[..., Any]) -> Iterator[Any]:
    return dns_servers({"signed.test": SIGNED}, {"unsigned.test": UNSIGNED}, {"bogus.test": BOGUS})


@pytest.fixture
def scout(servers: Any) -> DnsDestinationResolver:
    dns = {"servers": [servers.address], "port": servers.port, "timeout_s": 5, "dnssec": True}
    return DnsDestinationResolver(Config.model_validate({"dns": dns}), random.Random(1))


async def test_mx_order_and_addresses(scout: DnsDestinationResolver) -> None:
    """By preference, with IPv4 before IPv6, vouched for by DNSSEC, for as long as the records live."""
    site = await scout.site("signed.test", 0)
    assert site.hosts == (("first.signed.test", ("127.0.0.2", "::1")), ("second.signed.test", ("127.0.0.3",)))
    assert site.secure
    assert 0 < site.ttl_s <= 300


async def test_equals_take_turns(scout: DnsDestinationResolver) -> None:
    """Either of two equal hosts comes first."""
    firsts = {(await scout.site("even.signed.test", 0)).hosts[0][0] for _ in range(30)}
    assert firsts == {"first.signed.test", "second.signed.test"}


async def test_the_domain_itself(scout: DnsDestinationResolver) -> None:
    """Without MX the domain's own address; that there is no MX is vouched for too."""
    site = await scout.site("plain.signed.test", 0)
    assert (site.hosts, site.secure) == ((("plain.signed.test", ("127.0.0.4",)),), True)


@pytest.mark.parametrize(
    ("domain", "enhanced", "temporary"),
    [
        ("null.signed.test", "5.1.10", False),
        ("gone.signed.test", "5.1.2", False),
        ("gone.unsigned.test", "5.1.2", False),
        ("text.signed.test", "5.1.2", False),
        ("dead.signed.test", "5.4.4", False),
        ("bogus.test", "4.4.3", True),
        ("gone.bogus.test", "4.4.3", True),
    ],
)
async def test_no_way(domain: str, enhanced: str, temporary: bool, scout: DnsDestinationResolver) -> None:
    """Null MX and what does not exist end at once; what is forged, also a forged "does not exist", is tried again."""
    with pytest.raises(NoRoute) as caught:
        await scout.site(domain, 0)
    assert (caught.value.reply.enhanced, caught.value.temporary) == (enhanced, temporary)


async def test_a_cname_at_an_exchanger(scout: DnsDestinationResolver) -> None:
    """RFC 5321 5.1 forbids it, the world does it: it works."""
    site = await scout.site("aliased.signed.test", 0)
    assert site.hosts == (("alias.signed.test", ("127.0.0.2", "::1")),)


async def test_international_domain(scout: DnsDestinationResolver) -> None:
    """Asked for as an A-label."""
    assert (await scout.site("bücher.signed.test", 0)).key == "first.signed.test"


async def test_an_unsigned_zone(scout: DnsDestinationResolver, servers: Any) -> None:
    """Mail goes there, but nobody vouches for it, and its TLSA records are not looked at (RFC 7672 2.2.2)."""
    site = await scout.site("unsigned.test", 0)
    assert (site.key, site.secure) == ("mx.unsigned.test", False)
    assert await scout.tlsa("mx.unsigned.test", 25, 0) == (False, [])
    assert ("_25._tcp.mx.unsigned.test", "TLSA") not in servers.asked()


async def test_tlsa(scout: DnsDestinationResolver) -> None:
    """Vouched for: where there are records, where there are none, and behind a CNAME."""
    record = (3, 1, 1, bytes.fromhex(CERTIFICATE))
    assert await scout.tlsa("first.signed.test", 25, 0) == (True, [record])
    assert await scout.tlsa("second.signed.test", 25, 0) == (True, [])
    assert await scout.tlsa("alias.signed.test", 25, 0) == (True, [record])
    with pytest.raises(NoRoute) as caught:
        await scout.tlsa("mx.bogus.test", 25, 0)
    assert caught.value.temporary


async def test_txt(scout: DnsDestinationResolver) -> None:
    """The strings of one record are one text."""
    assert await scout.txt("text.signed.test", 0) == (True, ["v=STSv1; id=1;"])
    assert await scout.txt("gone.unsigned.test", 0) == (False, [])


async def test_without_dnssec_nothing_is_secure(servers: Any) -> None:
    """The AD bit counts only where the way to the resolver is said to be safe."""
    dns = {"servers": [servers.address], "port": servers.port}
    scout = DnsDestinationResolver(Config.model_validate({"dns": dns}))
    assert not (await scout.site("signed.test", 0)).secure
    assert await scout.tlsa("first.signed.test", 25, 0) == (False, [])


async def test_asked_once(scout: DnsDestinationResolver, servers: Any) -> None:
    """Fifty at once, and fifty more within the TTL, are one question of each kind; when it is over there is another."""
    before = len(servers.asked())
    for now in (0.0, 1.0):
        await asyncio.gather(*(scout.site("short.signed.test", now) for _ in range(50)))
    wanted = [("short.signed.test", kind) for kind in ("A", "AAAA", "MX")]
    assert sorted(servers.asked()[before:]) == wanted
    await scout.site("short.signed.test", 3.0)  # 2 s is the address's TTL, what is not there lives longer
    assert servers.asked()[before + 3 :] == [("short.signed.test", "A")]


async def test_negative_answers_live_as_the_zone_says(scout: DnsDestinationResolver, servers: Any) -> None:
    """60 s is the SOA's minimum (RFC 2308 5)."""
    for now, count in ((0.0, 1), (50.0, 1), (61.0, 2)):
        with pytest.raises(NoRoute):
            await scout.site("once.unsigned.test", now)
        assert servers.asked().count(("once.unsigned.test", "MX")) == count
