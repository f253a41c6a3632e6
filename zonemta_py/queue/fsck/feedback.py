"""Checks what is known of feedback against the journal: what is missing from the store would be counted twice."""

from __future__ import annotations

from collections.abc import Iterator

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.queue.feedback.register import ERASED, operations
from zonemta_py.queue.fsck.campaigns import Finding

_DAY_MS = 86_400_000


class Heard:
    """What the remaining journal says came back."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._now_ms = 0

    def take(self, record: Record) -> None:
        self._now_ms = max(self._now_ms, record.ms)
        if record.type == Type.FEEDBACK:
            self._records.append(record)

    def findings(self, store: Store, days: int) -> Iterator[Finding]:
        """days: how long it is known. The last of them is left out: what is missing may have been forgotten."""
        oldest_ms = self._now_ms - (days - 1) * _DAY_MS
        missing = list[Operation]()
        for record in self._records:
            if record.ms > oldest_ms and store.get(keys.feedback(record.seq)) != ERASED:
                rows = operations(record.seq, record.ms, FeedbackRecord.of(packing.unpack(record.body)))
                missing += [(key, value) for key, value in rows if store.get(key) is None]
        if missing:
            what = f"{len(missing)} keys of feedback are missing that the journal has"
            yield Finding("repairable", what, "feedback", "they are made again", missing)
