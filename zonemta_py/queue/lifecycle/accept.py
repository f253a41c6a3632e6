"""Accepting, in three steps: check (`checks`), place (`placement`), and write, which is here.

One atomic synced batch holds a message, then the journal gets its envelope record.

The batch is the commit; a crash between the two leaves a message without its record, which recovery adds. A large body
is in a file, which is on stable storage before the batch, and garbage until then (`bodies`).

Submitted messages come in through `accept`, or through `admit`, which needs no task; our own notifications through
`commit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import HELD, DeliveryRecord, DeliveryTrace, OutcomeRow, RemovedRecord
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.metadata import about
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Done, QueueRefusal, Receipt
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.bodies import Stored
from zonemta_py.queue.core.campaign_counters import SUPPRESSED, campaign_of
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message, whose
from zonemta_py.queue.core.spool import Spool, Spooled
from zonemta_py.queue.hooks import Routed, why_dropped
from zonemta_py.queue.lifecycle import checks, observe, placement
from zonemta_py.queue.lifecycle.placement import Placed
from zonemta_py.queue.lifecycle.removal import remove_walked
from zonemta_py.queue.lifecycle.requests import Request, Requests, recorded
from zonemta_py.queue.suppression.register import SuppressionList, because
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones.pull import PUSHED

_recipient_of = attrgetter("recipient")


class Arriving(Protocol):
    """A message of several chunks that is complete (`LocalIncoming`)."""

    def hand_over(self) -> Stored | None:
        """Its file, which now belongs to the queue; None: it has none. Raises QueueRefusal if it was aborted."""

    def abort(self) -> None:
        """Discards its body: nothing will be stored."""


class Acceptance:
    """Turns messages into keys and records."""

    def __init__(self, core: Core, suppression: SuppressionList) -> None:
        self._core, self._suppression = core, suppression
        self.requests = Requests(core)

    async def accept(self, envelope: Envelope, chunks: list[bytes], arriving: Arriving | None = None) -> Receipt:
        """Accepts a message, or repeats the receipt if its request was answered before. Raises QueueRefusal.

        chunks: the body as it is stored (`disk.bodies`), except for what `arriving` has in a file.
        """
        reply = self._core.disk.refusal(self._core.clock.monotonic(), envelope.durability)
        if reply is not None:
            raise QueueRefusal(reply)
        request = Request.of(envelope)
        if request is None:
            return await self._accept(envelope, chunks, arriving)
        receipt = await self.requests.once(request, partial(self._accept, envelope, chunks, arriving, request))
        if receipt.repeated and arriving:
            arriving.abort()
        return receipt

    async def _accept(
        self, envelope: Envelope, chunks: list[bytes], arriving: Arriving | None, request: Request | None = None
    ) -> Receipt:  # fmt: skip
        routed = sent = checks.routes(self._core, envelope)
        if self._core.hooks.routes and envelope.protocol != PUSHED:
            routed = await self._asked(envelope, routed)
            sent = _sent(routed)
        suppressed = checks.after_routing(self._core, self._suppression, envelope, sent)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._store(envelope, routed, suppressed, chunks, partial(_answer, future), arriving, request)
        return await future

    async def _asked(self, envelope: Envelope, routed: list[Routed]) -> list[Routed]:
        """After plugins had their say. Raises QueueRefusal.

        If they refuse some recipients only, these bounce when their turn comes: the others' 250 must stand. Those that
        they drop are stored too, and removed at once (`_remove_dropped`), or when their turn comes after a crash.
        """
        routed = [await self._core.hooks.route(envelope, one) for one in routed]
        kept = _sent(routed)
        if kept and all(row.refusal for row in kept):
            raise QueueRefusal(kept[0].refusal or checks.NO_RECIPIENTS)
        for row in routed:
            if row.drop is not None:
                row.routing = {"dropped": list(row.drop)}
            elif row.refusal is not None:
                row.routing = {"refused": [row.refusal.code, row.refusal.enhanced, row.refusal.text]}
                if row.by is not None:
                    row.routing["refused_by"] = list(row.by)
        return routed

    def waits(self, envelope: Envelope) -> bool:
        """Whether it may have to wait: for plugins, or for an earlier copy of the same request."""
        return bool(envelope.request) or self._core.hooks.routes

    def admit(self, envelope: Envelope, chunks: list[bytes], done: Done) -> None:
        """As `accept`, for callers without a task; not for envelopes that `waits`."""
        core = self._core
        reply = core.disk.refusal(core.clock.monotonic(), envelope.durability)
        if reply is not None:
            done(reply)
            return
        try:
            routed = checks.routes(core, envelope)
            suppressed = checks.after_routing(core, self._suppression, envelope, routed)
        except QueueRefusal as refused:
            done(refused.reply)
            return
        self._store(envelope, routed, suppressed, chunks, done)

    def _store(
        self, envelope: Envelope, routed: list[Routed], suppressed: dict[str, str], chunks: list[bytes], done: Done,
        arriving: Arriving | None = None, request: Request | None = None,
    ) -> None:  # fmt: skip
        """Raises QueueRefusal: `arriving` was aborted meanwhile. What this node alone is to have at first is without a
        file and without a key: those have to wait for the others anyway."""
        if len(routed) > len(suppressed):
            stored = arriving.hand_over() if arriving else None
            if envelope.durability:
                envelope.durability = ""
                spool = self._core.disk.spool
                if spool is not None and not (stored or request) and spool.has_room(sum(map(len, chunks))):
                    self._spool(spool, envelope, routed, suppressed, chunks, done)
                    return
            self.commit(envelope, routed, chunks, done, stored=stored, suppressed_by=suppressed, request=request)
            return
        if arriving:
            arriving.abort()
        self._drop(envelope, routed, suppressed, request, done)

    def _spool(
        self, spool: Spool, envelope: Envelope, routed: list[Routed], suppressed: dict[str, str], chunks: list[bytes],
        done: Done,
    ) -> None:  # fmt: skip
        """`done` as soon as this node has it; the batch follows by itself, however long that takes."""
        core = self._core
        message_id = core.disk.ids.next(core.clock.ms())
        if envelope.clock_ahead_ms:
            placement.follow_clock(core, envelope)
        row, token = envelope.to_wire(), envelope.token
        receipt = self._commit_spooled(message_id, envelope, routed, suppressed, chunks, lambda: spool.done(message_id))
        spool.put(Spooled(message_id, row, chunks, token, list(receipt)), partial(done, receipt))

    def _commit_spooled(
        self, message_id: str, envelope: Envelope, routed: list[Routed], suppressed: dict[str, str],
        chunks: list[bytes], then: Callable[[], None],
    ) -> Receipt:  # fmt: skip
        mark: list[Operation] = [(keys.spooled(message_id), packing.pack([self._core.config.node]))]
        return self.commit(
            envelope, routed, chunks, lambda _: then(), along=mark, suppressed_by=suppressed, message_id=message_id
        )  # fmt: skip

    async def accept_spooled(self, one: Spooled) -> None:
        """A message that this node had accepted, and that no queue has: under its id. Raises QueueRefusal."""
        core, envelope = self._core, Envelope.from_wire(one.envelope)
        routed = checks.routes(core, envelope)
        if core.hooks.routes:
            routed = await self._asked(envelope, routed)
        suppressed = checks.after_routing(core, self._suppression, envelope, _sent(routed))
        core.disk.ids.reach(one.id)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if len(routed) > len(suppressed):
            self._commit_spooled(one.id, envelope, routed, suppressed, one.chunks, partial(done.set_result, None))
        else:
            mark: Operation = (keys.spooled(one.id), packing.pack([core.config.node]))
            core.disk.lines.submit([mark], immediately, sync=False, keep=True)
            self._drop(envelope, routed, suppressed, None, lambda _: done.set_result(None))
        await done

    # -- the batch

    def commit(
        self, envelope: Envelope, routed: list[Routed], chunks: list[bytes], done: Done, *,
        stored: Stored | None = None, along: list[Operation] | None = None,
        suppressed_by: dict[str, str] | None = None, request: Request | None = None, message_id: str = "",
    ) -> Receipt:  # fmt: skip
        """Stores a message; calls `done` once it is stable. stored: its body, if that is a file. message_id: what it
        has been given already.

        along: operations for the same batch (the end of the recipients that a notification is about); such a message
        survives a write error, since its cause is in the journal. suppressed_by: the suppressed recipients (not all of
        them), and the kind of their entry.
        """
        core = self._core
        now_ms, apart_ms = core.clock.ms(), core.clock.apart_ms()
        if not message_id:
            message_id = stored.id if stored else core.disk.ids.next(now_ms)
        if envelope.clock_ahead_ms:
            placement.follow_clock(core, envelope)
        metadata = placement.metadata_of(core, message_id, envelope, len(chunks), stored, now_ms, apart_ms)
        if not metadata["chunks"]:  # it is merged
            chunks = []
        packed = packing.pack(metadata)
        kept = [row for row in routed if row.recipient.address not in suppressed_by] if suppressed_by else routed
        placed = placement.place(core, message_id, kept, envelope, now_ms, apart_ms, "counted" in metadata)
        message = Message(message_id, metadata, now_ms, len(placed), len(placed))
        operations = _operations(message, chunks, packed, placed)
        if along:
            operations = along + operations
        count = len(suppressed_by) if suppressed_by else 0
        receipt, asked = Receipt(message_id, len(placed), count), b""
        if request is not None:
            made = self.requests.operations(request, receipt)
            operations += made
            asked = packing.pack(recorded(made))
        if core.counters.sent.remembers:
            operations += core.counters.sent.note(message_id, envelope, placed[0].zone.zone.name)
        if "meta" in metadata:
            operations += core.counters.sent.note_about(message_id, metadata, [row.recipient for row in placed])
        core.arriving.add(message_id)
        core.schedule.busy.update([row.key for row in placed])
        campaign = campaign_of(metadata) if "campaign" in metadata else ""
        self._count(placed, envelope.size, 1, campaign, count)
        dropped = sum(row.drop is not None for row in kept) if core.hooks.routes else 0
        charged = len(placed) - dropped
        charges = core.counters.quotas.charge(envelope.account, charged) if envelope.account and charged else []
        rows: list[list[Any]] = [
            [row.zone.zone.name, row.recipient.address, row.note.notify, row.note.orcpt] for row in placed
        ]  # fmt: skip
        if "meta" in metadata:
            for row, one in zip(rows, placed, strict=True):
                if one.note.meta:
                    row.append(one.note.meta)
        # An `EnvelopeRecord`, by hand: its metadata are packed for the store already.
        record = (b"\x94" if asked else b"\x93") + packing.pack(message_id) + packed + packing.pack(rows) + asked

        def finish(reply: Reply | None) -> None:
            core.arriving.discard(message_id)
            if reply is not None:
                own = campaign if core.campaigns.owns(campaign, message_id) else ""
                self._count(placed, envelope.size, -1, own, count)
                core.counters.quotas.take_back(charges)
                self._undo(operations, placed, request, stored)
                done(reply)
                return
            self._accepted(message, record, placed, chunks[0] if len(chunks) == 1 else None)
            if core.hooks.routes and any(one.held for one in kept):
                self._note_held(message_id, kept, metadata)
            if suppressed_by:
                self._name_suppressed(message_id, routed, suppressed_by, metadata, whose(metadata))
            if suppressed_by or dropped:
                core.disk.journal.when_stable(partial(done, receipt))
            else:
                done(receipt)

        core.disk.lines.submit(operations, finish, sync=True, keep=along is not None, envelope=record)
        return receipt

    def _note_held(self, message_id: str, routed: list[Routed], metadata: dict[str, Any]) -> None:
        """In the journal, so that they are told as those are that a sender's plugins hold."""
        for one in routed:
            if one.held is None:
                continue
            plugin, hook, reply = one.held
            row = OutcomeRow(
                HELD, reply.code, reply.enhanced, reply.text, "plugin", [one.recipient.address], by=[plugin, hook, ""]
            )
            of = about(metadata, [(one.recipient.address, one.recipient.meta)])
            record = DeliveryRecord(0, message_id, one.zone, "", [row], DeliveryTrace(), about=of)
            self._core.disk.ledger.append(Type.DELIVERY, record.pack())

    def _drop(
        self, envelope: Envelope, routed: list[Routed], suppressed_by: dict[str, str], request: Request | None,
        done: Done,
    ) -> None:  # fmt: skip
        """Accepts a message of which no recipient is left, and drops it: its client did nothing wrong. The record then
        holds the envelope too, as no other record does; the journal has it before `done` is called."""
        core = self._core
        message_id = core.disk.ids.next(core.clock.ms())
        metadata = placement.envelope_fields(envelope)
        receipt = Receipt(message_id, 0, len(suppressed_by))
        operations = [] if request is None else self.requests.operations(request, receipt)
        campaign = campaign_of(metadata)
        core.campaigns.counters.add(campaign, SUPPRESSED, len(suppressed_by))

        def finish(reply: Reply | None) -> None:
            if reply is not None:
                core.campaigns.counters.add(campaign, SUPPRESSED, -len(suppressed_by))
                self._undo(operations, [], request, None)
                done(reply)
                return
            asked = {"request": recorded(operations)} if operations else {}
            self._name_suppressed(message_id, routed, suppressed_by, metadata, {"envelope": metadata, **asked})
            core.disk.journal.when_stable(partial(done, receipt))

        core.disk.lines.submit(operations, finish, sync=True, keep=False)

    def _name_suppressed(
        self, message_id: str, routed: list[Routed], suppressed_by: dict[str, str], metadata: dict[str, Any],
        more: dict[str, Any],
    ) -> None:  # fmt: skip
        """Records who was left out, by zone and reason. more: of the message, for `RemovedRecord.where`."""
        found: dict[tuple[str, str], list[str]] = {}
        people: dict[str, dict[str, Any] | None] = {}
        for row in routed:
            address = row.recipient.address
            if address in suppressed_by:
                found.setdefault((row.zone, because(suppressed_by[address])), []).append(address)
                people[address] = row.recipient.meta
        where: dict[str, Any] = {"destination": "", "due": []} | more
        for (zone, reason), addresses in found.items():
            observe.suppressed(self._core, message_id, zone, addresses, reason)
            own = {}
            if "meta" in metadata and (of := about(metadata, ((one, people[one]) for one in addresses))):
                own = {"about": of}
            record = RemovedRecord(message_id, zone, addresses, reason, where | own)
            self._core.disk.ledger.append(Type.REMOVED, record.pack())

    def _undo(
        self, operations: list[Operation], placed: list[Placed], request: Request | None, stored: Stored | None
    ) -> None:
        """A failed batch may still be found in LevelDB's log; its keys must not be read until they are deleted."""
        core = self._core
        forgotten = immediately if request is None else self.requests.undo(request)

        def gone(_: Reply | None) -> None:
            core.schedule.busy.difference_update([row.key for row in placed])
            forgotten()

        core.disk.lines.submit([(key, None) for key, _ in operations], gone, sync=False, keep=True)
        if stored:
            core.disk.bodies.ended(stored.id)

    def _count(self, placed: list[Placed], size: int, sign: int, campaign: str, suppressed_by: int) -> None:
        core = self._core
        if campaign:
            core.campaigns.counters.add(campaign, "accepted", sign * len(placed))
            if suppressed_by:
                core.campaigns.counters.add(campaign, SUPPRESSED, sign * suppressed_by)
        core.counters.message_count += sign
        core.counters.message_bytes += sign * size
        moved: dict[tuple[str, str, int, str], int] = {}
        first, alike = placed[0], 0
        for row in placed:  # those that follow one another are alike, mostly
            if not (row.domain == first.domain and row.zone is first.zone and row.note.flow == first.note.flow
                    and row.state == first.state):  # fmt: skip
                _add(moved, first, alike)
                first, alike = row, 0
            alike += sign
        _add(moved, first, alike)
        for (zone, domain, state, flow), count in moved.items():
            core.counters.sizes.move(zone, domain, None, state, count, flow)

    def _accepted(self, message: Message, record: bytes, placed: list[Placed], body: bytes | None) -> None:
        core = self._core
        core.disk.ledger.append(Type.ENVELOPE, record)
        core.disk.segments.born(message.id)
        pins = at = 0
        dropped = list[Placed]()
        while at < len(placed):
            row, first = placed[at], at
            at += 1
            if row.note.routing and "dropped" in row.note.routing:
                dropped.append(row)
                pins += 1
                continue
            if row.flow_queue is None or not row.key.startswith(keys.FRESH) or row.note.routing:
                pins += self._hand_over(message, row)
                continue
            while at < len(placed) and placed[at].flow_queue is row.flow_queue and placed[at].note is row.note:
                at += 1
            pins += self._hand_over_alike(message, placed[first:at])
        if pins:
            core.messages.add(message, body, pins)
        recipients = map(_recipient_of, placed)
        observe.accepted(core, message, [row.zone.zone.name for row in placed], recipients)
        if dropped:
            self._remove_dropped(message, dropped)
        core.changed()

    def _remove_dropped(self, message: Message, rows: list[Placed]) -> None:
        """Recipients that plugins have dropped, which are in the store, busy and pinned: nothing else has them."""
        found: dict[str, tuple[ZoneSchedule, list[Entry]]] = {}
        for row in rows:
            zone, entries = found.setdefault(row.zone.zone.name, (row.zone, []))
            entries.append(Entry(row.key, message.id, row.recipient.address, row.note, pinned=True))
        for zone, entries in found.values():
            remove_walked(self._core, zone, entries, _why_dropped)

    def _hand_over_alike(self, message: Message, rows: list[Placed]) -> int:
        """The same for recipients of one flow queue with one note, who may go at once."""
        zone, flow_queue, note = rows[0].zone, rows[0].flow_queue, rows[0].note
        assert flow_queue is not None
        if note.deadline_ms:
            zone.deadline_ms = min(zone.deadline_ms, note.deadline_ms)
        room = zone.room_for_new(flow_queue, message.id, rows)
        if room:
            entries = [Entry(row.key, message.id, row.recipient.address, note, pinned=True) for row in rows[:room]]
            zone.put_new(flow_queue, entries)
        for row in rows[room:]:
            self._core.schedule.busy.discard(row.key)
            zone.left_unread(row.key, note.deadline_ms)
        return room

    def _hand_over(self, message: Message, row: Placed) -> int:
        """Puts it into the window if there is room and nothing older waits in the store; otherwise a cursor will find
        it."""
        core, zone, flow_queue = self._core, row.zone, row.flow_queue
        if row.note.deadline_ms:
            zone.deadline_ms = min(zone.deadline_ms, row.note.deadline_ms)
        if row.state == sizes.HELD:
            core.schedule.busy.discard(row.key)
        elif flow_queue is None:
            core.schedule.busy.discard(row.key)
            zone.due_at(keys.place(row.key).due_ms)
        elif row.key.startswith(b"parked "):
            if zone.takes_parked(flow_queue, row.key):
                zone.put(flow_queue, Entry(row.key, message.id, row.recipient.address, row.note, pinned=True))
                return 1
            core.schedule.busy.discard(row.key)
            zone.parked_key(flow_queue, row.key, row.note.deadline_ms)
        elif zone.room_for_new(flow_queue, message.id, (row,)):
            zone.put_new(flow_queue, [Entry(row.key, message.id, row.recipient.address, row.note, pinned=True)])
            return 1
        else:
            core.schedule.busy.discard(row.key)
            zone.left_unread(row.key, row.note.deadline_ms)
        return 0


