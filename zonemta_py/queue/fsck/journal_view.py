"""What the journal says is alive, record by record: the check compares the store with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.alive import TYPES, Alive
from zonemta_py.journal.facts import Accepted, Attempted, Ended, Lost, TakenOver, facts_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.journal.records.taken import FEEDBACK, TakenRecord
from zonemta_py.queue.feedback.register import ERASED, operations
from zonemta_py.queue.fsck import suppressions
from zonemta_py.queue.fsck.campaigns import Finding

_DAY_MS = 86_400_000


class Truth(Alive):
    """What the journal says is alive, and how sure that is."""

    def __init__(self, own_from: int = sys.maxsize) -> None:
        """own_from: records from this number on were written by the recovery that is under way, from the store."""
        super().__init__()
        self.records = 0
        self.listed, self.heard = suppressions.Listed(), Heard()
        self.now_ms = 0
        """Of the last record."""
        self.gaps = False
        """Archived segments are missing that may hold the ends of mail."""
        self.lost_ranges: list[tuple[int, int]] = []
        """The numbers of records that are lost to damage."""
        self._unsure: set[str] = set()
        """Messages that were alive when a part of the journal was lost: their ends may have been in it."""
        self._proved: set[tuple[str, str]] = set()
        """Recipients of these that were alive after that."""
        self._own_from = own_from
        self._next = 0

    @property
    def lost(self) -> bool:
        return bool(self.lost_ranges)

    def sure(self, message_id: str, address: str) -> bool:
        """Whether the end of that recipient, if there was one, would be in a record that is still there."""
        return message_id not in self._unsure or (message_id, address) in self._proved

    def take_older(self, record: Record) -> None:
        """One of a segment that has left the journal."""
        if record.type == Type.FINISH:
            self.ended.update(fact.id for fact in facts_of(record) if isinstance(fact, Ended))
        elif record.type == Type.TAKEN:
            self.ended.difference_update(fact.id for fact in facts_of(record) if isinstance(fact, TakenOver))

    def take(self, record: Record) -> None:
        self.records += 1
        self.now_ms = max(self.now_ms, record.ms)
        gap = 0 < self._next < record.seq
        if gap or record.type == Type.LOST:
            self._unsure |= {message_id for message_id, alive in self.alive.items() if alive}
            self._proved.clear()
        self.gaps |= gap and record.type != Type.LOST
        self._next = record.seq + 1
        self.listed.take(record)
        self.heard.take(record)
        if record.type in TYPES:
            for fact in facts_of(record):
                self.fold(fact)
                if isinstance(fact, Accepted | TakenOver) and record.seq >= self._own_from:
                    self._unsure.add(fact.id)
        elif record.type == Type.LOST or (record.type == Type.START and self._unsure):
            for fact in facts_of(record):
                if isinstance(fact, Lost):
                    self.lost_ranges.append((fact.first, fact.last))
                elif isinstance(fact, Attempted) and fact.id in self._unsure:
                    self._proved |= {(fact.id, address) for address in fact.people}


class Heard:
    """What the remaining journal says came back; what is missing of it from the store would be counted twice."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, FeedbackRecord]] = []
        """Number and time of the record, and what it says."""
        self._now_ms = 0

    def take(self, record: Record) -> None:
        self._now_ms = max(self._now_ms, record.ms)
        if record.type == Type.FEEDBACK:
            self._rows.append((record.seq, record.ms, FeedbackRecord.of(packing.unpack(record.body))))
        elif record.type == Type.TAKEN and (taken := TakenRecord.of(packing.unpack(record.body))).what == FEEDBACK:
            self._rows.append((record.seq, taken.value[0], FeedbackRecord.of(taken.value[1])))

    def findings(self, store: Store, days: int) -> Iterator[Finding]:
        """days: how long it is known. The last of them is left out: what is missing may have been forgotten."""
        oldest_ms = self._now_ms - (days - 1) * _DAY_MS
        missing = list[Operation]()
        for seq, ms, said in self._rows:
            if ms > oldest_ms and store.get(keys.feedback(seq)) != ERASED:
                rows = operations(seq, ms, said)
                missing += [(key, value) for key, value in rows if store.get(key) is None]
        if missing:
            what = f"{len(missing)} keys of feedback are missing that the journal has"
            yield Finding("repairable", what, "feedback", "they are made again", missing)
