"""Events that a sink refuses for good: kept as JSON lines in `dead.jsonl` of its folder until somebody replays them.

A line: {"ms": when, "reason": …, "seq": …, "part": …, "event_ms": …, "event": the CloudEvent}. When the file grows
beyond its bound, its oldest quarter goes. The feed and a command may use the file at once: both hold its lock.
Failures: OSError.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.disk.files import replace_file
from zonemta_py.events import prepared
from zonemta_py.events.sinks.base import Ready

NAME, _LOCK = "dead.jsonl", "dead.lock"


class DeadLetter(NamedTuple):
    """ms: when it was refused, UNIX time. reason: why, one phrase."""

    ms: int
    reason: str
    ready: Ready


class DeadLetters:
    """folder: the sink's. bytes_max: of the file."""

    def __init__(self, folder: Path, bytes_max: int = 0) -> None:
        self._folder, self._path, self._bytes_max = folder, folder / NAME, bytes_max

    def add(self, letters: Sequence[DeadLetter]) -> int:
        """Returns how many of the oldest went for it."""
        lines = b"".join(map(_line, letters))
        with self._locked():
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                size = _append(file, lines)
            finally:
                os.close(file)
            return self._shorten() if self._bytes_max and size > self._bytes_max else 0

    def read(self) -> list[DeadLetter]:
        """The oldest first; lines that a crash has torn are left out."""
        with contextlib.suppress(FileNotFoundError):
            return list(filter(None, map(_letter, self._path.read_bytes().splitlines())))
        return []

    def remove(self, ids: set[str]) -> None:
        """Those that have been sent since."""
        if not ids:
            return
        with self._locked():
            kept = [letter for letter in self.read() if letter.ready.id not in ids]
            replace_file(self._path, b"".join(map(_line, kept)), 0o640)
            self._give(self._path)

    def change(self, line: Callable[[bytes], tuple[bytes, int]]) -> int:
        """line: of the file → what stands there instead, and how much of it is new. How many were changed."""
        if not self._path.exists():
            return 0
        with self._locked():
            found = [line(one) for one in self._path.read_bytes().splitlines(keepends=True)]
            changed = sum(bool(count) for _, count in found)
            if changed:
                replace_file(self._path, b"".join(fresh for fresh, _ in found), 0o640)
                self._give(self._path)
        return changed

    def _give(self, path: Path) -> None:
        """To whom the folder belongs, where a command of root's made it."""
        if os.geteuid() == 0:
            owner = self._folder.stat()
            os.chown(path, owner.st_uid, owner.st_gid)

    def _shorten(self) -> int:
        kept, size = list[bytes](), 0
        lines = self._path.read_bytes().splitlines(keepends=True)
        for line in reversed(lines):
            size += len(line)
            if size > self._bytes_max * 3 // 4:
                break
            kept.append(line)
        replace_file(self._path, b"".join(reversed(kept)), 0o640)
        return len(lines) - len(kept)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            self._give(self._folder / _LOCK)
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def _append(file: int, lines: bytes) -> int:
    """On stable storage, all or nothing, on lines of their own: a crash may have torn the one before. Returns the size
    of the file. Raises OSError."""
    before = os.fstat(file).st_size
    view = memoryview(lines if not before or os.pread(file, 1, before - 1) == b"\n" else b"\n" + lines)
    try:
        while view:
            view = view[os.write(file, view) :]
        os.fdatasync(file)
    except OSError:
        os.ftruncate(file, before)
        raise
    return os.fstat(file).st_size


def _line(letter: DeadLetter) -> bytes:
    ready = letter.ready
    head = {
        "ms": letter.ms, "reason": letter.reason, "seq": ready.seq, "part": ready.part, "event_ms": ready.ms,
    }  # fmt: skip
    return json.dumps(head).encode()[:-1] + b', "event": ' + ready.body + b"}\n"


def _letter(line: bytes) -> DeadLetter | None:
    try:
        row: dict[str, Any] = json.loads(line)
        ready = prepared.of_row(row["seq"], row["part"], row["event_ms"], row["event"])
        return DeadLetter(row["ms"], row["reason"], ready)
    except (ValueError, KeyError, TypeError):
        return None
