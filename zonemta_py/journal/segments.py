"""The journal: segment files that are the queue's source of truth, its audit log and the data pipeline's input at once.

Promise: what `Writer.write(…, sync=True)` returned for is on stable storage, in order, whatever happens next. A write
or sync that fails leaves nothing in doubt: the records since the last successful sync are written again into a new
file.

A file is named by the sequence number of its first record. A segment is what lies between two SEGMENT records; it is
one file, or several where a disk error cut it. Readers skip sequence numbers they have seen. Format: FORMAT.md,
`frame`. Failures: OSError from the disk; damage is reported as `Fault`s with file and offset, never raised.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.files import sync, write_file
from zonemta_py.disk.frame import BLOCK_BYTES, Damage, Record, frame, good_end, parse
from zonemta_py.disk.packing import unpack
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.files import END_BODY, LostRecord

log = logging.getLogger(__name__)

SUFFIX = ".journal"
SUMMARY = ".summary"
"""Suffix of the file beside an archived segment that has its numbers (`zonemta_py.summary`)."""
_NAME = re.compile(r"[0-9]{16}\+*\.journal")
_WINDOW_BYTES = 32 * BLOCK_BYTES


class Fault(NamedTuple):
    """What a reader could not read: in which file, at which byte, and what is wrong there."""

    path: Path
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}: at byte {self.offset}: {self.what}"


class Writer:
    """Appends records. Used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self._path, self._name = -1, folder, str(folder)
        self._offset = 0
        self._unsynced: list[Record] = []
        self._broken = False

    def write(self, records: list[Record], sync: bool) -> None:
        """Appends them; a record of Type.SEGMENT begins a new file. Raises OSError; call again with [] to retry."""
        self._unsynced += records
        if self._broken:
            self._start_over()
        else:
            try:
                self._append(records)
            except OSError:
                self._broken = True
                raise
        if sync:
            self._sync()

    def close(self) -> None:
        """What was not synced may be lost."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, records: list[Record]) -> None:
        start = 0
        for index, record in enumerate(records):
            if record.type == Type.SEGMENT or self._file < 0:
                self._put(records[start:index])
                self._open(record.seq)
                start = index
        self._put(records[start:])

    def _put(self, records: list[Record]) -> None:
        if records:
            data = frame(records, self._offset)
            written = os.write(self._file, data)
            if written < len(data):
                _write_all(self._file, data[written:])
            self._offset += len(data)

    def _sync(self) -> None:
        try:
            if self._file >= 0:
                os.fdatasync(self._file)
                self._put_back()
        except OSError:
            self._broken = True
            raise
        self._unsynced = []

    def _put_back(self) -> None:
        """If the file was removed or moved while it was being written, all its records are written again."""
        try:
            if os.stat(self._name).st_ino == os.fstat(self._file).st_ino:
                return
        except FileNotFoundError:
            pass
        log.warning("%s was removed while it was being written; it is created again", self._path)
        old, path = self._file, self._path
        self._file = -1
        try:
            self._make(path)
            _write_all(self._file, Path(f"/proc/self/fd/{old}").read_bytes())
            os.fdatasync(self._file)
        finally:
            os.close(old)

    def _start_over(self) -> None:
        """Writes everything since the last successful sync into a new file, and syncs that."""
        opened: list[Path] = []
        try:
            for records in _by_file(self._unsynced):
                opened.append(self._open(records[0].seq))
                self._put(records)
                os.fdatasync(self._file)
        except OSError:
            for path in opened:
                path.unlink(missing_ok=True)  # all of it is still in memory, and will be written again
            raise
        self._unsynced = []
        self._broken = False

    def _open(self, seq: int) -> Path:
        if self._file >= 0:
            old, self._file = self._file, -1
            try:
                if not self._broken:
                    os.fdatasync(old)
            finally:
                os.close(old)
        path = self.folder / f"{seq:016d}{SUFFIX}"
        while path.exists():  # a retry that failed in its turn; the reader takes each sequence number once
            path = path.with_name(path.name.replace(SUFFIX, f"+{SUFFIX}"))
        self._make(path)
        self._offset = 0
        return path

    def _make(self, path: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)  # it may have been removed meanwhile
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        self._path, self._name = path, str(path)
        sync(self.folder)


def _by_file(records: list[Record]) -> list[list[Record]]:
    """Each SEGMENT record begins a file: a file must not hold two segments, they are archived one by one."""
    rows: list[list[Record]] = []
    for record in records:
        if not rows or record.type == Type.SEGMENT:
            rows.append([])
        rows[-1].append(record)
    return rows


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def seal(path: Path, last: Record, now_ms: int) -> Record:
    """Closes a file that a crash left open: cuts its torn tail and appends an END record; returns the last record.

    `last`: its last whole record. No record is lost by the cut: a record is there whole, or nothing waited for it.
    """
    if last.type == Type.END:
        return last
    end = tail(path).end
    record = end_record(last.seq + 1, now_ms)
    with path.open("r+b") as file:
        file.truncate(end)
        file.seek(end)
        file.write(frame([record], end))
        file.flush()
        os.fsync(file.fileno())
    return record


def lost_record(first: int, last: int, ms: int = 0) -> Record:
    """The record that stands for those lost to damage."""
    return Record(last, ms, Type.LOST, LostRecord(first, last).pack())


def end_record(seq: int, ms: int = 0) -> Record:
    """The last record of a segment, or of a file that a crash left open."""
    return Record(seq, ms, Type.END, END_BODY)


class Tail(NamedTuple):
    """data: the file's bytes from `start` on, which is a block's boundary; end: where its last whole record ends."""

    start: int
    data: bytes
    end: int


def tail(path: Path) -> Tail:
    """The end of a file, from the last window that has the end of a whole record; what comes after that is torn."""
    start = max(0, path.stat().st_size - 1) // _WINDOW_BYTES * _WINDOW_BYTES
    data = _from_byte(path, start)
    if start and not good_end(data):
        start, data = 0, path.read_bytes()
    return Tail(start, data, start + good_end(data))


def _from_byte(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()


def repair(
    path: Path, expected: int, quarantine: Quarantine, faults: list[Fault], archive: Path | None = None, until: int = 0
) -> None:
    """Replaces a damaged file with every record that can still be read, and LOST records for the rest.

    expected: the sequence number that should follow the file before. The damaged file goes to quarantine with a note.
    archive: if the same file has a name there, that is replaced too. until: the record that follows this file, if it is
    known.
    """
    kept: list[Record] = []
    for record in read_file(path, []):
        if record.seq < expected:
            continue
        if record.seq > expected:
            kept.append(lost_record(expected, record.seq - 1, record.ms))
        kept.append(record)
        expected = record.seq + 1
    if expected < until:  # a segment ends with END
        if expected < until - 1:
            kept.append(lost_record(expected, until - 2))
        kept.append(end_record(until - 1))
    note = {
        "file": str(path),
        "faults": [str(fault) for fault in faults],
        "lost": [unpack(record.body) for record in kept if record.type == Type.LOST],
        "remedy": "none needed: the rest was kept; recipients whose results were lost may get their mail twice",
    }
    quarantine.copy("journal", note, [path])
    fresh = path.with_name(path.name + ".mending")
    write_file(fresh, frame(kept, 0))  # not `replace_file`: the archive's link must point to it first
    if archive is not None:
        _replace_link(path, fresh, archive / path.name)
    fresh.replace(path)
    sync(path.parent)


def _replace_link(path: Path, fresh: Path, second: Path) -> None:
    """Makes `second` another name of `fresh`, if it is one of `path` now."""
    if second == path or not second.exists() or not second.samefile(path):
        return
    linked = second.with_name(fresh.name)
    linked.unlink(missing_ok=True)  # a crash left it
    os.link(fresh, linked)
    linked.replace(second)


def files(folder: Path, archive: Path | None = None) -> list[Path]:
    """The segment files of a folder in the order of their records.

    With `archive`, also those archived files that come after the folder's oldest one: a segment leaves the journal as
    soon as its own mail has ended, and may hold the ends of mail whose envelopes are in older segments. A name that is
    in both folders is one segment.
    """
    if not folder.is_dir():
        return []
    found = sorted((path for path in folder.glob("*" + SUFFIX) if _NAME.fullmatch(path.name)), key=_order)
    if archive is not None and found:
        oldest, here = first_seq(found[0]), {path.name for path in found}
        gone = (path for path in files(archive) if first_seq(path) > oldest and path.name not in here)
        found = sorted([*found, *gone], key=_order)
    return found


def every_file(folder: Path, archive: Path) -> list[Path]:
    """The segment files of both folders in the order of their records, each segment once."""
    return sorted({path.name: path for path in [*files(archive), *files(folder)]}.values(), key=_order)


def _order(path: Path) -> tuple[int, int]:
    return first_seq(path), len(path.name)


def summary_of(path: Path) -> Path:
    """Where the summary of a segment is, if it has one."""
    return path.with_suffix(SUMMARY)


def first_seq(path: Path) -> int:
    """The sequence number a file is named by. Raises ValueError for a name that is not a segment's."""
    return int(path.name.removesuffix(SUFFIX).rstrip("+"))


