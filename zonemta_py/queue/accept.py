"""Accepting: one atomic synced batch holds a message, then the journal gets its envelope record.

The batch is the commit; a crash between the two leaves a message without its record, which recovery writes. Chunks of a
large message go before, unsynced, and are garbage until that batch; an OPEN record names them for recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from zonemta_py.disk import keys, records
from zonemta_py.disk.bodies import shrink
from zonemta_py.disk.records import Existence, Note, Type
from zonemta_py.disk.store import Operation
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import sizes
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.commit import NO_SPACE, immediately
from zonemta_py.queue.core import Core
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.messages import Message
from zonemta_py.schedule import hours
from zonemta_py.schedule.lane import Entry, Path, Strand
from zonemta_py.schedule.zone import ZoneSchedule

NO_RECIPIENTS = Reply(554, "5.5.1", "no valid recipients")
GONE = Reply(451, "4.3.0", "the message was given up, try again")
WRITES_MAX = 2
"""Writes of one message that may be on their way to the store at once."""

Done = Callable[[str, Reply | None], None]


class _Placed(NamedTuple):
    zone: ZoneSchedule
    strand: Strand | None
    key: bytes
    recipient: Recipient
    note: Note
    state: int


class Acceptance:
    """Turns messages into keys and records."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def refusal(self) -> Reply | None:
        """Why nothing can be accepted now."""
        core = self._core
        trouble = core.lines.trouble or core.journal.trouble
        if trouble is None and core.space.short(core.clock.monotonic()):
            return NO_SPACE
        return trouble

    def routes(self, envelope: Envelope) -> list[Routed]:
        """Each recipient's zone, by the rules of the configuration."""
        route, sender, origin, wish = self._core.router.route, envelope.sender, envelope.origin, envelope.sending_zone
        recipients = envelope.recipients
        if len(recipients) > 1:  # a recipient named twice has one key, and counts once
            recipients = list({recipient.address: recipient for recipient in recipients}.values())
        fields = envelope.headers
        return [Routed(r, route(sender, r.address, origin, wish, fields).zone) for r in recipients]

    async def asked_routes(self, envelope: Envelope) -> list[Routed]:
        """The same, after plugins had their say; empty if they dropped everyone. Raises QueueRefusal."""
        hooks = self._core.hooks
        asked = [await hooks.route(envelope, routed) for routed in self.routes(envelope)]
        kept = [routed for routed in asked if not routed.drop]
        if kept and all(routed.refusal for routed in kept):
            raise QueueRefusal(kept[0].refusal or NO_RECIPIENTS)
        return [self._refused(routed) for routed in kept]

    @staticmethod
    def _refused(routed: Routed) -> Routed:
        """A single recipient that plugins refuse bounces when its turn comes: the others' 250 must stand."""
        if routed.refusal is not None:
            routed.routing = {"refused": [routed.refusal.code, routed.refusal.enhanced, routed.refusal.text]}
        return routed

    def commit(
        self,
        envelope: Envelope,
        routed: list[Routed],
        chunks: list[bytes],
        done: Done,
        *,
        message_id: str = "",
        before: int = 0,
        along: list[Operation] | None = None,
    ) -> None:
        """Stores a message whose first `before` chunks are there already; `done(id, None)` once it is stable.

        along: operations for the same batch (the end of the recipients a notification is about); such a message
        survives a write error, since its cause stands in the journal.
        """
        core = self._core
        now_ms = core.clock.ms()
        message_id = message_id or core.ids.next(now_ms)
        metadata = envelope.metadata()
        metadata["chunks"] = before + len(chunks)
        packed = records.pack(metadata)
        placed = [self._place(message_id, row, envelope, now_ms) for row in routed]
        message = Message(message_id, metadata, now_ms, len(placed), len(placed))
        operations = along or []
        operations += [(keys.chunk(message_id, number), chunk) for number, chunk in enumerate(chunks, before + 1)]
        operations.append((keys.existence(message_id), Existence(now_ms, len(placed), len(placed)).value()))
        operations.append((keys.metadata(message_id), packed))
        operations += [(row.key, row.note.value()) for row in placed]
        core.arriving.add(message_id)
        core.schedule.busy.update([row.key for row in placed])
        self._count(placed, envelope.size, 1)

        def finish(reply: Reply | None) -> None:
            core.arriving.discard(message_id)
            if reply is None:
                self._accepted(message, packed, placed, chunks[0] if metadata["chunks"] == 1 else None)
            else:
                self._count(placed, envelope.size, -1)
                self._undo(operations, placed)
            done(message_id, reply)

        core.lines.submit(operations, finish, sync=True, keep=along is not None)

    def _undo(self, operations: list[Operation], placed: list[_Placed]) -> None:
        """A batch that failed may be found in LevelDB's log all the same; until it is deleted nobody may read it."""
        core = self._core

        def gone(_: Reply | None) -> None:
            core.schedule.busy.difference_update([row.key for row in placed])

        core.lines.submit([(key, None) for key, _ in operations], gone, sync=False, keep=True)

    def _place(self, message_id: str, routed: Routed, envelope: Envelope, now_ms: int) -> _Placed:
        recipient = routed.recipient
        zone = self._core.schedule.zones[routed.zone]
        priority = zone.zone.priority if envelope.priority is None else envelope.priority
        flow = ""
        if priority or envelope.tenant or envelope.campaign:
            flow = Path(priority, envelope.tenant or "", envelope.campaign or "").text()
        deadline_ms = envelope.deadline_ms
        note = Note(recipient.notify, recipient.orcpt, routing=routed.routing, flow=flow, deadline_ms=deadline_ms)
        wait_s = max(routed.delay_s, hours.wait_s(self._core.config, zone.zone, envelope, now_ms))
        if envelope.deadline_mode == "R":
            wait_s = min(wait_s, (deadline_ms - now_ms) / 1000)
        if wait_s > 0:
            key = keys.deferred(routed.zone, now_ms + int(wait_s * 1000), message_id, recipient.address)
            return _Placed(zone, None, key, recipient, note, sizes.DEFERRED)
        strand = zone.strands.of(message_id, recipient.address, note)
        if zone.takes(strand):
            key = keys.fresh(routed.zone, message_id, recipient.address)
        else:
            key = keys.parked(routed.zone, strand.key, message_id, recipient.address)
        return _Placed(zone, strand, key, recipient, note, sizes.QUEUED)

    def _count(self, placed: list[_Placed], size: int, sign: int) -> None:
        core = self._core
        core.message_count += sign
        core.message_bytes += sign * size
        for row in placed:
            core.sizes.add(row.zone.zone.name, row.recipient.domain, row.state, sign)

    def _accepted(self, message: Message, packed: bytes, placed: list[_Placed], body: bytes | None) -> None:
        core = self._core
        rows = [[row.zone.zone.name, row.recipient.address, *row.note[:2]] for row in placed]
        core.record(Type.ENVELOPE, b"\x93" + records.pack(message.id) + packed + records.pack(rows))
        core.segments.born(message.id)
        pins = 0
        for row in placed:
            pins += self._hand_over(message, row)
        if pins:
            core.messages.add(message, body)
            core.messages.pin(message, pins)
        core.changed()

    def _hand_over(self, message: Message, row: _Placed) -> int:
        """Straight into the window if it has room and nothing older waits in the store; else for a cursor to find."""
        core, zone, strand = self._core, row.zone, row.strand
        if row.note.deadline_ms:
            zone.deadline_ms = min(zone.deadline_ms, row.note.deadline_ms)
        if strand is None:
            core.schedule.busy.discard(row.key)
            zone.due_at(keys.place(row.key).due_ms)
        elif row.key.startswith(b"parked "):
            core.schedule.busy.discard(row.key)
            zone.parked_key(strand, row.key, row.note.deadline_ms)
        elif zone.ready_for_new(strand):
            zone.put_new(strand, Entry(row.key, message.id, row.recipient.address, row.note, pinned=True))
            return 1
        else:
            core.schedule.busy.discard(row.key)
            zone.left_unread(row.key, row.note.deadline_ms)
        return 0


