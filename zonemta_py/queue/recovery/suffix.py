"""The working suffix: what the journal says since its last position record; a restart begins with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zonemta_py.disk import journal, records
from zonemta_py.disk.frame import Record
from zonemta_py.disk.records import BOUNCED, DELIVERED, Type
from zonemta_py.queue.core.campaigns import BEGIN, ORDERS
from zonemta_py.queue.core.segments import Segments

RESULTS = (Type.DELIVERY, Type.IN_DOUBT, Type.REMOVED, Type.MOVED, Type.SUPPRESS, Type.UNSUPPRESS)


class Suffix:
    """What the journal says since the last position record (or since its beginning, if there is none)."""

    def __init__(self, position: Record | None) -> None:
        body: dict[str, Any] = records.unpack(position.body) if position else {}
        self.position_seq = position.seq if position else 0
        self.applied = int(body.get("applied", 0))
        self.batches = int(body.get("batches", 0))
        self.floor = str(body.get("floor", "0" * 16))
        self.arriving: set[str] = set(body.get("opened", []))
        self.marks: dict[str, dict[str, bytes]] = body.get("marks", {})
        self.segments = Segments(body.get("segments", []))
        self.working: dict[int, list[Any]] = {row[0]: row for row in body.get("working", [])}
        self.ended: list[str] | None = body.get("ended")
        self.opened = set(self.arriving)
        self.enveloped: set[str] = set()
        self.finished: set[str] = set()
        self.tried: set[str] = set()
        self.left: dict[str, set[str]] = {}
        """By message that was accepted since: recipients that have not ended."""
        self.known: dict[str, tuple[str, int, int]] = {}
        """See `Core.known`."""
        self.results: list[Record] = []
        self.last: Record | None = position
        self.permits: dict[str, Any] = body.get("permits", {})
        self.standing: dict[str, Any] = body.get("standing", {})
        self.changes: list[tuple[int, list[Any]]] = []
        """Changes of standing since the position, and the numbers of their records."""
        self.results_since: list[list[Any]] = []
        self.begun: set[str] = set()
        """Campaigns that began since then."""
        self.since_ms = position.ms if position else 0
        self.clock: dict[str, Any] = body.get("clock", {})
        self.clock_ms = position.ms if position else 0
        """The machine's clock at the last record that was not written by a start."""
        self.given: list[tuple[int, list[Any]]] = []
        """START records since the position, with their (steady) times: what limits were charged for."""

    @property
    def last_seq(self) -> int:
        """0: there is no record."""
        return self.last.seq if self.last is not None else 0

    def take(self, record: Record) -> None:
        """One more record. Segments are counted by the position record up to it, and from here behind it."""
        self.last = record
        if record.type not in (Type.END, Type.LOST):
            self.clock_ms = record.ms
        if record.type in RESULTS:
            self.results.append(record)
        if record.type == Type.POSITION:
            return
        body = records.unpack(record.body)
        counts = record.seq > self.position_seq
        if record.type == Type.START:
            self.working[body[0]] = body
            if counts:
                self.given.append((record.ms + self._apart_ms(), body))
        elif record.type == Type.STANDING:
            self._stand(record, body, counts)
        elif record.type == Type.DELIVERY:
            self._heard(body[0], body[4])
            self.tried.add(body[1])
            for outcome in body[4]:
                if outcome[0] in (DELIVERED, BOUNCED):
                    self._end(body[1], outcome[5])
            if counts:
                self.results_since.append(body)
        elif record.type == Type.REMOVED:
            self.tried.add(body[0])
            self._end(body[0], body[2])
            if len(body) > 4:
                self.owed(body[0], body[4].get("envelope", {}), 0)
        elif record.type == Type.IN_DOUBT:
            for lease in body[0]:
                self.working.pop(lease, None)
        elif record.type == Type.ENVELOPE:
            self.accepted(body)
            self.owed(body[0], body[1], len(body[2]))
            self.opened.discard(body[0])
            if counts:
                self.segments.born(body[0])
        elif record.type == Type.OPEN:
            self.opened.add(body[0])
        elif record.type == Type.FINISH:
            self.finished.add(body[0])
            self.left.pop(body[0], None)
            if counts:
                self.segments.ended(body[0])
        elif record.type == Type.SEGMENT and counts:
            self.segments.begin(body["first"], body["floor"])
            self.clock = body.get("clock", self.clock)

    def accepted(self, body: list[Any]) -> None:
        """The body of an ENVELOPE record."""
        self.enveloped.add(body[0])
        self.left[body[0]] = {row[1] for row in body[2]}

    def _end(self, message_id: str, recipients: list[Any]) -> None:
        left = self.left.get(message_id)
        if left:
            left.difference_update(map(_address, recipients))

    def _heard(self, lease: int, outcomes: list[list[Any]]) -> None:
        """The others of the lease may be under way still."""
        row = self.working.get(lease)
        if row is None:
            return
        known = {_address(who) for outcome in outcomes for who in outcome[5]}
        left = [who for who in row[4] if _address(who) not in known]
        if left:
            self.working[lease] = [*row[:4], left, *row[5:]]
        else:
            del self.working[lease]

    def owed(self, message_id: str, metadata: dict[str, Any], accepted: int) -> None:
        """The client of what was accepted since the position may not have heard of it."""
        if token := metadata.get("token"):
            self.known[token] = message_id, accepted, 0

    def _apart_ms(self) -> int:
        steps = self.clock.get("steps")
        return int(steps[-1][1]) if steps else 0

    def _stand(self, record: Record, body: list[Any], counts: bool) -> None:
        what, (kind, name) = body[:2]
        if what == "clock":
            if counts:
                self.clock["steps"] = body[2]
            return
        if kind == "campaign" and what in ORDERS:
            self.results.append(record)
        elif kind == "campaign" and what == BEGIN:
            self.begun.add(name)
        elif counts:
            self.changes.append((record.seq, body))


def _address(who: Any) -> str:
    return str(who[0] if isinstance(who, list) else who)


def read_suffix(folder: Path, faults: list[journal.Fault]) -> Suffix:
    suffix = Suffix(journal.last_of(folder, Type.POSITION))
    for record in journal.read(folder, suffix.applied + 1 if suffix.position_seq else 0, faults):
        suffix.take(record)
    return suffix