def read(
    folder: Path, since_seq: int = 0, faults: list[Fault] | None = None, archive: Path | None = None
) -> Iterator[Record]:
    """All records with seq ≥ since_seq, in order, each once; `archive` as for `files`.

    Missing records are a fault; damage that lost no record (a torn tail that was written again into the next file) is
    not. Segments moved to the archive are not missing: each ends with an END record.
    """
    return read_files(files(folder, archive), since_seq, faults)


def read_files(paths: list[Path], since_seq: int = 0, faults: list[Fault] | None = None) -> Iterator[Record]:
    """The same of these files, which are in the order of their records."""
    found: list[Fault] = []
    expected, ended = 0, True
    for path in _from(paths, since_seq):
        if ended:  # what lies between has gone to the archive
            expected, ended = max(expected, first_seq(path)), False
        for record in read_file(path, found):
            if record.seq < expected:
                continue
            if record.seq > expected and record.type != Type.LOST:
                found.append(Fault(path, 0, f"records {expected} to {record.seq - 1} are missing"))
                if faults is not None:
                    faults += found
            found.clear()
            expected, ended = record.seq + 1, record.type == Type.END
            if record.seq >= since_seq:
                yield record
    if faults is not None:
        faults += found


def read_file(path: Path, faults: list[Fault]) -> Iterator[Record]:
    damages: list[Damage] = []
    yield from parse(path.read_bytes(), damages)
    faults += [Fault(path, damage.offset, damage.what) for damage in damages]


