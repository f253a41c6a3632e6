"""Deadlines (RFC 2852) of waiting mail: after it, BY=…;R is returned, and for BY=…;N the sender is notified.

Each zone, flow queue and range knows its nearest deadline, so that nothing is walked before one has passed; 0 means
unknown, as after a restart. Walks continue where they stopped, in portions, so that the event loop keeps running.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import groupby
from typing import TypeAlias

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError, StoreFenced
from zonemta_py.disk.notes import Note
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.maintenance.expiry import Expiry, past_deadline, waited_for
from zonemta_py.schedule.batch import NEVER_MS, Batch, Entry, FlowQueue
from zonemta_py.schedule.flow import split_key
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.schedule.zone import ZoneSchedule

AT_ONCE, WALKED_AT_ONCE = 50, 250
"""Recipients that are found late, or read, in one go."""
PORTIONS = 20
"""Of a range, before others are looked at; the event loop runs in between."""


class _Deferred:
    """A zone's deferred recipients. deadline_ms: the nearest; looked up again once one in the zone has passed."""

    def __init__(self, zone: ZoneSchedule) -> None:
        self.deadline_ms = 0
        self._zone, self._first = zone, True

    def away(self, key: bytes, note: Note) -> None:
        """A recipient found by the walk after a restart: memory does not know yet that it waits for its destination."""
        if self._first:
            place = keys.place(key)
            site, source, _ = split_key(self._zone.flow_queues.where(place.id, place.recipient, note)[0])
            self._zone.put_away(site, source, key, before=True)

    def walked(self) -> None:
        """The walk is over."""
        self._first = False


_Owner: TypeAlias = FlowQueue | ZoneSchedule | _Deferred
"""The owner of a range of keys in the store, which knows the nearest deadline there."""


