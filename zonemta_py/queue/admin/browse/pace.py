"""The pace of questions: how long one may work at once, and in all, so that mail is sent meanwhile.

While mail is sent, a question rests nine times as long as it has worked: after TURN_S of work, and before it is
answered. So however many an operator asks, one after another, they take about a tenth of a processor. While nothing is
sent, a question only lets others have their turns. After PAGE_S it ends with what it has found, and says where to
continue.

What it works is measured step by step (`measured`), in this thread's processor time: neither the time of others counts,
nor that of other programs. No iterator of the store may be open over `turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable
from contextvars import ContextVar
from time import perf_counter, thread_time
from typing import Any, Generic, TypeVar

T = TypeVar("T")

TURN_S = 0.002
PAGE_S = 0.02
OTHERS = 9.0
"""How long a question rests for each second of its work."""
AROUND_S = 0.0003
"""What a question costs besides: its way in, and that of its answer."""
REST_S = 0.02
"""The longest rest before an answer."""
BUSY = 0.05
"""With so much of its time used by others, the event loop has mail to send."""
_SAMPLE_S = 0.2
AT_ONCE = 100


class _Work:
    """Of one question: seconds."""

    def __init__(self) -> None:
        self.worked = self.rested = 0.0
        self.step = thread_time()

    @property
    def owed(self) -> float:
        return OTHERS * (self.worked + thread_time() - self.step) - self.rested


class _Loop:
    """How much of this thread's time others have used lately."""

    def __init__(self) -> None:
        self._at, self._used, self._own, self._share = perf_counter(), thread_time(), 0.0, 0.0

    def own(self, worked: float) -> None:
        self._own += worked

    @property
    def busy(self) -> bool:
        now = perf_counter()
        if now - self._at >= _SAMPLE_S:
            used = thread_time()
            self._share = (used - self._used - self._own) / (now - self._at)
            self._at, self._used, self._own = now, used, 0.0
        return self._share > BUSY


_work: ContextVar[_Work | None] = ContextVar("_work", default=None)
_loop = _Loop()


class _Measured(Generic[T]):
    """An awaitable whose steps are measured."""

    def __init__(self, awaitable: Awaitable[T], work: _Work) -> None:
        self._awaitable, self._work = awaitable, work

    def __await__(self) -> Generator[Any, Any, T]:
        steps, work, thrown = self._awaitable.__await__(), self._work, None
        while True:
            work.step = thread_time()
            try:
                waits = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                took = thread_time() - work.step
                work.worked += took
                work.step += took
                _loop.own(took)
            try:
                thrown = None
                yield waits
            except BaseException as error:  # a cancellation belongs to what is awaited
                thrown = error


async def measured(question: Awaitable[T]) -> T:
    """The answer of a question; while mail is sent, after the rest that it owes."""
    work = _Work()
    token = _work.set(work)
    try:
        answer = await _Measured(question, work)
    finally:
        _work.reset(token)
    owed = OTHERS * (work.worked + AROUND_S) - work.rested
    if owed > 0 and _loop.busy:
        await asyncio.sleep(min(owed, REST_S))
    return answer


class Pace:
    """Of one walk."""

    def __init__(self, page_s: float = PAGE_S) -> None:
        self._began = perf_counter()
        self._until = self._began + page_s

    @property
    def over(self) -> bool:
        """Whether it has gone on for long enough."""
        return perf_counter() >= self._until

    async def turn(self) -> None:
        """Called often: lets others work if it is their turn."""
        if perf_counter() - self._began < TURN_S:
            return
        work, begun = _work.get(), perf_counter()
        if work is not None and work.owed > 0 and _loop.busy:
            await asyncio.sleep(min(work.owed, max(0.0, self._until - begun)))
            work.rested += perf_counter() - begun
        else:
            await asyncio.sleep(0)
        self._began = perf_counter()

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """All of them, with turns in between. Not for what others change meanwhile, nor for iterators of the store."""
        for number, item in enumerate(items, 1):
            yield item
            if number % AT_ONCE == 0:
                await self.turn()
