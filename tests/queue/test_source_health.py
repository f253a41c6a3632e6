"""Source addresses that cannot be used: counted, looked at, resting, probed and back; the clock is the test's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

from tests.queue.flow import drain, put_all
from zonemta_py.config import Source
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, Delivery
from zonemta_py.queue.reload import apply
from zonemta_py.schedule import source_health

LOST = Reply(451, "4.4.1", "cannot send from here: 127.0.0.3 is not an address of this machine")
ROUTE = Reply(451, "4.4.1", "cannot send from here: 127.0.0.3 has no route to 192.0.2.9")
PROXY = Reply(451, "4.4.1", "proxy failed: socks5://127.0.0.1:1080: Connection refused")
POOL: dict[str, Any] = {
    "zones": [{"name": "default", "pool": "p"}],
    "pools": [{"name": "p", "sources": [{"address": "127.0.0.2"}, {"address": "127.0.0.3"}]}],
}
PATIENCE_S = 60


class Probe:
    """What a look finds: why it cannot be used, "" if it can. looked: how often, and at which route."""

    def __init__(self) -> None:
        self.finds = "proxy failed: still"
        self.looked: list[tuple[str, str]] = []

    async def __call__(self, source: Source, route_to: str) -> str:
        self.looked.append((source.address, route_to))
        return self.finds


@asynccontextmanager
async def probing(home: Any, monkeypatch: Any) -> AsyncIterator[Probe]:
    monkeypatch.setattr(source_health, "LOOK_S", 0.005)
    probe = Probe()
    task = asyncio.ensure_future(home.queue.core.schedule.source_health.watch(probe))
    await asyncio.sleep(0)
    try:
        yield probe
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def looked_at(home: Any) -> None:
    """Until it is suspected no longer."""
    await home.move(1)
    await until(lambda: not home.queue.core.schedule.policy.unusable)


async def fail(home: Any, delivery: Delivery, reply: Reply = PROXY) -> None:
    await home.settle(delivery, DEFERRED, stage="proxy" if reply is PROXY else "source", reply=reply)


async def leases_by(home: Any, source: str) -> list[Delivery]:
    """Those of that source, of all that can be leased; the others are delivered."""
    found = list[Delivery]()
    for zone in home.queue.core.schedule.zones.values():  # its destinations are known to be quick
        for domain in ("x.test", "y.test", "z.test"):
            zone._pace.learn(domain, 1, 1)
    while batch := await home.leases():
        for delivery in batch:
            if delivery.source == source:
                found.append(delivery)
            else:
                await home.settle(delivery)
    return found


async def rows(home: Any) -> list[dict[str, Any]]:
    return [row for row in await home.queue.ask("standing") if row["kind"] == "source"]


async def figures(home: Any) -> tuple[int, int]:
    """Whether 127.0.0.3 rests, and how often it has failed, as the metrics have it."""
    found = await home.queue.ask("metrics")
    rests = {labels[0]: value for labels, value in found["gauges"]["zonemta_source_resting"]}
    failed = {labels[0]: value for labels, value in found["counters"]["zonemta_source_failures_total"]}
    assert set(rests) == {one.address for one in home.config.pools[0].sources}
    return rests["127.0.0.3"], failed["127.0.0.3"]


async def test_a_proxy_rests_after_three_failures_in_a_row(house: Any, monkeypatch: Any) -> None:
    """The first one lets it be looked at, and the recipient goes by the other at once; no attempt is counted, nobody's
    destination rests; while it is looked at it stands nowhere."""
    home = await house(**POOL)
    await put_all(home, 40)
    (first, *others) = await leases_by(home, "127.0.0.3")
    async with probing(home, monkeypatch) as probe:
        probe.finds = ""
        await fail(home, first)
        assert not await rows(home)
        assert await figures(home) == (0, 1)
        await home.move(0.6)
        (again,) = await home.leases()
        assert (again.source, again.attempts) == ("127.0.0.2", [0])
        await looked_at(home)  # and nothing was found
        await fail(home, others[0])
        await looked_at(home)
        probe.finds = "proxy failed: still"
        await fail(home, others[1])
        (row,) = await rows(home)
        assert (row["name"], row["group"], row["until_ms"]) == ("127.0.0.3", "resting", 0)
        assert row["cause"] == f"it cannot be used: {PROXY.text}"
        assert await figures(home) == (1, 3)
        for delivery in others[2:]:
            await fail(home, delivery)
        await home.move(1)
        assert {(one.source, *one.attempts) for one in await drain(home)} == {("127.0.0.2", 0)}
    await home.sound()


async def test_a_failed_look_counts_and_a_delivery_ends_the_row(house: Any, monkeypatch: Any) -> None:
    """One failure of mail and two of looks are three in a row; where mail goes between, they are not."""
    home = await house(**POOL)
    await put_all(home, 20)
    first, second, third, *_ = await leases_by(home, "127.0.0.3")
    async with probing(home, monkeypatch) as probe:
        probe.finds = ""
        for delivery in (first, second):
            await fail(home, delivery)
            await looked_at(home)
        await home.settle(third)
        probe.finds = "proxy failed: silent"
        await put_all(home, 10, "y.test")
        fourth, *_ = await leases_by(home, "127.0.0.3")
        await fail(home, fourth)
        await home.move(1)
        await until(lambda: home.queue.core.schedule.source_health.rests("127.0.0.3"))
        assert [row["cause"] for row in await rows(home)] == ["it cannot be used: proxy failed: silent"]
        assert len(probe.looked) == 4


async def test_it_is_probed_and_comes_back_with_its_share(house: Any, monkeypatch: Any, caplog: Any) -> None:
    """At growing intervals of at most 30 s, and told once each; what waits elsewhere in memory comes back to it."""
    limit = [{"name": "each", "per": ["source"], "messages": "1/min"}]
    home = await house(**POOL, throttles=limit)
    await put_all(home, 40)
    async with probing(home, monkeypatch) as probe:
        (lost,) = await leases_by(home, "127.0.0.3")
        await fail(home, lost, LOST)
        waiting = Counter(row["source"] for row in (await home.queue.ask("lanes"))["rows"] if row["waiting"])
        assert set(waiting) == {"127.0.0.2"}
        at = [0.0]
        for _ in range(120):
            before = len(probe.looked)
            await home.move(1)
            await asyncio.sleep(0.02)
            await until(lambda: not home.queue.core.schedule.source_health._tasks)
            if len(probe.looked) > before:
                at.append(at[-1] + 1)
            else:
                at[-1] += 1
        gaps = [b - a for a, b in pairwise(at)]
        assert len(probe.looked) >= 6
        assert max(gaps) <= 31
        assert {delivery.source for delivery in await drain(home)} == {"127.0.0.2"}
        probe.finds = ""
        await home.move(31)
        await until(lambda: not home.queue.core.schedule.policy.unusable)
    assert not await rows(home)
    sources = set()
    for _ in range(3):
        sources |= {delivery.source for delivery in await drain(home)}
        await home.move(60)
    assert sources == {"127.0.0.2", "127.0.0.3"}
    said = [one.getMessage() for one in caplog.records if "source 127.0.0.3" in one.getMessage()]
    assert len(said) == 2
    assert said[1] == "source 127.0.0.3 can be used again"
    await home.sound()


async def test_a_lost_route_is_looked_for(house: Any, monkeypatch: Any) -> None:
    home = await house(**POOL)
    await put_all(home, 20)
    first, *_ = await leases_by(home, "127.0.0.3")
    async with probing(home, monkeypatch) as probe:
        await fail(home, first, ROUTE)
        await home.move(1)
        await until(lambda: probe.looked)
    assert probe.looked[0] == ("127.0.0.3", "192.0.2.9")


async def test_what_waits_at_a_limit_of_it_goes_by_the_others_under_theirs(house: Any) -> None:
    """At once, though the limit would have let it wait; the others' limit holds for it."""
    limits = [{"name": "each", "per": ["source"], "messages": "6/min", "burst": 1}]
    home = await house(**POOL, queue={"window": 100}, throttles=limits)
    await put_all(home, 300)
    lost = next(one for one in await home.leases() if one.source == "127.0.0.3")
    await fail(home, lost, LOST)
    await home.rest()
    left = (await home.queue.ask("lanes"))["rows"]
    assert {row["source"] for row in left if row["waiting"] or row["parked"]} == {"127.0.0.2"}
    sent = 0
    for _ in range(5):
        sent += len(await drain(home))
        await home.move(10)
    assert sent == 4  # one in ten seconds, and the first of them is out
    await home.sound()


