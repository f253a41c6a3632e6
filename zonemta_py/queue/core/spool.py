"""Mail that this node has accepted before its queue has it: of a node of a cluster, where a listener's `durability` is
"node".

Each message is a record of a file in `queues/spool/NUMBER/` of the node's folder, with its envelope and body, on stable
storage before its client hears 250. The batch that accepts it into the queue has a mark (`spooled <id>`), which stays
until the record is gone. So of each record it is certain whether the queue has, or had, its message: after any end of
the process, and of the node, those without a mark are accepted under their ids (`lifecycle/spooled.py`), the others are
not. The folder is the node's: it stays here when others have taken the queue over.

A file goes once the queue has all that is in it; then the marks go. The format is the journal's, of ENVELOPE records
with a body of their own. Failures: those of `JournalLine`: what the disk refuses waits, and is written into a new file.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from zonemta_py.disk import packing
from zonemta_py.disk.files import sync
from zonemta_py.journal import segments
from zonemta_py.journal.folders import FOLDER
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Fault, Writer
from zonemta_py.queue.core.commit import Hire, JournalLine, Thread

SPOOL = "spool"
LEFT = ".left"
"""Behind the number of a queue that another node had taken over: what its spool lacks there goes to another queue."""
FILE_BYTES = 4 * 1024 * 1024
IDLE_S = 5.0
"""So long after the last message the file is given up that all are through with."""


_TORN = "cut off"
"""A record that a crash has cut off: nobody has heard 250 for it."""


class Spooled(NamedTuple):
    """A message. envelope: as `Envelope.to_wire`. chunks: as they are stored. token: by which its receiver asks whether
    it was stored; receipt: the answer."""

    id: str
    envelope: list[Any]
    chunks: list[bytes]
    token: str
    receipt: list[Any]

    @property
    def size(self) -> int:
        return sum(map(len, self.chunks))

    @classmethod
    def of(cls, body: bytes) -> Self:
        return cls(*packing.unpack(body)[:5])


class _File:
    __slots__ = ("bytes", "first", "ids", "open")

    def __init__(self, first: int) -> None:
        self.first, self.bytes = first, 0
        self.ids = list[str]()
        self.open = dict[str, int]()
        """Those that the queue does not have yet, with their sizes."""


def folder_of(folder: Path, number: int) -> Path:
    """folder: the node's."""
    return folder / FOLDER / SPOOL / str(number)


