"""The pace of a question: how long it may work at once, and in all, so that mail is sent meanwhile.

A question works for TURN_S, then others have their turns: for nine times as long, as long as they have work to do. So
however many questions an operator asks one after another, they take about a tenth of the event loop's time from a queue
that is busy, and an idle one answers at once. After PAGE_S the question ends with what it has found, and says where to
continue.

No iterator of the store may be open over `turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

TURN_S = 0.003
PAGE_S = 0.04
OTHERS = 9.0
"""How much of the time others get, if they need it, for each second of a question's work."""
_IDLE_S = 0.0002
"""A turn of the event loop in which nobody else had anything to do takes no longer."""
AT_ONCE = 100


class Pace:
    """Of one question."""

    def __init__(self, page_s: float = PAGE_S) -> None:
        self._began = perf_counter()
        self._until = self._began + page_s

    @property
    def over(self) -> bool:
        """Whether it has worked for long enough."""
        return perf_counter() >= self._until

    async def turn(self) -> None:
        """Called often: lets others work if it is their turn."""
        if perf_counter() - self._began >= TURN_S:
            owed = OTHERS * (perf_counter() - self._began)
            while owed > 0:
                before = perf_counter()
                await asyncio.sleep(0)
                took = perf_counter() - before
                if took < _IDLE_S:
                    break
                owed -= took
            self._began = perf_counter()

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """All of them, with turns in between. Not for what others change meanwhile, nor for iterators of the store."""
        for number, item in enumerate(items, 1):
            yield item
            if number % AT_ONCE == 0:
                await self.turn()
