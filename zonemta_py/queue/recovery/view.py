"""A view: a stopped queue as the next start would restore it, with nothing written to its disk.

Replay writes to a `View` of the store and to a journal in memory; a check then reads both. The amount of pending
changes is bounded by the distance between two position records, so it fits into memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

from zonemta_py.disk import body_file, keys
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.receipts import Receipts
from zonemta_py.journal.segments import Writer
from zonemta_py.queue.core.bodies import Bodies


class View(Store):
    """The store plus the changes that would be written to it."""

    def __init__(self, below: Store) -> None:
        self.folder, self.fenced = below.folder, False
        self._below = below
        self._fresh: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._fresh[key] if key in self._fresh else self._below.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        fresh = {key: value for key, value in self._fresh.items() if start <= key < stop}
        below = (row for row in self._below.scan(start, stop) if row[0] not in fresh)
        if not fresh:
            return below
        kept = sorted((key, value) for key, value in fresh.items() if value is not None)
        return heapq.merge(below, kept)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        if not any(start <= key < stop for key in self._fresh):
            return self._below.keys(start, stop)
        return (key for key, _ in self.scan(start, stop))

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        if not any(start <= key < stop for key in self._fresh):
            return self._below.last(start, stop)
        return max(self.keys(start, stop), default=None)

    def write(self, operations: Iterable[Operation], sync: bool) -> None:
        for key, value in operations:
            self._fresh[key] = value
            if key.startswith(keys.PLACED):
                self._fresh[keys.index_of(key)] = None if value is None else b""

    def reopen(self) -> None:
        """Nothing to do: no write fails."""

    def close(self) -> None:
        """Nothing to do: the real store is closed by its opener."""


class NoReceipts(Receipts):
    """Discards receipts."""

    def write(self, number: int, envelopes: list[bytes]) -> None:
        """Writes nothing."""


class LookedAt(Bodies):
    """Keeps the files of large bodies, whichever messages end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / body_file.FOLDER
        self.ending: set[str] = set()

    def ended(self, message_id: str) -> None:
        self.ending.add(message_id)

    def close(self) -> None:
        """It has no threads."""


class Unwritten(Writer):
    """A journal writer that keeps the records in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: list[Record] = []

    def write(self, records: list[Record], sync: bool) -> None:
        self.records += records

    def close(self) -> None:
        """It has no file."""
