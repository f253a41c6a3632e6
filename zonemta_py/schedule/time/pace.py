"""The pace of questions: how long one may work at once, and how much all of them, so that mail is sent meanwhile.

While mail is sent, questions rest OTHERS times as long as they have worked, before they are answered. All of them share
one account, so that however many are asked, one after another or at once, they take about a thirtieth of a processor;
those that worked much wait for it to be settled, REST_S at most for each that is being asked. After BUSY_PAGE_S of work
a question ends with what it has found, and says where to continue; one that has to be seen as a whole rests meanwhile.
What goes on behind an answer, or is a sweep, has a pace of its own. While nothing is sent, a question only lets others
have their turns, and ends after PAGE_S; what goes on behind it rests as long as it works.

What it works is measured step by step (`measured`), in this thread's processor time: neither the time of others counts,
nor that of other programs. No iterator of the store may be open over `turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextvars import ContextVar
from time import perf_counter, thread_time
from typing import Any, Generic, TypeVar

T = TypeVar("T")

TURN_S = 0.001
PAGE_S = 0.012
BUSY_PAGE_S, WHOLE_S = 0.001, 0.003
"""The same of a question's work, while mail is sent; and with more than that, it is one that rests meanwhile."""
OTHERS = 29.0
"""How long a question rests for each second of its work."""
AROUND_S = 0.0003
"""What a question costs besides: its way in, and that of its answer."""
REST_S, HEAVY = 0.04, 2.0
"""The longest rest before an answer, if it is the only one; or so many times what it has worked, if that is more."""
LITTLE_S = 0.0005
"""With less work than that a question settles only what it has used itself."""
DEBT_S = 2.0
BUSY = 0.1
"""With so much of its time used by others, the event loop has mail to send."""
_SAMPLE_S = 0.2
AT_ONCE = 100


class _Work:
    """Of one question: seconds. behind: of something that goes on behind answers; others: how long it rests for it."""

    def __init__(self, behind: float = 0.0) -> None:
        self.worked = self.rested = 0.0
        self.behind = behind
        self.step = thread_time()

    @property
    def done(self) -> float:
        """So far."""
        return self.worked + thread_time() - self.step

    def owed(self, others: float) -> float:
        return others * self.done - self.rested


class _Loop:
    """How much of this thread's time others have used lately, and until when questions owe them some."""

    def __init__(self) -> None:
        self._at, self._used, self._own = perf_counter(), thread_time(), 0.0
        self._share = self._last = 0.0
        self._settled_at = 0.0
        self.asked = 0
        """Questions that are not answered yet."""

    def own(self, worked: float, behind: bool = False) -> None:
        self._own += worked
        if not behind:
            now = perf_counter()
            self._settled_at = min(now + DEBT_S, max(now, self._settled_at) + OTHERS * worked)

    @property
    def owed(self) -> float:
        """How long questions would have to rest now, if somebody else needs the time."""
        return max(0.0, self._settled_at - perf_counter())

    @property
    def busy(self) -> bool:
        now = perf_counter()
        if now - self._at >= _SAMPLE_S:
            used = thread_time()
            last, self._last = self._last, (used - self._used - self._own) / (now - self._at)
            self._share = min(last, self._last)  # a position record now and then is no mail
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
        try:
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
                    _loop.own(took, work.behind > 0)
                try:
                    thrown = None
                    yield waits
                except BaseException as error:  # a cancellation belongs to what is awaited
                    thrown = error
        finally:
            waits = thrown = None  # its error, or this one, knows this place


async def measured(question: Awaitable[T]) -> T:
    """The answer of a question; while mail is sent, after the rest that is owed."""
    work = _Work()
    _loop.asked += 1
    try:
        answer = await _with(work, question)
        _loop.own(AROUND_S)
        if _loop.busy and (rest := _rest(work)) > 0:
            await asyncio.sleep(rest)
    finally:
        _loop.asked -= 1
    return answer


def _rest(work: _Work) -> float:
    if work.worked < LITTLE_S:
        return min(REST_S, OTHERS * (work.worked + AROUND_S)) * _loop.asked
    return min(_loop.owed, max(REST_S, HEAVY * work.worked) * _loop.asked)


def _owed(work: _Work) -> float:
    """Until its next portion."""
    if work.behind:
        return work.owed(work.behind)
    return min(work.owed(OTHERS), REST_S) if work.done > WHOLE_S else 0.0


async def answering(way_out: Awaitable[T]) -> T:
    """Measures what packs an answer, which belongs to the questions' account too."""
    return await _with(_Work(), way_out)


async def behind(work: Callable[[], Awaitable[T]], others: float) -> T:
    """The same for what goes on when the question has been answered. others: how long it rests for its work.
    work: what begins it; it may be cancelled before that."""
    return await _with(_Work(others), work())


async def _with(work: _Work, question: Awaitable[T]) -> T:
    token = _work.set(work)
    try:
        return await _Measured(question, work)
    finally:
        _work.reset(token)


class Pace:
    """Of one walk."""

    def __init__(self, page_s: float = PAGE_S) -> None:
        self._began = perf_counter()
        self._until = self._began + page_s

    @property
    def over(self) -> bool:
        """Whether it has gone on for long enough."""
        if perf_counter() >= self._until:
            return True
        work = _work.get()
        return work is not None and not work.behind and work.done >= BUSY_PAGE_S and _loop.busy

    async def turn(self) -> None:
        """Called often: lets others work if it is their turn."""
        if perf_counter() - self._began < TURN_S:
            return
        work, begun = _work.get(), perf_counter()
        rest = 0.0
        if work is not None and _loop.busy:
            rest = _owed(work)
        elif work is not None and work.behind:
            rest = begun - self._began  # who asks meanwhile needs several turns of the loop, and finds it free
        await asyncio.sleep(max(0.0, rest))
        if work is not None:
            work.rested += rest
        self._began = perf_counter()

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """All of them, with turns in between. Not for what others change meanwhile, nor for iterators of the store."""
        for number, item in enumerate(items, 1):
            yield item
            if number % AT_ONCE == 0:
                await self.turn()
