"""From a delivery record to the store: keys, counters, notices and evidence, all in the batch that ends a recipient.

Called in the order of the records, once each is stable; recovery does the same with a record that it has read, so a
crash between record and store changes nothing. A bounce is notified (RFC 3464) in the same batch that ends the
recipient: never twice, and never not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from zonemta_py.disk import keys, packing
from zonemta_py.disk.bodies import shrink
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, HELD, POSTPONED, RELEASED
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.notes import NoteChanges
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import counted_as
from zonemta_py.queue.lifecycle import checks
from zonemta_py.queue.lifecycle.accept import Acceptance
from zonemta_py.queue.lifecycle.notices import Notices
from zonemta_py.queue.lifecycle.settlement import Row, Settlement
from zonemta_py.queue.suppression.evidence import COUNTED, OF_CLASS
from zonemta_py.queue.suppression.guard import Pair
from zonemta_py.queue.suppression.policy import Statement, SuppressionPolicy
from zonemta_py.schedule.batch import NEVER_MS, Entry
from zonemta_py.schedule.time.steady import Steady

WAITING = (DEFERRED, POSTPONED)


class SettlementWriter:
    """Brings the store up to a settlement."""

    def __init__(self, core: Core, acceptance: Acceptance, policy: SuppressionPolicy, notices: Notices) -> None:
        self._core, self._acceptance, self._policy, self._notices = core, acceptance, policy, notices

    def apply(self, settlement: Settlement) -> None:
        """Applies the record to the store. Called in the order of the records."""
        core, message = self._core, settlement.message
        operations: list[Operation] = _noted(settlement) if settlement.notes else []
        ended, simple, due = 0, True, list[bytes]()
        campaign = core.campaigns.counted_by(message.id, message.metadata) if "campaign" in message.metadata else ""
        moved: dict[tuple[str, int, int | None, str], int] = {}
        for row in settlement.rows:
            if row.verdict != RELEASED:
                after = None
                operations.append((row.key, None))
                if row.verdict != DELIVERED:
                    simple = False
                    if (goes_on := _after(settlement, row, core.clock)) is not None:
                        key, note = goes_on
                        operations.append((key, note.value()))
                        after = counted_as(key)
                        if row.verdict in WAITING:
                            due.append(key)
                ended += after is None
                move = row.address[row.address.rfind("@") + 1 :], row.state, after, row.note.flow
                try:
                    moved[move] += 1
                except KeyError:
                    moved[move] = 1
            if campaign:
                core.campaigns.counters.result(campaign, row.verdict, settlement.ms, row.blocked)
        for (domain, before, after, flow), count in moved.items():
            core.counters.sizes.move(settlement.zone, domain, before, after, count, flow)
        if simple and settlement.lease is not None and not self._policy.store.any:
            if ended:
                _count(self._policy, settlement, [(domain, count) for (domain, *_), count in moved.items()])
        else:
            operations += _evidence(self._policy, settlement, core.clock.apart_ms())
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

        self.submit(settlement, operations, written)

    def submit(
        self, settlement: Settlement, operations: list[Operation], written: Callable[[Reply | None], None]
    ) -> None:
        """Writes them, and their notifications, the first of these in the same batch."""
        notices = self._notifications(settlement) if settlement.notices else []
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
            gone, back = list[bytes](), list[Entry]()
            for row in settlement.rows:
                if row.verdict != RELEASED:
                    gone.append(row.key)
                elif row.entry:
                    back.append(row.entry)
            core.schedule.busy.difference_update(gone)
            if back:
                lease.batch.zone.put_back(lease.batch, back)
                core.changed()  # otherwise nothing would make the scheduler look
            core.messages.unpin(lease.message, len(gone))
        if not due:
            return
        core.schedule.busy.difference_update(due)
        if (zone := core.schedule.zones.get(settlement.zone)) is not None:
            waiting = [row for row in settlement.rows if row.verdict in WAITING]
            for row in waiting:
                if row.note.away and lease is not None:
                    zone.put_away(lease.batch.path.site, lease.batch.path.source, _deferred_key(settlement, row))
            zone.due_at(min(row.due_ms for row in waiting))
            zone.deadline_ms = min([zone.deadline_ms, *(row.note.deadline_ms or NEVER_MS for row in waiting)])


def _noted(settlement: Settlement) -> list[Operation]:
    """What plugins have changed of the notes of the message, and of recipients that stay where they are."""
    assert settlement.notes is not None
    message, (set_, gone, people) = settlement.message, settlement.notes
    operations: list[Operation] = []
    if set_ or gone:
        before = message.metadata.get("notes") or {}
        message.metadata["notes"] = NoteChanges(set_, gone, {}).merged(before)
        operations.append((keys.metadata(message.id), packing.pack(message.metadata)))
    for row in settlement.rows if people else ():
        if row.verdict == RELEASED and row.address in people:
            operations.append((row.key, row.note.value()))
    return operations


def _after(settlement: Settlement, row: Row, clock: Steady) -> tuple[bytes, Note] | None:
    """Key and note, from now on, of a recipient that was not delivered; None: it has ended."""
    if row.verdict == BOUNCED and not row.due_ms:
        return None
    zone, message_id, note = settlement.zone, settlement.message.id, row.note._replace(seq=settlement.seq)
    if row.verdict in (DEFERRED, POSTPONED):
        return _deferred_key(settlement, row), note
    if row.verdict == HELD:
        return keys.held(zone, message_id, row.address), note.held(clock.steady_ms())
    return keys.bounced(zone, row.due_ms, message_id, row.address), note


def _deferred_key(settlement: Settlement, row: Row) -> bytes:
    return keys.deferred(settlement.zone, row.due_ms, settlement.message.id, row.address)


def _evidence(policy: SuppressionPolicy, settlement: Settlement, apart_ms: int) -> list[Operation]:
    """For the policy that suppresses people: evidence, and what clears it. apart_ms: how far steady time is ahead of
    the clock."""
    operations: list[Operation] = []
    taken, clears, ms = Counter[str](), policy.store.any, settlement.ms + apart_ms
    for row in settlement.rows:
        if row.verdict == DELIVERED:
            taken[row.address[row.address.rfind("@") + 1 :]] += 1
            if clears:
                operations += policy.took(row.address, settlement.message.id, ms)
        elif row.kind and row.verdict in COUNTED.get(OF_CLASS.get(row.kind, ""), ()):
            operations += policy.heard(_statement(policy, settlement, row, ms))
    if taken and settlement.lease is not None:
        _count(policy, settlement, taken.items())
    return operations


def _statement(policy: SuppressionPolicy, settlement: Settlement, row: Row, ms: int) -> Statement:
    message = settlement.message
    tenant, campaign = message.metadata.get("tenant") or "", message.metadata.get("campaign") or ""
    pair = _pair(settlement, row.address if policy.relays(settlement.zone) else "")
    return Statement(
        row.address, row.kind, message.id, ms, row.agreed, tenant, campaign, pair, str(row.reply), row.stage
    )


def _count(policy: SuppressionPolicy, settlement: Settlement, taken: Iterable[tuple[str, int]]) -> None:
    """taken: domains, and how many people there got mail."""
    relays = policy.relays(settlement.zone)
    for domain, count in taken:
        policy.guard.took(_pair(settlement, domain if relays else ""), count)


def _pair(settlement: Settlement, address: str) -> Pair:
    """Our source, and who has answered: the provider or site; behind a smart host the address's domain."""
    source, place = settlement.pair
    if settlement.lease is not None:
        path = settlement.lease.batch.path
        source, place = path.source, path.provider or path.site
    return source, address.rpartition("@")[2].lower() or place
