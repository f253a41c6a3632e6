"""A cursor walks one range of recipient keys, oldest first, from its low-water mark: no live key lies below the mark.

The mark is what makes LevelDB fit for a queue: without it every walk would first step over all the keys that were
deleted since the last compaction. It is ZoneMTA's range start, the mail queue's browse start and the journal's restart
position in one number; position records carry it.

`busy` holds the keys that someone in memory answers for (in the window, leased, or deleted in a batch that is not
written yet); a cursor steps over them, so walking a stretch twice can never hand out a recipient twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Container

from zonemta_py.disk import keys
from zonemta_py.disk.store import Store, StoreFenced


class Cursor:
    """Over one range. `exhausted`: nothing was left at the last read (new keys may be handed over directly)."""

    __slots__ = ("_busy", "_handed", "_start", "_stop", "_store", "exhausted", "position")

    def __init__(self, store: Store, prefix: bytes, busy: Container[bytes], mark: bytes = b"") -> None:
        self._store, self._busy = store, busy
        self._start, self._stop = prefix, keys.end(prefix)
        self.position = max(prefix, mark) if mark < self._stop else prefix
        self.exhausted = False
        self._handed: list[bytes] = []  # a heap

    def read(self, most: int, stop: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """The next keys and values that nobody answers for: at most `most`, below `stop`. None while it is fenced."""
        try:
            return self._read(most, stop or self._stop)
        except StoreFenced:  # said before the first of them
            self.exhausted = False
            return []

    def _read(self, most: int, limit: bytes) -> list[tuple[bytes, bytes]]:
        busy, rows = self._busy, list[tuple[bytes, bytes]]()
        if self.position >= limit:
            self.exhausted = True
            return rows
        for key, value in self._store.scan(self.position, limit):
            if key not in busy:
                rows.append((key, value))
                heapq.heappush(self._handed, key)
                if len(rows) >= most:
                    self.position = key + b"\0"
                    self.exhausted = False
                    return rows
        if rows:
            self.position = rows[-1][0] + b"\0"
        self.exhausted = True
        return rows

    def pass_by(self, key: bytes) -> None:
        """A key that is handed out without being read (mail just accepted); only while exhausted."""
        heapq.heappush(self._handed, key)
        if key >= self.position:
            self.position = key + b"\0"

    def promise(self, key: bytes) -> None:
        """A key that will be in the store soon, and is busy until then: the mark stays below it."""
        heapq.heappush(self._handed, key)

    def back_to(self, key: bytes) -> None:
        """There is a key to be read again, or one that came behind the position."""
        if key < self.position:
            self.position = key
        self.exhausted = False

    def mark(self) -> bytes:
        """The low-water mark: the first key that may still be alive."""
        handed, busy = self._handed, self._busy
        while handed and handed[0] not in busy:
            heapq.heappop(handed)
        return min(handed[0], self.position) if handed else self.position

    def peek(self) -> bytes | None:
        """The first key at or behind the position that nobody answers for. Raises StoreFenced."""
        keys_behind = self._store.keys(self.position, self._stop)
        return next((key for key in keys_behind if key not in self._busy), None)
