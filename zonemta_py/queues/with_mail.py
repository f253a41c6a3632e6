"""What goes with messages from queue to queue, and is there before them: campaigns that they name, and tasks that can
undo what they have done to them.

Failures: QueueRefusal: the disk refuses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.taken import CAMPAIGN, TASK, TakenRecord
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.tasks import Task
from zonemta_py.queue.lifecycle.moved import Contents


async def take_campaign(
    taker: Core, queue: int, copy: Campaign, parts: list[Operation], keep: bool = False
) -> None:  # fmt: skip
    """Of that queue: it is here from now on, with its template. keep: as of `written`. Raises QueueRefusal."""
    name = copy.name
    record(taker, CAMPAIGN, queue, {"name": name, "at": 0, "record": copy.stored(), "counts": []})
    await taker.disk.journal.stable()
    taker.campaigns.take_over(copy)
    await written(taker, [*parts, (keys.campaign(name), copy.record()), (keys.left(name), None)], keep)


def copy_of(giver: Core, campaign: Campaign) -> tuple[Campaign, list[Operation]]:
    """As another queue has it, and its template."""
    numbers = range(1, campaign.chunks + 1)
    found = ((number, giver.disk.store.get(keys.template(campaign.name, number))) for number in numbers)
    parts: list[Operation] = [(keys.template(campaign.name, number), part) for number, part in found]
    return replace(campaign, base=[], first="", seq=0), parts


def tasks_of(giver: Core, found: list[Contents]) -> list[Task]:
    """Those that have done something to these recipients."""
    numbers = {part.place.task for one in found for part in one.parts if part.place.task}
    numbers |= {step[0] for one in found for part in one.parts for step in part.note.done or ()}
    return [giver.tasks.by_number[number] for number in sorted(numbers & giver.tasks.by_number.keys())]


async def take_tasks(taker: Core, queue: int, apart_ms: int, tasks: Iterable[Task]) -> None:
    """Those that can undo what they have done to recipients are here before them, and can undo it here as long as
    there: this queue's own may have had nothing to do, and be over. apart_ms: by how much steady time is later here.
    Raises QueueRefusal."""
    if lacking := [task for task in (by_clock(one, apart_ms) for one in tasks) if taker.tasks.turns(task)]:
        for task in lacking:
            taker.tasks.take_over(await recorded_task(queue, taker, without_figures(task), 0))
        await written(taker, [])


def by_clock(task: Task, apart_ms: int) -> Task:
    """With steady times of the other queue."""
    return replace(task, now_ms=task.now_ms + apart_ms, until_ms=task.until_ms and task.until_ms + apart_ms)


async def recorded_task(queue: int, taker: Core, task: Task, at: int) -> Task:
    """task: as it is there. queue: the number of the other."""
    seq = record(taker, TASK, queue, {**packing.unpack(task.row()), "at": at})
    await taker.disk.journal.stable()
    return replace(task, seq=seq)


def without_figures(task: Task) -> Task:
    return replace(task, done=0, undone=0, count=None if task.count is None else 0, zones={}, examples=[], suppressed=0)


def record(taker: Core, what: str, queue: int, value: Any) -> int:
    """Its number. queue: whose it was."""
    return taker.disk.ledger.append(Type.TAKEN, TakenRecord(what, queue, value).pack())


async def written(core: Core, changes: list[Operation], keep: bool = False) -> None:
    """On stable storage when this returns. keep: it waits as long as it takes; else raises QueueRefusal: nothing is."""
    done: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    core.disk.lines.submit(changes, done.set_result, sync=True, keep=keep)
    if (reply := await asyncio.shield(done)) is not None:
        raise QueueRefusal(reply)
