"""How often clients and users have failed, in all receivers together, also after a reload: in memory that the processes
share which are forked from one.

A hash table of SLOTS names, each found among WINDOW slots from its place on; of the names there, the one that has been
added to least lately gives way. A name is read without asking anybody, and written under a lock on its window, which
the kernel lifts when its holder dies. Nothing of it is on disk.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zonemta_py.metrics.connections import WINDOW, place_of

FORGET_S = 900.0
"""Counted from the last failure."""
SLOTS = 16_384
_TIMES_BITS = 20
_TIMES_MAX = (1 << _TIMES_BITS) - 1


class NameTable:
    """Counts of names, with the time of the last one, in whole ms of a clock that all processes have in common."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = slots
        self._file = os.memfd_create("zonemta names")
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, 16 * slots)
        self._words = memoryview(mmap.mmap(self._file, 16 * slots)).cast("q")
        """The names' hashes; then their counts, each with its time above it, so that one write changes both."""

    def get(self, name: str) -> tuple[int, int]:
        """How often it was added, and when last; (0, 0): never."""
        slot = self._slot(*place_of(name, self._slots))
        return _apart(self._words[self._slots + slot]) if slot is not None else (0, 0)

    def add(self, name: str, now_ms: int, since_ms: int = 0) -> int:
        """since_ms: what is older has been forgotten. Returns the count with this one."""
        key, place = place_of(name, self._slots)
        with self._alone(place):
            slot = self._slot(key, place)
            if slot is None:
                slot = min(range(place, place + WINDOW), key=lambda one: self._words[self._slots + one])
                self._words[self._slots + slot] = 0  # nobody takes it for the new one's
                self._words[slot] = key
            times, last_ms = _apart(self._words[self._slots + slot])
            times = min(_TIMES_MAX, times + 1 if last_ms > since_ms else 1)
            self._words[self._slots + slot] = max(1, now_ms) << _TIMES_BITS | times
        return times

    def _slot(self, key: int, place: int) -> int | None:
        window = self._words[place : place + WINDOW].tolist()
        return place + window.index(key) if key in window else None

    @contextmanager
    def _alone(self, place: int) -> Iterator[None]:
        """No other process writes there."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, WINDOW, place)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, WINDOW, place)


def _apart(word: int) -> tuple[int, int]:
    return word & _TIMES_MAX, word >> _TIMES_BITS


class Failures:
    """Recent failures by name, and who has been where before. clock: seconds, the same for all processes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed, self._at_home = NameTable(), NameTable()

    def count(self, name: str) -> int:
        times, last_ms = self._failed.get(name)
        return times if last_ms > self._since_ms() else 0

    def add(self, name: str) -> int:
        """Returns the count with this one."""
        return self._failed.add(name, self._now_ms(), self._since_ms())

    def settle(self, user: str, network: str) -> None:
        """The user has logged in from there."""
        self._at_home.add(f"{user}\0{network}", self._now_ms())

    def at_home(self, user: str, network: str) -> bool:
        """Whether the user has logged in from there before."""
        return self._at_home.get(f"{user}\0{network}")[0] > 0

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _since_ms(self) -> int:
        return int((self._clock() - FORGET_S) * 1000)


SHARED = Failures()
"""Of this program: made before the first fork."""
