"""Limits, shares, sources, hours and standing, as the scheduler grants by them; the clock is the test's."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, Delivery
from zonemta_py.zones.site import Site

SLOW = Reply(421, "4.7.0", "Too many messages from your IP, slow down")


async def drain(home: Any) -> list[Delivery]:
    """Delivers whatever may go now."""
    done: list[Delivery] = []
    while batch := await home.leases():
        for delivery in batch:
            await home.settle(delivery, opened=delivery.may_connect)
        done += batch
    return done


async def put_all(home: Any, count: int, domain: str = "x.test", **more: Any) -> None:
    await asyncio.gather(*(home.put(f"r{number}@{domain}", **more) for number in range(count)))


# ---------------------------------------------------------------- limits


async def test_a_rate_is_kept_to_the_message(house: Any) -> None:
    """Ten a second with a burst of five: never more than 10 t + 5, and no less than that either."""
    home = await house(throttles=[{"name": "all", "messages": "10/s", "burst": 5}])
    await put_all(home, 100)
    sent = len(await drain(home))
    assert sent == 5
    for tenth in range(1, 41):
        await home.move(0.1)
        sent += len(await drain(home))
        assert 5 + tenth - 1 <= sent <= 5 + tenth


@pytest.mark.parametrize("per", ["zone", "site", "tenant", "campaign"])
async def test_what_counts_by_itself_has_a_limit_of_its_own(house: Any, per: str) -> None:
    """Two values of the dimension: each gets its own burst."""
    zones = [{"name": "a", "default": True}, {"name": "b", "sender_domains": ["b.test"]}]
    home = await house(zones=zones, throttles=[{"name": "t", "per": [per], "messages": "1/min", "burst": 3}])
    first: dict[str, Any] = {"tenant": "one", "campaign": "c1", "sender": "s@a.test"}
    second: dict[str, Any] = {"tenant": "two", "campaign": "c2", "sender": "s@b.test"}
    await put_all(home, 10, "x.test", **first)
    await put_all(home, 10, "y.test", **second)
    sent = Counter(delivery.recipients[0].domain for delivery in await drain(home))
    assert sent == {"x.test": 3, "y.test": 3}


async def test_connections_are_counted_over_destinations(house: Any) -> None:
    """A bound on connections by tenant holds for all its destinations together; what ends makes room."""
    home = await house(throttles=[{"name": "t", "per": ["tenant"], "connections": 3}])
    for domain in ("x.test", "y.test", "z.test"):
        await put_all(home, 4, domain, tenant="one")
    out = await home.leases()
    assert len(out) == 3
    await home.settle(out[0])
    assert len(await home.leases()) == 1


@pytest.mark.parametrize("per", [[], ["zone"]])
async def test_connections_of_all_together_are_had_again_when_they_end(house: Any, per: list[str]) -> None:
    """A bound on the connections of a whole zone, or of everything, holds for what is out and no longer."""
    home = await house(throttles=[{"name": "t", "per": per, "connections": 2}])
    await put_all(home, 6)
    for _ in range(3):
        out = await home.leases()
        assert len(out) == 2
        for delivery in out:
            await home.settle(delivery)


async def test_recipients_and_bytes_have_limits(house: Any) -> None:
    """A transaction is cut to the recipients that may go; bytes are the message's."""
    home = await house(throttles=[{"name": "r", "recipients": "1/s", "burst": 3}])
    await home.put(*(f"r{number}@x.test" for number in range(10)))
    assert [len(delivery.recipients) for delivery in await drain(home)] == [3]
    other = await house(throttles=[{"name": "b", "bytes": "50B/s", "burst": 50}])
    await put_all(other, 10, body=b"Subject: x\r\n\r\n" + b"y" * 11)  # 25 bytes each
    assert len(await drain(other)) == 2


async def test_new_connections_are_limited_and_open_ones_are_not(house: Any) -> None:
    """One new connection a minute: while it is open it carries all; a sender without one gives the lease back."""
    home = await house(throttles=[{"name": "n", "new_connections": "1/min"}])
    await put_all(home, 5)
    (first,) = await home.leases()
    assert first.may_connect
    await home.settle(first, opened=True)
    (second,) = await home.leases()
    assert not second.may_connect
    await home.settle(second, 5, stage="limit")  # RELEASED: it had no connection
    assert not await home.leases(), "a new one is not allowed yet"
    await home.move(61)
    assert [delivery.may_connect for delivery in await home.leases()] == [True]


async def test_a_restart_grants_no_second_helping(house: Any) -> None:
    """What was leased before a crash counts after it, whether a position record was written since or not."""
    home = await house(throttles=[{"name": "all", "messages": "60/hour", "burst": 10}])
    await put_all(home, 30)
    assert len(await drain(home)) == 10
    await home.crash()
    assert not await home.leases()
    await home.queue.maintenance.position()
    await home.crash()
    assert not await home.leases()
    await home.move(120)
    assert len(await drain(home)) == 2


