"""The contract of what an operator does to the queue: sizes, browsing, deleting, flushing, undoing, while in use."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED

Make = Callable[..., Any]
PEOPLE = [f"p{number}@d{number % 3}.test" for number in range(30)]


async def full(caller: Make, **options: Any) -> Any:
    one = await caller(**options)
    for person in PEOPLE:
        await one.put(person, sender=f"s{person[1]}@src.test")
    return one


async def test_sizes_follow_what_happens(caller: Make) -> None:
    one = await full(caller)
    assert await one.size() == {"queued": 30}
    first, second = await one.take(), await one.take()
    await one.settle(first[0])
    await one.settle(second[0], DEFERRED)
    assert await one.size() == {"queued": 28, "deferred": 1}


async def test_browsing_shows_each_once_and_changes_nothing(caller: Make) -> None:
    one = await full(caller)
    assert sorted(await one.browse(limit=7)) == sorted(PEOPLE)
    assert await one.all_of_it() == PEOPLE


@pytest.mark.parametrize("key", ["recipient", "sender", "id", "domain"])
async def test_what_is_deleted_is_not_taken_and_nothing_else_is_deleted(caller: Make, key: str) -> None:
    one = await caller()
    ident = await one.put("a@one.test", sender="x@src.test")
    await one.put("b@two.test", sender="y@src.test")
    value = {"recipient": "a@one.test", "sender": "x@src.test", "id": ident, "domain": "one.test"}[key]
    row = await one.task("delete", **{key: value})
    assert row["done"] == 1
    assert await one.browse() == ["b@two.test"]
    assert await one.size() == {"queued": 1, "deleted": 1}
    assert await one.all_of_it() == ["b@two.test"]


async def test_of_several_recipients_only_those_meant_are_deleted(caller: Make) -> None:
    one = await caller()
    await one.put("a@one.test", "b@one.test", "c@one.test")
    await one.task("delete", recipient="b@one.test")
    (delivery,) = await one.take()
    assert [who.address for who in delivery.recipients] == ["a@one.test", "c@one.test"]
    await one.settle(delivery)
    assert await one.size() == {"deleted": 1}


async def test_a_filter_that_fits_nothing_deletes_nothing(caller: Make) -> None:
    one = await full(caller)
    assert (await one.task("delete", domain="nowhere.test"))["done"] == 0
    assert await one.size() == {"queued": 30}


async def test_a_deletion_does_not_touch_mail_that_comes_later(caller: Make) -> None:
    one = await full(caller)
    await one.task("delete", domain="d0.test")
    await one.put("later@d0.test")
    assert "later@d0.test" in await one.all_of_it()


async def test_what_is_delayed_is_deleted_too(caller: Make) -> None:
    one = await caller()
    await one.put("a@x.test", hold_until_ms=one.home.clock.ms() + 1_000)
    await one.task("delete", recipient="a@x.test")
    await one.home.move(10)
    assert await one.home.idle()
    await one.home.sound()


async def test_a_purge_leaves_nothing(caller: Make) -> None:
    one = await full(caller)
    await one.put("later@x.test", hold_until_ms=one.home.clock.ms() + 1_000)
    (delivery,) = await one.take()
    await one.settle(delivery, DEFERRED)
    row = await one.task("purge", undo_s=0)
    assert (row["state"], row["done"]) == ("done", 31)
    assert await one.size() == {}
    assert await one.browse() == []
    await one.put("new@x.test")
    assert await one.all_of_it() == ["new@x.test"]
    await one.home.sound()


async def test_a_purge_of_one_zone_leaves_the_others(caller: Make) -> None:
    one = await caller(zones=[{"name": "default"}, {"name": "bulk"}, {"name": "jobs", "delivery": "pull"}])
    await one.put("a@x.test")
    await one.put("b@x.test", sending_zone="bulk")
    for _ in range(3):
        await one.put("jobs@queue", sender="", protocol="PULL", sending_zone="jobs")
    assert (await one.task("purge", zone="jobs"))["done"] == 3
    assert await one.queue.pull("jobs") == []
    assert await one.queue.peek("jobs") == []
    assert (await one.task("purge", zone="bulk"))["done"] == 1
    assert await one.all_of_it() == ["a@x.test"]


async def test_a_flush_lets_go_what_is_delayed(caller: Make) -> None:
    one = await caller()
    await one.put("a@x.test", hold_until_ms=one.home.clock.ms() + 3_600_000)
    await one.put("b@y.test", hold_until_ms=one.home.clock.ms() + 3_600_000)
    assert (await one.task("flush", domain="x.test"))["done"] == 1
    await one.home.move(0.1)
    assert await one.all_of_it() == ["a@x.test"]


async def test_what_is_undone_is_as_it_was(caller: Make) -> None:
    one = await full(caller)
    row = await one.task("delete")
    assert await one.home.idle()
    assert (await one.undo(row))["undone"] == 30
    await one.home.move(1)
    assert await one.all_of_it() == PEOPLE
    await one.home.sound()


async def test_what_was_pushed_keeps_its_place(caller: Make) -> None:
    one = await caller(zones=[{"name": "default"}, {"name": "jobs", "delivery": "pull"}])
    for number in range(9):
        await one.put("jobs@queue", sender="", protocol="PULL", sending_zone="jobs", body=b"%d" % number)
    await one.undo(await one.task("hold", zone="jobs"))
    await one.put("jobs@queue", sender="", protocol="PULL", sending_zone="jobs", body=b"9")
    await one.home.move(1)
    found = []
    while taken := await one.queue.pull("jobs"):
        found.append(bytes(taken[0].body))
        await one.queue.ack(taken[0].lease, taken[0].id)
    assert found == [b"%d" % number for number in range(10)]


async def test_what_is_held_waits_for_its_release(caller: Make) -> None:
    one = await full(caller)
    await one.task("hold", domain="d1.test")
    assert not any(person.endswith("d1.test") for person in await one.all_of_it())
    await one.task("release", domain="d1.test")
    await one.home.move(1)
    assert len(await one.all_of_it()) == 10


async def test_browsing_goes_on_while_mail_comes_goes_and_is_deleted(caller: Make) -> None:
    """Whoever was there all the time is shown once; nothing fails."""
    one = await full(caller)
    stays = [f"stays{number}@quiet.test" for number in range(20)]
    await one.task("hold", domain="quiet.test")
    for person in stays:
        await one.put(person)
    await one.task("hold", domain="quiet.test")
    seen: list[str] = []

    async def browse() -> None:
        after = ""
        while True:
            page = await one.ask("list", limit=3, **({"after": after} if after else {}))
            seen.extend(row["recipient"] for row in page["rows"])
            if not page["next"]:
                return
            after = page["next"]
            await asyncio.sleep(0.002)

    async def disturb() -> None:
        for number in range(15):
            await one.put(f"new{number}@busy.test")
        await one.task("delete", domain="d0.test")
        for delivery in await one.take(5):
            await one.settle(delivery)
        await one.task("purge", domain="busy.test", undo_s=0)

    await asyncio.gather(browse(), disturb())
    found = [person for person in seen if person in stays]
    assert sorted(found) == sorted(stays)


async def test_deleting_while_mail_comes_and_goes_takes_what_was_there(caller: Make) -> None:
    one = await full(caller)
    gone: list[str] = []
    over = False

    async def send() -> None:
        while True:
            last = over
            try:
                found = await asyncio.wait_for(one.queue.lease(2), 0.3)
            except TimeoutError:
                if last:
                    return
                continue
            for delivery in found:
                gone.extend(who.address for who in delivery.recipients)
                await one.settle(delivery)

    async def put() -> None:
        for number in range(20):
            await one.put(f"new{number}@d0.test")

    async def delete() -> dict[str, Any]:
        row = await one.ask("task", verb="delete", where={"domain": "d0.test"})
        sent = list(gone)
        row = await one.ended(row)
        late = [who for who in gone if who not in sent and who.endswith("@d0.test") and who in PEOPLE]
        assert late == []
        return dict(row)

    sending = asyncio.ensure_future(send())
    _, row = await asyncio.gather(put(), delete())
    over = True
    await sending
    assert row["done"] == (await one.size()).get("deleted", 0)
    assert {f"new{number}@d0.test" for number in range(20)} <= {*gone, *await one.browse(state="deleted")}


async def test_tasks_are_listed_the_newest_first(caller: Make) -> None:
    one = await full(caller)
    await one.task("hold", domain="d1.test", by="ann", cause="to look at them")
    await one.task("release", domain="d1.test")
    newest, oldest = await one.ask("tasks")
    assert (newest["verb"], oldest["verb"], oldest["by"], oldest["cause"]) == (
        "release",
        "hold",
        "ann",
        "to look at them",
    )
