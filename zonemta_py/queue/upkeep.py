"""What time drives: position records, the way of finished segments into the archive, the end of what is too old.

A position record every few seconds says where the next start begins; it costs one empty synced batch and one record.
Failures: a disk that says no is named once in the log, and asked again the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

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
EXPIRED_AT_ONCE = 1_000
STRANDS_AT_ONCE = 1_000
WALKED_AT_ONCE = 5_000
"""Parked recipients of one strand that are looked at before the loop gets its turn."""
_LOOK_S = 0.25


class Upkeep:
    """The queue's own chores."""

    def __init__(self, queue: Parts) -> None:
        self._queue, self._core = queue, queue.core
        self._position_seq = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._walks: dict[Strand, bytes] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._forever(self._next_position)),
            asyncio.create_task(self._forever(self._next_sweep)),
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

    async def sweep(self) -> bool:
        """Ends the recipients that cannot go, once their life or deadline is over; forgets old doubts and idle strands.

        True: there are more than were ended at once.
        """
        core, now_ms = self._core, self._core.clock.ms()
        if core.store.fenced:
            return False
        more = False
        for count, strand in enumerate(list(core.schedule.strands())):
            if count % STRANDS_AT_ONCE == STRANDS_AT_ONCE - 1:
                await asyncio.sleep(0)
                if core.store.fenced:
                    return True
            if strand.zone.strands.by_key.get(strand.key) is strand:
                more |= self._sweep(strand.zone, strand, now_ms)
        self._walks = {s: key for s, key in self._walks.items() if s.zone.strands.by_key.get(s.key) is s}
        days = core.config.queue.archive_days
        if days:  # recipients in doubt are listed for as long as the archive is kept
            oldest = keys.IN_DOUBTS + keys.id_at(now_ms - int(days * 86_400_000)).encode()
            old: list[Operation] = [(key, None) for key in core.store.keys(keys.IN_DOUBTS, oldest)]
            core.lines.submit(old, immediately, sync=False, keep=True)
        return more

    def _sweep(self, zone: ZoneSchedule, strand: Strand, now_ms: int) -> bool:
        """Looks at one strand; True: there is more to end on it."""
        more = False
        if strand.held or zone.held:
            self._end(zone, strand, zone.withdraw(strand, partial(self._over, zone, now_ms)))
        if (strand.lane.failures or strand.held) and not strand.parked.exhausted:
            more |= self._expire(zone, strand, now_ms)
        if strand.deadline_ms <= now_ms or strand in self._walks:
            more |= self._return(zone, strand, now_ms)
        zone.tidy(strand)
        return more

    def _over(self, zone: ZoneSchedule, now_ms: int, entry: Entry) -> bool:
        """Whether its deadline has passed, or its life is over."""
        core = self._core
        if 0 < entry.note.deadline_ms <= now_ms:
            return True
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

    def _return(self, zone: ZoneSchedule, strand: Strand, now_ms: int) -> bool:
        """Ends those parked whose deadline has passed; finds the next deadline. True: there is more to look at."""
        prefix, dead, busy = keys.parked_range(zone.zone.name, strand.key), list[Entry](), self._core.schedule.busy
        if strand not in self._walks:
            strand.deadline_ms = NEVER_MS  # parked from now on: they say it themselves
        start = self._walks.pop(strand, prefix)
        for count, (key, value) in enumerate(self._core.store.scan(start, keys.end(prefix))):
            if len(dead) >= EXPIRED_AT_ONCE or count >= WALKED_AT_ONCE:
                self._walks[strand] = key
                break
            note = Note.of(value)
            if 0 < note.deadline_ms <= now_ms and key not in busy:
                place = keys.place(key)
                dead.append(Entry(key, place.id, place.recipient, note))
            elif note.deadline_ms > now_ms:
                strand.deadline_ms = min(strand.deadline_ms, note.deadline_ms)
        self._end(zone, strand, dead)
        return strand in self._walks

    def _end(self, zone: ZoneSchedule, strand: Strand, dead: list[Entry]) -> None:
        """Bounces them; nobody else has them."""
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
                hold = strand.held or zone.held
                cause = strand.lane.reason or (hold.cause if hold else "its time in the queue is over")
                if 0 < entry.note.deadline_ms <= self._core.clock.ms():
                    cause = f"its delivery deadline has passed ({cause})"
                self._core.end(lease, BOUNCED, Reply(554, "5.4.7", cause), None)
