"""The store: LevelDB, through the only module that imports plyvel. One process may have it open.

Promise: `write` with sync=True returns only when the batch is on stable storage; a batch is there whole or not at all.
After any write error the store is fenced: LevelDB can lose later writes that it acknowledged, so every further write is
refused until `reopen` has closed and opened it again. Reads check their checksums. A store is created only in a
folder that holds no part of one; LevelDB sees its logs only after they were read here (`leveldb.log`), because it takes
much damage for a crash's tear, and deletes what it does not need.

Failures: StoreLocked (another process has it), StoreDamaged (checksum or structure: quarantine and repair),
StoreFailed (the disk refused; `full`: for lack of space), StoreFenced (the outcome is unknown: ask again).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import plyvel

from zonemta_py.disk import keys
from zonemta_py.disk.files import replace_file
from zonemta_py.disk.leveldb import log as store_log
from zonemta_py.disk.leveldb import mapping, remains
from zonemta_py.disk.leveldb.instant import Instant, KeptInstant
from zonemta_py.disk.leveldb.log import Log

Operation = tuple[bytes, bytes | None]
"""A key and its new value; None deletes it."""


Cut = Callable[[Path, int, bytes], None]
"""Told before a log loses bytes that a power cut left behind: the file, where it will end, and the bytes."""

_ROWS_MAX = 64
WRITEBACK_BYTES = 128 * 1024
_SYNC_FILE_RANGE_WRITE = 2
_PLACED = frozenset(family[:4] for family in keys.PLACED)
_LIBC = ctypes.CDLL(None, use_errno=True)


class StoreError(Exception):
    """One sentence with the remedy."""


class StoreLocked(StoreError):
    pass


class StoreDamaged(StoreError):
    pass


class StoreFailed(StoreError):
    @property
    def full(self) -> bool:
        return "No space left" in str(self) or "Disk quota" in str(self)


class StoreUnreadable(StoreFailed):
    """The disk, or the file system, does not give what is there, and no later try will, until somebody repairs it."""


class StoreFenced(StoreFailed):
    """It is about to be reopened after a write error, which it names; its contents may be undamaged."""


class Store:
    """An open LevelDB folder."""

    def __init__(
        self,
        folder: Path,
        write_buffer_bytes: int = 8 * 1024 * 1024,
        acknowledged: int = 0,
        cut: Cut = lambda path, end, data: None,
    ) -> None:
        """acknowledged: the last batch that was reported to be on stable storage (`receipts`)."""
        self.folder = folder
        self._buffer, self._acknowledged, self._cut = write_buffer_bytes, acknowledged, cut
        self._newest = _log_order("")
        self.fenced, self._cause = False, ""
        mapping.forbid()
        folder.mkdir(parents=True, exist_ok=True)
        self._reading = threading.RLock()
        """The garbage collector may end a walk within a read of the same thread."""
        self._compacting = threading.Lock()
        """LevelDB crashes if it is closed meanwhile."""
        self._db = self._open()

    def _open(self) -> plyvel.DB:
        try:
            return self._try_to_open()
        except StoreFailed as error:
            if not error.full or not self._drop_unfinished():
                raise
            return self._try_to_open()

    def _drop_unfinished(self) -> int:
        """Removes tables that a compaction or a flush without room has left, as LevelDB does itself once it is open:
        what was to be in them is in other tables and the logs still. But it has to write before it comes to that.
        Returns how many.
        """
        try:
            manifest = os.fsdecode((self.folder / "CURRENT").read_bytes()).strip()
            known = store_log.tables((self.folder / manifest).read_bytes())
        except (OSError, ValueError):
            return 0
        paths = [path for path in self.folder.glob("*.ldb") if path.stem.isdecimal()]
        unfinished = [path for path in paths if known is not None and int(path.stem) not in known]
        for path in unfinished:
            path.unlink()
        return len(unfinished)

    def _try_to_open(self) -> plyvel.DB:
        try:
            new = self._look()
            db = plyvel.DB(
                str(self.folder),
                create_if_missing=new,
                paranoid_checks=True,
                compression=None,
                write_buffer_size=self._buffer,
                max_open_files=74,
                max_file_size=2 * 1024 * 1024,
                lru_cache_size=2 * 1024 * 1024,
                bloom_filter_bits=10,
            )
        except (plyvel.Error, OSError) as error:
            raise _named(error, self.folder) from None
        self._newest, self._acknowledged = _log_order(""), 0
        return db

    def _look(self) -> bool:
        """Reads what LevelDB is about to read; True: there is no store yet. Raises CorruptionError, OSError."""
        with (self.folder / "LOCK").open("a") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False  # LevelDB reports that itself
            if is_empty(self.folder):
                return True
            paths = self._needed_logs()
            logs = [store_log.read(path.read_bytes()) for path in paths]
            for path, log in zip(paths, logs, strict=True):
                if log.damaged:
                    raise plyvel.CorruptionError(f"Corruption: {path.name} is damaged")
            self._repair_tears(paths, logs)
            last = _last_number(logs)
            if 0 < last < self._acknowledged:
                raise plyvel.CorruptionError(
                    f"Corruption: the end of {paths[-1].name} is missing, from batch {last + 1} on"
                )
        return False

    def _needed_logs(self) -> list[Path]:
        if not (self.folder / "CURRENT").exists():
            raise plyvel.CorruptionError("Corruption: CURRENT is gone")
        try:
            manifest = os.fsdecode((self.folder / "CURRENT").read_bytes()).strip()
            oldest = store_log.oldest_needed((self.folder / manifest).read_bytes())
        except (OSError, ValueError):  # damaged: LevelDB reports that itself
            return []
        logs = {int(path.stem): path for path in self.folder.glob("*.log") if path.stem.isdecimal()}
        if oldest and oldest not in logs:  # LevelDB would go on without it, and delete tables that it does not know
            raise plyvel.CorruptionError(f"Corruption: {oldest:06d}.log is gone, or the end of {manifest}")
        return [logs[number] for number in sorted(logs) if number >= oldest]

    def _repair_tears(self, paths: list[Path], logs: list[Log]) -> None:
        """Cuts what LevelDB would take for damage, or would not miss, though only a power cut has been there.

        LevelDB syncs its newest log only: a power cut can leave later batches without the earlier ones. None of them
        was acknowledged: `write` syncs the older logs before it returns. What is left is what there was.
        """
        found = store_log.gap(logs)
        if found is not None:
            number, offset = found
            before = [*logs[:number], logs[number]._replace(batches=_until(logs[number], offset))]
            if any(log.tail for log in logs[:number]) or self._acknowledged > _last_number(before):
                raise plyvel.CorruptionError(f"Corruption: batches before {paths[number].name} are missing")
            for path in reversed(paths[number + 1 :]):
                self._cut(path, 0, path.read_bytes())
                path.unlink()
            self._truncate(paths[number], offset)
        elif logs and logs[-1].holes:
            self._truncate(paths[-1], logs[-1].end)

    def _truncate(self, path: Path, end: int) -> None:
        self._cut(path, end, path.read_bytes()[end:])
        os.truncate(path, end)

    def get(self, key: bytes) -> bytes | None:
        try:
            with self._reading:
                self._not_fenced()
                return self._db.get(key, verify_checksums=True)  # type: ignore[no-any-return]
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from start (included) to stop (not included), in order."""
        return self._walk(start=start, stop=stop)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        return self._walk(start=start, stop=stop, include_value=False)

    def first(self, start: bytes, stop: bytes) -> bytes | None:
        return next(self.keys(start, stop), None)

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        return next(self._walk(start=start, stop=stop, include_value=False, reverse=True), None)

    def _walk(self, **options: Any) -> Iterator[Any]:
        """Some rows at a time, the first alone: in between the store may be fenced and closed."""
        try:
            with self._reading:
                self._not_fenced()
                iterator = self._db.iterator(verify_checksums=True, fill_cache=False, **options)
            count, more = 1, True
            try:
                while more:
                    with self._reading:
                        self._not_fenced()
                        rows = list(islice(iterator, count))
                    yield from rows
                    count, more = min(_ROWS_MAX, 4 * count), len(rows) == count
            finally:
                with self._reading:
                    if not self.fenced:  # else it is closed with the store
                        iterator.close()
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    @contextmanager
    def instant(self, kept: KeptInstant | None = None) -> Iterator[Instant]:
        """All keys as they are now, or were, if kept, for some ms: meanwhile other threads write, but do not read.

        What is read key by key, and moves from one range to another meanwhile, may be found in both, or in neither.
        """
        try:
            with self._reading:
                self._not_fenced()
                snapshot = self._db.snapshot() if kept is None else kept.of(self._db)
                try:
                    yield Instant(snapshot)
                finally:
                    if kept is None:
                        snapshot.close()
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    def write(self, operations: Iterable[Operation], sync: bool) -> None:
        """One atomic batch; the index of deferred and parked recipients follows their keys. Raises StoreFailed or
        StoreDamaged, and is fenced from then on."""
        self._not_fenced()
        try:
            batch = self._db.write_batch(sync=sync)
            put, delete = batch.put, batch.delete
            for key, value in operations:
                if value is None:
                    delete(key)
                else:
                    put(key, value)
                if key[:4] in _PLACED:
                    index = keys.index_of(key)
                    delete(index) if value is None else put(index, b"")
            batch.write()
            if sync:
                self._sync_older_logs()
            elif bytes_of(operations) > WRITEBACK_BYTES:
                self._sync_older_logs()
                self._start_writeback()
        except (plyvel.Error, RuntimeError, OSError) as error:
            self._cause, self.fenced = str(error), True
            raise _named(error, self.folder) from None

    def _not_fenced(self) -> None:
        """While it is fenced another thread may close it at any moment; LevelDB does not survive a call then.

        Readers check in `_reading`, which the closing thread has held once after the fence.
        """
        if self.fenced:
            raise StoreFenced(f"{self.folder}: fenced after a write error ({self._cause}); it will be reopened")

    def _start_writeback(self) -> None:
        """Lets the disk begin with what was written, so that the sync at a large message's end finds little to do."""
        file = os.open(self.folder / self._logs()[-1], os.O_RDONLY | os.O_CLOEXEC)
        try:
            _LIBC.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
        finally:
            os.close(file)

    def _sync_older_logs(self) -> None:
        """LevelDB syncs its newest log only; unsynced writes before may be in one that is still being compacted."""
        for name in self._logs()[:-1]:
            try:
                file = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # it is in a table now, and that is synced
                continue
            try:
                os.fdatasync(file)
            finally:
                os.close(file)

    def _logs(self) -> list[str]:
        """The logs' names, the newest one last. Raises CorruptionError if somebody has removed that."""
        logs = [name for name in os.listdir(self.folder) if name.endswith(".log")]
        if len(logs) == 1 and logs[0] == self._newest[1]:
            return logs
        logs.sort(key=_log_order)
        if not logs or _log_order(logs[-1]) < self._newest:
            self._db.compact_range(start=b"\xff", stop=b"\xff\xff")  # what was in it is in memory: makes a table of it
            raise plyvel.CorruptionError("Corruption: the log that was being written is gone")
        self._newest = _log_order(logs[-1])
        return logs

    def compact(self, start: bytes, stop: bytes) -> None:
        """Rewrites the live values of a range of keys, without what was deleted. Slow; other threads continue."""
        with self._compacting:
            if not self.fenced:
                self._db.compact_range(start=start, stop=stop)

    def table_bytes(self) -> int:
        """Bytes that LevelDB's tables take on disk."""
        with os.scandir(self.folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".ldb"))

    def reopen(self) -> None:
        """Closes and opens it again, which ends the fence. Raises what opening can raise; then it stays fenced."""
        self.fenced = True
        with self._reading:
            pass  # threads that were reading have left, and new ones find the fence
        with self._compacting:
            self._db.close()
            self._db = self._open()
        self.fenced = False

    def close(self) -> None:
        with self._compacting:
            self._db.close()

    @staticmethod
    def repair(folder: Path) -> None:
        """LevelDB's own repair: keeps every block whose checksum is right. Copy the folder to quarantine first."""
        for path in folder.glob("*.log"):
            repaired = store_log.repair(path.read_bytes())
            if repaired is not None:
                replace_file(path, repaired)  # whole or not at all: it may be mail that is nowhere else
        try:
            plyvel.repair_db(str(folder), paranoid_checks=True, compression=None)
        except plyvel.Error as error:
            raise _named(error, folder) from None

    @staticmethod
    def lost_from_logs(folder: Path) -> dict[str, dict[str, Any]]:
        """What damaged and unfinished batches in the logs say of mail, by message (`remains`). Raises OSError."""
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("*.log")):
            log = store_log.read(path.read_bytes())
            for data in [*log.lost, log.tail]:
                found |= remains.messages(data)
        return found


