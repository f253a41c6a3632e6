"""The queue: `LocalQueue` is `Intake`, `Outlet` and `Office` in one object; the process that has it owns the disk.

`LocalQueue.open` is recovery: there is no other way up, and no way down but the end of the process. A position record
every few seconds says where the next start begins; what it costs is one empty synced batch and one record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk import keys, records
from zonemta_py.disk.records import Type
from zonemta_py.disk.store import Operation, StoreDamaged, StoreError
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import browse, check, segments, sizes
from zonemta_py.queue.accept import Acceptance, Done, LocalIncoming, put
from zonemta_py.queue.api import BOUNCED, Delivery, Outcome, QueueRefusal, Result
from zonemta_py.queue.commit import immediately
from zonemta_py.queue.core import Clock, Core
from zonemta_py.queue.hooks import Hooks, NoHooks
from zonemta_py.queue.lease import Lease, Leases
from zonemta_py.queue.replay import leased_keys
from zonemta_py.queue.schedule import Entry, Group, Lane, ZoneSchedule
from zonemta_py.queue.settle import Settling
from zonemta_py.zones.retry import expired

EXPIRED = Reply(554, "5.4.7", "its time in the queue is over")
UNREADABLE = Reply(451, "4.3.0", "the body cannot be read")
RECORDS_BETWEEN_POSITIONS = 20_000
SWEEP_S = 60.0


class LocalQueue:
    """The queue in this process. Made by `recovery.open_queue`."""

    def __init__(self, core: Core, first_lease: int) -> None:
        self.core = core
        self.acceptance = Acceptance(core)
        self.leases = Leases(core, first_lease)
        self.settling = Settling(core, self.leases, self.acceptance)
        core.lost_message = self._lost_message
        core.end = self._end
        core.pump = self.leases.pump
        self._position_seq = 0
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        config: Config,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        damaged: Callable[[StoreDamaged], None] | None = None,
    ) -> LocalQueue:
        """Recovers what is in `config.folder` and goes on from there. Raises StoreError, OSError."""
        from zonemta_py.queue.recovery import open_queue

        return await open_queue(config, hooks or NoHooks(), clock or Clock(), damaged)

    def start(self) -> None:
        """Begins the work that time drives: positions, the archive, expiry."""
        self._tasks = [asyncio.create_task(self._positions()), asyncio.create_task(self._sweeps())]
        self.core.changed()

    # -- Intake

    async def put(self, envelope: Envelope, body: bytes) -> str:
        return await put(self.acceptance, self.core, envelope, [body])

    def put_soon(self, envelope: Envelope, body: bytes, done: Done) -> None:
        """The same for callers that keep no task for it: `done(id, refusal)`."""
        refusal = self.acceptance.refusal()
        if refusal is not None:
            done("", refusal)
        else:
            self.acceptance.commit(envelope, self.acceptance.routes(envelope), [body], done)

    def begin(self) -> LocalIncoming:
        return LocalIncoming(self.acceptance, self.core)

    # -- Outlet

    async def lease(self, most: int, worker: str = "") -> list[Delivery]:
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()

        def deliver(deliveries: list[Delivery]) -> None:
            if not future.done():
                future.set_result(deliveries)

        taker = self.leases.take(most, worker, deliver)
        try:
            return await future
        except asyncio.CancelledError:
            self.leases.leave(taker)
            for lease in taker.leases:  # given, and never taken
                self.leases.take_back(lease)
            raise

    async def settle(self, result: Result) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settling.settle(result, partial(_wake, future))
        await future

    async def chunk(self, message_id: str, number: int) -> bytes:
        return (await self.chunks(message_id, number, 1))[0]

    async def chunks(self, message_id: str, first: int, most: int) -> list[bytes]:
        """Up to `most` chunks from `first` on, as far as the body goes. Raises QueueRefusal."""
        messages = self.core.messages
        try:
            last = min(first + most - 1, messages.get(message_id).chunks)
            return [messages.chunk(message_id, number) for number in range(first, max(first, last) + 1)]
        except StoreError as error:
            if isinstance(error, StoreDamaged):
                self._quarantine(message_id, error)
            raise QueueRefusal(UNREADABLE) from None

    # -- Office

    async def ask(self, question: str, **arguments: Any) -> Any:
        return await browse.answer(self, question, arguments)

    # -- what goes wrong

    def lost(self, worker: str) -> None:
        """A sender has died. What it had is in doubt: its final replies may have been on their way."""
        doubtful = []
        for lease in self.leases.of(worker):
            if lease.settling:
                continue
            if not lease.sent:
                self.leases.take_back(lease)
                continue
            del self.leases.out[lease.number]
            lease.group.zone.done(lease.group.lane)
            doubtful.append(lease)
        if doubtful:
            self._in_doubt(doubtful)
        self.core.changed()

    def _in_doubt(self, doubtful: list[Lease]) -> None:
        """Lists them, and holds or frees them as their zone says."""
        core = self.core
        rows = [
            [
                lease.message.id,
                lease.group.zone.zone.name,
                entry.address,
                lease.since_ms,
                lease.group.zone.zone.in_doubt,
            ]
            for lease in doubtful
            for entry in lease.group.entries
        ]
        core.record(Type.IN_DOUBT, records.pack([[lease.number for lease in doubtful], rows]))
        for lease in doubtful:
            zone, entries = lease.group.zone, lease.group.entries
            operations = doubt_operations(lease.message.id, zone.zone.name, entries, lease.since_ms, zone.zone.in_doubt)
            if zone.zone.in_doubt != "hold":
                core.lines.submit(operations, immediately, sync=False, keep=True)
                zone.put_back(lease.group.lane, entries)
                continue
            for entry in entries:
                operations += hold_operations(core, zone.zone.name, entry)

            def held(_: Reply | None, lease: Lease = lease) -> None:
                core.schedule.busy.difference_update([entry.key for entry in lease.group.entries])
                core.messages.unpin(lease.message, len(lease.group.entries))

            core.lines.submit(operations, held, sync=False, keep=True)

    def in_doubt_rows(self, working: list[list[Any]]) -> None:
        """Recovery's list: start records without a result, [lease, id, zone, destination, recipients, since_ms]."""
        core, rows = self.core, []
        for row in working:
            zone = core.config.zone(row[2])
            action = zone.in_doubt if zone else "retry"
            rows += [[row[1], row[2], address, row[5], action] for address, _, _ in leased_keys(core.store.get, row)]
        if working:
            core.record(Type.IN_DOUBT, records.pack([[row[0] for row in working], rows]))
            self.apply_in_doubt(rows)

    def apply_in_doubt(self, rows: list[list[Any]]) -> None:
        """Makes an IN_DOUBT record true, before anything is scheduled."""
        core = self.core
        for message_id, zone, address, since_ms, action in rows:
            entry = find_entry(core, zone, message_id, address)
            if entry is None:
                continue
            operations = doubt_operations(message_id, zone, [entry], since_ms, action)
            if action == "hold":
                operations += hold_operations(core, zone, entry)
            core.lines.submit(operations, immediately, sync=False, keep=True)

    def find_entry(self, zone: str, message_id: str, address: str) -> tuple[bytes, int] | None:
        """The key of a recipient that is not leased, wherever it is, and how it is counted."""
        key = keys.held(zone, message_id, address)
        if self.core.store.get(key) is not None:
            return key, sizes.HELD
        entry = find_entry(self.core, zone, message_id, address)
        return (entry.key, state_of(entry)) if entry is not None else None

    def _lost_message(self, group: Group, error: StoreError) -> None:
        """A message that cannot be read when its turn comes: aside, and the sender is told."""
        core = self.core
        message_id = group.entries[0].id
        self._quarantine(message_id, error)
        core.messages.drop(message_id)
        core.record(
            Type.REMOVED,
            records.pack([message_id, group.zone.zone.name, [entry.address for entry in group.entries], str(error)]),
        )
        operations: list[Operation] = []
        for entry in group.entries:
            operations.append((entry.key, None))
            core.sizes.add(group.zone.zone.name, entry.address.rpartition("@")[2], state_of(entry), -1)
        gone = [entry.key for entry in group.entries]
        core.lines.submit(operations, lambda _: core.schedule.busy.difference_update(gone), sync=False, keep=True)
        group.zone.done(group.lane)

    def _quarantine(self, message_id: str, error: StoreError) -> None:
        core, found = self.core, {}
        for key in (keys.metadata(message_id), keys.existence(message_id), *_chunk_keys(core, message_id)):
            try:
                found[key.decode().replace(" ", "_").replace("*", "metadata").replace("#", "existence")] = (
                    core.store.get(key) or b""
                )
            except StoreError:
                continue
        note = {
            "message": message_id,
            "error": str(error),
            "remedy": "send it again from its source; fsck shows the rest",
        }
        core.quarantine.case(f"message-{message_id}", note, found)

    # -- what time drives

    async def _positions(self) -> None:
        core = self.core
        while True:
            until = core.clock.monotonic() + core.config.queue.position_s
            while core.clock.monotonic() < until:
                await asyncio.sleep(min(0.25, core.config.queue.position_s))
                if core.journal.next_seq - self._position_seq > RECORDS_BETWEEN_POSITIONS:
                    break
            if core.journal.next_seq > self._position_seq + 1:
                await self.position()

    async def position(self) -> None:
        """Writes a position record: the batch before it makes true what it says."""
        core = self.core
        marks, applied = core.schedule.marks(), core.applied()
        arriving, floor = sorted(core.arriving), core.ids.next(core.clock.ms())
        for name, zone_marks in marks.items():
            lowest = min([floor, *arriving])
            zone_marks["fresh"] = min(zone_marks["fresh"], keys.fresh_range(name) + lowest.encode())
        working = [lease.row() for lease in self.leases.out.values()]
        batches = core.batches
        await core.lines.stable()
        body = {
            "batches": batches,
            "applied": applied,
            "working": working,
            "marks": marks,
            "floor": floor,
            "segments": core.segments.rows(),
            "opened": arriving,
        }
        core.record(Type.POSITION, records.pack(body))
        await core.journal.stable()
        self._position_seq = core.journal.next_seq
        self._archive(applied + 1)

    def _archive(self, before_seq: int) -> None:
        core, folder = self.core, self.core.config.folder
        spans = core.segments.finished(before_seq)
        if spans:
            segments.archive(folder / "journal", folder / "archive", spans)
            queue = core.config.queue
            oldest = segments.oldest(folder / "journal")
            segments.prune(folder / "archive", core.clock.ms(), queue.archive_days, queue.archive_bytes, oldest)

    async def _sweeps(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Ends the parked recipients of destinations that stay down, once their life is over."""
        now_ms = self.core.clock.ms()
        if self.core.store.fenced:
            return
        for zone in self.core.schedule.zones.values():
            for lane in [lane for lane in zone.lanes.values() if lane.failures]:
                await self._expire(zone, lane, now_ms)
        self._forget_doubts(now_ms)

    def _forget_doubts(self, now_ms: int) -> None:
        """Recipients in doubt are listed for as long as the archive is kept."""
        core, days = self.core, self.core.config.queue.archive_days
        if days:
            oldest = keys.IN_DOUBTS + keys.id_at(now_ms - int(days * 86_400_000)).encode()
            old: list[Operation] = [(key, None) for key in core.store.keys(keys.IN_DOUBTS, oldest)]
            core.lines.submit(old, immediately, sync=False, keep=True)

    async def _expire(self, zone: ZoneSchedule, lane: Lane, now_ms: int) -> None:
        core = self.core
        prefix = keys.parked_range(zone.zone.name, lane.target.key)
        for key, value in list(core.store.scan(prefix, keys.end(prefix))):
            place = keys.place(key)
            if not expired(keys.id_ms(place.id), now_ms, core.config.retry):
                return  # ids grow with time: nobody behind is older
            if key in core.schedule.busy:
                continue
            core.schedule.busy.add(key)
            entry = Entry(key, place.id, place.recipient, records.Note.of(value))
            lease = self.leases.grant(Group(zone, lane, [entry]), "expiry")
            if lease is not None:
                zone.active, lane.active = zone.active + 1, lane.active + 1
                self._end(lease, BOUNCED, Reply(554, "5.4.7", lane.reason or EXPIRED.text), None)

    def _end(self, lease: Lease, verdict: int, reply: Reply, error: StoreError | None) -> None:
        """Settles a lease without a sender: it expired, a plugin refused it, or its body is damaged."""
        if error is not None:
            self._quarantine(lease.message.id, error)
        outcome = Outcome(verdict, reply, "queue", list(range(len(lease.group.entries))))
        self.settling.settle(Result(lease.number, [outcome]), lambda: None)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def state_of(entry: Entry) -> int:
    """How a recipient in the window is counted."""
    return sizes.DEFERRED if entry.key.startswith(b"deferred ") else sizes.QUEUED


def doubt_operations(message_id: str, zone: str, entries: list[Entry], since_ms: int, action: str) -> list[Operation]:
    """Operations that list recipients as in doubt."""
    value = records.pack([zone, since_ms, action])
    return [(keys.in_doubt(message_id, entry.address), value) for entry in entries]


def hold_operations(core: Core, zone: str, entry: Entry) -> list[Operation]:
    """Operations that hold a recipient; its size moves along."""
    domain = entry.address.rpartition("@")[2]
    core.sizes.add(zone, domain, state_of(entry), -1)
    core.sizes.add(zone, domain, sizes.HELD, 1)
    return [(entry.key, None), (keys.held(zone, entry.id, entry.address), entry.note.value())]


def find_entry(core: Core, zone: str, message_id: str, address: str) -> Entry | None:
    """A queued or deferred recipient in the store, wherever its key is."""
    key = keys.fresh(zone, message_id, address)
    value = core.store.get(key)
    if value is None:
        for place, found, note in check.recipients(core.store, message_id):
            if (place.id, place.recipient, place.zone) == (message_id, address, zone) and place.family != "held":
                return Entry(found, message_id, address, records.Note.of(note))
        return None
    return Entry(key, message_id, address, records.Note.of(value))


def _chunk_keys(core: Core, message_id: str) -> list[bytes]:
    prefix = keys.message_range(message_id)
    try:
        return [key for key in core.store.keys(prefix, keys.end(prefix)) if key[-1:].isdigit()]
    except StoreError:
        return []
