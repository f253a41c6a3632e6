"""What waits is neither forgotten, nor overlooked, nor in the way of others; and its life and deadline end it."""

from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED, POSTPONED, Delivery
from zonemta_py.zones.site import Site

SOURCES = [{"name": "default", "sources": ["192.0.2.1", "192.0.2.2"]}]


def addresses(found: list[Delivery]) -> list[str]:
    return [recipient.address for delivery in found for recipient in delivery.recipients]


async def stop(home: Any, kind: str, name: str, seconds: float | None = None) -> None:
    await home.queue.ask("stop", kind=kind, name=name, seconds=seconds, cause="a test")


# ---------------------------------------------------------------- nobody is forgotten


async def test_mail_of_a_source_that_is_stopped_goes_when_another_may(house: Any) -> None:
    """One source is stopped until it is lifted, the other rests for ten minutes: then all goes from that one."""
    home = await house(zones=SOURCES)
    for number in range(6):
        await home.put(f"r{number}@x.test")
    await stop(home, "source", "192.0.2.1")
    await stop(home, "source", "192.0.2.2", 600)
    assert not await home.leases()
    await home.move(601)
    found = await home.leases()
    assert len(addresses(found)) == 6
    assert {delivery.source for delivery in found} == {"192.0.2.2"}


async def test_what_is_parked_behind_a_stopped_source_goes_from_another(house: Any) -> None:
    """More than the window holds; not only what is in memory moves."""
    home = await house(zones=SOURCES, queue={"window": 100})
    for number in range(300):
        await home.put(f"r{number}@x.test", sender="")
    await stop(home, "source", "192.0.2.1")
    gone: set[str] = set()
    for _ in range(40):
        for delivery in await home.leases():
            assert delivery.source == "192.0.2.2"
            gone.update(addresses([delivery]))
            await home.settle(delivery)
        await home.rest()
    assert len(gone) == 300
    await home.sound()


async def test_flow_queues_that_are_empty_are_forgotten(house: Any) -> None:
    """Also where their mail has gone another way, since domains turned out to share a site."""

    class Same:
        async def site(self, domain: str, now: float) -> Site:
            return Site("big", "", (("mx", ("192.0.2.9",)),), ((10, "mx"),), 10, False)

    home = await house(resolver=Same())
    for number in range(50):
        await home.put(f"r@d{number}.test", campaign=f"c{number}", sender="")
    while found := await home.leases():
        for delivery in found:
            await home.settle(delivery)
    await home.rest()
    await home.queue.sweep()
    flow_queues = home.queue.core.schedule.zones["default"].flow_queues
    assert (len(flow_queues.by_key), len(flow_queues.paths), len(flow_queues.by_flow)) == (0, 0, 0)


# ---------------------------------------------------------------- nobody is in the way


async def test_what_is_stopped_keeps_nobody_from_being_read(house: Any) -> None:
    """A stopped campaign fills the window, a newsletter always has mail: a receipt and a retry come in between."""
    zone = {"name": "default", "connections": 4, "recipients_per_delivery": 5}
    home = await house(queue={"window": 100}, zones=[zone], shares={"campaigns": {"dead": 1}})
    await home.put("retry@q.test")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, delay_s=100)
    await stop(home, "campaign", "dead")
    for number in range(400):
        await home.put(f"r{number}@x{number % 100}.test", campaign="dead")
    for number in range(300):
        await home.put(f"s{number}@y{number % 10}.test", campaign="news")
    await home.move(101)
    await home.put("receipt@z.test")
    wanted, seen = {"retry@q.test", "receipt@z.test"}, list[str]()
    while not wanted <= set(seen):
        (delivery,) = await home.lease()
        seen += addresses([delivery])
        await home.settle(delivery)
        await home.rest()
    assert len(seen) < 60


# ---------------------------------------------------------------- what ends by itself


async def test_a_deadline_before_the_hours_open_is_kept(house: Any) -> None:
    """Its window opens tomorrow, its deadline passes today: it is returned today, without an attempt."""
    home = await house(windows=[{"name": "w", "hours": "08:00-09:00", "time_zone": "recipient"}])
    deadline = {"deadline_ms": home.clock.ms() + 60_000, "deadline_mode": "R"}
    await home.put("r@x.test", window="w", time_zone="UTC", **deadline)
    assert not await home.leases()
    await home.move(61)
    (notice,) = await home.leases()
    assert b"5.4.7" in (notice.body or b"")


