"""Simulated time: an event loop whose clock jumps to the next thing to happen, and a queue's clock that follows it.

Nothing waits: a day costs as long as its events take to work out. The disk is waited for in the loop itself (`Inline`),
so the same input makes the same steps in the same order.
"""

from __future__ import annotations

import asyncio
import random
import selectors

from zonemta_py.schedule.time.clock import Clock


class _Selector(selectors.DefaultSelector):
    """Where a loop would sleep, its time goes on."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now_s += timeout
            timeout = 0
        return super().select(timeout)


class Loop(asyncio.SelectorEventLoop):
    """time: seconds since the simulation began."""

    def __init__(self) -> None:
        self._simulated = _Selector()
        super().__init__(self._simulated)

    def time(self) -> float:
        return self._simulated.now_s


class SimulatedClock(Clock):
    """The queue's clock: begins at `start_ms` (UNIX) and follows the loop; its chance is drawn from `seed`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int, seed: int) -> None:
        self._loop, self._start_ms, self._chance = loop, start_ms, random.Random(seed)

    def ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def random(self) -> float:
        return self._chance.random()
