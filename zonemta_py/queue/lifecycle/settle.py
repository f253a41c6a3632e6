"""Settling: a delivery record, stable before the sender is answered; the store follows lazily, in journal order.

A `Settlement` is the content of a delivery record, with the store's keys resolved. It is made from a lease and its
result, or by recovery from the record alone; `apply` does the same with both, so a crash between record and store
changes nothing.

Rules: a temporary failure waits by the zone's retry schedule until its lifetime is over, then it bounces (4.4.7 becomes
5.4.7). A bounce is notified (RFC 3464) in the same batch that ends the recipient: never twice, and never not at all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from zonemta_py.disk import packing
from zonemta_py.disk.bodies import shrink
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import DeliveryRecord
from zonemta_py.mail.dsn import Kind
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.notices.wording import Failed
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, DOUBTFUL, POSTPONED, RELEASED, Outcome, Result
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.lifecycle import checks, doubts, observe
from zonemta_py.queue.lifecycle.accept import Acceptance
from zonemta_py.queue.lifecycle.classification import Classification
from zonemta_py.queue.lifecycle.evidence import said
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.lifecycle.leasing import Leases
from zonemta_py.queue.lifecycle.notices import Notices, due
from zonemta_py.queue.lifecycle.settlement import (
    Row,
    Settlement,
    after,
    check,
    deferred_key,
    kept_until,
    leave_out,
    mark_kinds,
    record_rows,
)
from zonemta_py.queue.suppression.policy import SuppressionPolicy
from zonemta_py.schedule.batch import NEVER_MS, Batch, Entry, FlowQueue
from zonemta_py.schedule.time import hours
from zonemta_py.zones.retry import delay_s

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Classified

log = logging.getLogger(__name__)

WAITING = (DEFERRED, POSTPONED)
AWAY = frozenset(("connect", "banner", "ehlo"))
"""Stages at which a destination that is down has said nothing about the recipient, or about us."""


class Settling:
    """Records results and applies them."""

    def __init__(self, core: Core, leases: Leases, acceptance: Acceptance, policy: SuppressionPolicy) -> None:
        self._core, self._leases, self._acceptance, self._policy = core, leases, acceptance, policy
        self._notices = Notices(core.messages, core.config)
        self.classification = Classification(core)  # reads its rules when they are first needed

    def configure(self) -> None:
        """The configuration is another one."""
        self._notices.configure(self._core.config)
        self.classification.configure()

    # -- from a result to a record

    def settle(self, result: Result, done: Callable[[], None]) -> None:
        """Calls `done` once the result is on stable storage; a lease that is no longer out is ignored."""
        lease = self._leases.out.get(result.lease)
        if lease is None or lease.settling:
            self._late(result, done)
            return
        if lease.answered:
            leave_out(lease, result)
        check(lease, result)
        if any(outcome.verdict == DOUBTFUL for outcome in result.outcomes):
            self._doubt(lease, result, done)
            return
        hooks = self._core.hooks
        asks = hooks.bounces or hooks.delays
        if asks and (sure := self._sure(lease, result)):
            self.settle(sure, _nothing)
            leave_out(lease, result)
        classifieds = self.classification.judge(lease, result)
        settlement = self._settlement(lease, result, classifieds)
        if result.more:
            lease.answer(index for outcome in result.outcomes for index in outcome.recipients)
        else:
            lease.settling = True
            self._core.schedule.admission.idle.report(lease.batch, result.connection, result.kept)
        settled = partial(self._settled, lease, settlement, result, done)
        if settlement.notices and asks:
            lease.asking = asyncio.ensure_future(self._ask_and(settlement, settled, lease.asking))
            self._core.keep(lease.asking)
        elif lease.asking is not None and not result.more:  # it also covers the recipients that plugins are asked about
            lease.asking.add_done_callback(lambda _: settled())
        else:
            settled()

    def _sure(self, lease: Lease, result: Result) -> Result | None:
        """Who has the message, where plugins may be asked about others: on record before that, so that an end of this
        process meanwhile leaves them in no doubt."""
        sure = [outcome for outcome in result.outcomes if outcome.verdict == DELIVERED and not outcome.relayed]
        others = any(outcome.verdict in (BOUNCED, DEFERRED) or outcome.relayed for outcome in result.outcomes)
        if not sure or not (others or (lease.asking is not None and not result.more)):
            return None
        return dataclasses.replace(result, outcomes=sure, more=True)

    def _doubt(self, lease: Lease, result: Result, done: Callable[[], None]) -> None:
        """Some have no answer, and may have the message. What others were answered comes first."""
        doubtful = [outcome for outcome in result.outcomes if outcome.verdict == DOUBTFUL]
        known = [outcome for outcome in result.outcomes if outcome.verdict != DOUBTFUL]
        if known:
            self.settle(dataclasses.replace(result, outcomes=known, more=True), _nothing)
        lease.settling = True
        self._core.schedule.admission.idle.report(lease.batch, result.connection, result.kept)
        indices = [index for outcome in doubtful for index in outcome.recipients]
        why = doubtful[0].reply.text

        def end(_: object = None) -> None:
            doubts.without_answer(self._core, self._leases, lease, indices, why)
            self._core.disk.journal.when_stable(done)

        if lease.asking is not None:
            lease.asking.add_done_callback(end)
        else:
            end()

    def _late(self, result: Result, done: Callable[[], None]) -> None:
        """A result of a lease that is no longer out. If its sender had stalled (`wire.pulse`), its recipients are in
        doubt: those that were not leased again meanwhile are leased once more, only to be ended with this result."""
        lease, doubtful = self._leases.late.get(result.lease), 0
        if not result.more:
            self._core.schedule.admission.idle.told_late(result.lease, result.connection)
        for outcome in result.outcomes:
            if lease is None or outcome.verdict not in (DELIVERED, BOUNCED):
                continue
            entries = [lease.batch.entries[index] for index in outcome.recipients]
            flow_queue = lease.batch.zone.flow_queues.by_key.get(lease.batch.flow_queue.key)
            found = lease.batch.zone.withdraw(flow_queue, entries.__contains__) if flow_queue else []
            doubtful += len(entries) - len(found)
            if flow_queue is None or not found:
                continue
            batch = Batch(flow_queue, found)
            batch.zone.begin(batch)
            again = self._leases.grant(batch, lease.worker)
            if again is not None:
                one = [dataclasses.replace(outcome, recipients=list(range(len(found))))]
                alone = dataclasses.replace(result, lease=again.number, outcomes=one, more=False, connection=0)
                self.settle(alone, _nothing)
        if doubtful:
            log.warning("%d recipients may get a message twice: see `zonemta queue in-doubt`", doubtful)
        self._core.disk.journal.when_stable(done)

    def _settled(self, lease: Lease, settlement: Settlement, result: Result, done: Callable[[], None]) -> None:
        batch = lease.batch
        if settlement.rows:
            self._record(settlement, result, done)
            if any(row.verdict != RELEASED for row in settlement.rows):
                batch.zone.took(batch.path, result.took_ms, settlement.message.metadata["size"])
        else:  # an earlier part had all of them
            self._core.disk.journal.when_stable(done)
        self.classification.learn(lease, result, settlement.classifieds)
        if result.more:
            lease.recorded = lease.recorded.union(index for o in result.outcomes for index in o.recipients)
            return
        if batch.entries[0].note.values is not None:
            untried = sum(len(o.recipients) for o in result.outcomes if o.verdict == RELEASED)
            batch.zone.went(batch.path, len(batch.entries) - untried, len(batch.entries))
        del self._leases.out[result.lease]
        batch.zone.done(batch)
        self._core.changed()

    def _stable(self, settlement: Settlement, result: Result, done: Callable[[], None]) -> None:
        self.apply(settlement)
        done()
        observe.answered(self._core, settlement, result)

    def _settlement(self, lease: Lease, result: Result, classifieds: list[Classified | None]) -> Settlement:
        now_ms = self._core.clock.ms()
        entries, zone = lease.batch.entries, lease.batch.zone.zone
        rows = [
            self._row(lease.message, lease.batch.flow_queue, entries[index], outcome, now_ms, result.down_s is not None)
            for outcome in result.outcomes
            for index in outcome.recipients
        ]
        settlement = Settlement(
            lease.message, zone.name, rows, result.remote, now_ms, lease=lease, classifieds=classifieds
        )
        mark_kinds(rows, result.outcomes, classifieds)
        settlement.notices = due(self._core.config, settlement)
        return settlement

    def _row(
        self, message: Message, flow_queue: FlowQueue, entry: Entry, outcome: Outcome, now_ms: int, down: bool = False
    ) -> Row:
        """down: the destination as a whole could not be reached."""
        note, reply, verdict, due_ms = entry.note, outcome.reply, outcome.verdict, 0
        state = counted_as(entry.key)
        if verdict == RELEASED:
            return Row(entry.key, entry.address, note, verdict, reply, entry=entry, state=state)
        config, terms, delayed = self._core.config, self._core.terms(message, note), False
        zone, clock = flow_queue.zone.zone, self._core.clock
        steady_ms, apart_ms = clock.steady_ms(), clock.apart_ms()
        if verdict == POSTPONED:
            due_ms = hours.again_ms(config, zone, terms, steady_ms + int((outcome.delay_s or 0) * 1000), apart_ms)
            note = note._replace(put_off_ms=now_ms)
            return Row(entry.key, entry.address, note, verdict, reply, due_ms, entry=entry, state=state)
        if verdict == DELIVERED and not outcome.relayed:  # the note is deleted with its key
            return Row(entry.key, entry.address, note, verdict, reply, entry=entry, state=state)
        note = note.tried(now_ms, str(reply))
        if verdict == DEFERRED:
            retry = flow_queue.zone.flow_queues.terms_of(flow_queue.path, entry.address).retry
            ends_ms = self._core.lifetime.ends_ms(flow_queue, message, entry.address, note, steady_ms)
            if steady_ms >= ends_ms:
                verdict = BOUNCED
            elif hours.too_late(terms, steady_ms):
                verdict, reply = BOUNCED, Reply(554, "5.4.7", f"its delivery deadline has passed ({reply})")
            else:
                wait = delay_s(note.attempts, retry, clock.random()) if outcome.delay_s is None else outcome.delay_s
                due_ms = hours.again_ms(config, zone, terms, steady_ms + int(wait * 1000), apart_ms)
                due_ms = min(due_ms, max(ends_ms, steady_ms + 1000))
                delayed = self._is_late(message, note, steady_ms, retry.delay_notice_h)
                away = down and outcome.stage in AWAY and outcome.delay_s is None
                note = note._replace(noticed=note.noticed or delayed, away=away)
        if verdict == BOUNCED:
            due_ms = kept_until(config, outcome, steady_ms)
        row = Row(entry.key, entry.address, note, verdict, reply, due_ms, outcome.relayed, delayed, entry, state)
        if delayed:
            row.life_h = self._core.lifetime.life_h(flow_queue, message, entry.address, note)
        return row

    def late(self, message: Message, row: Row, now_ms: int, tried: DeliveryRecord) -> bool:
        """Whether this deferral calls for a delay notice, which the note then records as sent. now_ms: steady time."""
        notice_h = self._core.lifetime.notice_h(row.key, tried)
        delayed = row.verdict == DEFERRED and self._is_late(message, row.note, now_ms, notice_h)
        row.note = row.note._replace(noticed=row.note.noticed or delayed)
        return delayed

    def _is_late(self, message: Message, note: Note, now_ms: int, notice_h: float) -> bool:
        waited_ms = now_ms - message.created_ms - self._core.clock.apart_of(message.id)
        late = bool(notice_h) and waited_ms >= notice_h * 3_600_000
        late = late or hours.to_be_told(message.metadata, now_ms)
        return bool(
            late and not note.noticed and self._notices.wanted("delayed", note.notify, message.metadata, now_ms)
        )

    def _record(self, settlement: Settlement, result: Result, done: Callable[[], None]) -> None:
        # A `DeliveryRecord`, by hand: the class would double the cost of packing, for every result.
        trace = [result.remote, result.local, result.tls, result.started_ms, result.took_ms]
        lease = settlement.lease
        number, target = (lease.number, lease.batch.flow_queue.key) if lease else (0, "")
        if lease is not None:
            path = lease.batch.path
            trace += [path.source, path.site, path.provider, result.security]
        body = [
            number,
            settlement.message.id,
            settlement.zone,
            target,
            record_rows(settlement.rows, result.outcomes, settlement.classifieds),
            trace,
        ]
        apply = partial(self._stable, settlement, result, done)
        settlement.seq = self._core.disk.ledger.write(Type.DELIVERY, packing.pack(body), apply, settlement.ms)

    # -- notifications

    async def _ask(self, settlement: Settlement) -> None:
        hooks, message = self._core.hooks, settlement.message
        asked: list[tuple[Kind, list[Failed]]] = []
        for kind, failures in settlement.notices:
            envelope = Envelope.from_metadata(message.metadata, [failed.recipient for failed in failures])
            if kind == "failed" and hooks.bounces:
                failures = await hooks.bounced(message.id, settlement.zone, envelope, failures)
            elif kind == "delayed" and hooks.delays:
                notes = {row.address: row.note.first_ms for row in settlement.rows}
                failures = [
                    failed
                    for failed in failures
                    if await hooks.delayed(
                        message.id, settlement.zone, envelope, failed, notes[failed.recipient.address]
                    )
                ]
            asked.append((kind, failures))
        settlement.notices = asked

    # -- missed deadlines

    def tell(self, message: Message, zone: str, entries: list[Entry], reply: Reply, done: Callable[[], None]) -> None:
        """Notifies the sender, unless that has been done, that these recipients still wait after their deadline
        (BY=…;N).

        They stay busy until `done`: then the store has it, in one batch with the notification, so that after a crash
        the sender is notified exactly once.
        """
        now_ms = self._core.clock.ms()
        settlement = Settlement(
            message, zone, [self._told(message, entry, reply, now_ms) for entry in entries], ms=now_ms
        )
        settlement.notices = due(self._core.config, settlement)
        operations: list[Operation] = [(row.key, row.note.value()) for row in settlement.rows]

        def write() -> None:
            self._submit(settlement, operations, lambda _: done())

        if settlement.notices and self._core.hooks.delays:
            self._core.keep(asyncio.ensure_future(self._ask_and(settlement, write)))
        else:
            write()

    def _told(self, message: Message, entry: Entry, reply: Reply, now_ms: int) -> Row:
        steady_ms, notice_h = self._core.clock.steady_ms(), self._core.lifetime.notice_h(entry.key)
        delayed = self._is_late(message, entry.note, steady_ms, notice_h)
        entry.note = entry.note._replace(noticed=entry.note.noticed or delayed, deadline_ms=0)
        return Row(entry.key, entry.address, entry.note, DEFERRED, reply, delayed=delayed)

    async def _ask_and(
        self, settlement: Settlement, then: Callable[[], None], before: asyncio.Future[None] | None = None
    ) -> None:
        """before: an earlier call for the same lease, which comes first."""
        await self._ask(settlement)
        if before is not None:
            await asyncio.wait([before])
        then()

    # -- from a record to the store

    def apply(self, settlement: Settlement) -> None:
        """Applies the record to the store. Called in the order of the records."""
        core, message = self._core, settlement.message
        operations: list[Operation] = []
        ended = 0
        campaign = core.campaigns.counted_by(message.id, message.metadata)
        for row in settlement.rows:
            ended += self._apply_row(settlement, row, operations)
            if campaign:
                core.campaigns.counters.result(campaign, row.verdict, settlement.ms, row.blocked)
        operations += said(self._policy, settlement, core.clock.apart_ms())
        due = [deferred_key(settlement, row) for row in settlement.rows if row.verdict in WAITING]
        place = core.schedule.zones.get(settlement.zone) if due else None
        if place is not None:  # it may have been removed from the configuration
            place.promise(due)
        if ended:
            operations += core.messages.finish(message, ended)
            if message.left <= 0:
                core.finish(message, settlement.zone)

        def written(_: Reply | None) -> None:
            self._written(settlement, due)
            if core.tasks.active:
                core.tasks.moved(operations)

        self._submit(settlement, operations, written)

    def _submit(
        self, settlement: Settlement, operations: list[Operation], written: Callable[[Reply | None], None]
    ) -> None:
        """Writes them, and their notifications, the first of these in the same batch."""
        notices = self._notifications(settlement)
        if not notices:
            self._core.disk.lines.submit(operations, written, sync=False, keep=True)
            return
        for index, (envelope, data) in enumerate(notices):
            last = index == len(notices) - 1
            chunks = [shrink(data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)]
            self._acceptance.commit(
                envelope,
                checks.routes(self._core, envelope),
                chunks,
                (lambda taken: written(taken if isinstance(taken, Reply) else None)) if last else (lambda _: None),
                along=operations if index == 0 else [],
            )

    def _apply_row(self, settlement: Settlement, row: Row, operations: list[Operation]) -> int:
        """Adds what it takes to `operations`; returns 1 if the recipient has ended."""
        core, zone = self._core, settlement.zone
        if row.verdict == RELEASED:
            return 0
        domain = row.address.rpartition("@")[2]
        operations.append((row.key, None))
        goes_on = after(settlement, row, core.clock) if row.verdict != DELIVERED else None
        if goes_on is None:
            core.counters.sizes.move(zone, domain, row.state, None, flow=row.note.flow)
            return 1
        key, note = goes_on
        operations.append((key, note.value()))
        core.counters.sizes.move(zone, domain, row.state, counted_as(key), flow=row.note.flow)
        return 0

    def _notifications(self, settlement: Settlement) -> list[tuple[Envelope, bytes]]:
        make, message = self._notices.make, settlement.message
        made = (make(kind, message, failures, settlement.ms) for kind, failures in settlement.notices if failures)
        return [notice for notice in made if notice is not None]

    def _written(self, settlement: Settlement, due: list[bytes]) -> None:
        core = self._core
        lease = settlement.lease
        if lease is None:
            core.schedule.busy.difference_update([row.key for row in settlement.rows])
            core.messages.unpin(settlement.message, len(settlement.rows))
        else:
            back = [row.entry for row in settlement.rows if row.verdict == RELEASED and row.entry]
            gone = [row for row in settlement.rows if row.verdict != RELEASED]
            core.schedule.busy.difference_update([row.key for row in gone])
            if back:
                lease.batch.zone.put_back(lease.batch, back)
                core.changed()  # otherwise nothing would make the scheduler look
            core.messages.unpin(lease.message, len(gone))
        core.schedule.busy.difference_update(due)
        if due and (zone := core.schedule.zones.get(settlement.zone)) is not None:
            waiting = [row for row in settlement.rows if row.verdict in WAITING]
            for row in waiting:
                if row.note.away and lease is not None:
                    zone.put_away(lease.batch.path.site, lease.batch.path.source, deferred_key(settlement, row))
            zone.due_at(min(row.due_ms for row in waiting))
            zone.deadline_ms = min([zone.deadline_ms, *(row.note.deadline_ms or NEVER_MS for row in waiting)])


def _nothing() -> None:
    """For callers that need no answer."""
