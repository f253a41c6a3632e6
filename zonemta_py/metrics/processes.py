"""Which processes run, how often each was started or has failed, and what they use.

The supervisor writes name, number, starts, failures and times into memory that all its children share; the queue's
process reads it, and from /proc what each uses. One slot has one writer; a reader may see a start half written, and the
next time it is whole. Failures: none; a process that has just ended is left out.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

_SLOT = struct.Struct("<32sIIIdd")
SLOTS = 256
"""The supervisor's processes: up to 64 receivers and as many senders, and some more."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """failures: ends that nobody asked for. started: UNIX time. failed: that of the last failure; 0: there was none.
    cpu_s: of the one that runs now."""

    name: str
    pid: int
    starts: int
    failures: int
    started: float
    failed: float
    cpu_s: float
    resident_bytes: int


class ProcessTable:
    """In memory that is shared with the processes forked from this one."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SLOTS * _SLOT.size)
        self._slots: dict[str, int] = {}

    def started(self, name: str, pid: int) -> None:
        """For the supervisor alone."""
        _, _, starts, failures, _, failed = self._of(name)
        self._put(name, pid, starts + 1, failures, time.time(), failed)

    def failed(self, name: str) -> None:
        """The same, of one that has ended by itself."""
        _, pid, starts, failures, started, _ = self._of(name)
        self._put(name, pid, starts, failures + 1, started, time.time())

    def _of(self, name: str) -> tuple[bytes, int, int, int, float, float]:
        slot = self._slots.setdefault(name, len(self._slots))
        return _SLOT.unpack_from(self._memory, slot * _SLOT.size) if slot < SLOTS else (b"", 0, 0, 0, 0.0, 0.0)

    def _put(self, name: str, *values: float) -> None:
        if self._slots[name] < SLOTS:
            _SLOT.pack_into(self._memory, self._slots[name] * _SLOT.size, name.encode()[:32], *values)

    def rows(self) -> Iterator[Process]:
        for slot in range(SLOTS):
            name, pid, starts, failures, started, failed = _SLOT.unpack_from(self._memory, slot * _SLOT.size)
            if not starts:
                return
            cpu_s, resident = used(pid)
            called = name.rstrip(b"\0").decode("ascii", "replace")
            yield Process(called, pid, starts, failures, started, failed, cpu_s, resident)


def used(pid: int) -> tuple[float, int]:
    """Seconds of processor time and resident bytes; (0, 0) of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0, 0
    return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * mmap.PAGESIZE


PROCESSES = ProcessTable()
"""Of this program: made before the first fork."""