async def test_a_pool_of_which_nobody_else_may_send_there(house: Any) -> None:
    """disabled_domains of the other: the mail waits for it, and goes by it when it is back."""
    sources = [{"address": "127.0.0.2", "disabled_domains": ["x.test"]}, {"address": "127.0.0.3"}]
    home = await house(zones=POOL["zones"], pools=[{"name": "p", "sources": sources}])
    await put_all(home, 3, "x.test")
    await put_all(home, 10, "y.test")
    for delivery in await leases_by(home, "127.0.0.3"):
        await fail(home, delivery, LOST)
    await home.move(1)
    assert {one.recipients[0].domain for one in await drain(home)} == {"y.test"}
    await home.move(61)
    assert [(one.source, one.attempts) for one in await drain(home)] == [("127.0.0.3", [0])] * 3


async def test_mail_that_asks_for_it_waits(house: Any) -> None:
    """A source that its sender has chosen has no stand-in."""
    home = await house(**POOL)
    await home.put("a@x.test", source="127.0.0.3")
    (delivery,) = await home.leases()
    await fail(home, delivery, LOST)
    await home.move(5)
    assert not await home.leases()
    await home.move(61)
    (delivery,) = await home.leases()
    assert (delivery.source, delivery.attempts) == ("127.0.0.3", [0])


