"""Tasks and crashes: killed or without power at any moment, each ends as ordered, and everything is done once."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import ended, sent_now
from zonemta_py.queue.api import DEFERRED

Make = Callable[..., Any]
ZONES = [{"name": "default"}, {"name": "bulk"}]


async def finish(home: Any) -> list[dict[str, Any]]:
    """All tasks, each with nothing left to do, the oldest first."""
    rows = await home.queue.ask("tasks")
    return [await ended(home, row) for row in reversed(rows)]


async def addresses(home: Any, state: str) -> set[str]:
    return {row["recipient"] for row in await home.listed(state=state)}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [False, True], ids=["killed", "no power"])
async def test_each_ends_as_ordered(house: Make, seed: int, power: bool) -> None:
    die = random.Random(seed * 2 + power)
    home = await house(zones=ZONES)
    people = [f"p{number}@d{number % 4}.test" for number in range(400)]
    for at in range(0, 400, 20):
        await home.put(*people[at : at + 20], sending_zone="bulk" if at % 40 else None)
    for delivery in await home.leases(die.choice((0, 1, 5))) if seed else ():
        await home.settle(delivery, DEFERRED)
    ask = home.queue.ask
    orders = [
        ("delete", {"domain": "d0.test"}, {}), ("hold", {"domain": "d1.test"}, {}),
        ("release", {"domain": "d1.test"}, {}),
        ("set", {"domain": "d2.test"}, {"priority": 4}), ("delete", {"domain": "d3.test"}, {}),
    ]  # fmt: skip
    rows = [await ask("task", verb=verb, where=where, set=change or None) for verb, where, change in orders]
    await ask("task-undo", id=rows[4]["id"])
    for _ in range(3):
        await asyncio.sleep(die.random() * 0.03)
        await home.crash(power=power, die=die)
    deleted, held, released, changed, undone = await finish(home)
    assert [row["state"] for row in (deleted, held, released, changed)] == ["undoable"] * 4
    assert (deleted["done"], held["done"], released["done"], changed["done"]) == (100, 100, 100, 100)
    assert undone["state"] == "undone"
    assert undone["done"] == undone["undone"]
    assert await addresses(home, "deleted") == {one for one in people if one.endswith("d0.test")}
    assert await addresses(home, "held") == set()
    await home.sound()
    await home.queue.ask("task-undo", id=deleted["id"])
    await home.crash(power=power, die=die)
    deleted = (await finish(home))[0]
    assert (deleted["state"], deleted["undone"]) == ("undone", 100)
    await home.move(36_000)
    assert await sent_now(home) == sorted(people)


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_deleted_for_good_ends_once(house: Make, seed: int) -> None:
    die = random.Random(seed)
    home = await house()
    people = [f"p{number}@d{number % 2}.test" for number in range(300)]
    for at in range(0, 300, 30):
        await home.put(*people[at : at + 30])
    at_once = await home.queue.ask("task", verb="delete", where={"domain": "d0.test"}, undo_s=0 if seed else 60)
    for _ in range(3):
        await asyncio.sleep(die.random() * 0.03)
        await home.crash(power=bool(seed), die=die)
    at_once = await ended(home, at_once)
    await home.move(61)
    for _ in range(3):
        await asyncio.sleep(die.random() * 0.03)
        await home.crash(power=bool(seed), die=die)
    at_once = await ended(home, at_once, "done")
    await home.rest()
    assert at_once["done"] == 150
    assert await home.sizes() == {
        "queued": 150, "deferred": 0, "held": 0, "deleted": 0, "bounced": 0, "leased": 0, "messages": 10, "bytes": 220,
    }  # fmt: skip
    await home.sound()


async def test_a_task_of_another_version_does_not_keep_the_queue_from_starting(house: Make) -> None:
    """Its filter has a key that this version does not know: it is stopped, and said."""
    home = await house()
    await home.put("a@one.test")
    (leased,) = await home.lease(1)
    row = await home.queue.ask("task", verb="hold", where={"domain": "one.test"})
    await asyncio.sleep(0.1)
    task = home.queue.core.tasks.by_number[int(row["id"])]
    task.where = {"colour": "red"}
    home.queue.core.tasks.changed(task)
    await home.rest()
    await home.queue.position()
    await home.crash()
    row = await ended(home, {"id": row["id"]})
    assert (row["state"], row["done"]) == ("canceled", 0)
    assert await sent_now(home) == ["a@one.test"]
    assert leased.id


async def test_what_fails_is_tried_again(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours in one pass does not end the work on tasks."""
    home = await house()
    await home.put("a@one.test")
    engine, failed = home.queue.tasks.engine, 0
    begun = engine._begun

    def fails(*arguments: Any) -> Any:
        nonlocal failed
        failed += 1
        if failed == 1:
            raise RuntimeError("a mistake")
        return begun(*arguments)

    monkeypatch.setattr(engine, "_begun", fails)
    monkeypatch.setattr("zonemta_py.queue.tasks.engine.LOOK_S", 0.01)
    row = await ended(home, await home.queue.ask("task", verb="hold", where={"all": True}))
    assert row["done"] == 1
    assert failed == 2
