"""Replay: applies to the store the results that the journal has and the store lacks.

A result was applied if the recipient's key is no longer where the record found it; so replaying twice changes nothing.
Records wait for the batch of an earlier one of their message, since each depends on what the one before wrote.
"""

from __future__ import annotations

import asyncio

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import StoreDamaged
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import (
    DeliveryRecord,
    FinishRecord,
    InDoubtRecord,
    MovedRecord,
    OutcomeRow,
    RemovedRecord,
    Who,
)
from zonemta_py.journal.records.orders import StandingRecord, TaskRecord
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.queue.admin.orders import apply_drop, apply_release
from zonemta_py.queue.api import DEFERRED, POSTPONED, RELEASED
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.locator import find, places_of
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.core.tasks import CREATED, DID, UNDID
from zonemta_py.queue.fsck.compare import state_of
from zonemta_py.queue.hooks import attributed
from zonemta_py.queue.lifecycle import in_doubt, lost, moved
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.settlement import AWAY, Row, Settlement, due
from zonemta_py.queue.tasks import apply as tasks

_ORDERS = (Type.IN_DOUBT, Type.REMOVED, Type.MOVED, Type.TASK)
AT_ONCE = 100
"""Records that are replayed before the event loop runs."""


class Replay:
    """Replays the results of the working suffix, in order. finished: messages whose FINISH record is there already."""

    def __init__(self, queue: QueueContext, results: list[Record], finished: set[str]) -> None:
        self._queue, self._core, self._results = queue, queue.core, results
        self._pending: set[str] = set()
        """Messages whose latest result may not be in the store yet."""
        self._ordered = False
        """The same of whichever messages a record other than a result is about."""
        self._whole = True
        self._applied = state_of(queue.core.disk.store).applied
        """For records that do not show whether they were applied: all up to this one were."""
        queue.core.finished = finished

    def foresee(self) -> None:
        """Applies in memory what new mail depends on before it is in the store: suppressions and canceled campaigns.

        From here on every batch, including new mail's, states correctly how far the journal has been applied.
        """
        for record in self._results:
            self._core.disk.ledger.expect(record.seq)
            if record.type in (Type.SUPPRESS, Type.UNSUPPRESS) and record.seq > self._applied:
                self._queue.suppression.foresee(Type(record.type), packing.unpack(record.body))
            elif record.type == Type.FEEDBACK and record.seq > self._applied:
                self._queue.feedback_register.foresee(FeedbackRecord.of(packing.unpack(record.body)))
            elif record.type == Type.STANDING:
                self._core.campaigns.again(StandingRecord.of(packing.unpack(record.body)))

    async def run(self, whole: bool = True) -> None:
        """Once, after `foresee`. whole: mail missing from the store has ended; otherwise it may be lost, which a check
        finds out."""
        self._whole = whole
        for number, record in enumerate(self._results, 1):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # new mail is accepted meanwhile
            body = packing.unpack(record.body)
            if record.type in _ORDERS:
                await self._flush()
                self._ordered = True
            if record.type == Type.DELIVERY:
                await self._delivery(record, DeliveryRecord.of(body))
            elif record.type == Type.IN_DOUBT:
                in_doubt.apply(self._queue, InDoubtRecord.of(body).recipients)
            elif record.type == Type.REMOVED:
                self._removed(record, RemovedRecord.of(body))
            elif record.type == Type.MOVED:
                apply_release(self._queue, MovedRecord.of(body))
            elif record.type == Type.FINISH and record.seq > self._applied:
                await self._flush()
                moved.again(self._core, FinishRecord.of(body))
                await self._flush()
            elif record.type == Type.TASK:
                self._task(record, TaskRecord.of(body))
            elif record.type in (Type.SUPPRESS, Type.UNSUPPRESS) and record.seq > self._applied:
                self._queue.suppression.again(Type(record.type), body)
            elif record.type == Type.FEEDBACK and record.seq > self._applied:
                self._queue.feedback_register.again(record.seq, record.ms, FeedbackRecord.of(body))
            elif record.type == Type.STANDING:
                operations = self._core.campaigns.again(StandingRecord.of(body))
                self._core.disk.lines.submit(operations, immediately, sync=False, keep=True)
            self._core.disk.ledger.close(record.seq)
        await self._flush()
        self._queue.suppression.foreseen.clear()
        self._core.finished = set()

    def _task(self, record: Record, task: TaskRecord) -> None:
        if task.what in (DID, UNDID):
            tasks.replay(self._core, record.seq, task)
        elif (
            task.what != CREATED or record.seq > self._applied
        ):  # otherwise the store had it, and may have forgotten it
            self._core.tasks.take(record.seq, record.ms, task)

    def _removed(self, record: Record, removed: RemovedRecord) -> None:
        if removed.envelope is not None:
            return  # it was never in the store
        # The record says where they were, so no search is needed.
        found = places_of(self._core.disk.store.get, removed) if removed.where else None
        if removed.case is not None and not self._readable(removed.id):
            operations = lost.apply(self._core, removed.id, removed.zone, found or {})
            self._core.disk.lines.submit(operations, immediately, sync=False, keep=True)
            return
        if not apply_drop(self._queue, removed, record.ms, found):
            self._ended_already(removed.id, removed.zone)

    def _readable(self, message_id: str) -> bool:
        try:
            self._core.messages.peek(message_id)
        except StoreDamaged:
            return False
        return True

    async def _delivery(self, record: Record, delivery: DeliveryRecord) -> None:
        message_id, zone = delivery.id, delivery.zone
        if self._ordered or message_id in self._pending:
            await self._flush()
        found = (
            self._row(record, delivery, outcome, who)
            for outcome in delivery.outcomes
            if outcome.verdict != RELEASED
            for who in map(Who.of, outcome.recipients)
        )
        rows = [row for row in found if row is not None]
        if not rows:
            self._ended_already(message_id, zone)
            return
        try:
            message = self._core.messages.get(message_id)
        except StoreDamaged:
            return  # fsck reports it; there is nothing to send any more
        self._core.messages.pin(message, len(rows))
        trace = delivery.trace
        settlement = Settlement(message, zone, rows, trace.remote, record.ms, record.seq)
        settlement.pair = (trace.source, trace.provider or trace.site)
        settlement.notes = delivery.notes
        for row in rows:
            row.delayed = self._queue.settling.late(message, row, record.ms + self._core.clock.apart_ms(), delivery)
        settlement.notices = due(self._core.config, settlement)
        self._queue.settling.apply(settlement)
        self._pending.add(message_id)

    def _row(self, record: Record, delivery: DeliveryRecord, outcome: OutcomeRow, who: Who) -> Row | None:
        """None: the store has it already."""
        verdict, reply = outcome.verdict, Reply(outcome.code, outcome.enhanced, outcome.text)
        get, before = self._core.disk.store.get, who.before_ms
        found = find(get, delivery.zone, delivery.destination, delivery.id, who.address, before)
        if found is None:
            return None
        key, value = found
        note = Note.of(value)
        if key.startswith(b"parked ") and _told_later(note, record):
            return None  # applied: deferred by this result, then due, then parked
        last = attributed(reply, *outcome.by[:2]) if outcome.by else str(reply)
        note = note._replace(put_off_ms=record.ms) if verdict == POSTPONED else note.tried(record.ms, last)
        note = note._replace(away=verdict == DEFERRED and outcome.stage in AWAY)
        if delivery.notes and who.address in delivery.notes[2]:
            note = note._replace(notes=delivery.notes[2][who.address] or None)
        blocked, state = outcome.kind in BLOCKED_CLASSES, counted_as(key)
        return Row(
            key, who.address, note, verdict, reply, who.due_ms, outcome.relayed, state=state, blocked=blocked,
            kind=outcome.kind, agreed=outcome.agreed, stage=outcome.stage,
        )  # fmt: skip

    def _ended_already(self, message_id: str, zone: str) -> None:
        """The store had applied it; the FINISH record may not have reached the disk."""
        core = self._core
        if not self._whole:
            return
        if message_id not in core.finished and core.disk.store.get(keys.existence(message_id)) is None:
            core.disk.ledger.append(Type.FINISH, FinishRecord(message_id).pack())
            core.disk.segments.ended(message_id)
            core.finished.add(message_id)

    async def _flush(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._core.disk.lines.submit([], lambda _: future.set_result(None), sync=False, keep=True)
        self._core.disk.lines.flush()
        await future
        self._pending.clear()
        self._ordered = False


def _told_later(note: Note, record: Record) -> bool:
    """Whether the note was written after this record. Notes of older versions have no record number: there the time
    decides."""
    if note.seq:
        return note.seq >= record.seq
    return max(note.last_ms, note.put_off_ms) >= record.ms
