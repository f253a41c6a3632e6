"""What time drives: position records, the way of finished segments into the archive, the end of what is too old.

A position record every few seconds says where the next start begins; it costs one empty synced batch and one record.
Failures: a disk that says no is named once in the log, and asked again the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from zonemta_py.disk import keys, records
from zonemta_py.disk.records import Note, Type
from zonemta_py.disk.store import Operation, StoreDamaged, StoreError
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import segments
from zonemta_py.queue.api import BOUNCED
from zonemta_py.queue.commit import immediately
from zonemta_py.queue.lane import Entry, Group, Strand
from zonemta_py.queue.parts import Parts
from zonemta_py.queue.zone import ZoneSchedule
from zonemta_py.zones.retry import expired

log = logging.getLogger(__name__)

RECORDS_BETWEEN_POSITIONS = 20_000
SWEEP_S = 60.0
EXPIRED_AT_ONCE = 1_000
_LOOK_S = 0.25


class Upkeep:
    """The queue's own chores."""

    def __init__(self, queue: Parts) -> None:
        self._queue, self._core = queue, queue.core
        self._position_seq = 0
        self._tasks: list[asyncio.Task[None]] = []

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
        """Ends the parked recipients of destinations that stay down, once their life is over; forgets old doubts.

        True: there are more than were ended at once.
        """
        core, now_ms = self._core, self._core.clock.ms()
        if core.store.fenced:
            return False
        more = False
        for zone in core.schedule.zones.values():
            for strand in [s for s in zone.strands.by_key.values() if s.lane.failures or s.held]:
                more |= self._expire(zone, strand, now_ms)
        days = core.config.queue.archive_days
        if days:  # recipients in doubt are listed for as long as the archive is kept
            oldest = keys.IN_DOUBTS + keys.id_at(now_ms - int(days * 86_400_000)).encode()
            old: list[Operation] = [(key, None) for key in core.store.keys(keys.IN_DOUBTS, oldest)]
            core.lines.submit(old, immediately, sync=False, keep=True)
        return more

    def _expire(self, zone: ZoneSchedule, strand: Strand, now_ms: int) -> bool:
        prefix = keys.parked_range(zone.zone.name, strand.key)
        dead: list[Entry] = []
        for key, value in self._core.store.scan(prefix, keys.end(prefix)):
            place = keys.place(key)
            if len(dead) >= EXPIRED_AT_ONCE or not expired(keys.id_ms(place.id), now_ms, self._core.config.retry):
                break  # ids grow with time: nobody behind is older
            if key not in self._core.schedule.busy:
                dead.append(Entry(key, place.id, place.recipient, Note.of(value)))
        for entry in dead:
            self._core.schedule.busy.add(entry.key)
            group = Group(strand, [entry])
            zone.begin(group)
            lease = self._queue.leases.grant(group, "expiry")
            if lease is not None:
                reply = Reply(554, "5.4.7", strand.lane.reason or "its time in the queue is over")
                self._core.end(lease, BOUNCED, reply, None)
        return len(dead) >= EXPIRED_AT_ONCE
