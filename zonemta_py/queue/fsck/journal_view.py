"""What the journal says is alive, record by record: the check compares the store with it."""

from __future__ import annotations

import sys

from zonemta_py.disk.frame import Record
from zonemta_py.journal.alive import TYPES, Alive
from zonemta_py.journal.facts import Accepted, Attempted, Ended, Lost, facts_of
from zonemta_py.journal.records import Type
from zonemta_py.queue.fsck import feedback, suppressions


class Truth(Alive):
    """What the journal says is alive, and how sure that is."""

    def __init__(self, own_from: int = sys.maxsize) -> None:
        """own_from: records from this number on were written by the recovery that is under way, from the store."""
        super().__init__()
        self.records = 0
        self.listed, self.heard = suppressions.Listed(), feedback.Heard()
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
                if isinstance(fact, Accepted) and record.seq >= self._own_from:
                    self._unsure.add(fact.id)
        elif record.type == Type.LOST or (record.type == Type.START and self._unsure):
            for fact in facts_of(record):
                if isinstance(fact, Lost):
                    self.lost_ranges.append((fact.first, fact.last))
                elif isinstance(fact, Attempted) and fact.id in self._unsure:
                    self._proved |= {(fact.id, address) for address in fact.people}
