"""The working suffix: the journal's records since its last position record, where a restart begins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import PositionRecord, SegmentRecord
from zonemta_py.journal.records.mail import (
    BOUNCED,
    DELIVERED,
    DeliveryRecord,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    OpenRecord,
    OutcomeRow,
    RemovedRecord,
    StartRecord,
    Who,
    address_of,
)
from zonemta_py.journal.records.orders import CONFIGURATION, WAITED, StandingRecord
from zonemta_py.journal.records.taken import FAMILIES, MESSAGE, TakenMessage, TakenRecord
from zonemta_py.queue.core.campaigns import BEGIN, ORDERS
from zonemta_py.queue.core.segments import Segments

RESULTS = (
    Type.DELIVERY, Type.IN_DOUBT, Type.REMOVED, Type.MOVED, Type.SUPPRESS, Type.UNSUPPRESS, Type.TASK, Type.FEEDBACK,
)  # fmt: skip


class Suffix:
    """What the records since the last position record say (or since the journal's beginning, if there is none)."""

    def __init__(self, position: Record | None) -> None:
        body: PositionRecord = packing.unpack(position.body) if position else {}
        self.position_seq = position.seq if position else 0
        self.applied = int(body.get("applied", 0))
        self.batches = int(body.get("batches", 0))
        self.floor = str(body.get("floor", "0" * 16))
        self.arriving: set[str] = set(body.get("opened", []))
        self.marks: dict[str, dict[str, bytes]] = body.get("marks", {})
        self.segments = Segments(body.get("segments", []))
        self.working = {start.lease: start for start in map(StartRecord.of, body.get("working", []))}
        self.ended: list[str] | None = body.get("ended")
        self.opened = set(self.arriving)
        self.enveloped: set[str] = set()
        self.finished: set[str] = set()
        self.tried: set[str] = set()
        self.left: dict[str, set[str]] = {}
        """By message accepted since then: recipients that have not ended."""
        self.born: dict[str, int] = {}
        """By the same messages: the number of the ENVELOPE record."""
        self.missing = 0
        """The last record that is missing among these, or that a LOST record stands for; 0: none."""
        self._next = 0
        self.known: dict[str, tuple[str, int, int]] = {}
        """See `Core.known`."""
        self.results: list[Record] = []
        self.last: Record | None = position
        self.admission: dict[str, Any] = body.get("permits", {})
        self.policy: dict[str, Any] = body.get("standing", {})
        self.changes: list[tuple[int, StandingRecord]] = []
        """Changes of the policy state since the position, and the numbers of their records."""
        self.results_since: list[DeliveryRecord] = []
        self.begun: set[str] = set()
        """Campaigns that began since then."""
        self.since_ms = position.ms if position else 0
        self.clock: dict[str, Any] = body.get("clock", {})
        self.clock_ms = position.ms if position else 0
        """The machine's clock at the last record that was not written during a start."""
        self.given: list[tuple[int, StartRecord]] = []
        """START records since the position, with their (steady) times: what limits were charged for."""

    @property
    def last_seq(self) -> int:
        """0: there is no record."""
        return self.last.seq if self.last is not None else 0

    def take(self, record: Record) -> None:
        """Takes one more record. The position record counts the segments up to itself; later ones are counted here."""
        self.last = record
        if record.type == Type.LOST or 0 < self._next < record.seq:
            self.missing = record.seq if record.type == Type.LOST else record.seq - 1
        self._next = record.seq + 1
        if record.type not in (Type.END, Type.LOST):
            self.clock_ms = record.ms
        if record.type in RESULTS:
            self.results.append(record)
        if record.type == Type.POSITION:
            return
        fields, counts = packing.unpack(record.body), record.seq > self.position_seq
        if record.type == Type.START:
            self._started(record.ms, StartRecord.of(fields), counts)
        elif record.type == Type.STANDING:
            self._stand(record, StandingRecord.of(fields), counts)
        elif record.type == Type.DELIVERY:
            self._delivered(DeliveryRecord.of(fields), counts)
        elif record.type == Type.REMOVED:
            removed = RemovedRecord.of(fields)
            self.tried.add(removed.id)
            self._end(removed.id, removed.recipients)
            self.owed(removed.id, removed.envelope or {}, 0)
        elif record.type == Type.IN_DOUBT:
            for lease in InDoubtRecord.of(fields).leases:
                self.working.pop(lease, None)
        elif record.type == Type.ENVELOPE:
            envelope = EnvelopeRecord.of(fields)
            self.accepted(envelope, record.seq)
            self.owed(envelope.id, envelope.metadata, len(envelope.recipients))
            self.opened.discard(envelope.id)
            if counts:
                self.segments.born(envelope.id)
        elif record.type == Type.TAKEN:
            self._taken(record.seq, TakenRecord.of(fields), counts)
        elif record.type == Type.OPEN:
            self.opened.add(OpenRecord.of(fields).id)
        elif record.type == Type.FINISH:
            finish = FinishRecord.of(fields)
            message_id = finish.id
            if finish.moved:
                self.results.append(record)
            self.finished.add(message_id)
            self.left.pop(message_id, None)
            self.born.pop(message_id, None)
            if counts:
                self.segments.ended(message_id)
        elif record.type == Type.SEGMENT and (counts or fields["first"] > self.segments.newest):
            segment: SegmentRecord = fields
            self.segments.begin(segment["first"], segment["floor"])
            self.clock = segment.get("clock", self.clock)

    def accepted(self, envelope: EnvelopeRecord, seq: int = sys.maxsize) -> None:
        """The recipients of an ENVELOPE record have not ended yet. seq: its number; if only a receipt has it, above all
        others."""
        self.enveloped.add(envelope.id)
        self.born[envelope.id] = seq
        self.left[envelope.id] = {row.address for row in envelope.rows()}

    def _taken(self, seq: int, taken: TakenRecord, counts: bool) -> None:
        """Also a message that this queue has had before, and given away."""
        if taken.what != MESSAGE:
            return
        message = TakenMessage.of(taken.value)
        self.enveloped.add(message.id)
        if message.id in self.finished:  # what it gave away has come back, and has not ended here
            self.finished.discard(message.id)
            self.results = [one for one in self.results if not _finishes(one, message.id)]
        self.opened.discard(message.id)
        self.born[message.id] = seq
        self.left[message.id] = {row.address for row in message.rows()}
        if counts:
            self.segments.born(message.id)
            self._unpassed(message)

    def _unpassed(self, message: TakenMessage) -> None:
        """Its keys may lie below the low-water marks of then: it is older than it is here."""
        for row in message.rows():
            marks, family = self.marks.get(row.zone), FAMILIES[row.family]
            if marks and family == "delivery-zone":
                marks["fresh"] = min(marks["fresh"], keys.fresh(row.zone, message.id, row.address))
            elif marks and family == "deferred":
                marks["due"] = min(marks["due"], keys.deferred(row.zone, row.middle, message.id, row.address))

    def _started(self, ms: int, start: StartRecord, counts: bool) -> None:
        self.working[start.lease] = start
        if counts:
            self.given.append((ms + self._apart_ms(), start))

    def _delivered(self, delivery: DeliveryRecord, counts: bool) -> None:
        self._heard(delivery.lease, delivery.outcomes)
        self.tried.add(delivery.id)
        for outcome in delivery.outcomes:
            if outcome.verdict == DELIVERED:
                self._end(delivery.id, outcome.addresses())
            elif outcome.verdict == BOUNCED:  # with a time: it is kept until then
                self._end(delivery.id, [who.address for who in map(Who.of, outcome.recipients) if not who.due_ms])
        if counts:
            self.results_since.append(delivery)

    def _end(self, message_id: str, addresses: list[str]) -> None:
        left = self.left.get(message_id)
        if left:
            left.difference_update(addresses)

    def _heard(self, lease: int, outcomes: list[OutcomeRow]) -> None:
        """Other recipients of the lease may still be in progress."""
        start = self.working.get(lease)
        if start is None:
            return
        known = {address for outcome in outcomes for address in outcome.addresses()}
        left = [who for who in start.recipients if address_of(who) not in known]
        if left:
            self.working[lease] = start._replace(recipients=left)
        else:
            del self.working[lease]

    def owed(self, message_id: str, metadata: dict[str, Any], accepted: int) -> None:
        """Accepted since the position record, so its client may not have received the 250."""
        if token := metadata.get("token"):
            self.known[token] = message_id, accepted, 0

    def _apart_ms(self) -> int:
        steps = self.clock.get("steps")
        return int(steps[-1][1]) if steps else 0

    def _stand(self, record: Record, change: StandingRecord, counts: bool) -> None:
        kind, name = change.subject
        if change.what == "clock":
            if counts:
                self.clock["steps"] = change.value
        elif kind == "campaign" and change.what in ORDERS:
            self.results.append(record)
        elif kind == "campaign" and change.what == BEGIN:
            self.begun.add(name)
        elif counts and change.what not in (CONFIGURATION, WAITED):  # which change nothing
            self.changes.append((record.seq, change))


def _finishes(record: Record, message_id: str) -> bool:
    return record.type == Type.FINISH and FinishRecord.of(packing.unpack(record.body)).id == message_id


def read_suffix(folder: Path, faults: list[segments.Fault]) -> Suffix:
    suffix = Suffix(segments.last_of(folder, Type.POSITION))
    for record in segments.read(folder, suffix.applied + 1 if suffix.position_seq else 0, faults):
        suffix.take(record)
    return suffix
