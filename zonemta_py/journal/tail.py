"""Reading on in the journal while it is written: every record once, in order, from wherever one was.

Promise: `read` returns the stable records that follow those it returned before, whatever happens to the files: a
segment that is closed, linked into the archive, moved there, repaired or rewritten under its name, a file that was
written again after a disk error, one that was removed and put back. What was never stable is not read, so a number that
a crash gives to another record is no matter. Records that damage has destroyed, or that somebody deleted, come as one
LOST record, the same that a repair would write; those that the archive no longer keeps are counted in `missed`.

Only what is new is read: the block where the next record begins is remembered, and the folders are looked through only
at a file's end. Not for several threads at once. Failures: OSError of the disk; the next call tries again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from zonemta_py.disk.frame import BLOCK_BYTES, Record, placed
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

log = logging.getLogger(__name__)

WINDOW_BYTES = 8 * BLOCK_BYTES
_LISTINGS = 5
"""A file may leave between a look at its folder and opening it; it is found at the next look."""


class JournalTail:
    """folder: the queue's. next_seq: the record that comes next. missed: how many records the archive had no longer."""

    def __init__(self, folder: Path, since_seq: int = 0) -> None:
        self._journal, self._archive = folder / "journal", folder / "archive"
        self.next_seq = max(since_seq, 1)
        self.missed = 0
        self._path: Path | None = None
        self._file = -1
        self._at = 0
        """A block's boundary; what begins before it has been returned."""

    def close(self) -> None:
        """It can be read on all the same."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._path = -1, None

    def read(self, until_seq: int, most: int) -> list[Record]:
        """At most so many records (and one LOST), up to that number; [] if there are none yet.

        until_seq: the last one that is stable (the queue's answer to "stable").
        """
        found: list[Record] = []
        if self._file >= 0 and not self._same():
            self.close()
        while self.next_seq <= until_seq and len(found) < most:
            if self._file < 0 and not self._open():
                if not self._skip(until_seq, found):
                    break
                continue
            before = self.next_seq
            ended = self._take(until_seq, most, found)
            if self.next_seq > until_seq or len(found) >= most:
                break
            if ended or self.next_seq == before:
                self.close()
            if self.next_seq == before and not self._elsewhere(before) and not self._skip(until_seq, found):
                break
        return found

    # -- the file that is read

    def _same(self) -> bool:
        """Whether its name still means this file."""
        try:
            return self._path is not None and os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _take(self, until_seq: int, most: int, found: list[Record]) -> bool:
        """Takes what follows in the file; True: its END was among it."""
        size = WINDOW_BYTES
        while True:
            data = os.pread(self._file, size, self._at)
            begin, before = 0, self.next_seq
            for offset, record in placed(data, []):
                begin = offset
                if record.seq < self.next_seq:
                    continue
                if record.seq > until_seq or len(found) >= most:
                    break
                if record.seq > self.next_seq and not self._bridged(record):
                    return False
                found.append(record)
                self.next_seq = record.seq + 1
                if record.type == Type.END:
                    return True
            else:
                if len(data) == size:  # there is more
                    if begin < BLOCK_BYTES and self.next_seq == before:  # one record is longer than all this
                        size *= 2
                        continue
                    self._at += begin // BLOCK_BYTES * BLOCK_BYTES
                    size = WINDOW_BYTES
                    continue
            self._at += begin // BLOCK_BYTES * BLOCK_BYTES
            return False

    def _bridged(self, record: Record) -> bool:
        """Whether it stands for all that is missing before it."""
        return record.type == Type.LOST and int(unpack(record.body)[0]) <= self.next_seq

    # -- which file is next

    def _paths(self) -> list[Path]:
        """All files in the order of their records. The archive is listed last: files only move that way."""
        rows = {path.name: path for path in segments.files(self._journal)}
        for path in segments.files(self._archive):
            rows.setdefault(path.name, path)
        return sorted(rows.values(), key=lambda path: (segments.first_seq(path), len(path.name)))

    def _open(self) -> bool:
        """Opens the last file that begins at or before the next record; False: there is none."""
        for _ in range(_LISTINGS):
            early = [path for path in self._paths() if segments.first_seq(path) <= self.next_seq]
            if not early:
                return False
            if self._opened(early[-1]):
                return True
        return False

    def _opened(self, path: Path) -> bool:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._path = path
        self._at = self._block_of(self.next_seq)
        return True

    def _block_of(self, seq: int) -> int:
        """A block's boundary that no record from `seq` on begins before; found by bisection, for records rise."""
        low, high = 0, os.fstat(self._file).st_size // BLOCK_BYTES
        while low < high:
            middle = (low + high + 1) // 2
            first = self._first_from(middle * BLOCK_BYTES)
            if first is not None and first <= seq:
                low = middle
            else:
                high = middle - 1
        return low * BLOCK_BYTES

    def _first_from(self, at: int) -> int | None:
        size = BLOCK_BYTES
        while True:
            data = os.pread(self._file, size, at)
            for _, record in placed(data, []):
                return record.seq
            if len(data) < size:
                return None
            size *= 2

    def _elsewhere(self, seq: int) -> bool:
        """Whether another file has the record: one that was cut by a disk error is followed by one that begins with
        what was not synced, and one that was damaged may be followed by its repair. If so it is open now."""
        for path in reversed([path for path in self._paths() if segments.first_seq(path) <= seq]):
            if self._opened(path):
                for row in self._records():
                    if row.seq == seq or (row.seq > seq and self._bridged(row)):
                        return True
                    if row.seq > seq:
                        break
            self.close()
        return False

    def _records(self) -> Iterator[Record]:
        """Of the open file, from the remembered block on."""
        at, size = self._at, WINDOW_BYTES
        while True:
            data = os.pread(self._file, size, at)
            begin = 0
            for offset, row in placed(data, []):
                begin = offset
                yield row
            if len(data) < size:
                return
            if begin < BLOCK_BYTES:
                size *= 2
            at += begin // BLOCK_BYTES * BLOCK_BYTES

    # -- what is missing

    def _skip(self, until_seq: int, found: list[Record]) -> bool:
        """The next record is nowhere: goes on with the first one behind it that is; False: there is none yet."""
        paths = self._paths()
        first = min(map(segments.first_seq, paths), default=0)
        if first > self.next_seq:  # the archive keeps only so much
            self.missed += min(first, until_seq + 1) - self.next_seq
            self.next_seq = min(first, until_seq + 1)
            return True
        row = self._following(paths)
        if row is None:
            return False
        if self._bridged(row):
            self.next_seq = row.seq
            return True
        last = min(row.seq - 1, until_seq)
        log.warning("%s: records %d to %d cannot be read; run `zonemta fsck`", self._journal, self.next_seq, last)
        found.append(segments.lost_record(self.next_seq, last, row.ms))
        self.next_seq = last + 1
        return True

    def _following(self, paths: list[Path]) -> Record | None:
        """The first record behind the next one that can be read."""
        early = [path for path in paths if segments.first_seq(path) <= self.next_seq][-1:]
        for path in [*early, *(path for path in paths if segments.first_seq(path) > self.next_seq)]:
            if self._opened(path):
                later = next((row for row in self._records() if row.seq > self.next_seq), None)
                self.close()
                if later is not None:
                    return later
        return None


def last_seq(folder: Path) -> int:
    """The number of the journal's last whole record, for a queue that does not run; 0: there is none."""
    for path in reversed(segments.files(folder / "journal") or segments.files(folder / "archive")):
        last = 0
        for _, record in placed(segments.tail(path).data, []):
            last = record.seq
        if last:
            return last
    return 0


def seq_at(folder: Path, ms: int) -> int:
    """A number that no record of that time or later lies before, unless the clock was set; 1 if there are none."""
    for path in reversed(segments.every_file(folder / "journal", folder / "archive")):
        first = _first_of(path)
        if first is not None and first.ms <= ms:
            return first.seq
    return 1


def _first_of(path: Path) -> Record | None:
    try:
        with path.open("rb") as file:
            head = file.read(BLOCK_BYTES)
    except FileNotFoundError:  # it has just left the archive
        return None
    return next((record for _, record in placed(head, [])), None)
