"""Orders about tasks, checked, and what is told of them (`queue/questions/`). Failures: ValueError, one sentence."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core import tasks as table
from zonemta_py.queue.core.tasks import CANCELED, RUNNING, UNDOABLE, Task
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.change import REACH
from zonemta_py.queue.tasks.engine import CAMPAIGN, Engine
from zonemta_py.queue.tasks.preview import Previews
from zonemta_py.queue.tasks.rows import Row, row
from zonemta_py.queue.tasks.settings import SETTINGS, checked
from zonemta_py.queue.tasks.where import Where

OPERATOR = "an operator"
PATIENCE_S = 10.0
_LOOK_S = 0.02
LATE_MS = 500
"""An order that one of several queues hears so long after it was given, or later, is late: others may have answered."""
WAITING_MOST = 100
_TEXT_MAX = 1_000
_WHERE_MAX = 64 * 1024
_UNDO_S_MAX = 30 * 86_400
NUMBERS_END = 10**16
"""Numbers of tasks have 16 digits in keys."""


class TaskOrders:
    """Of one queue."""

    def __init__(self, queue: QueueContext) -> None:
        self._core = queue.core
        self.engine, self._previews = Engine(queue), Previews(queue)
        self._ordering: list[Task] = []

    # -- orders

    async def preview(
        self, verb: str, where: dict[str, Any], set: dict[str, Any] | None = None, by: str = "", cause: str = "",
        id: str = "",
    ) -> Row:  # fmt: skip
        await self._core.when_ready.wait()
        task = self._checked(verb, where, set, by, cause, None)
        return self._previewed(self._previews.begin(task, _text("id", id)), task)

    async def order(
        self, verb: str, where: dict[str, Any], set: dict[str, Any] | None = None, by: str = "", cause: str = "",
        undo_s: float | None = None, request: str = "", digest: str = "", number: int = 0, preview: str = "",
    ) -> Row:  # fmt: skip
        """request, digest: a key, and a hash of what is ordered: once more with the same is the same task. number: as
        which it is ordered, if it is not known by that already. preview: what it was seen in before."""
        await self._core.when_ready.wait()
        task = self._checked(verb, where, set, by, cause, undo_s)
        if number and (known := self._numbered(number, task)) is not None:
            await self._core.disk.journal.stable()
            return self._row(known)
        if (seen := self._previews.kept.get(preview)) is not None:
            task.count = seen.count
        if request:
            task.request = f"{_text('digest', digest)} {_text('request', request)}"
            if (known := self._repeated(task.request)) is not None:
                await self._core.disk.journal.stable()
                return self._row(known)
        self._check_room()
        self._previews.kept.pop(preview, None)
        return await self._ordered(task, number)

    def _numbered(self, number: int, wanted: Task) -> Task | None:
        """The task that was ordered with that number. Raises ValueError if it was another order."""
        if not 0 < number < NUMBERS_END:
            raise Refused(f"the number of a task is {number}; give one of up to 16 digits")
        for task in (*self._ordering, *self._core.tasks.by_number.values()):
            if task.number == number:
                if (task.verb, task.where) != (wanted.verb, wanted.where):
                    raise Refused(f"there is a task {number}, and it is another one; order it again")
                return task
        return None

    def _repeated(self, request: str) -> Task | None:
        """The task that this request has ordered. Raises ValueError if it was another order."""
        key = request.partition(" ")[2]
        for task in (*self._ordering, *self._core.tasks.by_number.values()):
            if task.request == request:
                return task
            if task.request.partition(" ")[2] == key:
                raise Refused(f"task {task.number} was ordered with this key, and is another one; use a new key")
        return None

    async def cancel_campaign(self, name: str, tenant: str | None, cause: str, number: int = 0) -> int:
        """Deletes for good what waits of it, but for what is being delivered, as soon as it comes back; how many.

        tenant: only that one's ("": that of none); None: all. number: of the task.
        """
        why = f"campaign {name} was canceled: {cause}"
        where = {"campaign": name} | ({} if tenant is None else {"tenant": tenant})
        row = await self.order("delete", where, by=CAMPAIGN, cause=why[:_TEXT_MAX], undo_s=0, number=number)
        task, until = self._task(row["id"]), self._core.clock.monotonic() + PATIENCE_S
        while task.state == RUNNING and not self.engine.waits_for_senders(task):
            if self._core.clock.monotonic() > until:
                break  # others are done first
            await asyncio.sleep(_LOOK_S)
        await self._core.disk.journal.stable()
        await self._core.disk.lines.stable()
        return task.done

    async def start(self, id: str, by: str = "", cause: str = "", undo_s: float | None = None) -> Row:
        seen = self._previews.counted(id)
        task = self._checked(seen.verb, seen.where, seen.change, by or seen.by, cause or seen.cause, undo_s)
        task.count = seen.count
        self._check_room()
        del self._previews.kept[id]  # what is refused stays, to be ordered otherwise
        return await self._ordered(task, 0)

    def _check_room(self) -> None:
        if sum(one.state == RUNNING for one in self._core.tasks.by_number.values()) >= WAITING_MOST:
            raise Refused(f"{WAITING_MOST} tasks are waiting to be done; wait for them, or cancel some")

    async def _ordered(self, task: Task, number: int) -> Row:
        core = self._core
        self._check_room()
        task.until_id, task.but = self._last_meant(number), sorted(core.arriving)
        names = "verb", "where", "change", "by", "cause", "until_id", "but", "now_ms", "undo_s", "count"
        value = {name: getattr(task, name) for name in names} | ({"request": task.request} if task.request else {})
        self.engine.order(task, value, number)
        self._ordering.append(task)
        try:
            await core.disk.journal.stable()
        finally:
            self._ordering.remove(task)
        return self._row(task)

    def _last_meant(self, number: int) -> str:
        """The last message there is. One of several queues may be late, for one if it may lease nothing now: the order
        may have been answered long ago, and what has come since is not meant by it; its number says when it was given,
        by the clock of who gave it."""
        core, last, given_ms = self._core, str(self._core.disk.ids.last), number // 1000
        if not number or core.membership is None:
            return last
        late = core.clock.ms() - given_ms > LATE_MS or not core.membership.may_lease()
        return min(last, keys.id_at(given_ms + 1)) if late else last

    async def cancel(self, id: str, by: str = "") -> Row:
        task = self._task(id)
        if task.state != RUNNING:
            raise Refused(f"task {id} is {self._row(task)['state']}: there is nothing left of it to cancel")
        self.engine.turn(task, table.CANCEL, {"by": _text("by", by) or OPERATOR})
        await self._core.disk.journal.stable()
        return self._row(task)

    async def undo(self, id: str, by: str = "") -> Row:
        task = self._task(id)
        if not self._undoable(task):
            raise Refused(f"task {id} cannot be undone: {_why_not(task)}")
        if task.verb == "move" and (zone := self._gone(task)):
            raise Refused(f"task {id} cannot be undone while the configuration has no zone {zone!r}; give it back")
        self.engine.turn(task, table.UNDO, {"by": _text("by", by) or OPERATOR})
        await self._core.disk.journal.stable()
        return self._row(task)

    def _gone(self, task: Task) -> str:
        """The zone that all it has moved came from, if that has left the configuration since."""
        names = Where.of(task.where).values("zone") or ()
        return "" if any(name in self._core.schedule.zones for name in names) else next(iter(names), "")

    def _undoable(self, task: Task) -> bool:
        if task.undo_s <= 0:
            return False
        ended = task.state in (UNDOABLE, CANCELED) and task.until_ms > self._core.clock.steady_ms()
        return task.state == RUNNING or ended

    # -- what is told

    async def rows(self, limit: int = 100, after: str = "") -> list[Row]:
        """Previews, then tasks, the newest first. after: the id of the last one that an earlier answer had."""
        known = sorted(self._core.tasks.listed, key=lambda one: -one.number)
        previews = list(reversed(self._previews.kept.items()))
        if after:
            idents = [ident for ident, _ in previews]
            previews = previews[idents.index(after) + 1 :] if after in idents else []
            if after.isascii() and after.isdigit():
                known = [task for task in known if task.number < int(after)]
        found = [self._previewed(ident, task) for ident, task in previews[:limit]]
        return (found + [self._row(task) for task in known[:limit]])[:limit]

    async def states(self) -> dict[str, str]:
        return {str(task.number): task.state for task in self._core.tasks.listed}

    async def one(self, id: str) -> Row:
        if id in self._previews.kept:
            return self._previewed(id, self._previews.kept[id])
        return self._row(self._task(id))

    def _task(self, ident: str) -> Task:
        text = str(ident)
        task = self._core.tasks.by_number.get(int(text)) if text.isascii() and text.isdigit() else None
        if text in self._previews.kept:
            raise Refused(f"{text} is a preview, which has changed nothing; `zonemta task list` shows all tasks")
        if task is None or task.state == table.STANDING:
            raise Refused(f"there is no task {ident!r}; `zonemta task list` shows all of the last 30 days")
        return task

    def _row(self, task: Task) -> Row:
        return row(task, str(task.number), self._core.clock.apart_ms(), undoable=self._undoable(task))

    def _previewed(self, ident: str, task: Task) -> Row:
        return row(task, ident, self._core.clock.apart_ms(), task.state)

    # -- checks

    def _checked(
        self, verb: str, where: dict[str, Any], change: dict[str, Any] | None, by: str, cause: str,
        undo_s: float | None,
    ) -> Task:  # fmt: skip
        if verb not in REACH:
            raise Refused(f"there is no verb {verb!r}; use {', '.join(REACH)}")
        chosen = Where.of(where)
        if len(packing.pack(chosen.given)) > _WHERE_MAX:
            raise Refused(f"the filter is longer than {_WHERE_MAX:,} bytes; order it in several tasks")
        self._check_zones(chosen)
        self._check_states(chosen, verb)
        core = self._core
        if undo_s is None:
            undo_s = core.config.queue.undo_s
        if isinstance(undo_s, bool) or not isinstance(undo_s, (int, float)) or not 0 <= undo_s <= _UNDO_S_MAX:
            raise Refused(f"undo_s is {undo_s!r}; write seconds, from 0 to {_UNDO_S_MAX:,}")
        return Task(
            0, verb, chosen.given, self._change(verb, change or {}), _text("by", by) or OPERATOR, _text("cause", cause),
            core.disk.ids.last, [], core.clock.steady_ms(), core.clock.ms(), undo_s,
        )  # fmt: skip

    def _check_states(self, where: Where, verb: str) -> None:
        states = where.values("state") or ()
        if "deleted" in states:
            raise Refused("what is deleted comes back when its task is undone: `zonemta task undo ID`")
        if "bounced" not in states:
            return
        if verb != "requeue":
            raise Refused("what has bounced can only be queued again: `zonemta queue requeue --state bounced`")
        if not self._core.config.queue.keep_bounced_s and not self._core.counters.sizes.total[sizes.BOUNCED]:
            raise Refused("what has bounced is not kept; set queue.keep_bounced_s, for what bounces from then on")

    def _check_zones(self, where: Where) -> None:
        for name in where.values("zone") or ():
            if name not in self._core.schedule.zones:
                raise Refused(f"there is no zone {name!r}; there are {', '.join(self._core.schedule.zones)}")

    def _change(self, verb: str, given: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in given.items() if value is not None}
        known = {"move": ("zone",), "set": ("priority", "at_ms", "life_h", *SETTINGS)}.get(verb, ())
        if odd := [name for name in given if name not in known]:
            raise Refused(f"{verb} sets no {odd[0]!r}" + (f"; it sets {', '.join(known)}" if known else ""))
        if known and not given:
            raise Refused(f"{verb} needs what is to be set: {', '.join(known)}")
        if verb == "move" and given["zone"] not in self._core.schedule.zones:
            raise Refused(f"there is no zone {given['zone']!r}; there are {', '.join(self._core.schedule.zones)}")
        if "priority" in given and (not _whole(given["priority"]) or not -9 <= given["priority"] <= 9):
            raise Refused(f"the priority is {given['priority']!r}; use -9 to 9")
        if "life_h" in given and (not _number(given["life_h"]) or not 0 < given["life_h"] < math.inf):
            raise Refused(f"life_h is {given['life_h']!r}; give hours, more than 0")
        if verb == "set":
            given = checked(self._core, given)
        if "at_ms" in given:
            if not _whole(given["at_ms"]) or not 0 <= given["at_ms"] < 1 << 48:
                raise Refused(f"at_ms is {given['at_ms']!r}; give UNIX milliseconds")
            return given | {"at_ms": min(given["at_ms"] + self._core.clock.apart_ms(), (1 << 48) - 1)}
        return given


def _why_not(task: Task) -> str:
    if task.state in (table.UNDOING, table.UNDONE):
        return "it was undone already"
    return "the time for that is over" if task.done else "it has changed nothing"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_MAX or any(ord(one) < 32 for one in value):
        raise Refused(f"{name} is no short text without control characters")
    return value
