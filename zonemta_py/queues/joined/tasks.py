"""A task in several queues is one: ordered with one number, seen in one preview, with one progress and one undo.

Its state is that of the queue that is least far: it runs while one does, it can be undone while it can be anywhere; but
once one has undone or canceled it, this is what has become of it, as where it changed nothing there is nothing to undo.
It runs, too, while a queue is late, and has not heard of it or of its end.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.core import tasks as table
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.apply import EXAMPLES_MAX
from zonemta_py.queue.tasks.preview import COUNTING, PREVIEWED
from zonemta_py.queue.tasks.rows import remarks
from zonemta_py.queues.joined.asked import AskedQueues

Row = dict[str, Any]
_STATES = (COUNTING, PREVIEWED, "running", "undone", "canceled", "undoable", "done")
"""That which comes first here of those that it has anywhere is the task's."""
_WORK = (table.RUNNING, table.UNDOING, table.ENDING, table.UNDONE, table.CANCELED, table.UNDOABLE, table.DONE)
"""The same of what a queue knows of it."""
_OVER = frozenset(("undoable", "done", "canceled", "undone"))
ORDER_MS = 60_000
"""So long at most an order waits for those before it and for its log."""
_TURNED = frozenset(("canceled", "undone"))


def next_number(queues: AskedQueues) -> int:
    """Of a task that is ordered now. It grows with time; two that two processes order at once have different ones, or
    the second is refused."""
    queues.last_number = max(queues.last_number + 1, queues.now_ms() * 1000 + random.randrange(1000))
    return queues.last_number


async def preview(queues: AskedQueues, id: str = "", **given: Any) -> Row:
    order = given | {"id": id or f"p{next_number(queues):x}"}
    return joined((await queues.each(questions.task_preview, order)).values())


async def task(queues: AskedQueues, number: int = 0, **given: Any) -> Row:
    return row_of(queues, await queues.ordered(questions.task, given | {"number": number or next_number(queues)}))


async def start(queues: AskedQueues, id: str, by: str = "", cause: str = "", undo_s: float | None = None) -> Row:
    """Orders what was seen: a queue that has no preview of it, as it was started since, has the order all the same."""
    try:
        seen = await one(queues, id)
    except Refused:
        seen = {"state": ""}
    if seen["state"] == COUNTING:
        raise Refused(f"preview {id} is still being counted; wait for it")
    if seen["state"] != PREVIEWED:
        raise Refused(f"there is no preview {id!r}; it is kept for an hour, make another one")
    given = {name: seen[name] for name in ("verb", "where", "set")}
    return await task(queues, **given, by=by or seen["by"], cause=cause or seen["cause"], undo_s=undo_s, preview=id)


async def one(queues: AskedQueues, id: str) -> Row:
    return row_of(queues, await queues.each(questions.task_row, {"id": id}))


async def rows(queues: AskedQueues, limit: int = 100, after: str = "") -> list[Row]:
    found = dict[str, dict[int, Row]]()
    for number, page in (await queues.each(questions.tasks, {"limit": limit, "after": after})).items():
        for row in page:
            found.setdefault(row["id"], {})[number] = row
    return sorted((row_of(queues, of) for of in found.values()), key=_newer, reverse=True)[:limit]


def _newer(row: Row) -> tuple[bool, int, str]:
    """Grows with how new it is; previews come first."""
    seen = not row["id"].isdigit()
    return seen, row["created_ms"] if seen else int(row["id"]), row["id"]


async def states(queues: AskedQueues) -> dict[str, str]:
    found, each = dict[str, str](), await queues.each(questions.task_states, {})
    for its in each.values():
        for id, state in its.items():
            found[id] = min(state, found.get(id, state), key=_WORK.index)
    for number in queues.asks:
        if (since_ms := queues.lacks_ms(number)) < inf:
            lacking = [id for id in found if id not in each.get(number, ()) and _given_ms(id) >= since_ms]
            found |= dict.fromkeys(lacking, table.RUNNING)
    return found


async def cancel(queues: AskedQueues, **order: Any) -> Row:
    """Refused where it is over everywhere, as what it is in all."""
    row = await one(queues, order["id"])
    if row["id"].isdigit() and row["state"] in _OVER:
        raise Refused(f"task {row['id']} is {row['state']}: there is nothing left of it to cancel")
    return await _turned(queues, order["id"], await queues.ordered(questions.task_cancel, order))


async def undo(queues: AskedQueues, **order: Any) -> Row:
    try:
        found = await queues.ordered(questions.task_undo, order)
    except Refused:
        row = await one(queues, order["id"])
        if row["state"] in _OVER and row["done"]:  # most of them may say that they have changed nothing
            why = "it was undone already" if row["state"] == "undone" else "the time for that is over"
            raise Refused(f"task {order['id']} cannot be undone: {why}") from None
        raise
    return await _turned(queues, order["id"], found)


async def _turned(queues: AskedQueues, id: str, found: Mapping[int, Row]) -> Row:
    """Where it was refused, there was nothing to do; but its counts are its own there, too."""
    if len(found) == len(queues.asks):
        return row_of(queues, found)
    others = [number for number in queues.asks if number not in found]
    try:
        more = await queues.each(questions.task_row, {"id": id}, others)
    except Refused:
        more = {}
    return row_of(queues, {**found, **more})


def row_of(queues: AskedQueues, each: Mapping[int, Row]) -> Row:
    """One row of what each queue has said of a task, by its number."""
    row = joined(each.values())
    if row["state"] in _OVER and any(_is_late(each, number, queues.lacks_ms(number)) for number in queues.asks):
        row |= {"state": "running", "ended_ms": 0}
    return row


def _is_late(each: Mapping[int, Row], number: int, lacks_ms: float) -> bool:
    """Whether a queue may not have heard yet of the task, or that it was undone or canceled, as others have."""
    if number not in each:
        return _given_ms(next(iter(each.values()))["id"]) >= lacks_ms
    turned = any(row["state"] in _TURNED for row in each.values())
    return lacks_ms < inf and turned and each[number]["state"] not in _TURNED


def _given_ms(id: str) -> float:
    """A moment after which the order was not given."""
    return int(id) / 1000 + ORDER_MS if id.isdigit() else 0


def joined(each: Iterable[Row]) -> Row:
    """One row of several queues' rows of a task."""
    found = list(each)
    state = min((row["state"] for row in found), key=_STATES.index)
    zones, counts = dict[str, int](), [row["count"] for row in found]
    for row in found:
        for zone, count in row["zones"].items():
            zones[zone] = zones.get(zone, 0) + count
    untils = [row["undo_until_ms"] for row in found if row["undo_until_ms"]]
    examples = sorted((one for row in found for one in row["examples"]), key=lambda one: (one["id"], one["recipient"]))
    suppressed = sum(row["suppressed"] for row in found)
    return found[0] | {
        "state": state, "count": None if None in counts else sum(counts), "done": sum(row["done"] for row in found),
        "undone": sum(row["undone"] for row in found), "zones": zones, "examples": examples[:EXAMPLES_MAX],
        "created_ms": min(row["created_ms"] for row in found), "undo_until_ms": min(untils, default=0),
        "undoable": any(row["undoable"] for row in found), "suppressed": suppressed,
        "ended_ms": max(row["ended_ms"] for row in found) if state in (*_OVER, PREVIEWED) else 0,
        "remarks": remarks(found[0]["verb"], found[0]["where"], suppressed),
    }  # fmt: skip
