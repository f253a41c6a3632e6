"""Periodic maintenance: position records, archiving of closed segments, expiry.

A position record every few seconds says where the next start begins; it costs one empty synced batch and one record.
Every minute all flow queues in memory are checked; those with a deadline when the nearest one has passed. Failures: a
disk error is logged once, and the work is tried again next time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged, StoreError
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import PositionRecord
from zonemta_py.journal.records.orders import WAITED, StandingRecord
from zonemta_py.logs.causes import cause
from zonemta_py.metrics.quantities import size
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.maintenance import archive
from zonemta_py.queue.maintenance.deadlines import Deadlines, flow_queues_in_turn
from zonemta_py.queue.maintenance.expiry import Expiry
from zonemta_py.queue.maintenance.kept import KeptBounces
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.policy.saved import pack_around
from zonemta_py.schedule.time.pace import Pace, behind
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones import pull

log = logging.getLogger(__name__)

RECORDS_BETWEEN_POSITIONS = 20_000
SWEEP_S = 60.0
SWEEPS_REST = 9.0
"""For each second of its work, while mail is sent: a long one takes a tenth of the time."""
DEADLINES_S = 1.0
CAMPAIGNS_S = 1.0
COMPACTION_S = 5.0
WAITS_S = 60.0
DOUBT_DAYS = 7.0
"""How long those in doubt are listed when their message has ended, unless somebody acknowledges it before."""
_LOOK_S = 0.25


class Maintenance:
    """The queue's periodic work."""

    def __init__(self, queue: QueueContext, campaigns: Callable[[], bool]) -> None:
        """campaigns: `CampaignCommands.tick`."""
        self._queue, self._core, self._campaigns = queue, queue.core, campaigns
        self._position_seq = 0
        self._short = False
        self._tasks: list[asyncio.Task[None]] = []
        self._expiry = Expiry(queue)
        self._deadlines = Deadlines(queue, self._expiry)
        self._kept = KeptBounces(queue.core)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._forever(self._next_position)),
            asyncio.create_task(self._forever(self._next_closed)),
            asyncio.create_task(self._forever(self._next_sweep)),
            asyncio.create_task(self._forever(self._next_deadlines)),
            asyncio.create_task(self._forever(self._next_campaigns)),
            asyncio.create_task(self._forever(self._next_compaction)),
            asyncio.create_task(self._forever(self._next_waits)),
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _forever(self, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await chore()
            except StoreDamaged as error:
                self._core.disk.read_failed(error)
            except (StoreError, OSError) as error:
                log.warning("%s; it is tried again", cause(error))
                await asyncio.sleep(1)

    async def _next_position(self) -> None:
        core = self._core
        until = core.clock.monotonic() + core.config.queue.position_s
        while core.clock.monotonic() < until:
            await asyncio.sleep(min(_LOOK_S, core.config.queue.position_s))
            if core.disk.journal.next_seq - self._position_seq > RECORDS_BETWEEN_POSITIONS:
                break
        core.disk.ledger.rotate_old()
        if core.disk.journal.next_seq > self._position_seq + 1:
            await self.position()

    async def position(self) -> None:
        """Writes a position record: the batch before it makes it true."""
        core = self._core
        core.schedule.policy.day()
        await core.schedule.policy.gather(Pace(math.inf))
        marks, applied = core.schedule.marks(), core.disk.ledger.applied()
        arriving, floor = sorted(core.arriving), core.disk.ids.next(core.clock.ms())
        lowest = min([floor, *arriving]).encode()
        for name, zone_marks in marks.items():
            zone_marks["fresh"] = min(_to_id(zone_marks["fresh"], 3), keys.fresh_range(name) + lowest)
            zone_marks["due"] = _to_id(zone_marks["due"], 4)
        working = [lease.row() for lease in self._queue.leases.out.values()]
        await core.disk.journal.stable()
        batches = core.batches
        await core.disk.lines.stable()
        await core.disk.bodies.settled()  # a start from here need not look for files of messages that ended earlier
        standing, permits = pack_around(core.schedule.policy.state()), pack_around(core.schedule.admission.state())
        core.disk.ledger.ready()
        body: PositionRecord = {
            "batches": batches,
            "applied": applied,
            "working": working,
            "marks": marks,
            "floor": floor,
            "segments": core.disk.segments.rows(),
            "opened": arriving,
            "ended": list(core.disk.compaction.slice),
            "clock": core.clock.state(),
        }
        core.disk.ledger.append(Type.POSITION, pack_around({**body, "permits": permits, "standing": standing}))
        core.disk.policy_copy.save(standing, permits)
        await core.disk.journal.stable()
        self._position_seq = core.disk.journal.next_seq
        await archive.retire(core, self._queue.suppression, applied + 1)

    async def _next_closed(self) -> None:
        await self._core.disk.ledger.rotated.wait()
        self._core.disk.ledger.rotated.clear()
        try:
            await archive.publish(self._core)
        except OSError:
            self._core.disk.ledger.rotated.set()
            raise

    async def _next_sweep(self) -> None:
        await asyncio.sleep(SWEEP_S)
        more = True
        while more:  # in portions, so that the event loop keeps running
            more = await behind(self.sweep, SWEEPS_REST)
            await asyncio.sleep(_LOOK_S)

    async def _next_deadlines(self) -> None:
        await asyncio.sleep(DEADLINES_S)
        await self.deadlines()

    async def _next_campaigns(self) -> None:
        await asyncio.sleep(CAMPAIGNS_S)
        self._queue.policy.tick()
        while not self._core.disk.store.fenced and self._campaigns():
            await self._core.disk.lines.stable()  # no faster than the disk takes it

    async def _next_compaction(self) -> None:
        await asyncio.sleep(COMPACTION_S)
        await self.cleanse()

    async def _next_waits(self) -> None:
        await asyncio.sleep(WAITS_S)
        self.note_waits()

    def note_waits(self) -> None:
        """Records for how long each limit has held mail since the last time."""
        core = self._core
        for name, (ms, times) in core.schedule.admission.waits.take(core.schedule.now()).items():
            record = StandingRecord(WAITED, ["limit", name], {"ms": ms, "times": times}, "")
            core.disk.ledger.append(Type.STANDING, record.pack())

    async def cleanse(self) -> None:
        """Compacts ended mail away, if it is time."""
        core, now_s = self._core, self._core.clock.monotonic()
        short = core.disk.space.short(now_s)
        if short and not self._short:
            sentence = "%s: less than %s are free (queue.reserve_bytes); mail is refused with 452 until they are"
            log.error(sentence, core.config.folder, size(core.disk.space.reserve))
        elif self._short and not short:
            log.warning("%s: there is free space again, and mail is accepted", core.config.folder)
        self._short = short
        core.disk.bodies.uncommitted.short()
        if short:
            self._kept.end()
        if short and core.disk.lines.trouble is None:
            # After a compaction that ran out of space, its tables stay until a write meets the error and LevelDB is
            # reopened; they may fill the space that the journal needs, and without the journal nothing is written.
            core.disk.lines.submit([], immediately, sync=True, keep=True)
        if not core.disk.store.fenced and core.disk.compaction.due(now_s, short):
            await core.disk.compaction.run(core.disk.store, core.disk.lines, now_s)

    async def deadlines(self) -> bool:
        """Looks where a deadline may have passed; True: there is more to look at."""
        return await self._deadlines.look()

    async def sweep(self) -> bool:
        """Ends recipients that cannot go once their lifetime or deadline is over; drops old in-doubt entries, what
        has bounced and is kept no longer, and idle flow queues.

        True: there are more than were ended at once.
        """
        core, now_ms = self._core, self._core.clock.steady_ms()
        if core.disk.store.fenced:
            return False
        more = await self.deadlines()
        for zone in list(core.schedule.zones.values()):
            more |= await self._deadlines.late_deferred(zone, now_ms)
            more |= self._unasked(zone) and zone.fill(now_ms)
        async for flow_queue in flow_queues_in_turn(core, core.schedule.flow_queues()):
            more |= await self._sweep(core.schedule.zones[flow_queue.zone.zone.name], flow_queue, now_ms)
        if core.disk.store.fenced:
            return True
        core.forget_queues()
        more |= self._queue.acceptance.requests.tidy() | self._queue.plugin_store.tidy()
        more |= self._queue.feedback_register.tidy() | self._forget_sent()
        more |= self._kept.end()
        self._queue.policy.tidy()
        self._deadlines.forget()
        self._expiry.forget()
        self._forget_doubts()
        return more

    def _forget_doubts(self) -> None:
        """Who is in doubt is listed for as long as the message is in the queue, and DOUBT_DAYS more; at most for as
        long as the archive is kept, which says it too."""
        core = self._core
        now_ms, kept = core.clock.earlier_ms(), core.config.queue.archive_days or math.inf
        ended_ms, all_ms = (now_ms - days * 86_400_000 for days in (min(kept, DOUBT_DAYS), kept))
        oldest = keys.IN_DOUBTS + keys.id_at(int(ended_ms)).encode()
        old: list[Operation] = [
            (key, None)
            for key, value in core.disk.store.scan(keys.IN_DOUBTS, oldest)
            if (message_id := key.decode().split(" ", 2)[1]) < keys.id_at(int(max(0, all_ms)))
            or (packing.unpack(value)[1] < ended_ms and core.disk.store.get(keys.existence(message_id)) is None)
        ]
        if old:
            core.disk.lines.submit(old, immediately, sync=False, keep=True)

    def _forget_sent(self) -> bool:
        """What is remembered of messages for too long; True: there may be more."""
        over = self._core.counters.sent.expired(self._core.clock.ms())
        self._core.disk.lines.submit(over, immediately, sync=False, keep=True)
        return bool(over)

    async def _sweep(self, zone: ZoneSchedule, flow_queue: FlowQueue, now_ms: int) -> bool:
        """Checks one flow queue; True: there is more to end on it."""
        more, unasked = False, self._unasked(zone)
        if flow_queue.held or zone.held or unasked:
            self._expiry.end(
                zone, flow_queue, zone.withdraw(flow_queue, partial(self._expiry.over, flow_queue, now_ms))
            )
        if (flow_queue.path.failures or flow_queue.held or unasked) and not flow_queue.parked.exhausted:
            more |= await self._expiry.expire(zone, flow_queue, now_ms)
        more |= await self._deadlines.late(zone, flow_queue, now_ms)
        zone.tidy(flow_queue)
        return more

    def _unasked(self, zone: ZoneSchedule) -> bool:
        """Whether nobody may try its mail for as long as it lives."""
        return zone.zone.pulled and (self._core.config.pull.life_h > 0 or not pull.is_made(zone.zone.name))


def _to_id(mark: bytes, words: int) -> bytes:
    """A mark without the recipient's address: it stays until the next mail, when the person may have been erased."""
    return b" ".join(mark.split(b" ")[:words])