def bytes_of(operations: Iterable[Operation]) -> int:
    """Of their keys and values."""
    return sum(map(len, filter(None, chain.from_iterable(operations))))


def is_empty(folder: Path) -> bool:
    """Whether the folder holds no store, nor part of one. A crash while it was made leaves a first manifest only."""
    if (folder / "CURRENT").exists() or any(path.suffix in (".ldb", ".sst", ".log") for path in folder.glob("*.*")):
        return False
    return not any(store_log.oldest_needed(path.read_bytes()) for path in folder.glob("MANIFEST-*"))


def _last_number(logs: list[Log]) -> int:
    """Of the last batch that says its number; 0: none does."""
    batches = (batch for log in reversed(logs) for _, batch in reversed(log.batches))
    return next((number for batch in batches if (number := remains.number(batch))), 0)


def _until(log: Log, offset: int) -> list[tuple[int, bytes]]:
    return [row for row in log.batches if row[0] < offset]


def _log_order(name: str) -> tuple[int, str]:
    """LevelDB's numbers have six digits, and more from a million on."""
    return len(name), name


def _named(error: Exception, folder: Path) -> StoreError:
    text = str(error)
    # A table that was cut off is an invalid argument to LevelDB, and a lost file an IO error like any other.
    reasons = ("Invalid argument", "No such file", "Is a directory")
    gone = any(reason in text for reason in reasons) and str(folder) in text
    if isinstance(error, plyvel.CorruptionError) or "Corruption" in text or gone:
        return StoreDamaged(
            f"{folder}: damaged ({text}); `zonemta fsck --repair` repairs it, and so does `zonemta run`"
        )
    if "lock" in text.lower() and "LOCK" in text:
        return StoreLocked(
            f"{folder}: another process has this queue open; stop that `zonemta run` or name another folder"
        )
    return StoreFailed(f"{folder}: {text}; free space or repair the disk; the queue then continues by itself")
