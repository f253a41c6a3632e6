"""Settling: from a sender's result to rows, to the record, and once that is stable to the store and the answer.

`settlement` has the rows and the record, `apply` what follows in the store, lazily and in the order of the journal;
`classification` reads the replies.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import POSTPONED, DeliveryRecord
from zonemta_py.mail.dsn import Kind
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.notices.wording import Failed, OwnWords
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, DOUBTFUL, RELEASED, Outcome, Result
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.hooks import PutOff
from zonemta_py.queue.lifecycle import classification, in_doubt, notices, observe_answers
from zonemta_py.queue.lifecycle.accept import Acceptance
from zonemta_py.queue.lifecycle.apply import SettlementWriter
from zonemta_py.queue.lifecycle.classification import Classification
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.lifecycle.leasing import Leases
from zonemta_py.queue.lifecycle.notices import Notices
from zonemta_py.queue.lifecycle.settlement import Row, Settlement, again, due, record_of, settlement_of
from zonemta_py.queue.suppression.policy import SuppressionPolicy
from zonemta_py.schedule.batch import Batch, Entry

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Rules

log = logging.getLogger(__name__)

PUT_OFF = frozenset((DEFERRED, POSTPONED))
UNTRIED = frozenset((RELEASED, POSTPONED))
"""What took its time elsewhere than at the destination."""
AGAIN_S_MIN = 1.0
"""A plugin cannot have a recipient tried again before."""


def load(config: Config) -> Rules:
    """Reads and checks the files that a configuration names besides itself: rules for replies, texts of notices. Read
    once; child processes inherit them by fork. Raises ConfigError."""
    rules = classification.load(config)
    notices.load(config)
    return rules


class Settling:
    """Records results and applies them."""

    def __init__(self, core: Core, leases: Leases, acceptance: Acceptance, policy: SuppressionPolicy) -> None:
        self._core, self._leases = core, leases
        self._notices = Notices(core)
        self._writer = SettlementWriter(core, acceptance, policy, self._notices)
        self.classification = Classification(core)  # reads its rules when they are first needed

    def configure(self, rules: Rules) -> None:
        """The configuration is another one, with these rules."""
        self._notices.configure()
        self.classification.configure(rules)

    def settle(self, result: Result, done: Callable[[], None]) -> None:
        """Calls `done` once the result is on stable storage; a lease that is no longer out is ignored."""
        lease = self._leases.out.get(result.lease)
        if lease is not None and not lease.settling:
            self._answered(lease, result, done)
        else:
            self._late(result, done)

    def _answered(self, lease: Lease, result: Result, done: Callable[[], None]) -> None:
        lease.check(result)
        doubtful = [outcome for outcome in result.outcomes if outcome.verdict == DOUBTFUL]
        if doubtful:
            self._doubt(lease, result, doubtful, done)
            return
        hooks = self._core.hooks
        asks = hooks.bounces or hooks.delays or hooks.retries
        if asks and (sure := self._sure(lease, result)):
            self._answered(lease, sure, _nothing)
        classifieds = self.classification.judge(lease, result)
        settlement = settlement_of(self._core, self._notices, lease, result, classifieds)
        if result.more:
            lease.answered = lease.answered.union(index for o in result.outcomes for index in o.recipients)
        else:
            lease.settling = True
            self._core.schedule.admission.idle.report(lease.batch, result.connection, result.kept)
        settled = partial(self._settled, lease, settlement, result, done)
        if asks and (settlement.notices or (hooks.retries and any(row.verdict == DEFERRED for row in settlement.rows))):
            lease.asking = asyncio.ensure_future(self._ask(settlement, settled, lease.asking))
            self._core.keep(lease.asking)
        elif lease.asking is not None and not result.more:  # it also covers the recipients that plugins are asked about
            lease.asking.add_done_callback(lambda _: settled())
        else:
            settled()

    def _settled(self, lease: Lease, settlement: Settlement, result: Result, done: Callable[[], None]) -> None:
        batch, core = lease.batch, self._core
        if settlement.rows:
            apply = partial(self._stable, settlement, result, done)
            settlement.seq = core.disk.ledger.write(Type.DELIVERY, record_of(settlement, result), apply, settlement.ms)
            rows = settlement.rows
            if rows[0].verdict not in UNTRIED or any(row.verdict not in UNTRIED for row in rows):
                batch.zone.took(batch.path, result.took_ms, settlement.message.metadata["size"])
        else:  # an earlier part had all of them
            core.disk.journal.when_stable(done)
        self.classification.learn(lease, result, settlement.classifieds)
        if result.more:
            lease.recorded = lease.recorded.union(index for o in result.outcomes for index in o.recipients)
            return
        if batch.entries[0].note.values is not None:
            untried = sum(len(o.recipients) for o in result.outcomes if o.verdict == RELEASED)
            batch.zone.went(batch.path, len(batch.entries) - untried, len(batch.entries))
        del self._leases.out[result.lease]
        batch.zone.done(batch)
        core.changed()

    def _stable(self, settlement: Settlement, result: Result, done: Callable[[], None]) -> None:
        self.apply(settlement)
        done()
        observe_answers.answered(self._core, settlement, result)
        if self._core.hooks.defers and any(row.verdict in PUT_OFF for row in settlement.rows):
            self._core.keep(asyncio.ensure_future(self._tell_deferred(settlement)))

    def apply(self, settlement: Settlement) -> None:
        """Brings the store up to a record that is stable. Called in the order of the records; also by a replay."""
        self._writer.apply(settlement)

    # -- other ways in

    def _sure(self, lease: Lease, result: Result) -> Result | None:
        """Takes out of a result who has the message, where plugins may be asked about others: on record before that, so
        that an end of this process meanwhile leaves them in no doubt."""
        sure = [outcome for outcome in result.outcomes if outcome.verdict == DELIVERED and not outcome.relayed]
        others = any(outcome.verdict in (BOUNCED, DEFERRED) or outcome.relayed for outcome in result.outcomes)
        if not sure or not (others or (lease.asking is not None and not result.more)):
            return None
        part = dataclasses.replace(result, outcomes=sure, more=True)
        result.outcomes = [outcome for outcome in result.outcomes if outcome not in sure]
        return part

    def _doubt(self, lease: Lease, result: Result, doubtful: list[Outcome], done: Callable[[], None]) -> None:
        """These have no answer, and may have the message. What others were answered comes first."""
        known = [outcome for outcome in result.outcomes if outcome.verdict != DOUBTFUL]
        if known:
            self._answered(lease, dataclasses.replace(result, outcomes=known, more=True), _nothing)
        lease.settling = True
        self._core.schedule.admission.idle.report(lease.batch, result.connection, result.kept)
        indices = [index for outcome in doubtful for index in outcome.recipients]
        why = doubtful[0].reply.text

        def end(_: object = None) -> None:
            in_doubt.without_answer(self._core, self._leases, lease, indices, why)
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
            self._writer.submit(settlement, operations, lambda _: done())

        if settlement.notices and self._core.hooks.delays:
            self._core.keep(asyncio.ensure_future(self._ask(settlement, write)))
        else:
            write()

    def _told(self, message: Message, entry: Entry, reply: Reply, now_ms: int) -> Row:
        steady_ms, notice_h = self._core.clock.steady_ms(), self._core.lifetime.notice_h(entry.key)
        delayed = self._notices.late(message, entry.note, steady_ms, notice_h)
        entry.note = entry.note._replace(noticed=entry.note.noticed or delayed, deadline_ms=0)
        return Row(entry.key, entry.address, entry.note, DEFERRED, reply, delayed=delayed)

    def late(self, message: Message, row: Row, now_ms: int, tried: DeliveryRecord) -> bool:
        """Whether this deferral calls for a delay notice, which the note then records as sent. now_ms: steady time."""
        notice_h = self._core.lifetime.notice_h(row.key, tried)
        delayed = row.verdict == DEFERRED and self._notices.late(message, row.note, now_ms, notice_h)
        row.note = row.note._replace(noticed=row.note.noticed or delayed)
        return delayed

    # -- plugins

    async def _ask(
        self, settlement: Settlement, then: Callable[[], None], before: asyncio.Future[None] | None = None
    ) -> None:
        """Lets plugins stop or change notices. before: an earlier call for the same lease, which comes first."""
        hooks, message = self._core.hooks, settlement.message
        if hooks.retries and settlement.lease is not None:
            await self._ask_retries(settlement, settlement.lease)
        asked: list[tuple[Kind, list[Failed]]] = []
        for kind, failures in settlement.notices:
            envelope = Envelope.from_metadata(message.metadata, [failed.recipient for failed in failures])
            if kind == "failed" and hooks.bounces:
                failures = await hooks.bounced(message.id, settlement.zone, envelope, failures)
            elif kind == "delayed" and hooks.delays:
                first = {row.address: row.note.first_ms for row in settlement.rows}
                answers = [
                    await hooks.delayed(message.id, settlement.zone, envelope, one, first[one.recipient.address])
                    for one in failures
                ]
                failures = [one for one in answers if one is not None]
            asked += ((kind, alike) for alike in _by_words(failures))
        settlement.notices = asked
        if before is not None:
            await asyncio.wait([before])
        then()

    async def _ask_retries(self, settlement: Settlement, lease: Lease) -> None:
        """Lets plugins choose when recipients are tried again."""
        core, message = self._core, settlement.message
        for row in settlement.rows:
            if row.verdict == DEFERRED:
                envelope, put_off = _put_off(settlement, row)
                wait_s = max(0.0, (row.due_ms - core.clock.steady_ms()) / 1000)
                chosen_s = await core.hooks.retried(message.id, settlement.zone, envelope, put_off, wait_s)
                if chosen_s != wait_s:
                    again(core, lease, row, max(AGAIN_S_MIN, chosen_s))

    async def _tell_deferred(self, settlement: Settlement) -> None:
        core, message = self._core, settlement.message
        for row in settlement.rows:
            if row.verdict in PUT_OFF:
                envelope, put_off = _put_off(settlement, row)
                next_ms = row.due_ms - core.clock.apart_ms()
                await core.hooks.deferred(message.id, settlement.zone, envelope, put_off, next_ms)


def _by_words(failures: list[Failed]) -> list[list[Failed]]:
    """Those that share a notice: for which plugins want the same of it."""
    found: dict[OwnWords | None, list[Failed]] = {}
    for failed in failures:
        found.setdefault(failed.own, []).append(failed)
    return list(found.values())


def _put_off(settlement: Settlement, row: Row) -> tuple[Envelope, PutOff]:
    """As plugins see it."""
    note = row.note
    recipient = Recipient(row.address, note.notify, note.orcpt, None, note.notes or {}, note.meta)
    envelope = Envelope.from_metadata(settlement.message.metadata, [recipient])
    return envelope, PutOff(recipient, row.reply, note.attempts, note.first_ms, row.kind, settlement.remote)


def _nothing() -> None:
    """For callers that need no answer."""
