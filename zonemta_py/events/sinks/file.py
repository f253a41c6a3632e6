"""Events as lines of JSON in a file, which is rotated by size and day.

A batch has arrived when it is written, and on stable storage (`sync`). One that a full disk cuts is taken back, a line
that a crash has torn is cut off when the file is opened: it is sent again. FILE.1 is the newest old file, FILE.2 the
next; somebody else may rotate it as well, and another process of ours (`zonemta events replay`) write to it: whoever
writes has its lock. Work with the disk is done in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gzip
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import zstandard

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready, SinkDown

_SUFFIXES = {"": "", "gzip": ".gz", "zstd": ".zst"}
_WINDOW_BYTES = 64 * 1024


class FileSink:
    """One file. source is not needed: it is in every event."""

    def __init__(self, settings: EventSink, source: str) -> None:
        assert settings.path is not None
        self._settings, self._path = settings, settings.path
        self._file = -1
        self._day = ""
        self._work: asyncio.Future[None] | None = None

    async def open(self) -> None:
        await self._in_thread(self._open)

    async def send(self, batch: Sequence[Ready]) -> None:
        await self._in_thread(self._write, b"".join(ready.body + b"\n" for ready in batch))

    async def close(self) -> None:
        if self._work is not None:
            await asyncio.wait([self._work])
        if self._file >= 0:
            file, self._file = self._file, -1
            with contextlib.suppress(OSError):
                os.close(file)

    async def _in_thread(self, work: Callable[..., None], *arguments: object) -> None:
        """To its end even if nobody waits any more."""
        self._work = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
        try:
            await asyncio.shield(self._work)
        except OSError as error:
            raise SinkDown(f"{self._path}: {error.strerror or error}") from None

    # -- in the thread

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._open_end()
        self._lock()
        try:
            size = os.fstat(self._file).st_size
            whole = _whole(self._file, size)
            if whole < size:
                os.ftruncate(self._file, whole)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _open_end(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        found = os.fstat(self._file)
        self._day = _day(found.st_mtime if found.st_size else time.time())

    def _lock(self) -> None:
        """Of the file that has the name now."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        while not self._is_ours():
            os.close(self._file)
            self._open_end()
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def _write(self, data: bytes) -> None:
        self._lock()
        try:
            size = os.fstat(self._file).st_size
            if size and self._is_due(size + len(data)):
                self._rotate()
                size = os.fstat(self._file).st_size
            self._append(data, size)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _append(self, data: bytes, size: int) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
            if self._settings.sync:
                os.fdatasync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            raise

    def _is_ours(self) -> bool:
        """Whether the file of that name is the open one: somebody may have moved or removed it."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _is_due(self, size: int) -> bool:
        most = self._settings.rotate_bytes
        return bool(most and size > most) or (self._settings.rotate_daily and self._day != _day(time.time()))

    def _rotate(self) -> None:
        keep = self._settings.keep
        for number in range(keep, 0, -1):
            for suffix in _SUFFIXES.values():
                old = self._old(number, suffix)
                if not old.exists():
                    continue
                if number == keep:
                    old.unlink()
                else:
                    old.replace(self._old(number + 1, suffix))
        self._path.replace(self._old(1, ""))
        os.close(self._file)
        self._open_end()
        self._lock()
        if self._settings.compress:
            _compress(self._old(1, ""), self._settings.compress)

    def _old(self, number: int, suffix: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}{suffix}")


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def _whole(file: int, size: int) -> int:
    """Where its last whole line ends."""
    while size:
        start = max(0, size - _WINDOW_BYTES)
        found = os.pread(file, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


def _compress(path: Path, how: str) -> None:
    """A crash leaves the file as it was, and one beside it that the next rotation overwrites."""
    target = path.with_name(path.name + _SUFFIXES[how])
    fresh = target.with_name(target.name + ".new")
    with path.open("rb") as source, fresh.open("wb") as made:
        os.fchmod(made.fileno(), 0o640)
        if how == "gzip":
            with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=6) as packed:
                shutil.copyfileobj(source, packed, 1 << 20)
        else:
            zstandard.ZstdCompressor().copy_stream(source, made)
        made.flush()
        os.fsync(made.fileno())
    fresh.replace(target)
    path.unlink()
