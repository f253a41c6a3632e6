"""Previews: what a task would do, counted in the background before it is ordered. Kept for an hour, in memory only.

The count is exact if nothing changes meanwhile: recipients that change their keys during the walk may be counted twice
or not at all, and what is being delivered at that moment is left out.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from time import perf_counter

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreDamaged, StoreFenced
from zonemta_py.queue.core.state import State
from zonemta_py.queue.core.tasks import Task
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.aim import Aim
from zonemta_py.queue.tasks.apply import EXAMPLES_MAX
from zonemta_py.queue.tasks.engine import AT_ONCE_S, SHARE

KEPT_MS = 3_600_000
KEPT_MOST = 20
COUNTING, PREVIEWED = "counting", "previewed"
_WALKED_AT_ONCE = 100


class Previews:
    """Those of the last hour, the newest last; one is counted at a time."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue, self._core = queue, queue.core
        self.kept: dict[str, Task] = {}
        self._number = 0
        self._turn = asyncio.Lock()

    def begin(self, task: Task, ident: str = "") -> str:
        """Counts it from now on; its id. ident: default: the next one."""
        self._tidy()
        self._number += not ident
        ident = ident or f"p{self._number}"
        task.state, task.count = COUNTING, 0
        self.kept[ident] = task
        self._core.keep(asyncio.ensure_future(self._count(task)))
        return ident

    def counted(self, ident: str) -> Task:
        """One that may be ordered. Raises ValueError."""
        task = self.kept.get(ident)
        if task is None:
            raise Refused(f"there is no preview {ident!r}; it is kept for an hour, make another one")
        if task.state != PREVIEWED:
            raise Refused(f"preview {ident} is still being counted; wait for it")
        return task

    def _tidy(self) -> None:
        now_ms = self._core.clock.ms()
        for ident in [one for one, task in self.kept.items() if now_ms - task.created_ms > KEPT_MS]:
            del self.kept[ident]
        for ident in list(self.kept)[: 1 - KEPT_MOST]:
            del self.kept[ident]

    async def _count(self, task: Task) -> None:
        core = self._core
        async with self._turn:
            await core.disk.lines.stable()
            aim, begin = Aim(core, task), perf_counter()
            for zone in aim.zones():
                for family in aim.families:
                    prefix = aim.prefix(zone, family)
                    start, stop = prefix, keys.end(prefix)
                    while start < stop and not core.disk.closed and task.state == COUNTING:
                        start = self._portion(aim, start, stop)
                        took = perf_counter() - begin
                        if took >= AT_ONCE_S or core.disk.store.fenced:
                            await asyncio.sleep(took * SHARE)
                            begin = perf_counter()
            task.state, task.ended_ms, task.suppressed = PREVIEWED, core.clock.ms(), aim.suppressed

    def _portion(self, aim: Aim, start: bytes, stop: bytes) -> bytes:
        """Where to go on."""
        task, leased = aim.task, self._leased()
        try:
            rows = list(islice(self._core.disk.store.scan(start, stop), _WALKED_AT_ONCE))
            meant = [row for row in rows if row[0] not in leased and aim.applies(*row)]
            found = [key for key, value in meant if not self._deleted(key, value)]
        except StoreFenced:
            return start
        except StoreDamaged as error:
            self._core.disk.read_failed(error)
            return stop
        task.count = (task.count or 0) + len(found)
        for key in found:
            place = keys.place(key)
            task.zones[place.zone] = task.zones.get(place.zone, 0) + 1
            if len(task.examples) < EXAMPLES_MAX:
                task.examples.append({"id": place.id, "recipient": place.recipient, "zone": place.zone})
        return rows[-1][0] + b"\0" if rows else stop

    def _deleted(self, key: bytes, value: bytes) -> bool:
        """Whether an earlier task is about to delete it."""
        ordered = self._core.tasks.ordered(key, value) if self._core.tasks.active else None
        return ordered is not None and ordered.state == State.DELETED

    def _leased(self) -> set[bytes]:
        return {entry.key for lease in self._queue.leases.out.values() for entry in lease.open}
