"""One tail for all who listen: the newest events are in memory, ready to be sent; who lags reads on in the journal.

Promise: a listener gets every event behind its place, once and in order, however slow it is, as long as the journal and
the archive have them; memory does not grow with lag. While no queue answers nothing comes, and it goes on when one
does. Nothing is read while nobody listens. Failures: disk errors are logged, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk import identity
from zonemta_py.disk.frame import Record
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import Event, encoded, id_of, place_of
from zonemta_py.journal.tail import JournalTail, seq_at
from zonemta_py.logs.causes import cause
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import Ask

log = logging.getLogger(__name__)

KEPT_BYTES = 4 * 1024 * 1024
"""Of the newest events, in memory."""
AT_ONCE = 100
"""Records that are read in one go."""
PORTION_BYTES = 512 * 1024
"""Of events, and those of one more record: a message has one for each recipient."""
WAIT_S = 10.0
LOOK_S = 0.05
AGAIN_S = 1.0
END_PART = 1 << 40
"""A place behind all events of a record."""
Place = tuple[int, int]


Listening = Callable[[float], AsyncGenerator["list[Told]", None]]
"""`Hub.listen`, for which it is known where it begins."""


class Told(NamedTuple):
    """An event, its id, and its JSON; or how many records the archive `missed`, and nothing else."""

    place: Place
    event: Event | None
    id: str
    body: bytes
    missed: int = 0


class _Reader:
    """Reads on in the journal, a portion at a time. passed: the last record that was read to its end."""

    def __init__(self, folder: Path, since_seq: int) -> None:
        self._folder, self._tail = folder, JournalTail(folder, since_seq)
        self._records = deque[Record]()
        self.passed = since_seq - 1

    def read(self, until: int, after: Place) -> list[Told]:
        """The next events behind `after`; runs in a thread, one at a time. Raises OSError, ValueError."""
        source, found, size = identity.name_of(self._folder), list[Told](), 0
        if not self._records:
            missed = self._tail.missed
            self._records.extend(self._tail.read(until, AT_ONCE))
            if self._tail.missed > missed:
                found.append(Told(after, None, "", b"", self._tail.missed - missed))
        while self._records and size < PORTION_BYTES:
            record = self._records.popleft()
            for event in events_of(record):
                if event.place > after:
                    found.append(Told(event.place, event, id_of(event, source), encoded(event, source)))
                    size += len(found[-1].body)
            self.passed = record.seq
        if not self._records:
            self.passed = self._tail.next_seq - 1
        return found

    def close(self) -> None:
        self._tail.close()


def _place(one: Told) -> Place:
    return one.place


def _closed(reader: _Reader | None) -> None:
    if reader is not None:
        reader.close()


class Hub:
    """folder: the queue's. ask: (question, *_, **arguments) of the queue."""

    def __init__(self, folder: Path, ask: Ask) -> None:
        self._folder, self._ask = folder, ask
        self._recent: list[Told] = []
        self._bytes = 0
        self._begin: Place = (0, 0)
        """Every event behind this place, up to `_stable`, is in memory."""
        self._stable = 0
        self._news = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def end(self) -> None:
        """Nobody is told anything more, however far behind they are: all who listen come to their end."""
        self._over = True
        self._news.set()

    async def now(self) -> Place:
        """The place behind all that has happened. Raises QueueRefusal: no queue answers."""
        return await self._ask(questions.stable), END_PART

    async def listen(self, after: Place, now: Place, wait_s: float) -> AsyncGenerator[list[Told], None]:
        """Events behind that place, in portions, until `end`; an empty one whenever nothing came for `wait_s`. now: of
        `now`."""
        self._listeners += 1
        if self._task is None:
            self._stable = max(self._stable, now[0])
            self._begin = self._stable, END_PART
            self._task = asyncio.create_task(self._run())
        lagging: _Reader | None = None
        try:
            while not self._over:
                news, before = self._news, after
                if after >= self._begin:
                    _closed(lagging)
                    lagging = None
                    found = self._recent[bisect_right(self._recent, after, key=_place) :]
                else:
                    lagging = lagging or _Reader(self._folder, after[0])
                    found = await asyncio.to_thread(lagging.read, self._stable, after)
                    after = max(after, (lagging.passed, END_PART))
                if found:
                    yield found
                    after = max(after, found[-1].place)
                if after != before:
                    continue
                try:
                    await asyncio.wait_for(news.wait(), wait_s)
                except TimeoutError:
                    yield []
        finally:
            _closed(lagging)
            self._listeners -= 1

    async def opened(self, last_id: str, since_ms: int | None) -> Listening:
        """`listen` behind the event of that id, since then, or from now on. Raises ValueError: one sentence about the
        id; QueueRefusal."""
        now = await self.now()
        if last_id:
            return partial(self.listen, min(place_of(last_id, self.source()), now), now)
        return partial(self.listen, now if since_ms is None else min(await self.before(since_ms), now), now)

    def source(self) -> str:
        """The queue's name. Raises ValueError."""
        return identity.name_of(self._folder)

    async def before(self, ms: int) -> Place:
        """Behind which all events since then are."""
        return await asyncio.to_thread(seq_at, self._folder, ms) - 1, END_PART

    async def ms_of(self, place: Place, now: Place) -> int | None:
        """When that happened, or the next thing that is still known; None: nothing. now: of `now`."""
        found = await asyncio.to_thread(JournalTail(self._folder, place[0]).read, now[0], 1)
        return found[0].ms if found else None

    # -- the one tail

    async def _run(self) -> None:
        """Ends when nobody listens any more."""
        reader = _Reader(self._folder, self._stable + 1)
        while self._listeners:
            try:
                await self._follow(reader)
                await asyncio.sleep(LOOK_S)
            except (QueueRefusal, OSError, ValueError) as error:  # listeners wait
                log.debug("events cannot be followed now: %s", cause(error))
                await asyncio.sleep(AGAIN_S)
        reader.close()
        self._recent, self._bytes, self._task = [], 0, None

    async def _follow(self, reader: _Reader) -> None:
        stable = await self._ask(questions.stable, after=self._stable, wait_s=WAIT_S)
        while reader.passed < stable:
            before = reader.passed
            found = await asyncio.to_thread(reader.read, stable, (0, 0))
            if reader.passed == before:  # it is damaged there, and nothing follows yet
                return
            self._keep([one for one in found if not one.missed], reader.passed)

    def _keep(self, found: list[Told], stable: int) -> None:
        self._recent += found
        self._bytes += sum(len(one.body) for one in found)
        gone = 0
        while self._bytes > KEPT_BYTES:
            self._bytes -= len(self._recent[gone].body)
            gone += 1
        if gone:
            self._begin = self._recent[gone - 1].place
            del self._recent[:gone]
        self._stable = stable
        self._news.set()
        self._news = asyncio.Event()
