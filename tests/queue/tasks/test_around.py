"""What else knows of tasks: events, erasure, expiry, fsck, a zone that is gone, notices, plain orders by id."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import ZONES, counts, defer, done, ended, lost_and_repaired, sent_now
from zonemta_py.disk import keys
from zonemta_py.events.derive import events_of
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.core.tasks import ERASED

Make = Callable[..., Any]
KINDS = (Type.TASK, Type.REMOVED)


async def events(home: Any) -> list[tuple[str, dict[str, Any]]]:
    """Of all TASK and REMOVED records."""
    await home.rest()
    found = [
        record for record in segments.read(home.folder / "journal", 0, []) if record.type in (Type.TASK, Type.REMOVED)
    ]
    return [(event.type, event.data) for record in found for event in events_of(record)]


async def test_each_change_is_told(house: Make) -> None:
    home = await house(zones=ZONES)
    await home.put("a@one.test", tenant="shop")
    held = await done(home, "hold", by="ann", cause="to look")
    freed = await done(home, "release")
    moved = await done(home, "move", set={"zone": "bulk"})
    gone = await done(home, "delete", undo_s=60)
    await home.queue.ask("task-undo", id=gone["id"], by="bob")
    await ended(home, gone, "undone")
    last = await done(home, "delete", undo_s=0)
    told = await events(home)
    about = [(kind, data["task"]) for kind, data in told if "recipient" in data]
    number = [int(row["id"]) for row in (held, freed, moved, gone, last)]
    assert about == [
        ("held", number[0]), ("released", number[1]), ("requeued", number[2]), ("deleted", number[3]),
        ("requeued", number[3]), ("removed", number[4]),
    ]  # fmt: skip
    assert all(
        data["tenant"] == "shop" and data["recipient"] == "a@one.test" for _, data in told if "recipient" in data
    )
    kinds = [(data["task"], data["what"]) for kind, data in told if kind == "task"]
    assert kinds[:2] == [(number[0], "created"), (number[0], "ended")]
    assert (number[3], "undone") in kinds
    first = next(data for kind, data in told if kind == "task")
    assert (first["verb"], first["by"], first["cause"]) == ("hold", "ann", "to look")


async def test_a_person_is_erased_from_tasks_and_from_what_is_deleted(house: Make) -> None:
    home = await house()
    await home.put("ann@one.test", "bob@one.test")
    row = await done(home, "delete", where={"recipient": ["ann@one.test", "bob@one.test"]}, cause="Ann@one.test asked")
    await home.queue.ask("forget", address="ann@one.test")
    row = await home.queue.ask("task-row", id=row["id"])
    assert row["where"] == {"recipient": [ERASED, "bob@one.test"]}
    assert [one["recipient"] for one in row["examples"]] == ["bob@one.test"]
    assert row["cause"] == f"{ERASED} asked"
    assert await counts(home) == {"deleted": 1}
    await home.rest()
    await home.sound()
    await home.crash()
    assert (await home.queue.ask("task-row", id=row["id"]))["where"] == row["where"]


async def test_what_is_deleted_is_not_bounced_when_its_time_is_over(house: Make) -> None:
    home = await house(retry={"life_h": 1})
    await home.put("a@one.test")
    await defer(home)
    row = await done(home, "delete", undo_s=86_400)
    await home.move(7200)
    while await home.queue.maintenance.sweep():
        pass
    await home.rest()
    assert await counts(home) == {"deleted": 1}
    await home.queue.ask("task-undo", id=row["id"])
    await ended(home, row, "undone")
    await home.move(1)
    assert await sent_now(home) == ["a@one.test"]  # the time it was deleted does not count


async def test_a_lost_key_of_what_was_deleted_comes_back_deleted(house: Make) -> None:
    home = await house()
    ident = await home.put("a@one.test", "b@one.test")
    row = await done(home, "delete", where={"recipient": "a@one.test"})
    await home.rest()
    key = keys.deleted("default", int(row["id"]), ident, "a@one.test")
    assert "a@one.test was deleted by task" in await lost_and_repaired(home, key)


async def test_a_zone_that_is_gone_takes_what_is_deleted_along(house: Make) -> None:
    home = await house(zones=ZONES)
    await home.put("a@one.test", sending_zone="bulk")
    row = await done(home, "delete")
    home.options["zones"] = ZONES[:1]
    await home.crash()
    assert (await home.queue.ask("size"))["zones"]["default"]["deleted"] == 1
    await home.queue.ask("task-undo", id=row["id"])
    row = await ended(home, row, "undone")
    assert row["undone"] == 1
    await home.sound()


async def test_an_order_by_id_beside_a_task(house: Make) -> None:
    """What is released while a task deletes what is held is deleted, wherever it is."""
    home = await house()
    idents = [await home.put(f"p{number}@one.test") for number in range(30)]
    await done(home, "hold")
    row = await home.queue.ask("task", verb="delete", where={"domain": "one.test"})
    await asyncio.gather(*(home.queue.ask("release", id=ident) for ident in idents[:20]), return_exceptions=True)
    await ended(home, row)
    await home.rest()
    assert await counts(home) == {"deleted": 30}
    await home.sound()


@pytest.mark.parametrize("verb", ["delete", "hold", "set"])
async def test_the_loop_has_its_turn_however_much_is_taken_away(house: Make, verb: str) -> None:
    home = await house()
    for at in range(0, 6000, 500):
        await home.put(*[f"p{at + number}@d{number % 7}.test" for number in range(500)])
    order = {"set": {"priority": 2}} if verb == "set" else {}
    row = await home.queue.ask("task", verb=verb, where={"all": True}, **order)
    longest, before = 0.0, time.thread_time()  # not what others take of a busy machine
    lease = asyncio.ensure_future(home.queue.lease(1))
    while (await home.queue.ask("task-row", id=row["id"]))["state"] == "running" and not lease.done():
        await asyncio.sleep(0)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    if verb != "set":
        assert not lease.done()
    lease.cancel()
    assert longest < 2.0


async def test_what_is_deleted_is_shown_and_explained(house: Make) -> None:
    home = await house()
    ident = await home.put("a@one.test", campaign="may", tenant="shop")
    row = await done(home, "delete")
    (shown,) = (await home.queue.ask("show", id=ident))["recipients"]
    assert shown["state"] == "deleted"
    for what in (ident, "a@one.test"):
        (explained,) = (await home.queue.ask("explain", what=what))["rows"]
        assert explained["state"] == "deleted"
    campaign = await home.queue.ask("campaign", name="may")
    assert (campaign["state"], campaign["waiting"], campaign["removed"]) == ("idle", 0, 0)
    assert (await home.queue.ask("size", campaign="may"))["deleted"] == 1
    await home.move(100)
    for where in ({"older_s": 50}, {"id": ident}, {"zone": "default"}, {"recipient": "a@one.test"}):
        (found,) = (await home.queue.ask("list", state="deleted", **where))["rows"]
        assert found["id"] == ident
    await home.queue.ask("task-undo", id=row["id"])
    await ended(home, row, "undone")
    assert (await home.queue.ask("campaign", name="may"))["waiting"] == 1