def _from(every: list[Path], since_seq: int) -> list[Path]:
    later = [index for index, path in enumerate(every) if first_seq(path) > since_seq]
    start = (later[0] - 1) if later else len(every) - 1
    return every[max(0, start) :]


def last_of(folder: Path, kind: Type) -> Record | None:
    """The latest record of that type, found from the end: a window of blocks that doubles until it holds one."""
    for path in reversed(files(folder)):
        size = start = path.stat().st_size
        window = _WINDOW_BYTES
        while start > 0:
            start = max(0, size - window) // BLOCK_BYTES * BLOCK_BYTES
            latest = [record for record in parse(_from_byte(path, start), []) if record.type == kind]
            if latest:
                return latest[-1]
            window *= 2
    return None


def span(path: Path) -> tuple[Record, Record] | None:
    """The first and the last record of a file that can be read; None: there is none. Reads a block of each end."""
    with path.open("rb") as file:
        data, first = b"", None
        while first is None and (more := file.read(BLOCK_BYTES)):
            data += more
            first = next(parse(data, []), None)
        if first is None:
            return None
        start, window = path.stat().st_size, BLOCK_BYTES
        while start > 0:
            start = max(0, start - window) // BLOCK_BYTES * BLOCK_BYTES
            window *= 2
            file.seek(start)
            if found := list(parse(file.read(), [])):
                return first, found[-1]
    return first, first


def positions(folder: Path) -> Iterator[Record]:
    """All position records, oldest first."""
    return (record for record in read(folder) if record.type == Type.POSITION)