class Deadlines:
    """Looks for deadlines that have passed."""

    def __init__(self, queue: QueueContext, endings: Expiry) -> None:
        self._queue, self._core, self._expiry = queue, queue.core, endings
        self._walks: dict[_Owner, bytes] = {}
        self._unfinished: set[ZoneSchedule] = set()
        self._deferred = {zone: _Deferred(zone) for zone in queue.core.schedule.zones.values()}

    async def look(self) -> bool:
        """Looks only where a deadline may have passed since the last time. True: there is more there."""
        core, now_ms, more = self._core, self._core.clock.steady_ms(), False
        for zone in list(core.schedule.zones.values()):
            passed = zone.deadline_ms <= now_ms
            if core.disk.store.fenced or not (passed or zone in self._unfinished):
                continue
            self._unfinished.add(zone)  # also after a disk error halfway
            unread = partial(self._late_unread, zone, now_ms)
            unfinished = (passed or zone in self._walks) and await self._in_portions(unread)
            if passed:  # the next sweep looks at these; those due are leased anyway
                self._deferred_of(zone).deadline_ms = 0
            async for flow_queue in flow_queues_in_turn(self._core, list(zone.flow_queues.by_key.values())):
                unfinished |= await self.late(zone, flow_queue, now_ms)
            if not (unfinished or core.disk.store.fenced):
                self._unfinished.discard(zone)
            more |= unfinished
        return more

    async def late(self, zone: ZoneSchedule, flow_queue: FlowQueue, now_ms: int) -> bool:
        """As `_late`, some portions of what is parked."""
        if not self._late(zone, flow_queue, now_ms):  # nearly always
            return False
        await asyncio.sleep(0)
        return await self._in_portions(partial(self._late, zone, flow_queue, now_ms))

    async def late_deferred(self, zone: ZoneSchedule, now_ms: int) -> bool:
        """As `_late_deferred`, some portions."""
        return await self._in_portions(partial(self._late_deferred, zone, now_ms))

    async def _in_portions(self, look: Callable[[], bool]) -> bool:
        """True: there is more."""
        pace = Pace(math.inf)
        for _ in range(PORTIONS):
            if not look():
                return False
            await pace.turn()
            if self._core.disk.store.fenced:
                break
        return True

    def _late(self, zone: ZoneSchedule, flow_queue: FlowQueue, now_ms: int) -> bool:
        """Handles a flow queue's recipients in memory and parked, and updates the zone's nearest deadline. True: there
        is more."""
        late = zone.withdraw(flow_queue, lambda entry: 0 < entry.note.deadline_ms <= now_ms)
        for entries in _messages(late):
            self._too_late(
                zone, [flow_queue] * len(entries), entries, partial(zone.put_back, Batch(flow_queue, entries), entries)
            )
        if flow_queue.deadline_ms <= now_ms or flow_queue in self._walks:
            prefix = keys.parked_range(zone.zone.name, flow_queue.key)
            for entries in _messages(self._find_late(flow_queue, prefix, keys.end(prefix), now_ms)):
                self._too_late(
                    zone, [flow_queue] * len(entries), entries, partial(self._parked_again, zone, flow_queue, entries)
                )
        waiting = (entry.note.deadline_ms or NEVER_MS for entry in flow_queue.entries)
        zone.deadline_ms = min(zone.deadline_ms, flow_queue.deadline_ms, min(waiting, default=NEVER_MS))
        return flow_queue in self._walks

    def _late_unread(self, zone: ZoneSchedule, now_ms: int) -> bool:
        """Handles fresh recipients that the zone had no room to read; as `_late`."""
        found = self._find_late(zone, zone.fresh.position, keys.end(keys.fresh_range(zone.zone.name)), now_ms)
        for entry in found:
            zone.fresh.promise(entry.key)  # a crash before its end is written finds it again
        for entries in _messages(found):
            self._too_late(zone, _flow_queues_of(zone, entries), entries, partial(self._unread_again, zone, entries))
        return zone in self._walks

    def _late_deferred(self, zone: ZoneSchedule, now_ms: int) -> bool:
        """Handles deferred recipients not due at their deadline, which are only those of BY=…;N. As `_late`."""
        deferred = self._deferred_of(zone)
        if deferred.deadline_ms <= now_ms or deferred in self._walks:
            prefix = keys.deferred_range(zone.zone.name)
            found = self._find_late(deferred, prefix, keys.end(prefix), now_ms)
            zone.promise([entry.key for entry in found])
            for entries in _messages(found):
                self._too_late(
                    zone, _flow_queues_of(zone, entries), entries, partial(self._deferred_again, zone, entries)
                )
        if deferred not in self._walks:
            deferred.walked()
        zone.deadline_ms = min(zone.deadline_ms, deferred.deadline_ms)
        return deferred in self._walks

    def _deferred_of(self, zone: ZoneSchedule) -> _Deferred:
        found = self._deferred.get(zone)
        if found is None:  # a queue that was made since
            found = self._deferred[zone] = _Deferred(zone)
        return found

    def _find_late(self, owner: _Owner, start: bytes, stop: bytes, now_ms: int) -> list[Entry]:
        """Recipients in the range whose deadline has passed, now busy; also finds the owner's next deadline.

        Continues where it stopped.
        """
        late, busy = list[Entry](), self._core.schedule.busy
        if owner not in self._walks:
            owner.deadline_ms = NEVER_MS  # later ones update it themselves
        start = max(start, self._walks.pop(owner, start))
        try:
            for count, (key, value) in enumerate(self._core.disk.store.scan(start, stop)):
                if len(late) >= AT_ONCE or count >= WALKED_AT_ONCE:
                    self._walks[owner] = key
                    break
                note = Note.of(value)
                if note.away and isinstance(owner, _Deferred):
                    owner.away(key, note)
                if 0 < note.deadline_ms <= now_ms and key not in busy:
                    place = keys.place(key)
                    late.append(Entry(key, place.id, place.recipient, note))
                elif note.deadline_ms > now_ms:
                    owner.deadline_ms = min(owner.deadline_ms, note.deadline_ms)
        except StoreError:
            owner.deadline_ms = 0  # unknown now: the next sweep looks again
            raise
        busy.update([entry.key for entry in late])
        return late

    def _too_late(
        self, zone: ZoneSchedule, flow_queues: list[FlowQueue], entries: list[Entry], again: Callable[[], None]
    ) -> None:
        """Returns them, or notifies their sender and lets them wait on (`again`). entries: of one message; busy."""
        try:
            message = self._core.messages.look(entries[0].id)
        except StoreFenced:
            again()
            zone.deadline_ms = 0
            return
        except StoreError:
            message = None  # leasing deals with it
        if message is None or message.metadata.get("deadline_mode") == "R":
            for flow_queue, entry in zip(flow_queues, entries, strict=True):
                self._expiry.end(zone, flow_queue, [entry], late=True)
            return
        why = waited_for(zone, flow_queues[0]) or entries[0].note.last
        reply = Reply(451, "4.4.7", f"{past_deadline(why)}; it keeps waiting")
        self._queue.settling.tell(message, zone.zone.name, entries, reply, again)

    def _parked_again(self, zone: ZoneSchedule, flow_queue: FlowQueue, entries: list[Entry]) -> None:
        for entry in entries:
            self._core.schedule.busy.discard(entry.key)
            zone.parked_key(flow_queue, entry.key, entry.note.deadline_ms)
        self._core.changed()

    def _unread_again(self, zone: ZoneSchedule, entries: list[Entry]) -> None:
        for entry in entries:
            self._core.schedule.busy.discard(entry.key)
            zone.left_unread(entry.key, entry.note.deadline_ms)
        self._core.changed()

    def _deferred_again(self, zone: ZoneSchedule, entries: list[Entry]) -> None:
        for entry in entries:
            self._core.schedule.busy.discard(entry.key)
            zone.due_at(keys.place(entry.key).due_ms)

    def forget(self) -> None:
        """Drops walks of flow queues, and of queues, that no longer exist."""
        zones = self._core.schedule.zones
        self._deferred = {zone: one for zone, one in self._deferred.items() if zones.get(zone.zone.name) is zone}
        self._walks = {owner: key for owner, key in self._walks.items() if _there(owner)}


async def flow_queues_in_turn(core: Core, flow_queues: Iterable[FlowQueue]) -> AsyncIterator[FlowQueue]:
    """Those that still exist when their turn comes; the event loop runs in between. Ends if the store is fenced.

    flow_queues: may be a million, so that no copy is made of it; it must bear that some come and go meanwhile.
    """
    pace = Pace(math.inf)
    for flow_queue in flow_queues:
        await pace.turn()
        if core.disk.store.fenced:
            return
        zone = flow_queue.zone
        if (
            core.schedule.zones.get(zone.zone.name) is zone
            and zone.flow_queues.by_key.get(flow_queue.key) is flow_queue
        ):
            yield flow_queue


def _flow_queues_of(zone: ZoneSchedule, entries: list[Entry]) -> list[FlowQueue]:
    """The flow queues of recipients that have none yet."""
    return [zone.flow_queues.of(entry.id, entry.address, entry.note) for entry in entries]


def _messages(entries: list[Entry]) -> list[list[Entry]]:
    """Groups them by message."""
    return [list(batch) for _, batch in groupby(entries, lambda entry: entry.id)]


def _there(owner: _Owner) -> bool:
    """Whether it has not been dropped."""
    return not isinstance(owner, FlowQueue) or owner.zone.flow_queues.by_key.get(owner.key) is owner
