"""What is stopped, rests or was learned: seen, journalled with its cause, and undone by an operator."""

import asyncio
from typing import Any

import pytest

from zonemta_py.disk import journal, records
from zonemta_py.disk.records import Type
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, Delivery

BUSY = Reply(421, "4.3.2", "closing")


async def leases(home: Any) -> list[Delivery]:
    """Whatever may go now."""
    task = asyncio.ensure_future(home.queue.lease(100))
    await home.rest()
    if task.done():
        return list(task.result())
    task.cancel()
    await asyncio.wait([task])
    return []


async def lose_connections(home: Any, count: int) -> None:
    for delivery in (await leases(home))[:count]:
        await home.settle(delivery, DEFERRED, down_s=0, stage="banner", reply=BUSY)


async def row(home: Any, kind: str) -> dict[str, Any] | None:
    return next((row for row in await home.queue.ask("standing") if row["kind"] == kind), None)


def changes(home: Any) -> list[Any]:
    """Bodies of the journal's records of what stands."""
    found = journal.read(home.folder / "journal", 0, [])
    return [records.unpack(record.body) for record in found if record.type == Type.STANDING]


async def fill(home: Any, count: int) -> None:
    for number in range(count):
        await home.put(f"r{number}@x.test")


async def test_fewer_connections_are_seen_journalled_and_undone(house: Any) -> None:
    """A decrease is one record with its cause; it outlives a crash, and a lift makes the window new."""
    home = await house(learning={"initial": 5, "dead_after": 3})
    await fill(home, 20)
    await lose_connections(home, 1)
    found = await row(home, "concurrency")
    assert found
    assert (found["name"], found["window"], found["dead"]) == ("default x.test", 4, False)
    assert "421 4.3.2 closing" in found["cause"]
    assert found["since_ms"] == home.clock.ms()
    await home.rest()
    assert [body[0] for body in changes(home)] == ["concurrency"]
    await home.crash()
    assert await row(home, "concurrency") == found
    await home.queue.upkeep.position()
    await home.crash()
    assert await row(home, "concurrency") == found
    assert await home.queue.ask("lift", kind="concurrency", name="default x.test")
    assert await row(home, "concurrency") is None
    await home.crash()
    assert await row(home, "concurrency") is None
    assert not await home.queue.ask("lift", kind="concurrency", name="default x.test")
    assert len(await leases(home)) == 5


async def test_growth_is_not_recorded(house: Any) -> None:
    """It is in position records; a record for each would cost more than it is worth."""
    home = await house(learning={"initial": 2})
    await fill(home, 20)
    for _ in range(5):
        for delivery in await leases(home):
            await home.settle(delivery)
    await home.rest()
    assert changes(home) == []
    assert await home.queue.ask("standing") == []


async def test_a_dead_destination_is_dead_after_a_crash(house: Any) -> None:
    """And its rest can be ended by an operator, who knows that it answers again."""
    home = await house(learning={"initial": 2})
    await fill(home, 20)
    for delivery in await leases(home):
        await home.settle(delivery, DEFERRED, down_s=600, stage="banner", reply=BUSY)
    found, resting = await row(home, "concurrency"), await row(home, "resting")
    assert found
    assert resting
    assert found["dead"]
    assert (resting["name"], resting["until_ms"]) == ("default x.test", home.clock.ms() + 600_000)
    assert not await leases(home)
    assert await home.queue.ask("lift", kind="resting", name="default x.test")
    assert await row(home, "resting") is None
    assert len(await leases(home)) == 1, "as many as a dead one has"
    assert not await home.queue.ask("lift", kind="resting", name="default x.test")
    await home.rest()
    await home.crash()
    assert await row(home, "concurrency") == found


async def test_a_learned_rate_says_since_when(house: Any) -> None:
    """When it was lowered, before and after a crash."""
    home = await house()
    await fill(home, 1)
    schedule = home.queue.core.schedule
    lane = next(schedule.strands()).lane
    for _ in range(5):
        schedule.standing.delivered(lane)
        await home.move(1)
    schedule.standing.slowed(lane, "too fast", home.clock.ms())
    found = await row(home, "rate")
    assert found
    assert abs(found["since_ms"] - home.clock.ms()) <= 1
    await home.rest()
    await home.crash()
    assert await row(home, "rate") == found


@pytest.mark.parametrize(
    ("question", "kind", "name", "said"),
    [
        ("stop", "rest", "x", "there is no 'rest' to stop; take destination, tenant, campaign, zone or source"),
        ("stop", "zone", "x", "there is no zone 'x'; there are default"),
        ("stop", "tenant", "", "which tenant"),
        ("lift", "colour", "red", "there is no 'colour' to lift; take destination"),
    ],
)
async def test_orders_that_make_no_sense(house: Any, question: str, kind: str, name: str, said: str) -> None:
    """One sentence, with what would."""
    home = await house()
    with pytest.raises(ValueError, match=said):
        await home.queue.ask(question, kind=kind, name=name)


async def test_a_destination_is_named_in_any_case(house: Any) -> None:
    """X.Test. is x.test, stopped or lifted."""
    home = await house()
    await fill(home, 1)
    assert await home.queue.ask("stop", kind="destination", name="X.Test.") == 1
    assert not await leases(home)
    assert await home.queue.ask("lift", kind="destination", name="X.test")
    assert len(await leases(home)) == 1