class LocalIncoming:
    """A message of several chunks (api.Incoming)."""

    def __init__(self, acceptance: Acceptance, core: Core) -> None:
        self._acceptance, self._core = acceptance, core
        self._id = ""
        self._chunks = 0
        self._pending = 0
        self._trouble: Reply | None = None
        self._wake: asyncio.Future[None] | None = None

    async def write(self, chunk: bytes) -> None:
        await self.write_kept([shrink(chunk)])

    async def write_kept(self, chunks: list[bytes]) -> None:
        """Several chunks at once, in the form in which they are kept (`disk.bodies`)."""
        self._check()
        if not self._id:
            self._open()
        numbers = range(self._chunks + 1, self._chunks + 1 + len(chunks))
        self._chunks += len(chunks)
        self._pending += 1
        operations: list[Operation] = [
            (keys.chunk(self._id, number), chunk) for number, chunk in zip(numbers, chunks, strict=True)
        ]
        self._core.lines.submit(operations, self._written, sync=False, keep=False)
        await self._until(WRITES_MAX - 1)

    def _open(self) -> None:
        core = self._core
        self._id = core.ids.next(core.clock.ms())
        core.arriving.add(self._id)
        core.record(Type.OPEN, records.pack([self._id]))

    def _written(self, reply: Reply | None) -> None:
        self._pending -= 1
        self._trouble = self._trouble or reply
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _until(self, most: int) -> None:
        while self._pending > most:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self._check()

    def _check(self) -> None:
        reply = self._trouble or self._acceptance.refusal()
        if reply is not None:
            raise QueueRefusal(reply)

    async def commit(self, envelope: Envelope, last_chunk: bytes) -> str:
        return await self.commit_kept(envelope, shrink(last_chunk))

    async def commit_kept(self, envelope: Envelope, last_chunk: bytes) -> str:
        """The same for a last chunk in the form in which it is kept."""
        await self._until(0)
        chunks = [last_chunk] if last_chunk else []
        return await put(self._acceptance, self._core, envelope, chunks, self)

    def hand_over(self) -> tuple[str, int]:
        """Id and number of the chunks stored: the commit is on its way, and abort must leave it alone."""
        message_id, self._id = self._id, ""
        return message_id, self._chunks

    def take_back(self, message_id: str) -> None:
        """The commit was refused: there are chunks to abort again."""
        self._id = message_id if self._chunks else ""

    def abort(self) -> None:
        if self._id:
            numbers = range(1, self._chunks + 1)
            operations: list[Operation] = [(keys.chunk(self._id, number), None) for number in numbers]
            self._core.lines.submit(operations, immediately, sync=False, keep=True)
            self._core.arriving.discard(self._id)
        self._id, self._trouble = "", GONE


async def put(
    acceptance: Acceptance, core: Core, envelope: Envelope, chunks: list[bytes], incoming: LocalIncoming | None = None
) -> str:
    """Commits a message and waits for it. Raises QueueRefusal."""
    reply = acceptance.refusal() if envelope.recipients else NO_RECIPIENTS
    if reply is not None:
        raise QueueRefusal(reply)
    routed = await acceptance.asked_routes(envelope) if core.hooks.routes else acceptance.routes(envelope)
    if not routed:  # plugins dropped every recipient: taken, and forgotten
        if incoming:
            incoming.abort()
        return core.ids.next(core.clock.ms())
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def done(stored: str, refused: Reply | None) -> None:
        if not future.done():
            if refused is None:
                future.set_result(stored)
            else:
                future.set_exception(QueueRefusal(refused))

    message_id, before = incoming.hand_over() if incoming else ("", 0)
    acceptance.commit(envelope, routed, chunks, done, message_id=message_id, before=before)
    try:
        return await future
    except QueueRefusal:
        if incoming:
            incoming.take_back(message_id)
        raise
