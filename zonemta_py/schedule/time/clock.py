"""Time: the clock that tests replace, and what is to happen at a moment.

Steady seconds never step, and continue across a restart, so that the saved state of limits stays valid: `steady.py`
has the rule.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path


class Clock:
    """Time as the queue sees it; tests give another."""

    def ms(self) -> int:
        """UNIX time in milliseconds."""
        return int(time.time() * 1000)

    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Seconds that count on while the machine runs. Read several times for each message, so without a step between."""

    def steady(self) -> float:
        """Seconds that never step; see `steady.py`."""
        return self.ms() / 1000

    def boot(self) -> str:
        """Which start of the machine `monotonic` counts from; "" if unknown."""
        return _boot()

    def random(self) -> float:
        return random.random()


@lru_cache(1)
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


AT_ONCE = 2_000
"""Calls after which the event loop has its turn: a stop's end may concern 100,000 destinations."""


class Timers:
    """Calls at a moment of steady seconds; they run when `wake` is called."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = clock.ms
        self.now = clock.steady
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._soon: list[Callable[[], None]] = []
        self._count = 0

    def soon(self, then: Callable[[], None]) -> None:
        """Calls `then` at the next `wake`, for which there is no wait."""
        self._soon.append(then)

    def wake_at(self, when: float, then: Callable[[], None]) -> None:
        """Calls `then` at that time (inf: never)."""
        if when != math.inf:
            self._count += 1
            heapq.heappush(self._waiting, (when, self._count, then))

    def wake(self, now: float) -> None:
        """Calls what is to be called by now; of very much, the rest at the next `wake`, for which there is no wait."""
        soon = self._soon
        self._soon = []
        for then in soon:
            then()
        for _ in range(AT_ONCE):
            if not (self._waiting and self._waiting[0][0] <= now):
                break
            heapq.heappop(self._waiting)[2]()

    def wait_s(self, now: float) -> float:
        """Seconds until the next call; inf: there is none."""
        if self._soon:
            return 0.0
        return self._waiting[0][0] - now if self._waiting else math.inf
