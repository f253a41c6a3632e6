"""What processes other than the queue's count: each adds to its own numbers, and tells the queue once a second what
came since it was last told.

The queue adds them up, so no counter goes backwards when a process is started again; what it counted in its last second
is lost with it, unless it ends as planned (`end`). While the queue is away, counts are kept and told later. The queue's
process reports to itself what is not its own: what plugins count.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from zonemta_py.metrics.meter import CountTable, Labels

EVERY_S = 1.0
ALIVE_S = 5.0
"""How old a report may be before what it measured is forgotten."""

LOCAL = CountTable()
"""Of this process."""
count = LOCAL.add

Values = Iterable[tuple[str, Labels, float]]
_gauges: list[Callable[[], Values]] = []
_totals: list[Callable[[], Values]] = []
_tellers: list[_Teller] = []
_running: list[asyncio.Future[None]] = []
"""Kept, since the loop holds tasks only weakly."""


class Tell(Protocol):
    def __call__(self, *, process: str, counts: list[list[Any]], gauges: list[list[Any]]) -> Awaitable[None]: ...


def measure(gauges: Callable[[], Values]) -> None:
    """From now on they are reported."""
    _gauges.append(gauges)


def total(totals: Callable[[], Values]) -> None:
    """The same for what is counted elsewhere in this process, from 0 on."""
    _totals.append(totals)


def start(process: str, tell: Tell, gone: type[Exception]) -> None:
    """Reports from now on, as long as the process lives. process: its role; gone: raised while the queue is away."""
    teller = _Teller(f"{process} {os.getpid()}", tell, gone)
    _tellers.append(teller)
    _running.append(asyncio.ensure_future(teller.run()))


async def end() -> None:
    """Reports for the last time: this process ends as planned."""
    for teller in _tellers:
        with suppress(TimeoutError):
            await asyncio.wait_for(teller.tell(), EVERY_S)


class _Teller:
    """name: of the process."""

    def __init__(self, name: str, tell: Tell, gone: type[Exception]) -> None:
        self._name, self._queue, self._gone = name, tell, gone
        self._told: dict[tuple[str, Labels], float] = {}
        self._telling = asyncio.Lock()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.tell()

    async def tell(self) -> None:
        """What came since the last time."""
        async with self._telling:
            await self._tell()

    async def _tell(self) -> None:
        told = self._told
        now = {(metric, labels): value for metric, rows in LOCAL.by_name.items() for labels, value in rows.items()}
        now |= {(metric, labels): value for totals in _totals for metric, labels, value in totals()}
        news = [
            [metric, list(labels), value - told.get((metric, labels), 0)]
            for (metric, labels), value in now.items()
            if value > told.get((metric, labels), 0)
        ]
        measured = [[metric, list(labels), value] for gauges in _gauges for metric, labels, value in gauges()]
        with suppress(self._gone, ValueError):  # it is away, or of another version
            await self._queue(process=self._name, counts=news, gauges=measured)
            self._told = now
