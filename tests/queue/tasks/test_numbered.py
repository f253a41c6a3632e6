"""A task that was given its number, as all of several queues have the same: once, whatever crashes, and not another."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import ended
from zonemta_py.queue.questions.question import Refused

Make = Callable[..., Any]
NUMBER = 1_700_000_000_000_123


async def ordered(home: Any, verb: str = "delete", **more: Any) -> dict[str, Any]:
    asked = {"where": {"domain": "x.test"}, "number": NUMBER, **more}
    row: dict[str, Any] = await home.queue.ask("task", verb=verb, **asked)
    return row


@pytest.mark.parametrize("stored", [True, False])
async def test_it_is_the_same_after_a_crash(house: Make, stored: bool) -> None:
    """Whether the store has it, or the journal alone; given once more, nothing is done; it is undone by its number."""
    home = await house()
    await home.put("a@x.test", "b@y.test")
    await ordered(home)
    if stored:
        await ended(home, {"id": str(NUMBER)})
        await home.rest()
    await home.crash(drop=not stored)
    row = await ended(home, {"id": str(NUMBER)})
    assert (row["state"], row["done"]) == ("undoable", 1)
    assert await ordered(home) == row
    assert [one["id"] for one in await home.queue.ask("tasks")] == [str(NUMBER)]
    await home.sound()
    await home.queue.ask("task-undo", id=str(NUMBER))
    assert (await ended(home, row, "undone"))["undone"] == 1
    assert await home.queue.ask("task-states") == {str(NUMBER): "undone"}
    await home.sound()


async def test_another_order_of_that_number_is_refused(house: Make) -> None:
    home = await house()
    await ordered(home)
    with pytest.raises(Refused, match=f"there is a task {NUMBER}, and it is another one"):
        await ordered(home, "hold")
    for number in (-1, 10**16):
        with pytest.raises(Refused, match="give one of up to 16 digits"):
            await ordered(home, number=number)


async def test_what_comes_later_has_a_larger_number(house: Make) -> None:
    """Also without one, since the order of numbers is that in which they were ordered."""
    home = await house()
    await ordered(home)
    row = await home.queue.ask("task", verb="hold", where={"domain": "y.test"})
    assert int(row["id"]) == NUMBER + 1
    await home.crash()
    assert [one["id"] for one in await home.queue.ask("tasks")] == [row["id"], str(NUMBER)]


async def test_what_was_seen_under_a_given_name_is_ordered_and_gone(house: Make) -> None:
    home = await house()
    await home.put("a@x.test")
    seen = await home.queue.ask("task-preview", verb="hold", where={"domain": "x.test"}, id="pabc")
    assert seen["id"] == "pabc"
    seen = await ended(home, seen)
    row = await ordered(home, "hold", preview="pabc")
    assert (seen["count"], row["count"]) == (1, 1)
    assert [one["id"] for one in await home.queue.ask("tasks")] == [str(NUMBER)]


async def test_a_time_that_is_set_is_told_by_the_clock(house: Make) -> None:
    """Which was set since the queue's first start: what was said is told, before it is ordered and after."""
    home = await house()
    home.clock.set_s = -7200.0
    at_ms = home.queue.core.clock.ms() + 10**6  # it has seen it
    asked = {"verb": "set", "where": {"domain": "x.test"}, "set": {"at_ms": at_ms}}
    seen = await home.queue.ask("task-preview", **asked)
    row = await home.queue.ask("task", **asked)
    assert seen["set"] == row["set"] == {"at_ms": at_ms}
