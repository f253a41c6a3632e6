"""An operator at work: stops a zone and lifts it, or stops it for some seconds, and looks whether that holds."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any

from survival.clock import MachineClock
from survival.rig import Mta
from survival.waits import LATE_S, SLACK_S
from zonemta_py.wire.blocking_client import QueueGone

ZONE = "stopped"
STOP_S = 4.0
"""How long a stop that ends by itself lasts."""


class Operator:
    """given: orders and questions that were answered. broken: what was forgotten, or ended at another time."""

    def __init__(self, mta: Mta, clock: MachineClock) -> None:
        self._mta, self._clock, self._done = mta, clock, False
        self.given, self.broken, self._spans = 0, list[str](), list[tuple[float, float]]()

    async def work(self) -> None:
        for turn in count():
            if self._done:
                return
            await (self._for_a_while() if turn % 3 == 2 else self._until_lifted())
            await asyncio.sleep(0.5)

    async def _until_lifted(self) -> None:
        await self._ask("stop", kind="zone", name=ZONE, cause="trial")
        since = time.time()
        for _ in range(10):
            await asyncio.sleep(0.1)
            if self._done:
                break
        if not await self._is_stopped():
            self.broken.append("an order to stop was forgotten")
        self._spans.append((since, time.time()))
        await self._ask("lift", kind="zone", name=ZONE)

    async def _for_a_while(self) -> None:
        asked = time.time()
        await self._ask("stop", kind="zone", name=ZONE, seconds=STOP_S, cause="trial")
        since = time.time()
        while await self._is_stopped():
            if time.time() > since + STOP_S + LATE_S:
                self.broken.append(f"a stop of {STOP_S:g} s holds after {time.time() - since:.0f} s")
                await self._ask("lift", kind="zone", name=ZONE)
                break
            await asyncio.sleep(0.2)
        ends = asked + STOP_S - SLACK_S
        if self._clock.was_off(asked, time.time()):
            return
        if time.time() < ends:
            self.broken.append(f"a stop of {STOP_S:g} s was over after {time.time() - asked:.1f} s")
        self._spans.append((since, ends))

    async def _is_stopped(self) -> bool:
        standing = await self._ask("standing")
        return any(row.get("name") == ZONE for row in _rows(standing))

    async def _ask(self, question: str, **arguments: Any) -> Any:
        while True:
            try:
                answer = await asyncio.to_thread(self._mta.ask, question, **arguments)
                self.given += 1
                return answer
            except (QueueGone, ValueError):
                await asyncio.sleep(0.05)

    async def end(self, working: asyncio.Task[None]) -> None:
        self._done = True
        await working

    def forbidden(self, since: float, at: float) -> bool:
        """Whether the zone was stopped from the one moment to the other."""
        return any(begun <= since and at <= ended for begun, ended in self._spans)


def _rows(standing: Any) -> list[dict[str, Any]]:
    return standing if isinstance(standing, list) else [row for rows in standing.values() for row in rows]
