"""Accepting: one atomic synced batch holds a message, then the journal gets its envelope record.

The batch is the commit; a crash between the two leaves a message without its record, which recovery adds. A large body
is in a file, which is on stable storage before the batch, and garbage until then (`bodies`).

Submitted messages come in through `accept`, or through `admit`, which needs no task; our own notifications through
`commit`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple, Protocol

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreDamaged, StoreError
from zonemta_py.disk.leveldb.trouble import refusal
from zonemta_py.disk.notes import Existence, Note
from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Done, QueueRefusal, Receipt
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.bodies import Stored
from zonemta_py.queue.core.campaign_counters import SUPPRESSED, campaign_of
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.lifecycle import observe, suppressed
from zonemta_py.queue.lifecycle.campaign_names import room
from zonemta_py.queue.lifecycle.lease import first_wait_s
from zonemta_py.queue.lifecycle.requests import Requests, recorded
from zonemta_py.queue.suppression.register import SuppressionList
from zonemta_py.schedule.batch import Entry, FlowQueue
from zonemta_py.schedule.flow import flow_text
from zonemta_py.schedule.time.steady import STEP_MS
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones.pull import PUSHED

NO_RECIPIENTS = Reply(554, "5.5.1", "no valid recipients")


class Arriving(Protocol):
    """A message of several chunks that is complete (`LocalIncoming`)."""

    def hand_over(self) -> Stored | None:
        """Its file, which now belongs to the queue; None: it has none. Raises QueueRefusal if it was aborted."""

    def abort(self) -> None:
        """Discards its body: nothing will be stored."""


class _Placed(NamedTuple):
    zone: ZoneSchedule
    flow_queue: FlowQueue | None
    key: bytes
    recipient: Recipient
    note: Note
    state: int


class Acceptance:
    """Turns messages into keys and records."""

    def __init__(self, core: Core, suppression: SuppressionList) -> None:
        self._core, self._suppression = core, suppression
        self.requests = Requests(core)

    # -- the way in

    async def accept(self, envelope: Envelope, chunks: list[bytes], arriving: Arriving | None = None) -> Receipt:
        """Accepts a message, or repeats the receipt if its request was answered before. Raises QueueRefusal.

        chunks: the body as it is stored (`disk.bodies`), except for what `arriving` has in a file.
        """
        reply = self.refusal()
        if reply is not None:
            raise QueueRefusal(reply)
        if not envelope.request:
            return await self._accept(envelope, chunks, arriving)
        receipt = await self.requests.once(envelope, partial(self._accept, envelope, chunks, arriving))
        if receipt.repeated and arriving:
            arriving.abort()
        return receipt

    async def _accept(self, envelope: Envelope, chunks: list[bytes], arriving: Arriving | None) -> Receipt:
        reply = self.unfit(envelope)
        if reply is not None:
            raise QueueRefusal(reply)
        asks = self._core.hooks.routes and envelope.protocol != PUSHED
        routed = await self.asked_routes(envelope) if asks else self.routes(envelope)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._admit(envelope, routed, chunks, arriving, partial(_answer, future))
        return await future

    def waits(self, envelope: Envelope) -> bool:
        """Whether it may have to wait: for plugins, or for an earlier copy of the same request."""
        return bool(envelope.request) or self._core.hooks.routes

    def admit(self, envelope: Envelope, chunks: list[bytes], done: Done) -> None:
        """As `accept`, for callers without a task; not for envelopes that `waits`."""
        reply = self.refusal() or self.unfit(envelope)
        if reply is not None:
            done(reply)
            return
        try:
            routed = self.routes(envelope)
        except QueueRefusal as refused:
            done(refused.reply)
            return
        self._admit(envelope, routed, chunks, None, done)

    def _admit(
        self, envelope: Envelope, routed: list[Routed], chunks: list[bytes], arriving: Arriving | None, done: Done
    ) -> None:
        """The second half of `admit`, once the routes are known."""
        reply = self.wrong_source(envelope, routed)
        if reply is not None:
            done(reply)
            return
        try:
            suppressed_by = self.suppressed_by(envelope, routed)
            if (taken := len(routed) - len(suppressed_by)) > 0:
                reply = self._core.counters.quotas.refusal(envelope.account, taken) if envelope.account else None
                if reply is not None:
                    done(reply)
                    return
                stored = arriving.hand_over() if arriving else None
                self.commit(envelope, routed, chunks, done, stored=stored, suppressed_by=suppressed_by)
                return
        except QueueRefusal as refused:
            done(refused.reply)
            return
        if arriving:
            arriving.abort()
        suppressed.accept_none(self._core, self.requests, envelope, routed, suppressed_by, done)

    # -- checks and routes

    def refusal(self) -> Reply | None:
        """Why nothing can be accepted now."""
        return self._core.disk.refusal(self._core.clock.monotonic())

    def routes(self, envelope: Envelope) -> list[Routed]:
        """Each recipient's zone, by the rules of the configuration. Raises QueueRefusal: it is pushed, and there is no
        such queue."""
        route, sender, origin, wish = self._core.router.route, envelope.sender, envelope.origin, envelope.sending_zone
        if envelope.protocol == PUSHED:
            return [Routed(recipient, checks.queue_of(self._core, wish or "")) for recipient in envelope.recipients]
        recipients = envelope.recipients
        if len(recipients) > 1:  # a recipient named twice has one key, and counts once
            recipients = list({recipient.address: recipient for recipient in recipients}.values())
        fields = envelope.headers
        routing = {"source": envelope.source} if envelope.source else None
        return [Routed(r, route(sender, r.address, origin, wish, fields).zone, routing) for r in recipients]

    def unfit(self, envelope: Envelope) -> Reply | None:
        """Why this message is not accepted; checked before routing. A merged one is completed (`checks`)."""
        if not envelope.recipients:
            return NO_RECIPIENTS
        core = self._core
        if envelope.merged:
            return checks.admit(core.campaigns, envelope)
        if envelope.campaign and envelope.campaign in core.campaigns.canceled and envelope.protocol != "LOCAL":
            return checks.not_canceled(core.campaigns, envelope)
        return None

    async def asked_routes(self, envelope: Envelope) -> list[Routed]:
        """`routes`, after plugins had their say; empty if they dropped every recipient. Raises QueueRefusal."""
        hooks = self._core.hooks
        asked = [await hooks.route(envelope, routed) for routed in self.routes(envelope)]
        kept = [routed for routed in asked if not routed.drop]
        if kept and all(routed.refusal for routed in kept):
            raise QueueRefusal(kept[0].refusal or NO_RECIPIENTS)
        return [self._refused(routed) for routed in kept]

    def wrong_source(self, envelope: Envelope, routed: list[Routed]) -> Reply | None:
        """Why it cannot be sent from the source address that it asks for."""
        if not envelope.source:
            return None
        return checks.source_refusal(self._core.config, envelope.source, {row.zone for row in routed})

    @staticmethod
    def _refused(routed: Routed) -> Routed:
        """If plugins refuse some recipients only, these bounce when their turn comes: the others' 250 must stand."""
        if routed.refusal is not None:
            routed.routing = {"refused": [routed.refusal.code, routed.refusal.enhanced, routed.refusal.text]}
        return routed

    def suppressed_by(self, envelope: Envelope, routed: list[Routed]) -> dict[str, str]:
        """Those on the suppression list: kind and scope of the entry. Raises QueueRefusal: it cannot be read now."""
        try:
            return self._suppression.suppressed_by(envelope, routed)
        except StoreError as error:
            if isinstance(error, StoreDamaged):
                self._core.disk.read_failed(error)
            raise QueueRefusal(refusal(error)) from None

    # -- the batch

    def commit(
        self, envelope: Envelope, routed: list[Routed], chunks: list[bytes], done: Done, *,
        stored: Stored | None = None, along: list[Operation] | None = None,
        suppressed_by: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Stores a message; calls `done` once it is stable. stored: its body, if that is a file.

        along: operations for the same batch (the end of the recipients that a notification is about); such a message
        survives a write error, since its cause is in the journal. suppressed_by: the suppressed recipients (not all of
        them), and the kind of their entry.
        """
        core = self._core
        now_ms, apart_ms = core.clock.ms(), core.clock.apart_ms()
        message_id = stored.id if stored else core.disk.ids.next(now_ms)
        if envelope.clock_ahead_ms:
            self._as_it_is_set(envelope)
        if envelope.merged:
            chunks = []
        metadata = self._metadata(message_id, envelope, len(chunks), stored, now_ms, apart_ms)
        packed = packing.pack(metadata)
        kept = [row for row in routed if row.recipient.address not in suppressed_by] if suppressed_by else routed
        placed = [self._place(message_id, row, envelope, now_ms, "counted" in metadata) for row in kept]
        message = Message(message_id, metadata, now_ms, len(placed), len(placed))
        operations = (along or []) + _operations(message, chunks, packed, placed)
        count = len(suppressed_by) if suppressed_by else 0
        receipt, asked = Receipt(message_id, len(placed), count), b""
        if envelope.request:
            made = self.requests.operations(envelope, receipt)
            operations += made
            asked = packing.pack(recorded(made))
        operations += core.counters.sent.note(message_id, envelope, placed[0].zone.zone.name)
        core.arriving.add(message_id)
        core.schedule.busy.update([row.key for row in placed])
        campaign = campaign_of(metadata)
        self._count(placed, envelope.size, 1, campaign, count)
        charges = core.counters.quotas.charge(envelope.account, len(placed)) if envelope.account else []
        rows = [[row.zone.zone.name, row.recipient.address, *row.note[:2]] for row in placed]
        # An `EnvelopeRecord`, by hand: its metadata are packed for the store already.
        record = (b"\x94" if asked else b"\x93") + packing.pack(message_id) + packed + packing.pack(rows) + asked

        def finish(reply: Reply | None) -> None:
            core.arriving.discard(message_id)
            if reply is not None:
                own = campaign if core.campaigns.owns(campaign, message_id) else ""
                self._count(placed, envelope.size, -1, own, count)
                core.counters.quotas.take_back(charges)
                self._undo(operations, placed, envelope, stored)
                done(reply)
                return
            self._accepted(message, record, placed, chunks[0] if len(chunks) == 1 else None)
            if suppressed_by:
                suppressed.name(core, message_id, routed, suppressed_by, suppressed.whose(metadata))
                core.disk.journal.when_stable(partial(done, receipt))
            else:
                done(receipt)

        core.disk.lines.submit(operations, finish, sync=True, keep=along is not None, envelope=record)

    def _metadata(
        self, message_id: str, envelope: Envelope, chunks: int, stored: Stored | None, now_ms: int, apart_ms: int
    ) -> dict[str, Any]:
        """What is stored of its envelope, of its body, and of the campaign it counts for."""
        metadata = suppressed.stored_metadata(envelope, apart_ms)
        if envelope.merged:
            metadata["template"] = self._core.campaigns.get(envelope.campaign or "").template
        metadata["chunks"] = chunks
        if stored:
            metadata["chunks"], metadata["file"] = stored.chunks, stored.bytes
        if envelope.campaign and self._counted(message_id, envelope, now_ms):
            metadata["counted"] = True
        return metadata

    def _as_it_is_set(self, envelope: Envelope) -> None:
        """The clock may have been set since the message came in; this moves its deadline and hold by as much."""
        moved_ms = self._core.clock.ahead_ms() - envelope.clock_ahead_ms
        envelope.clock_ahead_ms = 0
        if abs(moved_ms) <= STEP_MS:
            return
        if envelope.deadline_ms:
            envelope.deadline_ms += moved_ms
        if envelope.hold_for:
            envelope.hold_until_ms += moved_ms

    def _counted(self, message_id: str, envelope: Envelope, now_ms: int) -> bool:
        """Whether a message that is not merged counts for a campaign in progress."""
        core = self._core
        if envelope.merged or envelope.protocol == "LOCAL":  # a notification about campaign mail is not part of it
            return False
        name, tenant, first = envelope.campaign or "", envelope.tenant or "", ""
        if name not in core.campaigns.by_name:
            waits = any(core.counters.sizes.flows.campaigns.of(name))
            if waits and message_id != core.disk.ids.last:  # its body came before mail that counts no more
                return False
            if not room(core, tenant):
                return False
            first = message_id if waits else ""
        return core.campaigns.counts(name, tenant, now_ms, message_id, first)

    def _undo(
        self, operations: list[Operation], placed: list[_Placed], envelope: Envelope, stored: Stored | None
    ) -> None:
        """A failed batch may still be found in LevelDB's log; its keys must not be read until they are deleted."""
        core = self._core
        forgotten = self.requests.undo(envelope) if envelope.request else immediately

        def gone(_: Reply | None) -> None:
            core.schedule.busy.difference_update([row.key for row in placed])
            forgotten()

        core.disk.lines.submit([(key, None) for key, _ in operations], gone, sync=False, keep=True)
        if stored:
            core.disk.bodies.ended(stored.id)

    def _place(self, message_id: str, routed: Routed, envelope: Envelope, now_ms: int, counted: bool) -> _Placed:
        recipient = routed.recipient
        zone = self._core.schedule.zones[routed.zone]
        priority = zone.zone.priority if envelope.priority is None else envelope.priority
        priority = (routed.routing or {}).get("priority", priority)  # set by a plugin
        flow = ""
        if priority or envelope.tenant or envelope.campaign:
            flow = flow_text(priority, envelope.tenant or "", envelope.campaign or "")
        apart_ms = self._core.clock.apart_ms()
        deadline_ms = envelope.deadline_ms and envelope.deadline_ms + apart_ms
        note = Note(
            recipient.notify, recipient.orcpt, routing=routed.routing, flow=flow, deadline_ms=deadline_ms,
            values=recipient.values, counted=counted,
        )  # fmt: skip
        wait_s = first_wait_s(self._core, zone.zone, envelope, recipient, routed.delay_s, now_ms)
        if wait_s > 0:
            due_ms = now_ms + apart_ms + int(wait_s * 1000)
            key = keys.deferred(routed.zone, due_ms, message_id, recipient.address)
            return _Placed(zone, None, key, recipient, note, sizes.DEFERRED)
        flow_queue = zone.flow_queues.of(message_id, recipient.address, note)
        if zone.takes(flow_queue):
            key = keys.fresh(routed.zone, message_id, recipient.address)
        else:
            key = keys.parked(routed.zone, flow_queue.key, message_id, recipient.address)
        return _Placed(zone, flow_queue, key, recipient, note, sizes.QUEUED)

    def _count(self, placed: list[_Placed], size: int, sign: int, campaign: str, suppressed_by: int) -> None:
        core = self._core
        if campaign:
            core.campaigns.counters.add(campaign, "accepted", sign * len(placed))
            if suppressed_by:
                core.campaigns.counters.add(campaign, SUPPRESSED, sign * suppressed_by)
        core.counters.message_count += sign
        core.counters.message_bytes += sign * size
        for row in placed:
            core.counters.sizes.move(row.zone.zone.name, row.recipient.domain, None, row.state, sign, row.note.flow)

    def _accepted(self, message: Message, record: bytes, placed: list[_Placed], body: bytes | None) -> None:
        core = self._core
        core.disk.ledger.append(Type.ENVELOPE, record)
        core.disk.segments.born(message.id)
        pins = 0
        for row in placed:
            pins += self._hand_over(message, row)
        if pins:
            core.messages.add(message, body)
            core.messages.pin(message, pins)
        observe.accepted(core, message, [row.zone.zone.name for row in placed], [row.recipient for row in placed])
        core.changed()

    def _hand_over(self, message: Message, row: _Placed) -> int:
        """Puts it into the window if there is room and nothing older waits in the store; otherwise a cursor will find
        it."""
        core, zone, flow_queue = self._core, row.zone, row.flow_queue
        if row.note.deadline_ms:
            zone.deadline_ms = min(zone.deadline_ms, row.note.deadline_ms)
        if flow_queue is None:
            core.schedule.busy.discard(row.key)
            zone.due_at(keys.place(row.key).due_ms)
        elif row.key.startswith(b"parked "):
            if zone.takes_parked(flow_queue, row.key):
                zone.put(flow_queue, Entry(row.key, message.id, row.recipient.address, row.note, pinned=True))
                return 1
            core.schedule.busy.discard(row.key)
            zone.parked_key(flow_queue, row.key, row.note.deadline_ms)
        elif zone.ready_for_new(flow_queue):
            zone.put_new(flow_queue, Entry(row.key, message.id, row.recipient.address, row.note, pinned=True))
            return 1
        else:
            core.schedule.busy.discard(row.key)
            zone.left_unread(row.key, row.note.deadline_ms)
        return 0


def _operations(message: Message, chunks: list[bytes], packed: bytes, placed: list[_Placed]) -> list[Operation]:
    """What makes the message in the store, its recipients last. packed: its metadata."""
    operations: list[Operation] = [(keys.chunk(message.id, number), chunk) for number, chunk in enumerate(chunks, 1)]
    existence = Existence(message.created_ms, len(placed), len(placed)).value()
    operations += [(keys.existence(message.id), existence), (keys.metadata(message.id), packed)]
    operations += [(row.key, row.note.value()) for row in placed]
    return operations


def _answer(future: asyncio.Future[Receipt], taken: Receipt | Reply) -> None:
    if future.done():
        return
    if isinstance(taken, Receipt):
        future.set_result(taken)
    else:
        future.set_exception(QueueRefusal(taken))
