"""The table of tasks: what operators ordered for many recipients at once, and how far each is.

It is kept in memory and written, where it has changed, in the same LevelDB batch as the recipients themselves; so what
a task has done is counted once, whichever batch a crash leaves as the last. Each row says which record of the journal
it has: replay applies later ones only. What is done for a task, and when: `queue.tasks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from zonemta_py.config import Zone
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.records.orders import TaskRecord
from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.core.state import State
from zonemta_py.schedule.batch import Entry, ZoneFace
from zonemta_py.schedule.flow import FlowId

ERASED = "(erased)"
_EXAMPLES_MAX = 10
RUNNING, UNDOABLE, DONE = "running", "undoable", "done"
STANDING = "standing"
"""The state of a task that nobody has ordered: it has what reroutes send to a zone, or back, and is listed nowhere."""
CANCELED, UNDOING, UNDONE, ENDING = "canceled", "undoing", "undone", "ending"
WORK = (RUNNING, UNDOING, ENDING)
"""States in which there is something to do for it."""
_JOINED = (RUNNING, UNDOING, UNDOABLE, ENDING, UNDONE, CANCELED, DONE, STANDING)
"""Of the states that a task has in two queues, that which comes first here is that of both; one that was canceled and
can be undone counts as UNDOABLE."""
STATES = (RUNNING, UNDOABLE, DONE, CANCELED, UNDOING, UNDONE, ENDING)
CREATED, DID, UNDID, CANCEL, UNDO, ENDED = "created", "did", "undid", "canceled", "undone", "ended"
"""What a TASK record says."""


@dataclass(slots=True)
class Task:
    """One of them. number: of the record that ordered it, or as that says; seq: of that which changed its row last.

    where, change: the filter, and what is set. until_id: the last message id that was given out before it; but: those
    of them that were not accepted yet. now_ms: steady time of the order. undo_s: how long it can be undone after its
    end. state: one of this module. count: recipients of its preview, None: not known; done: recipients to whom it was
    done, undone: and undone again. until_ms: steady time until which it can be undone. request:
    hash and key of the request that ordered it, if it had one. suppressed: recipients that it leaves as they are, since
    they are on the suppression list.
    """

    number: int
    verb: str
    where: dict[str, Any]
    change: dict[str, Any]
    by: str
    cause: str
    until_id: str
    but: list[str]
    now_ms: int
    created_ms: int
    undo_s: float
    state: str = RUNNING
    seq: int = 0
    count: int | None = None
    done: int = 0
    undone: int = 0
    ended_ms: int = 0
    until_ms: int = 0
    zones: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    request: str = ""
    suppressed: int = 0

    def row(self) -> bytes:
        return packing.pack(asdict(self))

    @classmethod
    def of(cls, row: dict[str, Any]) -> Task:
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in row.items() if name in known})


class Ordered(NamedTuple):
    """What a recipient is for all who ask, although it has not been done yet."""

    state: State
    task: int

    @property
    def cause(self) -> str:
        """What it waits for, in a few words."""
        return f"task {self.task} {'deletes' if self.state == State.DELETED else 'holds'} it"


class Tasks:
    """By number. active: some have not been done to the end. moved: hears of new keys of recipients meanwhile.

    divert: takes those of some entries that an active task takes away; returns the others. meant: whether it does.
    ordered: whether an active task is about to delete or hold the recipient of that key and value, and its number.
    rehome: sends recipients of a zone to another, by a reroute, or back.
    suppressed: whether that recipient of a message is on the suppression list.
    """

    def __init__(self, store: Store) -> None:
        self.by_number: dict[int, Task] = {}
        self.unwritten: set[int] = set()
        self.written: set[int] = set()
        self.active = False
        self.shortest_life_h = math.inf
        """The shortest lifetime that one of them has set."""
        self.divert: Callable[[ZoneFace, list[Entry]], list[Entry]] = lambda _, entries: entries
        self.meant: Callable[[Entry], bool] = lambda _: False
        self.ordered: Callable[[bytes, bytes], Ordered | None] = lambda *_: None
        self.moved: Callable[[list[Operation]], None] = lambda _: None
        self.rehome: Callable[[str, str, list[Entry]], None] = lambda *_: None
        self.suppressed: Callable[[str, str, Zone, FlowId], bool] = lambda *_: False
        for _, value in store.scan(keys.TASKS, keys.end(keys.TASKS)):
            task = Task.of(packing.unpack(value))
            self._take(task)

    @property
    def listed(self) -> list[Task]:
        """Those that were ordered."""
        return [task for task in self.by_number.values() if task.state != STANDING]

    def erase(self, who: str) -> None:
        """A person is taken out: as an example, in a filter, in a cause. who: the canonical address. A filter that
        names nobody else finds nothing any more, as there is nothing left."""
        for task in self.by_number.values():
            examples = [row for row in task.examples if person(row["recipient"]) != who]
            where = {name: _without(value, who) for name, value in task.where.items()}
            cause = re.sub(re.escape(who), ERASED, task.cause, flags=re.IGNORECASE)
            if (examples, where, cause) != (task.examples, task.where, task.cause):
                task.examples, task.where, task.cause = examples, where, cause
                self.changed(task)

    def add(self, task: Task) -> None:
        """It was ordered, and that is stable."""
        self._take(task)
        self.changed(task)

    def _take(self, task: Task) -> None:
        self.by_number[task.number] = task
        self.shortest_life_h = min(self.shortest_life_h, task.change.get("life_h", math.inf))

    def changed(self, task: Task) -> None:
        """Its row is written with the next batch."""
        self.unwritten.add(task.number)

    def forget(self, task: Task) -> None:
        """Its row is deleted with the next batch."""
        del self.by_number[task.number]
        self.unwritten.add(task.number)

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        found = [(number, self.by_number.get(number)) for number in self.unwritten]
        self.written, self.unwritten = self.unwritten, set()
        return [(keys.task(number), task.row() if task is not None else None) for number, task in found]

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        self.unwritten |= self.written

    def take_over(self, task: Task) -> None:
        """Another queue had it, or the same one as this has: what it has done is added, and it can be undone as long as
        one of them can."""
        known = self.by_number.get(task.number)
        if known is None:
            self.add(task)
            return
        known.done, known.undone = known.done + task.done, known.undone + task.undone
        known.suppressed += task.suppressed
        known.count = task.count if known.count is None else known.count + (task.count or 0)
        for zone, count in task.zones.items():
            known.zones[zone] = known.zones.get(zone, 0) + count
        known.examples = (known.examples + task.examples)[:_EXAMPLES_MAX]
        known.state, known.until_ms, known.ended_ms, known.stopped = _turned(known, task)
        self.changed(known)

    def turns(self, task: Task) -> bool:
        """Whether it would have another state, or can be undone for longer, once that one is taken over."""
        known = self.by_number.get(task.number)
        return known is None or _turned(known, task) != _turned(known, known)

    def removed(self, number: int, count: int) -> None:
        """So many recipients ended at once for that task; 0: for none."""
        task = self.by_number.get(number)
        if task is not None and count:
            task.done += count
            self.changed(task)

    # -- records

    def take(self, seq: int, ms: int, record: TaskRecord) -> Task | None:
        """Applies a record about the task itself, once; None: nothing has changed."""
        if record.what == CREATED:
            number = record.number or seq
            if number in self.by_number:
                return None
            task = Task.of(record.value | {"number": number, "created_ms": ms, "seq": seq})
            self._take(task)
        else:
            known = self.by_number.get(record.number)
            if known is None or known.seq >= seq:
                return None
            task, task.seq = known, seq
            self._turn(task, ms, record)
        self.changed(task)
        return task

    def _turn(self, task: Task, ms: int, record: TaskRecord) -> None:
        value = record.value
        if record.what == CANCEL:
            task.stopped = True
        elif record.what == UNDO:
            task.state = UNDOING
        elif record.what == ENDED:
            task.state, task.ended_ms, task.until_ms = value["state"], task.ended_ms or ms, value["until_ms"]
            task.suppressed = value.get("suppressed", task.suppressed)


def _turned(one: Task, other: Task) -> tuple[str, int, int, bool]:
    """State, until_ms, ended_ms and stopped of a task that two queues have had, once one has all that it has done."""
    until_ms, stopped = max(one.until_ms, other.until_ms), one.stopped or other.stopped
    found = (UNDOABLE if task.state == CANCELED and task.until_ms else task.state for task in (one, other))
    state = min(found, key=_JOINED.index)
    if state == UNDOABLE and stopped:
        state = CANCELED
    return state, until_ms, max(one.ended_ms, other.ended_ms), stopped


def _without(value: Any, who: str) -> Any:
    if isinstance(value, str):
        return ERASED if "@" in value and person(value) == who else value
    if isinstance(value, list):
        return [_without(one, who) for one in value]
    if isinstance(value, dict):
        return {name: _without(one, who) for name, one in value.items()}
    return value