def _sent(routed: list[Routed]) -> list[Routed]:
    """Without those that plugins have dropped."""
    return [row for row in routed if row.drop is None]


def _why_dropped(entry: Entry) -> str:
    return why_dropped(entry.note.routing or {})


def _add(moved: dict[tuple[str, str, int, str], int], row: Placed, count: int) -> None:
    key = row.zone.zone.name, row.domain, row.state, row.note.flow
    moved[key] = moved.get(key, 0) + count


def _operations(message: Message, chunks: list[bytes], packed: bytes, placed: list[Placed]) -> list[Operation]:
    """What makes the message in the store, its recipients last. packed: its metadata."""
    existence = packing.pack((message.created_ms, len(placed), len(placed)))  # an `Existence`
    found = keys.of_message(message.id, len(chunks))
    operations: list[Operation] = list(zip(found, (*chunks, existence, packed), strict=True))
    note, value = None, b""
    for row in placed:
        if row.note is not note:  # those of one way share theirs
            note, value = row.note, row.note.value()
        operations.append((row.key, value))
    return operations


def _answer(future: asyncio.Future[Receipt], taken: Receipt | Reply) -> None:
    if future.done():
        return
    if isinstance(taken, Receipt):
        future.set_result(taken)
    else:
        future.set_exception(QueueRefusal(taken))
