"""What time drives: position records, the way of finished segments into the archive, the end of what is too old.

A position record every few seconds says where the next start begins; it costs one empty synced batch and one record.
Every minute all strands in memory are looked at; what has a deadline is looked at when the nearest one has passed.
Failures: a disk that says no is named once in the log, and asked again the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from itertools import groupby
from typing import TypeAlias

from zonemta_py.disk import keys, records
from zonemta_py.disk.records import Note, Type
from zonemta_py.disk.store import Operation, StoreDamaged, StoreError, StoreFenced
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import segments
from zonemta_py.queue.api import BOUNCED
from zonemta_py.queue.commit import immediately
from zonemta_py.queue.parts import Parts
from zonemta_py.schedule import hours
from zonemta_py.schedule.lane import NEVER_MS, Entry, Group, Strand
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones.retry import expired

log = logging.getLogger(__name__)

RECORDS_BETWEEN_POSITIONS = 20_000
SWEEP_S = 60.0
DEADLINES_S = 1.0
EXPIRED_AT_ONCE = 1_000
STRANDS_AT_ONCE = 1_000
WALKED_AT_ONCE = 5_000
"""Parked recipients of one strand that are looked at before the loop gets its turn."""
_LOOK_S = 0.25


class _Deferred:
    """A zone's deferred recipients. deadline_ms: as a strand's; it is looked for again once one in the zone passed."""

    def __init__(self) -> None:
        self.deadline_ms = 0


_Owner: TypeAlias = Strand | ZoneSchedule | _Deferred
"""Of a range of keys in the store, which it knows the nearest deadline of."""


class Upkeep:
    """The queue's own chores."""

    def __init__(self, queue: Parts) -> None:
        self._queue, self._core = queue, queue.core
        self._position_seq = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._walks: dict[_Owner, bytes] = {}
        self._unfinished: set[ZoneSchedule] = set()
        self._deferred = {name: _Deferred() for name in queue.core.schedule.zones}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._forever(self._next_position)),
            asyncio.create_task(self._forever(self._next_sweep)),
            asyncio.create_task(self._forever(self._next_deadlines)),
        ]

    async def _forever(self, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await chore()
            except StoreDamaged as error:
                self._core.read_failed(error)
            except (StoreError, OSError) as error:
                log.warning("%s; it is tried again", error)
                await asyncio.sleep(1)

    async def _next_position(self) -> None:
        core = self._core
        until = core.clock.monotonic() + core.config.queue.position_s
        while core.clock.monotonic() < until:
            await asyncio.sleep(min(_LOOK_S, core.config.queue.position_s))
            if core.journal.next_seq - self._position_seq > RECORDS_BETWEEN_POSITIONS:
                break
        if core.journal.next_seq > self._position_seq + 1:
            await self.position()

    async def position(self) -> None:
        """Writes a position record: the batch before it makes true what it says."""
        core = self._core
        core.schedule.standing.day()
        marks, applied = core.schedule.marks(), core.applied()
        arriving, floor = sorted(core.arriving), core.ids.next(core.clock.ms())
        lowest = min([floor, *arriving]).encode()
        for name, zone_marks in marks.items():
            zone_marks["fresh"] = min(zone_marks["fresh"], keys.fresh_range(name) + lowest)
        working = [lease.row() for lease in self._queue.leases.out.values()]
        batches = core.batches
        await core.lines.stable()
        body = {
            "batches": batches,
            "applied": applied,
            "working": working,
            "marks": marks,
            "floor": floor,
            "segments": core.segments.rows(),
            "permits": core.schedule.permits.state(),
            "standing": core.schedule.standing.state(),
            "opened": arriving,
        }
        core.record(Type.POSITION, records.pack(body))
        await core.journal.stable()
        self._position_seq = core.journal.next_seq
        self._archive(applied + 1)

    def _archive(self, before_seq: int) -> None:
        core, folder = self._core, self._core.config.folder
        spans = core.segments.finished(before_seq)
        if spans:
            segments.archive(folder / "journal", folder / "archive", spans)
            queue = core.config.queue
            oldest = segments.oldest(folder / "journal")
            segments.prune(folder / "archive", core.clock.ms(), queue.archive_days, queue.archive_bytes, oldest)

    async def _next_sweep(self) -> None:
        await asyncio.sleep(SWEEP_S)
        more = True
        while more:  # in stretches, so that the loop gets its turn in between
            more = await self.sweep()
            await asyncio.sleep(_LOOK_S)

    async def _next_deadlines(self) -> None:
        await asyncio.sleep(DEADLINES_S)
        await self.deadlines()

    async def sweep(self) -> bool:
        """Ends the recipients that cannot go, once their life or deadline is over; forgets old doubts and idle strands.

        True: there are more than were ended at once.
        """
        core, now_ms = self._core, self._core.clock.ms()
        if core.store.fenced:
            return False
        more = await self.deadlines()
        for zone in core.schedule.zones.values():
            more |= self._late_deferred(zone, now_ms)
        async for strand in self._strands(core.schedule.strands()):
            more |= self._sweep(strand.zone, strand, now_ms)
        if core.store.fenced:
            return True
        self._walks = {owner: key for owner, key in self._walks.items() if _there(owner)}
        days = core.config.queue.archive_days
        if days:  # recipients in doubt are listed for as long as the archive is kept
            oldest = keys.IN_DOUBTS + keys.id_at(now_ms - int(days * 86_400_000)).encode()
            old: list[Operation] = [(key, None) for key in core.store.keys(keys.IN_DOUBTS, oldest)]
            core.lines.submit(old, immediately, sync=False, keep=True)
        return more

    async def _strands(self, strands: Iterable[Strand]) -> AsyncIterator[Strand]:
        """Those that are still there when their turn comes; the loop gets its own in between. Ends if fenced."""
        for count, strand in enumerate(list(strands)):
            if count % STRANDS_AT_ONCE == STRANDS_AT_ONCE - 1:
                await asyncio.sleep(0)
                if self._core.store.fenced:
                    return
            if strand.zone.strands.by_key.get(strand.key) is strand:
                yield strand

    def _sweep(self, zone: ZoneSchedule, strand: Strand, now_ms: int) -> bool:
        """Looks at one strand; True: there is more to end on it."""
        more = False
        if strand.held or zone.held:
            self._end(zone, strand, zone.withdraw(strand, partial(self._over, zone, now_ms)))
        if (strand.lane.failures or strand.held) and not strand.parked.exhausted:
            more |= self._expire(zone, strand, now_ms)
        more |= self._late(zone, strand, now_ms)
        zone.tidy(strand)
        return more

    # -- deadlines (RFC 2852): BY=…;R is returned then, of BY=…;N the sender is told

    async def deadlines(self) -> bool:
        """Looks where a deadline may have passed since the last time, and nowhere else. True: there is more there."""
        core, now_ms, more = self._core, self._core.clock.ms(), False
        for zone in core.schedule.zones.values():
            passed = zone.deadline_ms <= now_ms
            if core.store.fenced or not (passed or zone in self._unfinished):
                continue
            self._unfinished.add(zone)  # also if the disk says no in the middle of it
            unfinished = (passed or zone in self._walks) and self._late_unread(zone, now_ms)
            if passed:  # the next sweep looks at these: those due come by themselves
                self._deferred[zone.zone.name].deadline_ms = 0
            async for strand in self._strands(zone.strands.by_key.values()):
                unfinished |= self._late(zone, strand, now_ms)
            if not (unfinished or core.store.fenced):
                self._unfinished.discard(zone)
            more |= unfinished
        return more

    def _late(self, zone: ZoneSchedule, strand: Strand, now_ms: int) -> bool:
        """Deals with the strand's, in memory and parked, and lets the zone know its nearest. True: there is more."""
        late = zone.withdraw(strand, lambda entry: 0 < entry.note.deadline_ms <= now_ms)
        for entries in _messages(late):
            self._too_late(
                zone, [strand] * len(entries), entries, partial(zone.put_back, Group(strand, entries), entries)
            )
        if strand.deadline_ms <= now_ms or strand in self._walks:
            prefix = keys.parked_range(zone.zone.name, strand.key)
            for entries in _messages(self._find_late(strand, prefix, keys.end(prefix), now_ms)):
                self._too_late(
                    zone, [strand] * len(entries), entries, partial(self._parked_again, zone, strand, entries)
                )
        waiting = (entry.note.deadline_ms or NEVER_MS for entry in strand.entries)
        zone.deadline_ms = min(zone.deadline_ms, strand.deadline_ms, min(waiting, default=NEVER_MS))
        return strand in self._walks

    def _late_unread(self, zone: ZoneSchedule, now_ms: int) -> bool:
        """Deals with those fresh ones that the zone has had no room to read; as `_late`."""
        found = self._find_late(zone, zone.fresh.position, keys.end(keys.fresh_range(zone.zone.name)), now_ms)
        for entry in found:
            zone.fresh.promise(entry.key)  # a crash before its end is written finds it again
        for entries in _messages(found):
            self._too_late(zone, _strands_of(zone, entries), entries, partial(self._unread_again, zone, entries))
        return zone in self._walks

    def _late_deferred(self, zone: ZoneSchedule, now_ms: int) -> bool:
        """Deals with those that are not due at their deadline: only of BY=…;N there are such. As `_late`."""
        deferred = self._deferred[zone.zone.name]
        if deferred.deadline_ms <= now_ms or deferred in self._walks:
            prefix = keys.deferred_range(zone.zone.name)
            found = self._find_late(deferred, prefix, keys.end(prefix), now_ms)
            zone.promise([entry.key for entry in found])
            for entries in _messages(found):
                self._too_late(zone, _strands_of(zone, entries), entries, partial(self._deferred_again, zone, entries))
        zone.deadline_ms = min(zone.deadline_ms, deferred.deadline_ms)
        return deferred in self._walks

    def _find_late(self, owner: _Owner, start: bytes, stop: bytes, now_ms: int) -> list[Entry]:
        """Those in the range whose deadline has passed, busy from now on; finds the owner's next deadline.

        Goes on where it ended.
        """
        late, busy = list[Entry](), self._core.schedule.busy
        if owner not in self._walks:
            owner.deadline_ms = NEVER_MS  # those that come from now on say it themselves
        start = max(start, self._walks.pop(owner, start))
        try:
            for count, (key, value) in enumerate(self._core.store.scan(start, stop)):
                if len(late) >= EXPIRED_AT_ONCE or count >= WALKED_AT_ONCE:
                    self._walks[owner] = key
                    break
                note = Note.of(value)
                if 0 < note.deadline_ms <= now_ms and key not in busy:
                    place = keys.place(key)
                    late.append(Entry(key, place.id, place.recipient, note))
                elif note.deadline_ms > now_ms:
                    owner.deadline_ms = min(owner.deadline_ms, note.deadline_ms)
        except StoreError:
            owner.deadline_ms = 0  # nobody knows now: the next sweep looks again
            raise
        busy.update([entry.key for entry in late])
        return late

    def _too_late(
        self, zone: ZoneSchedule, strands: list[Strand], entries: list[Entry], again: Callable[[], None]
    ) -> None:
        """Returns them, or tells their sender and then lets them wait on (`again`). entries: of one message; busy."""
        try:
            message = self._core.messages.look(entries[0].id)
        except StoreFenced:
            again()
            zone.deadline_ms = 0
            return
        except StoreError:
            message = None  # it is dealt with when it is leased
        if message is None or message.metadata.get("deadline_mode") == "R":
            for strand, entry in zip(strands, entries, strict=True):
                self._end(zone, strand, [entry], late=True)
            return
        why = _why(zone, strands[0]) or entries[0].note.last
        reply = Reply(451, "4.4.7", f"{_past_deadline(why)}; it goes on waiting")
        self._queue.settling.tell(message, zone.zone.name, entries, reply, again)

    def _parked_again(self, zone: ZoneSchedule, strand: Strand, entries: list[Entry]) -> None:
        for entry in entries:
            self._core.schedule.busy.discard(entry.key)
            zone.parked_key(strand, entry.key, entry.note.deadline_ms)
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

    # -- lives

    def _over(self, zone: ZoneSchedule, now_ms: int, entry: Entry) -> bool:
        """Whether its life is over."""
        core = self._core
        if not expired(keys.id_ms(entry.id), now_ms, core.config.retry):
            return False
        try:
            message = core.messages.look(entry.id)
        except StoreFenced:
            return False
        except StoreError:
            return True  # it is dealt with when it is leased
        note = entry.note
        return hours.over(core.config, zone.zone, message.metadata, message.created_ms, note.first_ms, now_ms)

    def _expire(self, zone: ZoneSchedule, strand: Strand, now_ms: int) -> bool:
        """Ends those parked whose life is over."""
        prefix = keys.parked_range(zone.zone.name, strand.key)
        dead: list[Entry] = []
        for count, (key, value) in enumerate(self._core.store.scan(prefix, keys.end(prefix))):
            place = keys.place(key)
            if len(dead) >= EXPIRED_AT_ONCE or count >= WALKED_AT_ONCE:
                break
            if not expired(keys.id_ms(place.id), now_ms, self._core.config.retry):
                break  # ids grow with time: nobody behind is older
            entry = Entry(key, place.id, place.recipient, Note.of(value))
            if key not in self._core.schedule.busy and self._over(zone, now_ms, entry):
                dead.append(entry)
        self._end(zone, strand, dead)
        return len(dead) >= EXPIRED_AT_ONCE

    def _end(self, zone: ZoneSchedule, strand: Strand, dead: list[Entry], late: bool = False) -> None:
        """Bounces them; nobody else has them. late: for their deadline."""
        self._core.schedule.busy.update([entry.key for entry in dead])  # each end lets the strand read on
        for entry in dead:
            group = Group(strand, [entry])
            zone.begin(group)
            try:
                lease = self._queue.leases.grant(group, "expiry")
            except (StoreFenced, OSError):  # at the next sweep, then
                zone.done(group)
                zone.put_back(group, group.entries)
                continue
            if lease is not None:
                why = _why(zone, strand)
                cause = _past_deadline(why) if late else why or "its time in the queue is over"
                self._core.end(lease, BOUNCED, Reply(554, "5.4.7", cause), None)


def _why(zone: ZoneSchedule, strand: Strand) -> str:
    """It has waited for so long; "" if nothing in memory says."""
    hold = strand.held or zone.held
    return strand.lane.reason or (hold.cause if hold else "")


def _past_deadline(why: str) -> str:
    return f"its delivery deadline has passed ({why})" if why else "its delivery deadline has passed"


def _strands_of(zone: ZoneSchedule, entries: list[Entry]) -> list[Strand]:
    """Of recipients that no strand has yet."""
    return [zone.strands.of(entry.id, entry.address, entry.note) for entry in entries]


def _messages(entries: list[Entry]) -> list[list[Entry]]:
    """Those of one message together."""
    return [list(group) for _, group in groupby(entries, lambda entry: entry.id)]


def _there(owner: _Owner) -> bool:
    """Whether it has not been forgotten."""
    return not isinstance(owner, Strand) or owner.zone.strands.by_key.get(owner.key) is owner
