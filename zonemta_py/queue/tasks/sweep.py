"""A sweep: one pass over all recipients to which a task may apply, in memory and in the store.

It is a generator that does a little at each step, so that its driver can let the event loop run in between. What is
busy when the walk comes by (in the window, leased, on its way to another key) is looked at again until nothing of it is
left; keys that change meanwhile are told to it (`TaskSweep.moved`). So at its end everything that was there at the
order has been done, whatever the scheduler did meanwhile. A crash just begins it again.

Failures: StoreDamaged ends it; while the store is fenced it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation, StoreFenced
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.tasks.aim import Aim
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.zone import ZoneSchedule

WALKED_AT_ONCE = 100
TAKEN_AT_ONCE = 200
"""Recipients in memory that are looked at in one step."""
GO_ON, WAIT = 0, -1
"""What a step yields: nothing to wait for, or: others have to do something first; above: so many were acted on."""
_PREFIXES = tuple(f"{family} ".encode() for family in FAMILY)

Act = Callable[[ZoneSchedule, list[Entry]], None]


class TaskSweep:
    """Of one task. act: what is done to recipients of a zone, which nobody else has. leased: keys that senders have.
    before: whether an earlier task may still hand it something."""

    def __init__(
        self, core: Core, aim: Aim, act: Act, leased: Callable[[], set[bytes]], before: Callable[[], bool]
    ) -> None:  # fmt: skip
        self._core, self.aim, self._act, self._leased, self._before = core, aim, act, leased, before
        self._missed: set[bytes] = set()
        self.only_leased = False
        """Nothing is left but what senders have."""

    def moved(self, operations: list[Operation]) -> None:
        """These keys have been written."""
        for key, value in operations:
            if value is not None and key.startswith(_PREFIXES) and self.aim.applies(key, value):
                self._missed.add(key)

    def run(self) -> Iterator[int]:
        """Yields after each small step. Raises StoreDamaged."""
        yield from self._windows()
        for zone in self.aim.zones():
            for family in self.aim.families:
                yield from self._walk(zone, family)
        while self._missed or self._before():
            yield from self._again()
            if self._missed and not self.aim.waits:
                return
            if self._missed or self._before():
                self.only_leased = self._missed <= self._leased()
                yield WAIT
                if not self.only_leased:
                    yield from self._windows()

    def ready(self) -> bool:
        """Whether there is something to do, after it waited for nothing but senders."""
        if self._missed:
            return not self._missed <= self._leased()
        return not self._before()

    def may_hand(self, aim: Aim) -> bool:
        """Whether what it waits for may then be another task's."""
        try:
            found = ((key, self._core.disk.store.get(key)) for key in self._missed)
            return any(value is not None and aim.covers(key, value) for key, value in found)
        except StoreFenced:
            return True  # as far as is known

    def _windows(self) -> Iterator[int]:
        """Those in memory."""
        for zone in list(self._core.schedule.zones.values()):
            for flow_queue in list(zone.flow_queues.by_key.values()):
                entries = list(flow_queue.entries)
                for at in range(0, len(entries), TAKEN_AT_ONCE):
                    yield GO_ON
                    while self._core.disk.store.fenced:
                        yield WAIT
                    part = entries[at : at + TAKEN_AT_ONCE]
                    meant = {entry.key for entry in part if self.aim.applies(entry.key, entry.note)}
                    found = zone.withdraw(flow_queue, lambda entry: entry.key in meant) if meant else []  # noqa: B023
                    if found:  # others may have been leased since the list was made
                        self._act(zone, found)
                        zone.tidy(flow_queue)
                        yield len(found)

    def _walk(self, zone: str, family: str) -> Iterator[int]:
        """One range of the store."""
        start, stop = self._range(zone, family)
        while start < stop:
            try:
                rows = list(islice(self._core.disk.store.scan(start, stop), WALKED_AT_ONCE))
                found = self._found(rows)
            except StoreFenced:
                yield WAIT
                continue
            if not rows:
                return
            start = rows[-1][0] + b"\0"
            self._do(zone, found)
            yield len(found)

    def _range(self, zone: str, family: str) -> tuple[bytes, bytes]:
        prefix = self.aim.prefix(zone, family)
        schedule = self._core.schedule.zones.get(zone)
        mark = schedule.fresh.mark() if schedule is not None and family == "delivery-zone" else b""
        return max(prefix, mark), keys.end(prefix)

    def _found(self, rows: list[tuple[bytes, bytes]]) -> list[Entry]:
        aim, busy, found, ids = self.aim, self._core.schedule.busy, list[Entry](), self.aim.ids
        for key, value in rows:
            if (ids and not any(one in key for one in ids)) or not aim.applies(key, value):
                continue
            if key in busy:
                self._missed.add(key)
            else:
                place = keys.place(key)
                found.append(Entry(key, place.id, place.recipient, Note.of(value)))
        return found

    def _do(self, zone: str, found: list[Entry]) -> None:
        schedule = self._core.schedule.zones.get(zone)
        if found and schedule is not None:
            self._act(schedule, found)

    def _again(self) -> Iterator[int]:
        """Those that were busy, or have a new key."""
        for key in list(self._missed):
            if key in self._core.schedule.busy:
                continue
            try:
                value = self._core.disk.store.get(key)
                applies = value is not None and self.aim.applies(key, value)
            except StoreFenced:
                return
            self._missed.discard(key)
            if value is not None and applies:
                place = keys.place(key)
                self._do(place.zone, [Entry(key, place.id, place.recipient, Note.of(value))])
                yield 1