async def test_waiting_for_a_limit_is_explained(house: Any) -> None:
    """Which limit, and until when."""
    home = await house(throttles=[{"name": "slow", "per": ["site"], "messages": "1/min"}])
    await put_all(home, 3)
    assert len(await drain(home)) == 1
    answer = await home.queue.ask("explain", what="x.test")
    (reason,) = answer["rows"][0]["reasons"]
    assert reason["kind"] == "limit"
    assert "slow" in reason["cause"]
    assert 55_000 < reason["until_ms"] - home.clock.ms() <= 60_000


# ---------------------------------------------------------------- shares


async def test_campaigns_share_by_weight(house: Any) -> None:
    """Three campaigns of the same zone, weights 1, 2 and 4: so they are served while all have mail."""
    home = await house(
        shares={"campaigns": {"b": 2, "c": 4}}, throttles=[{"name": "all", "messages": "70/s", "burst": 1}]
    )
    for campaign in "abc":
        await put_all(home, 250, f"{campaign}.test", campaign=campaign)
    sent: Counter[str] = Counter()
    for _ in range(300):
        await home.move(1 / 70)
        sent.update(delivery.campaign for delivery in await drain(home))
    total = sum(sent.values())
    assert total == pytest.approx(300, abs=2)
    for campaign, weight in (("a", 1), ("b", 2), ("c", 4)):
        assert sent[campaign] / total == pytest.approx(weight / 7, abs=0.02)


async def test_a_receipt_passes_a_newsletter(house: Any) -> None:
    """High priority goes first among what waits, though the newsletter came long before and goes on."""
    home = await house(
        zones=[{"name": "default", "connections": 5, "connections_per_destination": 5}], queue={"window": 100}
    )
    await put_all(home, 1000, campaign="news")
    out = await home.leases()
    assert len(out) == 4
    await put_all(home, 20, priority=6, sender="shop@src.test")
    order: list[str] = []
    for _ in range(60):
        await home.settle(out.pop(0))
        out += await home.leases()
        order.append(out[-1].campaign)
    assert order[:20].count("news") <= 2
    assert order[25:].count("news") == 35


# ---------------------------------------------------------------- sources

POOL = {
    "zones": [{"name": "default", "pool": "p"}],
    "pools": [{"name": "p", "sources": [{"address": "127.0.0.2"}, {"address": "127.0.0.3", "weight": 3}]}],
}


async def test_a_message_keeps_its_source_and_sources_share_by_weight(house: Any) -> None:
    """All attempts of a message come from one address; over many messages each has its share."""
    home = await house(**POOL)
    await put_all(home, 200)
    seen: dict[str, str] = {}
    while batch := await home.leases():
        for delivery in batch:
            seen[delivery.id] = delivery.source
            await home.settle(delivery, DEFERRED)
    assert 120 < Counter(seen.values())["127.0.0.3"] < 180
    await home.crash()
    await home.move(3600)
    again = await home.leases()
    assert again
    assert all(seen[delivery.id] == delivery.source for delivery in again)


async def test_a_blocked_source_rests_at_that_site_and_another_takes_over(house: Any) -> None:
    """By rule; elsewhere it goes on, and after its rest here too. The rest survives a crash."""
    home = await house(**POOL)
    policy = home.queue.core.schedule.policy
    await put_all(home, 40, "x.test")
    await put_all(home, 40, "y.test")
    policy.stop("rest", "127.0.0.3 x.test", 600, "on a list")
    await home.rest()
    await home.crash()
    sent = Counter((d.recipients[0].domain, d.source) for d in await drain(home))
    assert sent["x.test", "127.0.0.2"] == 40
    assert sent["y.test", "127.0.0.3"] > 10
    await home.move(601)
    await put_all(home, 40, "x.test")
    assert Counter(d.source for d in await drain(home))["127.0.0.3"] > 10


async def test_a_source_that_rests_while_mail_waits_for_it(house: Any) -> None:
    """What is in the window, and what is parked, moves to the other one."""
    home = await house(**POOL, queue={"window": 100}, throttles=[{"name": "s", "per": ["site"], "messages": "1/min"}])
    await put_all(home, 400)
    assert len(await drain(home)) == 1
    home.queue.core.schedule.policy.stop("rest", "127.0.0.3 x.test", 100_000, "on a list")
    sources = set()
    for _ in range(30):
        await home.move(60)
        sources.update(delivery.source for delivery in await drain(home))
    assert sources == {"127.0.0.2"}
    await home.sound()