@pytest.mark.parametrize("why", ["down", "stopped", "limit"])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_deadline_ends_what_waits(house: Any, why: str, crash: bool) -> None:
    """Parked at a destination that is down, stopped, or behind a limit, also after a crash; the others wait on."""
    throttles = [{"name": "t", "messages": "1/day"}] if why == "limit" else []
    home = await house(queue={"window": 100}, throttles=throttles)
    await home.put("first@x.test", sender="")
    if why == "stopped":
        await stop(home, "destination", "x.test")
    else:
        (delivery,) = await home.leases()
        more = {"down_s": 90_000} if why == "down" else {"delay_s": 90_000}
        await home.settle(delivery, DEFERRED, stage="connect", **more)
    urgent = {"deadline_ms": home.clock.ms() + 600_000, "deadline_mode": "R"}
    for number in range(150):
        await home.put(f"r{number}@x.test", sender="", **(urgent if number % 2 else {}))
    assert not await home.leases()
    await home.move(601)
    if crash:
        await home.crash()
    for _ in range(4):
        for delivery in await home.leases():  # that it is down is found out again
            await home.settle(delivery, DEFERRED, down_s=90_000, delay_s=90_000, stage="connect")
        await home.queue.sweep()
        await home.rest()
    assert (await home.sizes())["messages"] == 76
    await home.sound()


async def fill_unread(home: Any, urgent: int) -> None:
    """A stopped zone with more mail than it reads into memory; its last recipients have ten minutes."""
    await stop(home, "zone", "default")
    await home.put(*(f"r@d{number}.test" for number in range(900)), sender="")
    deadline = {"deadline_ms": home.clock.ms() + 600_000, "deadline_mode": "R"}
    await home.put(*(f"u@e{number}.test" for number in range(urgent)), sender="", **deadline)
    await home.rest()


def unread(home: Any) -> int:
    """How many recipients of the zone nobody in memory answers for."""
    core = home.queue.core
    return sum(key not in core.schedule.busy for key in core.disk.store.keys(b"delivery-zone ", b"delivery-zone!"))


@pytest.mark.parametrize("crash", ["", "before", "after"])
async def test_a_deadline_ends_what_is_not_read_yet(house: Any, crash: str) -> None:
    """In a zone that is stopped: at the deadline, not when it is read; the others wait on. So after a crash, too."""
    home = await house(queue={"window": 100})
    await fill_unread(home, 60)
    if crash == "before":
        await home.crash()
        await home.rest()
    await home.queue.sweep()
    before = unread(home)
    assert before >= 60, "the urgent ones are not in memory"
    assert (await home.sizes())["queued"] == 960
    await home.move(601)
    if crash == "after":
        await home.crash()
        await home.rest()
    await home.queue.sweep()
    await home.rest()
    assert not await home.leases()
    assert (await home.sizes())["queued"] == 900
    await home.sound()
    await home.crash()
    assert (await home.sizes())["queued"] == 900
    await home.queue.ask("lift", kind="zone", name="default")
    assert len(await home.lease(100)) == 100


