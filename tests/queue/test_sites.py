"""Destinations as the scheduler learns of them: looked up once, shared, followed; the clock is the test's."""

import asyncio
from collections import Counter
from typing import Any

from tests.queue.flow import drain, put_all
from zonemta_py.mail.classify import NoRoute
from zonemta_py.zones.site import Site


class Directory:
    """A destination resolver for tests of the scheduler: answers when it is told to."""

    def __init__(self) -> None:
        self.answers: dict[str, Site | NoRoute] = {}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def site(self, domain: str, now: float) -> Site:
        self.asked.append(domain)
        await self.gate.wait()
        answer = self.answers[domain]
        if isinstance(answer, NoRoute):
            raise answer
        return answer


def site(key: str, provider: str = "", ttl_s: float = 300) -> Site:
    return Site(key, provider, ((f"mx.{key}", ("192.0.2.1",)),), ((10, f"mx.{key}"),), ttl_s, False)


async def test_domains_with_the_same_exchangers_share_a_destination(house: Any) -> None:
    """Their limits count together, and the lease says where to go; one question for each domain."""
    resolver = Directory()
    resolver.answers = {"x.test": site("big", "giant"), "y.test": site("big", "giant"), "z.test": site("small")}
    home = await house(resolver=resolver, throttles=[{"name": "s", "per": ["site"], "messages": "1/min", "burst": 4}])
    for domain in ("x.test", "y.test", "z.test"):
        await put_all(home, 10, domain)
    sent = await drain(home)
    assert Counter(delivery.site for delivery in sent) == {"big": 4, "small": 4}
    assert sent[0].hosts == [[f"mx.{sent[0].site}", ["192.0.2.1"]]]
    assert {delivery.provider for delivery in sent} == {"giant", ""}
    assert sorted(resolver.asked) == ["x.test", "y.test", "z.test"]


async def test_no_flow_queue_slips_past_while_its_domain_is_looked_up(house: Any) -> None:
    """What came before the answer that others had asked for counts at the domain's site and provider, too."""
    resolver = Directory()
    resolver.answers = {"x.test": site("big", "giant")}
    throttles = [{"name": per, "per": [per], "messages": "1/min", "burst": 4} for per in ("site", "provider")]
    zones = [{"name": "default", "default": True, "sources": ["192.0.2.1", "192.0.2.2"]}]
    home = await house(resolver=resolver, throttles=throttles, zones=zones)
    resolver.gate.clear()
    await put_all(home, 5, campaign="one")
    assert not await home.leases()
    for campaign in ("two", "three"):
        await put_all(home, 5, campaign=campaign)
    resolver.gate.set()
    await home.rest()
    assert [(delivery.site, delivery.provider) for delivery in await drain(home)] == [("big", "giant")] * 4


async def test_a_slow_lookup_holds_up_nobody_else(house: Any) -> None:
    """While one domain is being looked up, mail for others goes."""
    resolver = Directory()
    resolver.answers = {"x.test": site("a"), "y.test": site("b")}
    home = await house(resolver=resolver)
    await put_all(home, 1, "y.test")
    assert len(await drain(home)) == 1
    resolver.gate.clear()
    await put_all(home, 5, "x.test")
    await put_all(home, 5, "y.test")
    assert {d.recipients[0].domain for d in await drain(home)} == {"y.test"}
    resolver.gate.set()
    assert {d.recipients[0].domain for d in await drain(home)} == {"x.test"}


async def test_a_domain_that_takes_no_mail_bounces_and_one_that_cannot_be_found_waits(house: Any) -> None:
    """Null MX ends at once with its own code; a DNS failure rests the domain, without an attempt."""
    resolver = Directory()
    resolver.answers = {
        "null.test": NoRoute(556, "5.1.10", "takes no mail"),
        "lame.test": NoRoute(451, "4.4.3", "no answer"),
        "src.test": site("src"),
    }
    home = await house(resolver=resolver)
    await home.put("r@null.test")
    await home.put("r@lame.test")
    (notice,) = await home.leases()
    assert b"5.1.10" in (notice.body or b"")
    assert (await home.sizes())["queued"] >= 1
    resolver.answers["lame.test"] = site("lame")
    await home.move(31)
    (delivery,) = await home.leases()
    assert (delivery.recipients[0].address, delivery.attempts) == ("r@lame.test", [0])
    await home.sound()


async def test_a_domain_that_moves_is_followed(house: Any) -> None:
    """When the answer's time is over it is asked for again, and what waits goes the new way."""
    resolver = Directory()
    resolver.answers = {"x.test": site("old", ttl_s=30)}
    home = await house(resolver=resolver, throttles=[{"name": "all", "messages": "1/s", "burst": 1}])
    await put_all(home, 5)
    assert [delivery.site for delivery in await drain(home)] == ["old"]
    resolver.answers["x.test"] = site("new")
    await home.move(31)
    assert [delivery.site for delivery in await drain(home)] == ["new"]
    await home.crash()
    await home.move(1)
    assert [delivery.site for delivery in await drain(home)] == ["new"]
    await home.sound()
