"""A ring of pages in one file (or block device): many small records, few writes, each of one whole page.

After seed 003: records are collected until a page is full, and every page carries a sequence number that rises on one
pass over the file and falls on the next, so that the newest page (the head) is found from the pages alone; nothing is
written when records are read. A page that overwrites unread ones counts them in `dropped`.

Promise: after any end of the process, every record of a written page that was neither taken nor overwritten is read
again, and some that were taken may be. Failures: RingError (no ring there, or its metadata is damaged), RecordTooLarge,
OSError from the disk: then the page stays in memory and the next `append` tries again. A torn or flipped page is
skipped and counted in `damaged`. A power cut may lose pages that the system had not written yet (`sync`: none).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.ring import pages
from zonemta_py.disk.ring.pages import Metadata, Page

NUM_PAGES_MAX = 3


class RingError(Exception):
    """The file is no ring that can be opened: one sentence with the remedy. damaged: it may be moved away."""

    def __init__(self, text: str, damaged: bool = False) -> None:
        super().__init__(text)
        self.damaged = damaged


class RecordTooLarge(ValueError):
    """It does not fit into a page."""


class Mark(NamedTuple):
    """A place in the ring: a page, by its number since `open` (the head was 0 then), and records of it behind us."""

    page: int
    record: int


class Ring:
    """Made by `create` or `open`. dropped, damaged: records, pages since then. writes: of pages and metadata."""

    def __init__(self, file: int, path: Path, metadata: Metadata, sync: bool) -> None:
        self.path, self.metadata, self._file, self._sync = path, metadata, file, sync
        self.dropped = self.damaged = self.writes = 0
        self._next: list[bytes] = []
        self._used = 0
        self._apart = False
        self._room = pages.room(metadata.page_size)
        self._number = 0
        if not metadata.looped and any(self._falls(position) for position in (0, metadata.page_count - 1)):
            self.metadata = metadata._replace(looped=True)  # the newer copy of the metadata is damaged
        self.head, self.falling = self._find_head()
        self._unread, self._skip = self._find_tail()

    @classmethod
    def create(cls, path: Path, page_count: int, page_size: int = pages.PAGE_BYTES, sync: bool = False) -> Ring:
        """A new, empty ring in the place of what is there. sync: every page is on stable storage once written.

        Only metadata is written; a file gets its size, all zeros, without that, and of a device the first two pages are
        zeroed. Raises RingError for sizes that cannot be; OSError: then a file that was made is removed.
        """
        if page_size < pages.PAGE_BYTES or page_size % pages.PAGE_BYTES:
            raise RingError(f"page size {page_size} cannot be; give a multiple of {pages.PAGE_BYTES}")
        if not 2 <= page_count <= pages.PAGES_MAX:
            raise RingError(f"{page_count} pages cannot be; give 2 to {pages.PAGES_MAX}, of a larger size if need be")
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        metadata = Metadata(page_size, page_count, secrets.randbits(32))
        ours = False
        try:
            _lock(file, path)
            ours = stat.S_ISREG(os.fstat(file).st_mode)
            if ours:
                os.ftruncate(file, 0)  # what an earlier ring held is nobody's
                os.posix_fallocate(file, 0, pages.RESERVED_BYTES + page_size * page_count)
            else:
                os.pwrite(file, bytes(2 * page_size), pages.RESERVED_BYTES)
            os.pwrite(file, pages.packed_metadata(metadata).ljust(pages.RESERVED_BYTES, b"\0"), 0)
            os.fsync(file)
            return cls(file, path, metadata, sync)
        except BaseException:
            if ours:
                path.unlink(missing_ok=True)  # a full disk has given it a part of its room
            os.close(file)
            raise

    @classmethod
    def open(cls, path: Path, sync: bool = False, readonly: bool = False) -> Ring:
        """The ring that is there, its unread records first. Raises RingError, OSError."""
        file = os.open(path, (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC)
        try:
            if not readonly:
                _lock(file, path)
            metadata = pages.unpacked_metadata(os.pread(file, pages.RESERVED_BYTES, 0))
            if metadata is None:
                raise RingError(
                    f"{path} is not a ring, or its metadata is damaged; move it away, and a new one is made", True
                )
            return cls(file, path, metadata, sync)
        except BaseException:
            os.close(file)
            raise

    # -- writing

    def append(self, record: bytes) -> None:
        """Goes into the page that is being filled, which is written once it is full. Raises RecordTooLarge, OSError."""
        size = pages.needed(record)
        if size > self._room:
            most = self.metadata.page_size - pages.OVERHEAD_BYTES
            raise RecordTooLarge(f"a record of {len(record)} bytes does not fit into a page, which holds {most}")
        if self._used + size > self._room:
            self._write_page(partial=False)
        if not self._next:
            self._apart = self.head >= 0 and not self._unread
        self._next.append(record)
        self._used += size

    def flush(self) -> None:
        """Writes the page that is being filled as it is; what comes later goes into another. Raises OSError."""
        if self._next:
            self._write_page(partial=True)

    def _write_page(self, partial: bool) -> None:
        count = self.metadata.page_count
        position = (self.head + 1) % count
        falling = self.falling if position else self.head >= 0 and not self.falling
        if self._unread == count:
            self._drop_oldest(position)
        looped = self.metadata.looped or (position == 0 and self.head >= 0)
        if self.metadata.clean or looped != self.metadata.looped:  # both before the page: else they would be wrong
            self._write_metadata(self.metadata._replace(clean=False, looped=looped))
        page = Page(pages.sequence(position, falling, count), falling, partial, self._next, self._apart)
        data = pages.packed_page(page, self.metadata.page_size, self.metadata.ring_id)
        self._pwrite(data, self._offset(position))
        self.head, self.falling = position, falling
        self._number += 1
        self._unread += 1
        self._next, self._used = [], 0
        num_pages = max(self.metadata.num_pages, min(NUM_PAGES_MAX, position + 1))
        if num_pages != self.metadata.num_pages:
            self._write_metadata(self.metadata._replace(num_pages=num_pages))

    def _drop_oldest(self, position: int) -> None:
        page = self._page(position)
        if page is not None:
            self.dropped += len(page.records) - self._skip
        else:
            self.damaged += 1
        self._unread -= 1
        self._skip = 0

    def _write_metadata(self, metadata: Metadata) -> None:
        metadata = metadata._replace(writes=metadata.writes + 1)
        self._pwrite(pages.packed_metadata(metadata), pages.SLOTS[metadata.writes % len(pages.SLOTS)])
        self.metadata = metadata

    def _pwrite(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self._file, view, offset)
            view, offset = view[done:], offset + done
        if self._sync:
            os.fdatasync(self._file)
        self.writes += 1

    def close(self, mark: Mark | None = None, keep_last: bool = False) -> None:
        """A clean end: the next `open` begins at `mark`, or where reading had come to. Raises OSError.

        keep_last: the page that was being filled is written; else its records are dropped, as the seed has it.
        """
        try:
            mark = mark or self.mark()
            if keep_last:
                self.flush()
            unread, record = self._number - mark.page + 1, mark.record
            if not self.holds(mark):
                unread, record = self.metadata.page_count, 0
            if self.head >= 0:
                found = self.metadata._replace(clean=True, head=self.head, unread=unread, record=record)
                if found != self.metadata:
                    self._write_metadata(found)
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def abandon(self) -> None:
        """Closes the file and writes nothing, as the end of the process would."""
        os.close(self._file)

    # -- reading

    def take(self) -> tuple[Mark | None, list[bytes]]:
        """The oldest records, and where they are: those of a page, or of the one being filled, which then need not be
        written (None); (None, []): there are none. Raises OSError: nothing is taken."""
        while self._unread:
            page, mark = self._page((self.head - self._unread + 1) % self.metadata.page_count), self.mark()
            self._unread -= 1
            self._skip = 0
            if page is None:
                self.damaged += 1
            elif records := page.records[mark.record :]:
                return mark, records
        records, self._next, self._used = self._next, [], 0
        return None, records

    def mark(self) -> Mark:
        """Where reading has come to."""
        return Mark(self._number - self._unread + 1, self._skip)

    def __bool__(self) -> bool:
        """Whether there is something to take, as far as is known without reading."""
        return bool(self._unread or self._next)

    def every_page(self) -> Iterator[tuple[int, Page | None, bool]]:
        """(position, page, whether nothing was ever written there) of all, in the order of the file."""
        for position in range(self.metadata.page_count):
            data = self._pread(position)
            page = self._checked(position, data)
            yield position, page, page is None and pages.is_blank(data)

    def last(self) -> bytes | None:
        """The newest record of a written page that is to be read."""
        page = self._page(self.head) if self._unread else None
        return page.records[-1] if page is not None and page.records else None

    def gaps(self) -> int:
        """Damaged pages that are to be read, but for those before the first whole one. Reads all of them."""
        count = self.metadata.page_count
        whole = [self._page((self.head - age) % count) is not None for age in range(self._unread - 1, -1, -1)]
        return whole[whole.index(True) :].count(False) if True in whole else len(whole)

    def begin_at_last_run(self) -> None:
        """Passes over the pages before the newest one that stands apart: what came between them is not in the ring."""
        count = self.metadata.page_count
        for age in range(self._unread):
            page = self._page((self.head - age) % count)
            if page is not None and page.apart:
                if age + 1 < self._unread:
                    self._unread, self._skip = age + 1, 0
                return

    def unread(self) -> int:
        """Written pages that are to be read."""
        return self._unread

    def holds(self, mark: Mark) -> bool:
        """Whether the page there has not been overwritten since."""
        return self._number - mark.page < self.metadata.page_count

    def unwritten(self) -> int:
        """Records of the page that is being filled."""
        return len(self._next)

    # -- finding head and tail

    def _find_head(self) -> tuple[int, bool]:
        """Position and direction of the newest page; (-1, False): there is none."""
        if not self.metadata.looped:
            return self._last_written()
        first = next((position for position in range(self.metadata.page_count) if self._page(position)), None)
        if first is None:
            return -1, False
        page = self._page(first)
        assert page is not None
        low, high = first, self.metadata.page_count - 1  # the head is in [low, high]
        while low < high:
            middle = (low + high + 1) // 2
            probe = next((at for at in range(middle, high + 1) if self._page(at) is not None), None)
            other = self._page(probe) if probe is not None else None
            if probe is not None and other is not None and other.falling == page.falling:
                low = probe
            else:
                high = middle - 1
        return low, page.falling

    def _last_written(self) -> tuple[int, bool]:
        """Of the first pass: nothing follows the head; blank pages and damaged ones may come before it.

        `num_pages` is written after its page, so there may be one more.
        """
        count, num_pages = self.metadata.page_count, self.metadata.num_pages
        most = count if num_pages == NUM_PAGES_MAX else min(num_pages + 1, count)
        for position in range(most - 1, -1, -1):
            if not pages.is_blank(os.pread(self._file, 16, self._offset(position))) and self._page(position):
                return position, False
        return -1, False

    def _find_tail(self) -> tuple[int, int]:
        """Unread pages, and how many records of the first of them were taken before a clean end."""
        metadata = self.metadata
        if metadata.clean and metadata.head == self.head:
            return metadata.unread, metadata.record
        return (metadata.page_count if self.metadata.looped else self.head + 1), 0

    # -- pages

    def _falls(self, position: int) -> bool:
        page = self._page(position)
        return page is not None and page.falling

    def _page(self, position: int) -> Page | None:
        return self._checked(position, self._pread(position))

    def _checked(self, position: int, data: bytes) -> Page | None:
        page = pages.unpacked_page(data, self.metadata.ring_id)
        if page and page.seq != pages.sequence(position, page.falling, self.metadata.page_count):
            return None
        return page

    def _pread(self, position: int) -> bytes:
        return os.pread(self._file, self.metadata.page_size, self._offset(position))

    def _offset(self, position: int) -> int:
        return pages.RESERVED_BYTES + position * self.metadata.page_size


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RingError(f"{path} is in use by another process; give this one a file of its own") from None
