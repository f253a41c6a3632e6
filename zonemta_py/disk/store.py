"""The store: LevelDB, and the only door to plyvel. One process may have it open.

Promise: `write` with sync=True returns only when the batch is on stable storage; a batch is there whole or not at all.
After any write error the store is fenced: LevelDB can lose later writes that it acknowledged, so every further write is
refused until `reopen` has closed and opened it again. Reads check their checksums.

Failures: StoreLocked (another process has it), StoreDamaged (checksum or structure: quarantine and repair),
StoreFailed (the disk said no; `full` tells whether for want of space), StoreFenced (nothing is known: ask again).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import plyvel

from zonemta_py.disk import mapping, store_log

Operation = tuple[bytes, bytes | None]
"""A key and its new value; None deletes it."""


WRITEBACK_BYTES = 128 * 1024
_SYNC_FILE_RANGE_WRITE = 2
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


class StoreFenced(StoreFailed):
    """It is about to be opened again after a write error; what is in it may be perfectly well."""


class Store:
    """An open LevelDB folder."""

    def __init__(self, folder: Path, write_buffer_bytes: int = 8 * 1024 * 1024) -> None:
        self.folder = folder
        self._buffer = write_buffer_bytes
        self.fenced = False
        mapping.forbid()
        folder.mkdir(parents=True, exist_ok=True)
        self._db = self._open()

    def _open(self) -> plyvel.DB:
        try:
            self._cut_hole()
            return plyvel.DB(
                str(self.folder),
                create_if_missing=True,
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

    def _cut_hole(self) -> None:
        """Drops the batches of a newer log whose predecessors a power cut took from an older one.

        None of them was acknowledged: `write` syncs the older logs before it returns. What is left is what there was.
        """
        with (self.folder / "LOCK").open("a") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return  # LevelDB says so itself
            needed = self._needed_logs()
            logs = [path.read_bytes() for path in needed] if len(needed) > 1 else []
            found = store_log.hole(logs)
            if found is None:
                return
            number, offset = found
            if any(store_log.mend(data) is not None for data in logs[:number]):  # no power cut: what follows is mail
                raise plyvel.CorruptionError(f"Corruption: a log before {needed[number].name} is damaged")
            for path in reversed(needed[number + 1 :]):
                path.unlink()
            os.truncate(needed[number], offset)

    def _needed_logs(self) -> list[Path]:
        try:
            manifest = os.fsdecode((self.folder / "CURRENT").read_bytes()).strip()
            oldest = store_log.oldest_needed((self.folder / manifest).read_bytes())
        except (OSError, ValueError):  # damaged: LevelDB says so itself
            return []
        logs = {int(path.stem): path for path in self.folder.glob("*.log") if path.stem.isdecimal()}
        return [logs[number] for number in sorted(logs) if number >= oldest]

    def get(self, key: bytes) -> bytes | None:
        self._not_fenced()
        try:
            return self._db.get(key, verify_checksums=True)  # type: ignore[no-any-return]
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from start (included) to stop (not included), in order."""
        self._not_fenced()
        try:
            with self._db.iterator(start=start, stop=stop, verify_checksums=True, fill_cache=False) as iterator:
                yield from iterator
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        self._not_fenced()
        try:
            with self._db.iterator(
                start=start, stop=stop, include_value=False, verify_checksums=True, fill_cache=False
            ) as iterator:
                yield from iterator
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    def first(self, start: bytes, stop: bytes) -> bytes | None:
        return next(iter(self.keys(start, stop)), None)

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        self._not_fenced()
        try:
            with self._db.iterator(
                start=start, stop=stop, reverse=True, include_value=False, verify_checksums=True, fill_cache=False
            ) as iterator:
                return next(iterator, None)
        except (plyvel.Error, RuntimeError) as error:
            raise _named(error, self.folder) from None

    def write(self, operations: Iterable[Operation], sync: bool) -> None:
        """One atomic batch. Raises StoreFailed or StoreDamaged, and is fenced from then on."""
        self._not_fenced()
        try:
            batch = self._db.write_batch(sync=sync)
            put, delete, size = batch.put, batch.delete, 0
            for key, value in operations:
                if value is None:
                    delete(key)
                else:
                    put(key, value)
                    size += len(value)
            batch.write()
            if sync:
                self._sync_older_logs()
            elif size > WRITEBACK_BYTES:
                self._sync_older_logs()
                self._start_writeback()
        except (plyvel.Error, RuntimeError, OSError) as error:
            self.fenced = True
            raise _named(error, self.folder) from None

    def _not_fenced(self) -> None:
        """While it is fenced another thread may close it at any moment; LevelDB does not survive a call after that."""
        if self.fenced:
            raise StoreFenced(f"{self.folder}: fenced after a write error; it will be opened again by itself")

    def _start_writeback(self) -> None:
        """Lets the disk begin with what was written, so that the sync at a large message's end finds little to do."""
        newest = max(name for name in os.listdir(self.folder) if name.endswith(".log"))
        file = os.open(self.folder / newest, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _LIBC.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
        finally:
            os.close(file)

    def _sync_older_logs(self) -> None:
        """LevelDB syncs its newest log only; unsynced writes before may be in one that is still being compacted."""
        logs = sorted(name for name in os.listdir(self.folder) if name.endswith(".log"))
        for name in logs[:-1]:
            try:
                file = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # it is in a table now, and that is synced
                continue
            try:
                os.fdatasync(file)
            finally:
                os.close(file)

    def reopen(self) -> None:
        """Closes and opens it again, which ends the fence. Raises what opening can raise; then it stays fenced."""
        self.fenced = True
        self._db.close()
        self._db = self._open()
        self.fenced = False

    def close(self) -> None:
        self._db.close()

    @staticmethod
    def cut_torn_log(folder: Path) -> bool:
        """Cuts off what a power cut left half written behind the last whole batch of all; False: it is not that."""
        *older, newest = sorted(folder.glob("*.log")) or [folder]
        if newest is folder or any(store_log.mend(path.read_bytes()) is not None for path in older):
            return False
        data = newest.read_bytes()
        mended = store_log.mend(data)
        if mended is None or not data.startswith(mended):
            return False
        os.truncate(newest, len(mended))
        return True

    @staticmethod
    def repair(folder: Path) -> None:
        """LevelDB's own repair: keeps every block whose checksum is right. Copy the folder to quarantine first."""
        for path in folder.glob("*.log"):
            mended = store_log.mend(path.read_bytes())
            if mended is not None:
                path.write_bytes(mended)
        try:
            plyvel.repair_db(str(folder), paranoid_checks=True, compression=None)
        except plyvel.Error as error:
            raise _named(error, folder) from None


def _named(error: Exception, folder: Path) -> StoreError:
    text = str(error)
    # A table that was cut off is an invalid argument to LevelDB, and a lost file an IO error like any other.
    reasons = ("Invalid argument", "No such file", "Is a directory")
    gone = any(reason in text for reason in reasons) and str(folder) in text
    if isinstance(error, plyvel.CorruptionError) or "Corruption" in text or gone:
        return StoreDamaged(
            f"{folder}: damaged ({text}); `zonemta fsck --repair` mends it, `zonemta run` does so itself"
        )
    if "lock" in text.lower() and "LOCK" in text:
        return StoreLocked(
            f"{folder}: another process has this queue open; stop that `zonemta run` or name another folder"
        )
    return StoreFailed(f"{folder}: {text}; free space or mend the disk, the queue goes on by itself")
