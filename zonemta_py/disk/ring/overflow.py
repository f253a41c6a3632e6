"""A queue of records in memory that overflows to a ring on disk, and only then (seed 003).

While memory has room and the ring is empty, the disk is not touched: the ring is not even made. What comes when memory
is full goes to the ring, and comes back in order as room is made. When the ring is full as well its oldest page is
overwritten; when the disk refuses, the newest records are not taken. Both are counted in `dropped`.

Records are taken by `peek` and ended by `done`: what was not ended when the process died is read again, if it had been
in the ring; what was in memory alone is gone.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from zonemta_py.disk.ring import pages
from zonemta_py.disk.ring.ring import Mark, Ring, RingError

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""How long after a ring could not be made it is tried again."""


class OverflowQueue:
    """records_max, bytes_max: of memory. page_count, page_size: of a ring that has to be made; 0 pages: no ring.

    flush_s: a page that was begun so long ago (`tick`) is written though it is not full; 0: never, as in the seed.
    spare_bytes: of the disk, must be left once a ring is made. whole: what a start takes has no gap, for whoever
    fills the queue can fill it again: of a ring with damaged pages between whole ones nothing, and nothing from before
    records that were in memory alone.
    """

    def __init__(
        self,
        path: Path,
        records_max: int = 10_000,
        bytes_max: int = 4 << 20,
        page_count: int = 4096,
        page_size: int = pages.PAGE_BYTES,
        sync: bool = False,
        flush_s: float = 0.0,
        spare_bytes: int = 0,
        whole: bool = False,
    ) -> None:
        self._path, self._sync, self._flush_s = path, sync, flush_s
        self._spare_bytes, self._whole = spare_bytes, whole
        self._records_max, self._bytes_max = records_max, bytes_max
        self._page_count, self._page_size = page_count, page_size
        self._memory: deque[bytes] = deque()
        self._bytes = 0
        self._runs: deque[tuple[Mark | None, int]] = deque()
        """Of the records in memory, in order: the place in the ring (None: they are in memory alone), and how many."""
        self._begun = 0.0
        self._lost = 0
        self._troubled = False
        self._again_s = 0.0
        self._ring = self._opened() if page_count and path.exists() else None
        self._refill()

    @property
    def dropped(self) -> int:
        """Records that nobody will get."""
        return self._lost + (self._ring.dropped if self._ring is not None else 0)

    @property
    def damaged(self) -> int:
        """Pages that were not whole."""
        return self._ring.damaged if self._ring is not None else 0

    @property
    def writes(self) -> int:
        """Pages and metadata that were written."""
        return self._ring.writes if self._ring is not None else 0

    def put(self, record: bytes, now: float = 0.0) -> bool:
        """False: it is not taken, and counted. now: seconds, of the clock that `tick` gets. Raises RecordTooLarge."""
        if not self._ring and self._fits(record):
            self._keep(None, [record])
            return True
        return self._overflow(record, now)

    def peek(self, count: int) -> list[bytes]:
        """The oldest records, at most so many; they stay until `done`."""
        if len(self._memory) < count:
            self._refill()
        return list(islice(self._memory, count))

    def last(self) -> bytes | None:
        """The newest record, where that is in memory or in a written page."""
        found = self._ring.last() if self._ring is not None else None
        return found if found is not None or not self._memory else self._memory[-1]

    def done(self, count: int) -> None:
        """So many of the oldest have reached their reader."""
        for _ in range(min(count, len(self._memory))):
            self._bytes -= len(self._memory.popleft())
            mark, left = self._runs.popleft()
            if left > 1:
                self._runs.appendleft((mark and Mark(mark.page, mark.record + 1), left - 1))
        self._refill()

    def __bool__(self) -> bool:
        return bool(self._memory) or bool(self._ring)

    def in_memory(self) -> int:
        """Records that `peek` finds without reading."""
        return len(self._memory)

    def pages(self) -> int:
        """Written pages that are still to be read."""
        return self._ring.unread() if self._ring is not None else 0

    def tick(self, now: float) -> None:
        """Writes a page that has waited for `flush_s`."""
        if self._flush_s and self._ring is not None and self._begun and now - self._begun >= self._flush_s:
            self._begun = 0.0
            self._try(self._ring.flush)

    def close(self) -> int:
        """A clean end: what was ended is not read again. Returns how many records are gone, for they were nowhere else.

        After seed 003: memory, and the page that was being filled, are not written.
        """
        ring, gone = self._ring, sum(count for mark, count in self._runs if not self._is_on_disk(mark))
        if ring is not None:
            gone += ring.unwritten()
            kept = next((mark for mark, _ in self._runs if self._is_on_disk(mark)), None)
            self._try(lambda: ring.close(kept))
        return gone

    def _is_on_disk(self, mark: Mark | None) -> bool:
        return mark is not None and self._ring is not None and self._ring.holds(mark)

    def abandon(self) -> None:
        """Writes nothing, as the end of the process would."""
        if self._ring is not None:
            self._ring.abandon()

    def put_aside(self, why: str) -> None:
        """What an earlier process left is of no use; its file is kept, under another name. Raises OSError."""
        self.abandon()
        self._ring = None
        self._memory.clear()
        self._runs.clear()
        self._bytes = 0
        self._put_aside(f"{self._path}: {why}")

    # -- memory

    def _fits(self, record: bytes) -> bool:
        return len(self._memory) < self._records_max and self._bytes + len(record) <= self._bytes_max

    def _keep(self, mark: Mark | None, records: list[bytes]) -> None:
        if mark is None and self._runs and self._runs[-1][0] is None:
            self._runs[-1] = (None, self._runs[-1][1] + len(records))
        else:
            self._runs.append((mark, len(records)))
        self._memory.extend(records)
        self._bytes += sum(map(len, records))

    def _refill(self) -> None:
        """Takes pages back while a quarter of memory, or more, is free."""
        ring = self._ring
        while ring and 4 * self._bytes <= 3 * self._bytes_max and 4 * len(self._memory) <= 3 * self._records_max:
            try:
                mark, records = ring.take()
            except OSError as error:
                self._say(error)
                return
            if not records:
                return
            self._keep(mark, records)

    # -- the ring

    def _overflow(self, record: bytes, now: float) -> bool:
        ring = self._ring if self._ring is not None else self._made()
        if ring is None or not self._try(lambda: ring.append(record)):
            self._lost += 1
            return False
        self._begun = self._begun or now
        return True

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except OSError as error:
            self._say(error)
            return False
        self._troubled = False
        return True

    def _made(self) -> Ring | None:
        if not self._page_count or time.monotonic() < self._again_s:
            return None
        try:
            self._check_room()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._ring = Ring.create(self._path, self._page_count, self._page_size, self._sync)
        except (OSError, RingError) as error:
            self._again_s = time.monotonic() + AGAIN_S
            self._say(error)
        return self._ring

    def _check_room(self) -> None:
        """Raises OSError."""
        if self._spare_bytes:
            size = pages.RESERVED_BYTES + self._page_count * self._page_size
            disk = os.statvfs(next(folder for folder in self._path.parents if folder.is_dir()))
            if disk.f_bavail * disk.f_frsize < size + self._spare_bytes:
                raise OSError(
                    errno.ENOSPC, f"no room for a ring of {size:,} bytes, as {self._spare_bytes:,} must be left"
                )

    def _opened(self) -> Ring | None:
        """What an earlier process left; one that cannot be read is put aside, for it is in nobody's way there."""
        try:
            ring = Ring.open(self._path, self._sync)
            trouble = self._unfit(ring) if self._whole else ""
            if not trouble:
                return ring
            ring.abandon()
            self._put_aside(f"{self._path}: {trouble}")
        except RingError as error:
            if not error.damaged:
                raise
            self._put_aside(str(error))
        except OSError as error:
            self._say(error)
        return None

    @staticmethod
    def _unfit(ring: Ring) -> str:
        """Why not all of it can be taken; "": it can, from where it was last begun."""
        try:
            ring.begin_at_last_run()
            found = ring.gaps()
        except OSError as error:
            return f"cannot be read ({error.strerror or error})"
        return f"{found} damaged pages between whole ones" if found else ""

    def _put_aside(self, why: str) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        self._path.replace(aside)
        log.warning("%s; it is now %s", why, aside.name)

    def _say(self, error: Exception) -> None:
        """Once, until it works again."""
        if not self._troubled:
            self._troubled = True
            log.warning("%s: %s; records that find no room in memory are dropped and counted", self._path, error)
