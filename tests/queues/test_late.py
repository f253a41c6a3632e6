"""A queue that is late with an order which was answered: what has come since is not meant by it, and a task is not over
before all queues have done it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.conftest import House
from tests.queue.conftest import house as house
from tests.queues.conftest import envelope
from zonemta_py.queues.member import DONE, Member

Make = Callable[..., Any]


async def done(home: House, number: int) -> int:
    while (row := await home.queue.ask("task-row", id=str(number)))["state"] == "running":
        await home.rest()
    return int(row["done"])


@pytest.mark.parametrize(
    ("after_s", "leases", "late"), [(3, False, True), (3, True, True), (0.2, False, True), (0.2, True, False)]
)
async def test_a_late_queue_leaves_what_has_come_since(house: Make, after_s: float, leases: bool, late: bool) -> None:
    """One that may lease, and soon hears of it, is not late: the order is not answered before it has carried it out.
    One that hears of it later may lease again, and it was answered in between."""
    home = await house()
    member = home.queue.core.membership = Member(home.queue)
    await home.put("before@x.test")
    number = home.clock.ms() * 1000 + 7
    await home.move(after_s)
    await home.put("since@x.test")
    if leases:
        await member.share(home.clock.monotonic() + 2, [], 0)
    task = {"verb": "delete", "where": {"domain": "x.test"}, "undo_s": 0, "number": number}
    answer = await member.carry_out(1, "task", task, True, False)
    assert answer[0] == DONE
    assert await done(home, number) == (1 if late else 2)
    left = [row["recipient"] for row in await home.listed()]
    assert left == (["since@x.test"] if late else [])


async def test_a_task_runs_until_all_queues_have_heard_of_it(three_and_one: Make) -> None:
    """Of its order, of its undo; whether one asks for it or for all of them."""
    three, _ = await three_and_one()
    for number in range(30):
        await three.put_envelope(envelope(f"p@d{number}.test"))
    await three.rest()
    three.late = {2}
    row = await three.ask("task", verb="delete", where={"all": True})
    await three.rest()
    for _ in range(100):
        row = await three.ask("task-row", id=row["id"])
        await three.rest()
    assert (row["state"], row["done"] < 30) == ("running", True)
    assert (await three.ask("tasks"))[0]["state"] == "running"
    assert (await three.ask("task-states"))[row["id"]] == "running"
    await three.catch_up()
    row = await over(three, row)
    assert (row["state"], row["done"]) == ("undoable", 30)
    three.late = {1}
    row = await three.ask("task-undo", id=row["id"])
    for _ in range(100):
        row = await three.ask("task-row", id=row["id"])
        await three.rest()
    assert (row["state"], row["undone"] < 30) == ("running", True)
    await three.catch_up()
    row = await over(three, row)
    assert (row["state"], row["undone"]) == ("undone", 30)


async def over(three: Any, row: dict[str, Any]) -> dict[str, Any]:
    while row["state"] == "running":
        await three.rest()
        row = await three.ask("task-row", id=row["id"])
    return row