class Spool:
    """Of one queue. most_bytes: of bodies that the queue does not have. gone: hears of messages whose records are
    gone."""

    def __init__(
        self, folder: Path, most_bytes: int, now_ms: Callable[[], int], gone: Callable[[list[str]], None],
        hire: Hire = Thread,
    ) -> None:  # fmt: skip
        """Raises OSError."""
        self._folder, self.most_bytes, self._now_ms, self._gone = folder, most_bytes, now_ms, gone
        self._lock = _locked(folder)
        faults: list[Fault] = []
        self._files = list[_File]()
        self._current: _File | None = None
        self._where = dict[str, _File]()
        self._loop = asyncio.get_running_loop()
        self._idle: asyncio.TimerHandle | None = None
        self._removing: set[asyncio.Task[None]] = set()
        self.bytes = 0
        self._writer, last = Writer(folder), 0
        self.before = dict[str, Spooled]()
        """What an earlier process has left, by id."""
        for path in segments.files(folder):
            file = _File(segments.first_seq(path))
            for record in segments.read_file(path, faults):
                last = max(last, record.seq)
                if record.type == Type.ENVELOPE:
                    one = Spooled.of(record.body)
                    self.before[one.id] = one
                    self._add(file, one)
            last = max(last, file.first)
            self._files.append(file)
        self.faults = [fault for fault in faults if fault.what != _TORN]
        """What cannot be read of what an earlier process has left."""
        self._line = JournalLine(self._writer, last + 1, hire)

    @property
    def count(self) -> int:
        """Messages that the queue does not have yet."""
        return len(self._where)

    def has(self, message_id: str) -> bool:
        return any(message_id in file.ids for file in self._files)

    def has_room(self, size: int) -> bool:
        return self.bytes + size <= self.most_bytes and self._line.trouble is None

    def put(self, one: Spooled, then: Callable[[], None]) -> None:
        """Calls `then` once it is on stable storage."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        file = self._current
        if file is None or file.bytes > FILE_BYTES:
            file = self._current = _File(self._line.append(Type.SEGMENT, b"", self._now_ms(), awaited=True))
            self._files.append(file)
            self._look()
        self._line.append(Type.ENVELOPE, packing.pack(one), self._now_ms(), awaited=True)
        self._add(file, one)
        self._line.when_stable(then)

    def _add(self, file: _File, one: Spooled) -> None:
        file.ids.append(one.id)
        file.open[one.id] = one.size
        file.bytes += one.size
        self.bytes += one.size
        self._where[one.id] = file

    def done(self, message_id: str) -> None:
        """The queue has it, or had it."""
        file = self._where.pop(message_id)
        self.bytes -= file.open.pop(message_id)
        if not file.open and file is not self._current:
            self._look()
        elif not self._where and self._idle is None:
            self._idle = self._loop.call_later(IDLE_S, self._rest)

    def _rest(self) -> None:
        self._idle = None
        if not self._where:
            self._current = None
            self._look()

    def _look(self) -> None:
        """Files that nobody needs go."""
        over = [file for file in self._files if not file.open and file is not self._current]
        for file in over:
            following = (other.first for other in self._files if other.first > file.first)
            stop = min(following, default=self._line.next_seq)
            self._files.remove(file)
            task = self._loop.create_task(self._remove(file, stop))
            self._removing.add(task)
            task.add_done_callback(self._removing.discard)

    def tidy(self) -> None:
        """After a start: files that hold nothing go."""
        self._look()

    async def _remove(self, file: _File, stop: int) -> None:
        await asyncio.to_thread(_removed, self._folder, file.first, stop)
        if file.ids:
            self._gone(file.ids)

    def close(self) -> None:
        self._line.close()
        os.close(self._lock)


def _removed(folder: Path, first: int, stop: int) -> None:
    for path in segments.files(folder):
        if first <= segments.first_seq(path) < stop:
            path.unlink(missing_ok=True)
    sync(folder)


def _locked(folder: Path, wait: bool = True) -> int:
    """The folder, made if need be, and open for nobody else who asks here. Raises OSError: it is in use."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.fstat(file).st_ino == folder.stat().st_ino:
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def left(folder: Path, numbers: Iterable[int]) -> list[Path]:
    """Spools of queues that are not the node's any more, under names that no queue's process has. folder: the node's;
    numbers: of its queues. Raises OSError."""
    place, own = folder / FOLDER / SPOOL, set(map(str, numbers))
    if not place.is_dir():
        return []
    for path in place.iterdir():
        if path.name.isdigit() and path.name not in own:
            try:
                lock = _locked(path, wait=False)
            except BlockingIOError:  # its process is about to end
                continue
            path.rename(path.with_name(f"{path.name}{LEFT}-{time.time_ns()}"))
            os.close(lock)
            sync(place)
    return left_before(folder)


def left_before(folder: Path) -> list[Path]:
    """Those that have such names already. Raises OSError."""
    place = folder / FOLDER / SPOOL
    return sorted(path for path in place.iterdir() if LEFT in path.name) if place.is_dir() else []


def read(folder: Path) -> list[Spooled]:
    """What it holds. Raises OSError."""
    found = dict[str, Spooled]()
    for path in segments.files(folder):
        for record in segments.read_file(path, []):
            if record.type == Type.ENVELOPE:
                one = Spooled.of(record.body)
                found[one.id] = one
    return list(found.values())
