"""A cursor walks one range of recipient keys, oldest first, from its low-water mark: no live key lies below the mark.

The mark is what makes LevelDB fit for a queue: without it every walk would first step over all the keys that were
deleted since the last compaction. It is ZoneMTA's range start, the mail queue's browse start and the journal's restart
position in one number; position records carry it.

`busy` holds the keys that are in use in memory (in the window, leased, or deleted in a batch that is not
written yet); a cursor skips them, so walking a stretch twice can never hand out a recipient twice.

A `Shelf` is the same for the range of one flow queue's parked recipients, without a mark: it is walked from its
beginning after a restart. There may be a million of them, and nothing in most: an unused one is 56 bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from itertools import islice
from typing import NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store, StoreFenced


class Ground(NamedTuple):
    """Where the cursors of a zone walk: the store, the keys that are busy, the zone's name."""

    store: Store
    busy: Container[bytes]
    zone: str

    def read(self, start: bytes, stop: bytes, most: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """The first keys and values in [start, stop) that are not busy; True: there are no more.

        None while the store is fenced.
        """
        rows: list[tuple[bytes, bytes]] = []
        if start >= stop:
            return rows, True
        busy = self.busy
        try:
            for row in self.store.scan(start, stop):
                if row[0] not in busy:
                    rows.append(row)
                    if len(rows) >= most:
                        return rows, False
        except StoreFenced:  # said before the first of them
            return rows, False
        return rows, True

    def peek(self, start: bytes, stop: bytes) -> bytes | None:
        """The first key there that is not busy. Raises StoreFenced."""
        return next((key for key in self.store.keys(start, stop) if key not in self.busy), None)


class Cursor:
    """Over one range. `exhausted`: nothing was left at the last read (new keys may be handed over directly)."""

    __slots__ = ("_handed", "_stop", "exhausted", "ground", "position")

    def __init__(self, ground: Ground, prefix: bytes, mark: bytes = b"") -> None:
        self.ground, self._stop = ground, keys.end(prefix)
        self.position = max(prefix, mark) if mark < self._stop else prefix
        self.exhausted = False
        self._handed: list[bytes] = []  # a heap

    def read(self, most: int, stop: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """The next keys and values that are not busy: at most `most`, below `stop`. None while it is fenced."""
        rows, self.exhausted = self.ground.read(self.position, stop or self._stop, most)
        for key, _ in rows:
            heapq.heappush(self._handed, key)
        if rows:
            self.position = rows[-1][0] + b"\0"
        return rows

    def pass_by(self, keys: list[bytes]) -> None:
        """Keys that are handed out without being read (mail just accepted); only while exhausted."""
        for key in keys:
            heapq.heappush(self._handed, key)
        last = max(keys)
        if last >= self.position:
            self.position = last + b"\0"

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
        handed, busy = self._handed, self.ground.busy
        while handed and handed[0] not in busy:
            heapq.heappop(handed)
        return min(handed[0], self.position) if handed else self.position

    def peek(self) -> bytes | None:
        """The first key at or after the position that is not busy. Raises StoreFenced."""
        return self.ground.peek(self.position, self._stop)


class Shelf:
    """The parked recipients of one flow queue. `exhausted` at first: what is parked later resets it."""

    __slots__ = ("_ground", "_name", "_position", "exhausted")

    def __init__(self, ground: Ground, name: str) -> None:
        self._ground, self._name = ground, name
        self._position = b""  # its beginning
        self.exhausted = True

    def read(self, most: int) -> list[tuple[bytes, bytes]]:
        """As `Cursor.read`."""
        rows, self.exhausted = self._ground.read(*self._rest(), most)
        if rows:
            self._position = rows[-1][0] + b"\0"
        return rows

    def arrived(self, key: bytes) -> None:
        """As `back_to`; if nothing else is left to be read, reading begins with it, not where much has been deleted."""
        if self.exhausted:
            self._position = key
        self.back_to(key)

    def is_past(self, key: bytes) -> bool:
        """Whether it will not be read any more."""
        return key < self._position

    def pass_by(self, key: bytes) -> None:
        """A key that is handed out without being read; only while exhausted."""
        if key >= self._position:
            self._position = key + b"\0"

    def back_to(self, key: bytes) -> None:
        """There is a key to be read again, or one that came behind the position."""
        if key < self._position:
            self._position = key
        self.exhausted = False

    def peek(self) -> bytes | None:
        """As `Cursor.peek`."""
        return self._ground.peek(*self._rest())

    def count(self, start: bytes, most: int) -> tuple[int, bytes]:
        """How many of the next `most` keys are not busy, and where those after them begin, b"" if there are none.
        start: b"" for its beginning. Raises StoreFenced."""
        prefix = keys.parked_range(self._ground.zone, self._name)
        found = list(islice(self._ground.store.keys(start or prefix, keys.end(prefix)), most))
        busy = self._ground.busy
        return sum(key not in busy for key in found), found[-1] + b"\0" if len(found) == most else b""

    def _rest(self) -> tuple[bytes, bytes]:
        """What has not been read."""
        prefix = keys.parked_range(self._ground.zone, self._name)
        return self._position or prefix, keys.end(prefix)
