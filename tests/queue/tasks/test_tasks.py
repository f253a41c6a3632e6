"""Each verb of a task: what it makes of mail that waits, wherever it is; its undo; what later mail sees of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED, DELIVERED, HELD

ZONES = [{"name": "default"}, {"name": "bulk"}, {"name": "jobs", "delivery": "pull"}]
Make = Callable[..., Any]


async def ended(home: Any, row: dict[str, Any], *states: str) -> dict[str, Any]:
    """The task's row, once there is nothing more to do."""
    for _ in range(6000):
        row = await home.queue.ask("task-row", id=row["id"])
        if row["state"] in (states or ("undoable", "done", "canceled", "undone", "previewed")):
            return row
        await asyncio.sleep(0.01)
    raise AssertionError(row)


async def begun(home: Any, row: dict[str, Any], count: int) -> bool:
    """Whether it still runs, once it has done so many."""
    for _ in range(6000):
        row = await home.queue.ask("task-row", id=row["id"])
        if row["done"] >= count or row["state"] != "running":
            break
        await asyncio.sleep(0.01)
    return (row["state"], row["done"]) == ("running", count)


async def done(home: Any, verb: str, states: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    where = more.pop("where", {"all": True})
    return await ended(home, await home.queue.ask("task", verb=verb, where=where, **more), *states)


async def counts(home: Any) -> dict[str, int]:
    found = await home.sizes()
    return {name: found[name] for name in ("queued", "leased", "deferred", "held", "deleted", "bounced") if found[name]}


async def defer(home: Any, count: int = 1000) -> None:
    for delivery in await home.leases(count):
        await home.settle(delivery, DEFERRED)


async def sent_now(home: Any) -> list[str]:
    """Takes all that may go, and delivers it."""
    found: list[str] = []
    while deliveries := await home.leases():
        for delivery in deliveries:
            found += [one.address for one in delivery.recipients]
            await home.settle(delivery)
    return sorted(found)


async def lost_and_repaired(home: Any, key: bytes) -> str:
    """The store loses a key, and fsck repairs a copy, which goes on. What fsck says."""
    assert home.queue.core.disk.store.get(key) is not None
    home.queue.core.disk.store.write([(key, None)], True)
    copy = home.image()
    home.abandon()
    home.folder = copy
    problems = home.check(repair=True).problems
    await home.begin()
    assert home.queue.core.disk.store.get(key) is not None
    return " ".join(problem.what for problem in problems)


async def test_deleted_mail_is_not_sent_and_comes_back_when_that_is_undone(house: Make) -> None:
    home = await house()
    await home.put("a@one.test", "b@two.test")
    await home.put("c@one.test")
    row = await done(home, "delete", where={"domain": "one.test"}, by="ann", cause="a mistake")
    assert (row["state"], row["done"], row["count"], row["by"]) == ("undoable", 2, 2, "ann")
    assert row["words"] == "delete: domain one.test"
    assert await counts(home) == {"queued": 1, "deleted": 2}
    await home.sound()
    (sent,) = await home.leases()
    assert sent.recipients[0].address == "b@two.test"
    await home.settle(sent)
    listed = await home.queue.ask("list", state="deleted")
    assert sorted(one["recipient"] for one in listed["rows"]) == ["a@one.test", "c@one.test"]
    await home.queue.ask("task-undo", id=row["id"], by="ann")
    row = await ended(home, row, "undone")
    assert row["undone"] == 2
    await home.sound()
    await home.move(1)
    assert await sent_now(home) == ["a@one.test", "c@one.test"]


async def test_a_deletion_is_final_when_its_time_is_over(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@two.test")
    row = await done(home, "delete", where={"domain": "one.test"}, undo_s=60)
    await home.move(61)
    row = await ended(home, row, "done")
    await home.rest()
    assert await counts(home) == {"queued": 1}
    assert (await home.sizes())["messages"] == 1
    with pytest.raises(ValueError, match="the time for that is over"):
        await home.queue.ask("task-undo", id=row["id"])
    await home.sound()


async def test_without_an_undo_it_is_final_at_once(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@one.test")
    await defer(home, 1)
    row = await done(home, "purge", undo_s=0)
    assert (row["state"], row["done"]) == ("done", 2)
    await home.rest()
    assert await counts(home) == {}
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_later_mail_is_left_alone(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    asked = asyncio.ensure_future(home.queue.ask("task", verb="delete", where={"all": True}))
    await asyncio.sleep(0)
    await home.put("b@one.test")
    row = await ended(home, await asked)
    assert row["done"] == 1
    assert [one.recipients[0].address for one in await home.leases()] == ["b@one.test"]


async def test_what_is_leased_is_taken_when_it_comes_back(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@one.test")
    await home.put("c@one.test")
    first, second, third = await home.leases()
    row = await home.queue.ask("task", verb="delete", where={"all": True})
    await asyncio.sleep(0.2)
    assert (await home.queue.ask("task-row", id=row["id"]))["state"] == "running"
    await home.settle(first, DEFERRED)
    await home.settle(second, DELIVERED)
    await home.settle(third, HELD)
    row = await ended(home, row)
    assert row["done"] == 2
    assert await counts(home) == {"deleted": 2}
    await home.sound()


async def test_hold_and_release(house: Make) -> None:
    home = await house()
    await home.put("a@one.test", "b@two.test")
    await home.put("c@one.test")
    await defer(home, 1)
    row = await done(home, "hold", where={"domain": "one.test"})
    assert await counts(home) == {"queued": 1, "held": 2} or await counts(home) == {"deferred": 1, "held": 2}
    await home.sound()
    freed = await done(home, "release")
    assert freed["done"] == 2
    assert "held" not in await counts(home)
    await home.sound()
    await home.queue.ask("task-undo", id=freed["id"])
    await ended(home, freed, "undone")
    assert (await counts(home))["held"] == 2
    await home.queue.ask("task-undo", id=row["id"])
    row = await ended(home, row, "undone")
    assert row["undone"] == 2
    assert "held" not in await counts(home)
    await home.move(7200)
    assert len(await sent_now(home)) == 3
    await home.sound()


async def test_flush_makes_what_is_deferred_due_now(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@two.test", hold_until_ms=home.clock.ms() + 86_400_000)
    await defer(home)
    assert await home.idle()
    row = await done(home, "flush")
    await home.move(1)
    assert await sent_now(home) == ["a@one.test", "b@two.test"]
    assert row["done"] == 2


async def test_the_undo_of_a_flush_puts_back_the_time(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await defer(home)
    row = await done(home, "flush")
    await home.queue.ask("task-undo", id=row["id"])
    await ended(home, row, "undone")
    await home.move(1)
    assert await home.idle()
    await home.sound()


async def test_a_rest_of_a_destination_ends_with_a_flush(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@one.test")
    first, *others = await home.leases(1)
    await home.settle(first, DEFERRED, down_s=300.0, stage="connect")
    for other in others:
        await home.settle(other, DEFERRED, down_s=300.0, stage="connect")
    await home.put("c@one.test")
    assert await home.idle()
    await done(home, "flush", where={"domain": "one.test"})
    await home.move(0.5)
    assert len(await home.leases(1)) == 1


async def test_move(house: Make) -> None:
    home = await house(zones=ZONES)
    await home.put("a@one.test")
    await home.put("b@one.test")
    await done(home, "hold", where={"recipient": "b@one.test"})
    row = await done(home, "move", set={"zone": "bulk"})
    assert row["done"] == 2
    await home.sound()
    await home.move(1)
    (delivery,) = await home.leases()
    assert delivery.zone == "bulk"
    assert (await home.queue.ask("size"))["zones"]["bulk"]["held"] == 1
    await home.queue.ask("task-undo", id=row["id"])
    await home.settle(delivery, DELIVERED)
    row = await ended(home, row, "undone")
    assert row["undone"] == 1  # the other was sent
    assert (await home.queue.ask("size"))["zones"]["default"]["held"] == 1
    await home.sound()


async def test_what_was_pushed_is_not_moved(house: Make) -> None:
    home = await house(zones=ZONES)
    await home.put("jobs@queue", sender="", protocol="PULL", sending_zone="jobs")
    row = await done(home, "move", set={"zone": "bulk"})
    assert row["done"] == 0
    with pytest.raises(ValueError, match="there is no zone 'none'"):
        await home.queue.ask("task", verb="move", where={"all": True}, set={"zone": "none"})


async def test_set(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@one.test")
    later = home.clock.ms() + 3_600_000
    row = await done(home, "set", where={"recipient": "b@one.test"}, set={"priority": 5, "life_h": 1.0})
    assert row["done"] == 1
    timed = await done(home, "set", where={"recipient": "a@one.test"}, set={"at_ms": later})
    await home.move(1)
    (delivery,) = await home.leases()
    assert (delivery.recipients[0].address, delivery.priority) == ("b@one.test", 5)
    await home.settle(delivery, DEFERRED)
    await home.queue.ask("task-undo", id=timed["id"])
    await ended(home, timed, "undone")
    await home.move(1)
    assert [one.recipients[0].address for one in await home.leases()] == ["a@one.test"]
    await home.sound()


async def test_a_lifetime_that_was_set_ends(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await defer(home)
    await done(home, "set", set={"life_h": 1.0})
    await home.move(3700)
    (notice,) = await home.leases()
    assert (notice.sender, notice.recipients[0].address) == ("", "ann@src.test")
    assert await counts(home) == {"leased": 1}


async def test_a_preview_counts_and_changes_nothing(house: Make) -> None:
    home = await house(zones=ZONES)
    for number in range(30):
        await home.put(f"a{number}@one.test", sending_zone="bulk" if number % 3 else None)
    seen = await home.queue.ask("task-preview", verb="delete", where={"domain": "one.test"}, by="ann")
    assert seen["state"] == "counting"
    seen = await ended(home, seen, "previewed")
    with pytest.raises(ValueError, match="is a preview, which has changed nothing"):
        await home.queue.ask("task-undo", id=seen["id"])
    assert (seen["count"], seen["zones"], len(seen["examples"])) == (30, {"bulk": 20, "default": 10}, 10)
    assert await counts(home) == {"queued": 30}
    for wrong in ({"undo_s": -1}, {"by": "a\nb"}):
        with pytest.raises(ValueError, match=r"undo_s is -1|by is no short text"):
            await home.queue.ask("task-start", id=seen["id"], **wrong)
    await ended(home, seen, "previewed")  # what is refused takes nothing away
    row = await ended(home, await home.queue.ask("task-start", id=seen["id"]))
    assert (row["count"], row["done"], row["by"]) == (30, 30, "ann")
    with pytest.raises(ValueError, match="there is no preview"):
        await home.queue.ask("task-start", id=seen["id"])


async def test_a_canceled_task_stops_and_can_be_undone(house: Make) -> None:
    home = await house()
    await home.put(*[f"a{number}@one.test" for number in range(5000)])
    row = await home.queue.ask("task", verb="delete", where={"all": True})
    await home.queue.ask("task-cancel", id=row["id"])
    row = await ended(home, row, "canceled")
    assert row["done"] < 5000
    with pytest.raises(ValueError, match="is canceled"):
        await home.queue.ask("task-cancel", id=row["id"])
    if row["done"]:
        await home.queue.ask("task-undo", id=row["id"])
        row = await ended(home, row, "undone")
        assert row["undone"] == row["done"]
    found = await counts(home)
    assert found.get("queued", 0) + found.get("deferred", 0) == 5000
    await home.sound()


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"verb": "burn", "where": {"all": True}}, "there is no verb 'burn'"),
        ({"verb": "delete", "where": {}}, "the filter is empty"),
        ({"verb": "delete", "where": {"zone": "nowhere"}}, "there is no zone 'nowhere'"),
        ({"verb": "delete", "where": {"state": "deleted"}}, "comes back when its task is undone"),
        ({"verb": "delete", "where": {"all": True}, "set": {"zone": "bulk"}}, "delete sets no 'zone'"),
        ({"verb": "move", "where": {"all": True}}, "move needs what is to be set"),
        ({"verb": "set", "where": {"all": True}, "set": {"priority": 20}}, "the priority is 20"),
        ({"verb": "set", "where": {"all": True}, "set": {"life_h": 0}}, "life_h is 0"),
        ({"verb": "set", "where": {"all": True}, "set": {"at_ms": "now"}}, "at_ms is 'now'"),
        ({"verb": "hold", "where": {"all": True}, "undo_s": -1}, "undo_s is -1"),
        ({"verb": "hold", "where": {"all": True}, "by": "a\nb"}, "by is no short text"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(house: Make, order: dict[str, Any], said: str) -> None:
    home = await house(zones=ZONES)
    with pytest.raises(ValueError, match=said):
        await home.queue.ask("task", **order)
    assert await home.queue.ask("tasks") == []


async def test_a_task_that_is_not_there(house: Make) -> None:
    home = await house()
    for question in ("task-row", "task-cancel", "task-undo"):
        with pytest.raises(ValueError, match="there is no task '12'"):
            await home.queue.ask(question, id="12")


async def test_who_waits_for_a_sender_holds_up_no_other_task(house: Make) -> None:
    """A reservation may last for days; what comes back is done, in the order of the tasks."""
    home = await house(zones=ZONES)
    await home.put("jobs@queue", sender="", protocol="PULL", sending_zone="jobs")
    await home.put("a@one.test")
    await home.put("b@one.test")
    (reserved,) = await home.queue.pull("jobs", reserve_s=100_000)
    (leased,) = await home.lease(1)
    held = await home.queue.ask("task", verb="hold", where={"all": True})
    freed = await home.queue.ask("task", verb="release", where={"domain": "one.test"})
    other = await done(home, "delete", where={"zone": "bulk"})
    assert other["state"] == "done"
    assert await begun(home, held, 1)
    assert await begun(home, freed, 1)
    await home.settle(leased, DEFERRED)
    freed = await ended(home, freed)
    assert freed["done"] == 2
    assert await counts(home) == {"leased": 1, "deferred": 2}
    await home.queue.nack(reserved.lease, reserved.id)
    held = await ended(home, held)
    assert held["done"] == 3
    assert await counts(home) == {"deferred": 2, "held": 1}
    await home.sound()


async def test_a_task_that_waits_for_a_sender_can_be_canceled_and_undone(house: Make) -> None:
    home = await house()
    await home.put("a@one.test")
    await home.put("b@one.test")
    (leased,) = await home.lease(1)
    row = await home.queue.ask("task", verb="delete", where={"all": True})
    await asyncio.sleep(0.2)
    await home.queue.ask("task-undo", id=row["id"])
    row = await ended(home, row, "undone")
    assert row["undone"] == 1
    await home.settle(leased, DEFERRED)
    await home.rest()
    assert await counts(home) == {"deferred": 2}
    second = await home.queue.ask("task", verb="delete", where={"all": True})
    await home.queue.ask("task-cancel", id=second["id"])
    await ended(home, second, "canceled")
    await home.sound()