async def test_a_new_source_sends_no_more_than_its_cap(house: Any) -> None:
    """The rest of the day's mail takes the warm one; the next day, if this one was good, the cap is the next one."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.2"}, {"address": "127.0.0.3", "weight": 50, "warmup": "w"}]}
    home = await house(
        zones=[{"name": "default", "pool": "p"}], pools=[pool], warmups=[{"name": "w", "caps": [30, 60], "least": 5}]
    )
    await put_all(home, 100)
    assert Counter(d.source for d in await drain(home)) == {"127.0.0.3": 30, "127.0.0.2": 70}
    await home.crash()
    await put_all(home, 10)
    assert Counter(d.source for d in await drain(home)) == {"127.0.0.2": 10}
    await home.move(86_400)
    await put_all(home, 100)
    assert Counter(d.source for d in await drain(home))["127.0.0.3"] == 60
    (row,) = await home.queue.ask("warmup")
    assert (row["source"], row["step"], row["sent"]) == ("127.0.0.3", 1, 60)


async def test_domains_kept_from_a_source_never_see_it(house: Any) -> None:
    """disabled_domains; where no address is left the mail waits, and the reason is said."""
    sources = [{"address": "127.0.0.2", "disabled_domains": ["x.test"]}]
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[{"name": "p", "sources": sources}])
    await put_all(home, 3, "x.test")
    await put_all(home, 3, "y.test")
    assert {d.recipients[0].domain for d in await drain(home)} == {"y.test"}
    answer = await home.queue.ask("explain", what="x.test")
    assert "disabled_domains" in answer["rows"][0]["reasons"][0]["cause"]


# ---------------------------------------------------------------- hours


async def test_mail_waits_for_its_hours_and_that_is_no_attempt(house: Any) -> None:
    """A zone's window, UTC; what comes outside of it goes when it opens."""
    window = {"name": "day", "hours": "09:00-18:00", "time_zone": "UTC"}
    home = await house(zones=[{"name": "default", "window": "day"}], windows=[window])  # it is 22:13 UTC
    await put_all(home, 2)
    assert not await home.leases()
    await home.move(11 * 3600)
    batch = await home.leases()
    assert [delivery.attempts for delivery in batch] == [[0], [0]]


async def test_mail_is_held_until_its_time_and_its_life_begins_then(house: Any) -> None:
    """HOLDUNTIL further away than a message lives."""
    home = await house()
    await home.put("r@x.test", hold_until_ms=home.clock.ms() + 7 * 86_400_000)
    assert not await home.leases()
    answer = await home.queue.ask("explain", what="r@x.test")
    assert answer["rows"][0]["reasons"][0]["until_ms"] == home.clock.ms() + 7 * 86_400_000
    await home.move(7 * 86_400 + 1)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    assert (await home.sizes())["deferred"] == 1, "it has its whole life before it"


async def test_a_deadline_returns_the_message(house: Any) -> None:
    """BY with R: it is returned at the deadline, not tried once more after it (RFC 2852 4.1.2)."""
    home = await house()
    await home.put("r@x.test", deadline_ms=home.clock.ms() + 120_000, deadline_mode="R")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    await home.move(121)
    (notice,) = await home.leases()
    assert notice.recipients[0].address == "ann@src.test"
    assert b"5.4.7" in (notice.body or b"")


# ---------------------------------------------------------------- sites


class Directory:
    """A scout for tests of the scheduler: answers when it is told to."""

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
    scout = Directory()
    scout.answers = {"x.test": site("big", "giant"), "y.test": site("big", "giant"), "z.test": site("small")}
    home = await house(scout=scout, throttles=[{"name": "s", "per": ["site"], "messages": "1/min", "burst": 4}])
    for domain in ("x.test", "y.test", "z.test"):
        await put_all(home, 10, domain)
    sent = await drain(home)
    assert Counter(delivery.site for delivery in sent) == {"big": 4, "small": 4}
    assert sent[0].hosts == [[f"mx.{sent[0].site}", ["192.0.2.1"]]]
    assert {delivery.provider for delivery in sent} == {"giant", ""}
    assert sorted(scout.asked) == ["x.test", "y.test", "z.test"]


async def test_no_flow_queue_slips_past_while_its_domain_is_looked_up(house: Any) -> None:
    """What came before the answer that others had asked for counts at the domain's site and provider, too."""
    scout = Directory()
    scout.answers = {"x.test": site("big", "giant")}
    throttles = [{"name": per, "per": [per], "messages": "1/min", "burst": 4} for per in ("site", "provider")]
    zones = [{"name": "default", "default": True, "sources": ["192.0.2.1", "192.0.2.2"]}]
    home = await house(scout=scout, throttles=throttles, zones=zones)
    scout.gate.clear()
    await put_all(home, 5, campaign="one")
    assert not await home.leases()
    for campaign in ("two", "three"):
        await put_all(home, 5, campaign=campaign)
    scout.gate.set()
    await home.rest()
    assert [(delivery.site, delivery.provider) for delivery in await drain(home)] == [("big", "giant")] * 4