async def test_orders_come_first(house: Any, monkeypatch: Any) -> None:
    """`suspend source` replaces a rest, for as long as it says, and no probe ends it; `resume` ends a rest at once."""
    home = await house(**POOL)
    await put_all(home, 20)
    first, second, *_ = await leases_by(home, "127.0.0.3")
    async with probing(home, monkeypatch) as probe:
        await fail(home, first, LOST)
        await home.queue.ask("stop", kind="source", name="127.0.0.3", seconds=600, cause="maintenance")
        (row,) = await rows(home)
        assert (row["group"], row["cause"]) == ("suspended", "maintenance")
        assert row["until_ms"]
        assert (await figures(home))[0] == 0
        probe.finds = ""
        await home.move(40)
        await asyncio.sleep(0.05)
        assert [row["cause"] for row in await rows(home)] == ["maintenance"]
        assert await home.queue.ask("lift", kind="source", name="127.0.0.3")
        await fail(home, second, LOST)
        assert [row["group"] for row in await rows(home)] == ["resting"]
        assert await home.queue.ask("lift", kind="source", name="127.0.0.3")
        assert not await rows(home)
        await put_all(home, 20, "z.test")
        assert await leases_by(home, "127.0.0.3")


async def test_who_stands_in_is_explained(house: Any) -> None:
    """Of a recipient, a zone, the address itself."""
    home = await house(**POOL, throttles=[{"name": "each", "per": ["source"], "messages": "1/h"}])
    await put_all(home, 20)
    lost, *_ = await leases_by(home, "127.0.0.3")
    await fail(home, lost, LOST)
    await home.rest()
    said = f"source 127.0.0.3 rests, and its mail goes by 127.0.0.2 meanwhile: it cannot be used: {LOST.text}"
    for what in ("default", "x.test", "127.0.0.3", "r5@x.test"):
        found = await home.queue.ask("explain", what=what)
        if found["rows"]:
            assert [row["cause"] for row in found["meanwhile"]] == [said], what
    await home.queue.ask("lift", kind="source", name="127.0.0.3")
    assert "meanwhile" not in await home.queue.ask("explain", what="default")


async def test_events_tell_of_a_rest_and_its_end(house: Any) -> None:
    """By the STANDING records, as of any stop; what is only looked at makes none."""
    home = await house(**POOL)
    await put_all(home, 20)
    first, *_ = await leases_by(home, "127.0.0.3")
    told = list[Any]()
    record = home.queue.core.schedule.policy._record
    home.queue.core.schedule.policy._record = lambda body: (told.append(body), record(body))
    await fail(home, first)
    assert not told
    home.queue.core.schedule.source_health.failed("127.0.0.3", LOST.text)
    home.queue.core.schedule.policy.lift("source", "127.0.0.3", source_health.BACK)
    assert [body[:2] for body in told] == [["stop", ["source", "127.0.0.3"]], ["lift", ["source", "127.0.0.3"]]]


async def test_a_rest_is_kept_over_a_crash_and_ends_with_its_configuration(house: Any, monkeypatch: Any) -> None:
    home = await house(**POOL)
    await put_all(home, 20)
    first, *_ = await leases_by(home, "127.0.0.3")
    async with probing(home, monkeypatch):
        await fail(home, first, LOST)
    await home.crash()
    async with probing(home, monkeypatch) as probe:
        assert [row["name"] for row in await rows(home)] == ["127.0.0.3"]
        await put_all(home, 20, "y.test")
        assert {delivery.source for delivery in await drain(home)} == {"127.0.0.2"}
        await asyncio.sleep(0.02)
        await home.move(31)
        await until(lambda: probe.looked)
    pools = [home.config.pools[0].model_copy(update={"sources": [Source(address="127.0.0.2")]})]
    other = home.config.model_copy(update={"pools": pools})
    apply.take(home.queue, apply.prepare(other, home.hooks, home.resolver))
    assert not await rows(home)


@pytest.mark.parametrize("most", [1, 2])
async def test_how_many_failures_is_a_setting(house: Any, most: int) -> None:
    home = await house(**POOL, retry={"source_failures": most})
    await put_all(home, 20)
    first, second, *_ = await leases_by(home, "127.0.0.3")
    await fail(home, first)
    assert bool(await rows(home)) == (most == 1)
    await fail(home, second)
    assert await rows(home)
