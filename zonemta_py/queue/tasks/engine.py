"""The engine of tasks: an order is in effect at once, and done in the background, one task after another.

While a task is being done, what it applies to is taken out of each batch that is about to be leased (`Engine.divert`);
a sweep does the rest (`sweep.py`), in at most a fifth of the loop's time, and no faster than the disks take it. Then
it can be undone for a while; after that a deletion is final: REMOVED records end its recipients.

Failures: after a disk error a sweep begins again; a crash leaves tasks where the journal says, and they go on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged, StoreError
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.mail.reroute import REROUTE
from zonemta_py.queue.core import tasks as table
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import State
from zonemta_py.queue.core.tasks import (
    CANCELED,
    DONE,
    ENDING,
    RUNNING,
    STANDING,
    UNDOABLE,
    UNDOING,
    UNDONE,
    WORK,
    Ordered,
    Task,
)
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.removal import remove_walked
from zonemta_py.queue.tasks import apply
from zonemta_py.queue.tasks.aim import DIVERTING, Aim, EndAim, UndoAim
from zonemta_py.queue.tasks.change import DELETING
from zonemta_py.queue.tasks.sweep import WAIT, TaskSweep
from zonemta_py.schedule.batch import Entry, ZoneFace
from zonemta_py.schedule.zone import ZoneSchedule

log = logging.getLogger(__name__)

CAMPAIGN = "campaign cancel"
"""By whom the mail of a campaign that is not registered is deleted."""
AT_ONCE_S = 0.003
"""How long the event loop waits for a sweep, at most about."""
SHARE = 4
"""For each second of work it rests so many."""
AHEAD_MAX = 2_000
"""Recipients whose changes are not in the store yet."""
WAIT_S = 0.05
LOOK_S = 0.5
_ORDERED = {"delete": State.DELETED, "purge": State.DELETED, "hold": State.HELD}
PROBED = 100
"""Recipients that are looked at to see whether a destination is meant."""
KEPT_MS = 30 * 86_400_000
KEPT_MOST = 1_000
"""How long, and how many, tasks that have ended are listed."""


class Engine:
    """Does what the table of tasks says. One for each queue."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue, self._core = queue, queue.core
        self._aims: dict[int, Aim] = {}
        """Of the tasks that are being done, in their order."""
        self._sweep: TaskSweep | None = None
        self._parked: dict[int, tuple[TaskSweep, Iterator[int]]] = {}
        """Those that wait for nothing but senders, or for an earlier one that does: others go on."""
        self._again = asyncio.Event()
        self._stop: set[int] = set()
        self._worker: asyncio.Task[None] | None = None
        tasks = self._core.tasks
        tasks.divert, tasks.meant, tasks.moved = self.divert, self.meant, self.moved
        tasks.ordered = self.ordered
        tasks.suppressed, tasks.rehome = queue.suppression.stops, self.rehome
        self._standing: dict[str, Task] = {}
        """By zone, what has the recipients that reroutes send there."""

    # -- orders

    def begin(self) -> None:
        """After recovery: goes on with what has not been done, before anything is leased."""
        for task in sorted(self._core.tasks.by_number.values(), key=lambda one: one.number):
            if task.state == RUNNING:
                try:
                    self._aims[task.number] = Aim(self._core, task)
                except ValueError as error:  # of another version
                    log.error("task %d cannot go on: %s", task.number, error)
                    self._stop.add(task.number)
            if task.stopped:
                self._stop.add(task.number)
        if self._core.tasks.listed:
            self._work_on()

    def rest(self) -> None:
        """Nothing more is done in this process."""
        if self._worker is not None:
            self._worker.cancel()

    def order(self, task: Task, value: dict[str, Any], number: int = 0) -> Task:
        """In effect from now on; permanent once its record is stable. number: 0: that of its record, unless there was
        a larger one."""
        core = self._core
        ms, last = core.clock.ms(), max(*self._aims, *[one.number for one in core.tasks.listed], 0, 0)
        if not number and last >= core.disk.journal.next_seq:
            number = last + 1
        record = TaskRecord(table.CREATED, number, value)
        seq = core.disk.ledger.open(Type.TASK, record.pack(), ms)
        task.number, task.seq = number or seq, seq
        task.created_ms = ms
        self._aims[task.number] = Aim(core, task)
        core.disk.journal.when_stable(partial(core.disk.ledger.apply, seq, partial(self._created, task)))
        self._work_on()
        return task

    def rehome(self, zone: str, other: str, entries: list[Entry]) -> None:
        """Sends recipients on by a reroute, or back, with a record of its own. Raises StoreError: nothing was done."""
        task = self._standing.get(other)
        if task is None or self._core.tasks.by_number.get(task.number, task) is not task:
            known = (one for one in self._core.tasks.by_number.values() if one.state == STANDING)
            task = next((one for one in known if one.change["zone"] == other), None) or self._stand(other)
            self._standing[other] = task
        apply.write(self._core, task, zone, entries)

    def _stand(self, zone: str) -> Task:
        """Numbers as several queues give them: other queues' are others, if it moves there."""
        core = self._core
        number = core.clock.ms() * 1000 + random.randrange(1000)
        while number in core.tasks.by_number:
            number += 1
        value = {
            "verb": "move", "where": {"all": True}, "change": {"zone": zone}, "by": REROUTE, "cause": "", "but": [],
            "until_id": "", "now_ms": core.clock.steady_ms(), "undo_s": 0, "count": None, "state": STANDING,
        }  # fmt: skip
        ms = core.clock.ms()
        seq = core.disk.ledger.open(Type.TASK, TaskRecord(table.CREATED, number, value).pack(), ms)
        task = Task.of(value | {"number": number, "created_ms": ms, "seq": seq})
        core.disk.journal.when_stable(partial(core.disk.ledger.apply, seq, partial(core.tasks.add, task)))
        return task

    def _created(self, task: Task) -> None:
        self._core.tasks.add(task)
        self._again.set()

    def turn(self, task: Task, what: str, value: dict[str, Any]) -> None:
        """Records what becomes of the task (`core.tasks.Tasks.take`)."""
        core = self._core
        ms, record = core.clock.ms(), TaskRecord(what, task.number, value)
        seq = core.disk.ledger.open(Type.TASK, record.pack(), ms)
        core.disk.journal.when_stable(partial(core.disk.ledger.apply, seq, partial(self._turned, seq, ms, record)))
        if what in (table.CANCEL, table.UNDO):
            self._stop.add(task.number)
            self._parked.pop(task.number, None)
        self._work_on()

    def _turned(self, seq: int, ms: int, record: TaskRecord) -> None:
        self._core.tasks.take(seq, ms, record)
        self._again.set()

    def _work_on(self) -> None:
        self._set_active()
        self._again.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
            self._core.keep(self._worker)

    def _set_active(self) -> None:
        self._core.tasks.active = bool(self._aims) or self._sweep is not None

    # -- what is about to be leased

    def meant(self, entry: Entry) -> bool:
        """Whether a task is about to take it away."""
        return any(aim.task.verb in DIVERTING and aim.applies(entry.key, entry.note) for aim in self._aims.values())

    def ordered(self, key: bytes, value: bytes) -> Ordered | None:
        """What a task is about to make of it. Raises StoreError."""
        for aim in self._aims.values():
            state = _ORDERED.get(aim.task.verb)
            if state is not None and aim.task.number not in self._stop and aim.applies(key, value):
                return Ordered(state, aim.task.number)
        return None

    def divert(self, zone: ZoneFace, entries: list[Entry]) -> list[Entry]:
        """Raises StoreError: nothing has been done."""
        for aim in self._aims.values():
            if aim.task.verb not in DIVERTING or aim.task.number in self._stop:
                continue
            found = [entry for entry in entries if aim.applies(entry.key, entry.note)]
            if found:
                home = self._core.schedule.zones[zone.zone.name]
                left = self._do(aim.task, home, found)
                gone = {id(entry) for entry in found} - {id(entry) for entry in left}
                entries = [entry for entry in entries if id(entry) not in gone]
        return entries

    def moved(self, operations: list[Operation]) -> None:
        """Recipients have new keys."""
        for sweep in [one for one, _ in self._parked.values()] + ([self._sweep] if self._sweep else []):
            sweep.moved(operations)

    # -- what is done

    def _do(self, task: Task, zone: ZoneSchedule, entries: list[Entry]) -> list[Entry]:
        """Returns those to which nothing can be done."""
        if task.verb not in DELETING or task.undo_s > 0:
            apply.write(self._core, task, zone.zone.name, entries)
            return []
        return remove_walked(self._core, zone, entries, partial(reason, task), task.number)

    def _act(self, task: Task, zone: ZoneSchedule, entries: list[Entry]) -> None:
        for entry in self._do(task, zone, entries):
            self._put_back(zone, entry)

    def _undo(self, task: Task, zone: ZoneSchedule, entries: list[Entry]) -> None:
        apply.write(self._core, task, zone.zone.name, entries, undo=True)

    def _end(self, task: Task, zone: ZoneSchedule, entries: list[Entry]) -> None:
        remove_walked(self._core, zone, entries, partial(reason, task))

    def _put_back(self, zone: ZoneSchedule, entry: Entry) -> None:
        """A recipient of a damaged message that was in the window."""
        if entry.key in self._core.schedule.busy:
            zone.put(zone.flow_queues.of(entry.id, entry.address, entry.note), entry)

    def _leased(self) -> set[bytes]:
        return {entry.key for lease in self._queue.leases.out.values() for entry in lease.open}

    def waits_for_senders(self, task: Task) -> bool:
        """Whether all is done but for what is being delivered."""
        return task.number in self._parked

    # -- the worker

    async def _work(self) -> None:
        core = self._core
        await core.when_ready.wait()
        while not core.disk.closed:
            self._again.clear()
            task = self._next()
            if task is not None:
                await self._try(task)
            elif not await self._look():
                return
            else:
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S if self._parked else LOOK_S):
                await self._again.wait()
        except TimeoutError:
            return

    def _next(self) -> Task | None:
        """What was ordered first, of that for which something can be done; of several undos the latest task's, so that
        the one before it finds its own work again."""
        known = (task for task in self._core.tasks.by_number.values() if task.state in WORK)
        ready = [one for one in known if one.number not in self._parked or self._parked[one.number][0].ready()]
        first = min(ready, key=lambda one: one.number, default=None)
        if first is None or first.state != UNDOING:
            return first
        return max((one for one in ready if one.state == UNDOING), key=lambda one: one.number)

    async def _try(self, task: Task) -> None:
        core = self._core
        try:
            await self._one(task)
        except StoreDamaged as error:
            core.disk.read_failed(error)
            await asyncio.sleep(LOOK_S)
        except StoreError as error:
            log.info("%s; task %d is tried again", error, task.number)
            await asyncio.sleep(LOOK_S)
        except Exception:
            log.exception("task %d: it is tried again", task.number)
            await asyncio.sleep(10 * LOOK_S)

    async def _look(self) -> bool:
        """Whether there is something to wait for: an order that is not stable yet, an undo whose time will be over."""
        core, waiting, told = self._core, bool(self._aims), False
        now_ms = core.clock.steady_ms()
        for task in core.tasks.listed:
            if task.state in (UNDOABLE, CANCELED) and task.until_ms:
                waiting = True
                if now_ms >= task.until_ms:
                    last = CANCELED if task.stopped else DONE
                    self._ended(task, ENDING if task.verb in DELETING else last)  # others may have counted it
                    told = True
        self._forget()
        if told:
            await core.disk.journal.stable()
        return waiting

    def _forget(self) -> None:
        """Those that ended long ago are listed no longer."""
        tasks, now_ms = self._core.tasks, self._core.clock.ms()
        over = [task for task in tasks.listed if task.state not in WORK and not task.until_ms]
        over.sort(key=lambda one: -one.number)
        for place, task in enumerate(over):
            if place >= KEPT_MOST or now_ms - task.ended_ms > KEPT_MS:
                tasks.forget(task)

    async def _one(self, task: Task) -> None:
        """One pass for one task, or the rest of it. Raises StoreError."""
        core, state, act = self._core, task.state, self._acts()[task.state]
        await core.disk.lines.stable()  # what was taken out of batches meanwhile
        parked = self._parked.pop(task.number, None)
        sweep, steps = parked if parked is not None else self._begun(task, act)
        self._sweep = sweep
        self._set_active()
        try:
            if sweep is not None and task.state == RUNNING and task.verb == "flush":
                await probe(core, sweep.aim)
            whole = await self._drive(task, sweep, steps)
        finally:
            self._sweep = None
            self._set_active()
        await core.disk.journal.stable()  # what was done is counted
        await core.disk.lines.stable()
        if task.state != state:  # an undo has come meanwhile
            self._drop(task)
        elif whole or task.number in self._stop:
            self._over(task)
        elif sweep is not None and not core.disk.closed:
            self._parked[task.number] = sweep, steps
        await core.disk.journal.stable()

    def _begun(
        self, task: Task, act: Callable[[Task, ZoneSchedule, list[Entry]], None]
    ) -> tuple[TaskSweep | None, Iterator[int]]:
        """None: it cannot be done (`begin`)."""
        if task.state == RUNNING and task.number not in self._aims:
            return None, iter(())
        aim = self._aim(task)
        sweep = TaskSweep(self._core, aim, partial(act, task), self._leased, partial(self._before, aim))
        return sweep, sweep.run()

    def _before(self, aim: Aim) -> bool:
        """Whether an earlier task waits for something that is then this one's."""
        earlier = (one for number, (one, _) in self._parked.items() if number < aim.task.number)
        return aim.waits and any(sweep.may_hand(aim) for sweep in earlier)

    def _aim(self, task: Task) -> Aim:
        if task.state == RUNNING:
            return self._aims[task.number]
        return (UndoAim if task.state == UNDOING else EndAim)(self._core, task)

    def _acts(self) -> dict[str, Callable[[Task, ZoneSchedule, list[Entry]], None]]:
        return {RUNNING: self._act, UNDOING: self._undo, ENDING: self._end}

    async def _drive(self, task: Task, sweep: TaskSweep | None, steps: Iterator[int]) -> bool:
        """Lets the sweep go on a little at a time; False: it was stopped, or waits for senders."""
        core, ahead = self._core, 0
        begin = perf_counter()
        for step in steps:
            if core.disk.closed or (task.state == RUNNING and task.number in self._stop):
                return False
            if step == WAIT:
                if sweep is not None and sweep.only_leased and not core.disk.store.fenced:
                    return False
                await asyncio.sleep(WAIT_S)
                begin = perf_counter()
                continue
            ahead += step
            took = perf_counter() - begin
            if took >= AT_ONCE_S or ahead >= AHEAD_MAX:
                await asyncio.sleep(took * SHARE)
                if ahead >= AHEAD_MAX:
                    await core.disk.journal.stable()
                    await core.disk.lines.stable()
                    ahead = 0
                begin = perf_counter()
        return True

    def _drop(self, task: Task) -> None:
        self._aims.pop(task.number, None)
        self._parked.pop(task.number, None)
        self._stop.discard(task.number)
        self._set_active()

    def _over(self, task: Task) -> None:
        """Its sweep has come to the end, or was stopped."""
        stopped = task.number in self._stop or task.stopped
        if task.state == RUNNING and (aim := self._aims.get(task.number)) is not None:
            task.suppressed = aim.suppressed
        self._drop(task)
        undoable = task.undo_s > 0 and task.done > task.undone
        if task.state == RUNNING:
            self._ended(task, CANCELED if stopped else UNDOABLE if undoable else DONE, undoable)
        elif task.state == UNDOING:
            self._ended(task, UNDONE)
        else:
            self._ended(task, CANCELED if task.stopped else DONE)

    def _ended(self, task: Task, state: str, undoable: bool = False) -> None:
        until_ms = self._core.clock.steady_ms() + int(task.undo_s * 1000) if undoable else 0
        value: dict[str, Any] = {"state": state, "until_ms": until_ms, "done": task.done, "undone": task.undone}
        self.turn(task, table.ENDED, value | ({"suppressed": task.suppressed} if task.suppressed else {}))


async def probe(core: Core, aim: Aim) -> None:
    """Destinations that rest are tried now, if the first of those that wait for them are meant."""
    for zone in [core.schedule.zones[name] for name in aim.zones()]:
        for path in [path for path in zone.flow_queues.paths.values() if path.down_until]:
            await asyncio.sleep(0)
            if any(_is_meant(core, aim, zone, name) for name in [one.key for one in path.flow_queues.values()]):
                zone.probe(path)
    core.changed()


def _is_meant(core: Core, aim: Aim, zone: ZoneSchedule, flow_queue: str) -> bool:
    prefix = keys.parked_range(zone.zone.name, flow_queue)
    rows = islice(core.disk.store.scan(prefix, keys.end(prefix)), PROBED)
    return any(aim.covers(key, value) for key, value in rows)


def reason(task: Task, _: Entry) -> str:
    """As REMOVED records say it."""
    if task.by == CAMPAIGN:
        return task.cause
    return f"deleted by {task.by}" + (f": {task.cause}" if task.cause else "")