async def test_unread_deadlines_are_looked_for_in_stretches(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are unread, each stretch goes on where the last one ended; later deadlines are found on the way."""
    monkeypatch.setattr("zonemta_py.queue.maintenance.deadlines.WALKED_AT_ONCE", 12)
    home = await house(queue={"window": 100})
    await fill_unread(home, 70)
    later_ms = home.clock.ms() + 5_000_000
    await home.put("last@f.test", sender="", deadline_ms=later_ms, deadline_mode="R")
    await home.rest()
    await home.move(601)
    zone, sweeps = home.queue.core.schedule.zones["default"], 1
    while await home.queue.maintenance.sweep():
        sweeps += 1
    assert sweeps >= 4
    await home.rest()
    assert (await home.sizes())["queued"] == 901
    assert zone.deadline_ms == later_ms
    await home.move(5_000)
    await home.queue.sweep()
    await home.rest()
    assert (await home.sizes())["queued"] == 900
    await home.sound()


async def test_unread_mail_without_deadlines_is_not_looked_at(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once after a start, since nobody knows then; never again."""
    home = await house(queue={"window": 100})
    await stop(home, "zone", "default")
    await home.put(*(f"r@d{number}.test" for number in range(900)), sender="")
    await home.rest()
    await home.queue.sweep()
    assert unread(home)
    walked: list[bytes] = []
    scan = home.queue.core.disk.store.scan

    def watched(start: bytes, stop: bytes) -> Any:
        walked.append(start)
        return scan(start, stop)

    monkeypatch.setattr(home.queue.core.disk.store, "scan", watched)
    await home.put(*(f"s@d{number}.test" for number in range(900)), sender="")
    await home.rest()
    await home.move(100_000)
    await home.queue.sweep()
    assert not [start for start in walked if start.startswith(b"delivery-zone ")]


async def test_mail_that_was_held_for_long_has_its_life_before_it(house: Any) -> None:
    """Held for longer than a message lives, then parked, for its destination is down: it is not given up yet."""
    home = await house(retry={"life_h": 24})
    await home.put("first@x.test", sender="")
    (delivery,) = await home.leases()
    await home.put("r@x.test", hold_until_ms=home.clock.ms() + 3 * 86_400_000, sender="")
    await home.move(3 * 86_400 - 1)
    await home.settle(delivery, DEFERRED, down_s=3600, stage="connect")
    await home.move(2)
    assert not await home.leases()
    await home.queue.sweep()
    await home.rest()
    assert (await home.sizes())["queued"] == 1
    await home.move(3600)
    assert addresses(await home.leases()) == ["r@x.test"]


async def test_what_expires_is_ended_once(house: Any) -> None:
    """The first to end lets its flow queue read on: it must not read those that end with it."""
    home = await house(queue={"window": 100}, retry={"life_h": 1})
    home.queue.core.schedule.policy.stop("destination", "x.test", 86_400, "a rule's answer")
    for number in range(300):
        await home.put(f"r{number}@x.test", sender="")
    assert not await home.leases()
    await home.move(3601)
    for _ in range(4):
        await home.queue.sweep()
        await home.rest()
        assert not await home.leases()
    assert (await home.sizes())["messages"] == 0
    await home.sound()
    assert home.queue.core.schedule.zones["default"].loaded == 0


# ---------------------------------------------------------------- crashes and clocks


async def test_a_clock_that_is_set_back_stops_no_mail(house: Any) -> None:
    """Limits go on where they were, as if no time had passed; they do not wait until it is that late again."""
    home = await house(throttles=[{"name": "t", "messages": "1/s"}])
    for number in range(10):
        await home.put(f"r{number}@x.test")
    assert len(await home.leases()) == 1
    await home.queue.position()
    home.clock.now_s -= 7200
    await home.crash()
    assert not await home.leases()
    for _ in range(3):
        await home.move(1)
        assert len(await home.leases()) == 1


@pytest.mark.parametrize("limit", [{"bytes": "22B/s", "burst": 44}, {"messages": "1/s", "burst": 2}])
async def test_what_was_delivered_just_before_a_crash_counts(house: Any, limit: dict[str, Any]) -> None:
    """Its message is gone, its provider was new: both were written down with the lease."""

    class Giant:
        async def site(self, domain: str, now: float) -> Site:
            return Site("big", "giant", (("mx", ("192.0.2.9",)),), ((10, "mx"),), 300, False)

    home = await house(resolver=Giant(), throttles=[{"name": "t", "only": {"provider": "giant"}, **limit}])
    await home.queue.position()
    for number in range(10):
        await home.put(f"r{number}@x.test")
    for delivery in await home.leases():
        assert delivery.size == 22
        await home.settle(delivery)
    await home.rest()
    await home.crash()
    assert not await home.leases()
    await home.move(1)
    assert len(await home.leases()) == 1


async def test_a_postponement_is_applied_once(house: Any) -> None:
    """It was put off, came due and was parked; a crash that reads the record again leaves it where it is."""
    home = await house()
    await home.put("first@x.test", "r@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, delay_s=2)
    await home.rest()
    await home.move(2)
    (delivery,) = await home.leases()
    await home.settle(delivery, POSTPONED, stage="plugin", delay_s=1)
    await home.put("probe@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, down_s=3600, delay_s=7200, stage="connect")
    await home.rest()
    await home.move(2)
    assert not await home.leases()
    before = await home.sizes()
    assert (before["queued"], before["deferred"]) == (2, 1)
    await home.crash()
    assert await home.sizes() == before
    await home.sound()