async def test_a_slow_lookup_holds_up_nobody_else(house: Any) -> None:
    """While one domain is being looked up, mail for others goes."""
    scout = Directory()
    scout.answers = {"x.test": site("a"), "y.test": site("b")}
    home = await house(scout=scout)
    await put_all(home, 1, "y.test")
    assert len(await drain(home)) == 1
    scout.gate.clear()
    await put_all(home, 5, "x.test")
    await put_all(home, 5, "y.test")
    assert {d.recipients[0].domain for d in await drain(home)} == {"y.test"}
    scout.gate.set()
    assert {d.recipients[0].domain for d in await drain(home)} == {"x.test"}


async def test_a_domain_that_takes_no_mail_bounces_and_one_that_cannot_be_found_waits(house: Any) -> None:
    """Null MX ends at once with its own code; a DNS failure rests the domain, without an attempt."""
    scout = Directory()
    scout.answers = {
        "null.test": NoRoute(556, "5.1.10", "takes no mail"),
        "lame.test": NoRoute(451, "4.4.3", "no answer"),
        "src.test": site("src"),
    }
    home = await house(scout=scout)
    await home.put("r@null.test")
    await home.put("r@lame.test")
    (notice,) = await home.leases()
    assert b"5.1.10" in (notice.body or b"")
    assert (await home.sizes())["queued"] >= 1
    scout.answers["lame.test"] = site("lame")
    await home.move(31)
    (delivery,) = await home.leases()
    assert (delivery.recipients[0].address, delivery.attempts) == ("r@lame.test", [0])
    await home.sound()


async def test_a_domain_that_moves_is_followed(house: Any) -> None:
    """When the answer's time is over it is asked for again, and what waits goes the new way."""
    scout = Directory()
    scout.answers = {"x.test": site("old", ttl_s=30)}
    home = await house(scout=scout, throttles=[{"name": "all", "messages": "1/s", "burst": 1}])
    await put_all(home, 5)
    assert [delivery.site for delivery in await drain(home)] == ["old"]
    scout.answers["x.test"] = site("new")
    await home.move(31)
    assert [delivery.site for delivery in await drain(home)] == ["new"]
    await home.crash()
    await home.move(1)
    assert [delivery.site for delivery in await drain(home)] == ["new"]
    await home.sound()


# ---------------------------------------------------------------- standing


@pytest.mark.parametrize(
    ("kind", "name"), [("destination", "x.test"), ("tenant", "t"), ("campaign", "c"), ("zone", "default")]
)
async def test_what_is_stopped_sends_nothing_until_it_is_lifted(house: Any, kind: str, name: str) -> None:
    """By an operator; a crash changes nothing; `explain` says why and since when; lifted, it goes on."""
    home = await house(shares={"tenants": {"t": 1}, "campaigns": {"c": 1}})
    await home.queue.ask("stop", kind=kind, name=name, cause="told to")
    await put_all(home, 3, tenant="t", campaign="c")
    assert not await home.leases()
    await home.crash()
    assert not await home.leases()
    about = name if kind != "destination" else "x.test"
    answer = await home.queue.ask("explain", what=about)
    assert "told to" in str(answer)
    assert await home.queue.ask("lift", kind=kind, name=name)
    assert len(await drain(home)) == 3


async def test_a_provider_that_asks_for_less_gets_less(house: Any) -> None:
    """421 for too much lowers the rate there, journalled; it does not take the destination down."""
    home = await house()
    await put_all(home, 200)
    for second in range(10):
        await home.move(1)
        for number, delivery in enumerate(await home.leases(20)):
            if number < 10:
                await home.settle(delivery)
            elif second < 5:
                await home.settle(delivery, DEFERRED, reply=SLOW, down_s=0, stage="mail")
            else:
                await home.settle(delivery)
    rows = await home.queue.ask("standing")
    assert [row["kind"] for row in rows] == ["rate"]
    await home.crash()
    assert await home.queue.ask("standing") == rows
    assert await home.queue.ask("lift", kind="rate", name=rows[0]["name"])
    assert not await home.queue.ask("standing")


async def test_user_unknown_says_nothing_about_the_destination(house: Any) -> None:
    """A recipient's own trouble slows and stops nothing."""
    home = await house()
    await put_all(home, 50, sender="")
    while batch := await home.leases():
        for delivery in batch:
            await home.settle(delivery, BOUNCED, reply=Reply(550, "5.1.1", "user unknown"), stage="rcpt")
    assert not await home.queue.ask("standing")
    await put_all(home, 1)
    assert await home.leases()
