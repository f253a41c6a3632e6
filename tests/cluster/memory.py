"""A stream in memory that behaves as JetStream's do: an append is refused unless it follows the last message, and an
answer may come late, or never, whether the message was kept or not."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator

from zonemta_py.cluster.stream import NotReached, StreamExtent


class MemoryStream:
    """delay_s: of each answer, at most. faulty: how often a message or an answer gets lost. lag_s: how long a message
    is on its way, at most, even if its sender is dead by then. down: nothing answers."""

    def __init__(self, seed: int = 0, delay_s: float = 0.0, faulty: float = 0.0, lag_s: float = 0.0) -> None:
        self.messages: dict[int, bytes] = {}
        self.first, self.last = 1, 0
        self.die, self.delay_s, self.faulty = random.Random(seed), delay_s, faulty
        self.lag_s = lag_s
        self.down = self.leader_hangs = False
        self.refused = 0
        self._line = deque[tuple[bytes, int, asyncio.Future[int]]]()

    def begin_append(self, data: bytes, expected: int) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        if self.down:
            raise NotReached("down")
        if self.faulty and self.die.random() < self.faulty / 2:
            return done  # it is lost
        if self.lag_s:
            self._line.append((data, expected, done))
            loop.call_later(self.die.random() * self.lag_s, self._arrives)
        else:
            self._keep(data, expected, done)
        return done

    def _arrives(self) -> None:
        self._keep(*self._line.popleft())

    def _keep(self, data: bytes, expected: int, done: asyncio.Future[int]) -> None:
        loop = done.get_loop()
        kept = self.put(data, expected)
        if self.faulty and self.die.random() < self.faulty / 2:
            return  # the answer is

        def answer() -> None:
            if done.done():
                return
            if kept:
                done.set_result(kept)
            else:
                done.set_exception(NotReached("wrong last sequence"))

        loop.call_later(self.die.random() * self.delay_s, answer) if self.delay_s else loop.call_soon(answer)

    def put(self, data: bytes, expected: int) -> int:
        """0: it does not follow the last one."""
        if expected != self.last:
            self.refused += 1
            return 0
        self.last += 1
        self.messages[self.last] = data
        return self.last

    async def info(self) -> StreamExtent:
        await asyncio.sleep(0)
        if self.down:
            raise NotReached("down")
        return StreamExtent(self.first, self.last, sum(map(len, self.messages.values())))

    async def unseat(self) -> None:
        """Another server leads it: it answers again, if it was its leader that did not."""
        self.down = self.down and not self.leader_hangs

    async def get(self, sequence: int) -> bytes | None:
        await asyncio.sleep(0)
        if self.down:
            raise NotReached("down")
        return self.messages.get(sequence)

    async def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        for sequence in range(max(first, self.first), last + 1):
            if sequence in self.messages:
                yield sequence, self.messages[sequence]

    async def purge(self, before: int) -> None:
        for sequence in range(self.first, min(before, self.last + 1)):
            self.messages.pop(sequence, None)
        self.first = max(self.first, min(before, self.last + 1))
