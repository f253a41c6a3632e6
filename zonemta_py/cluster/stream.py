"""A stream of JetStream as a queue's log needs it: the real one is `log_stream`, another one is in the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol


class NotReached(Exception):
    """No answer: it may have been done."""


class StreamExtent(NamedTuple):
    """As the leader's copy has it. first: the oldest message's number; last + 1 if there is none. bytes: what the
    stream takes on each server. lost: how many are not there between the first and the last, which are never deleted:
    its files were damaged."""

    first: int
    last: int
    bytes: int
    lost: int = 0


class Stream(Protocol):
    """A stream as the log needs it. All but `begin_append` go on trying for some seconds, and raise NotReached."""

    def begin_append(self, data: bytes, expected: int) -> asyncio.Future[int]:
        """One try. The future, or this, has an error if it was refused, or nobody knows."""

    async def info(self) -> StreamExtent: ...
    async def get(self, sequence: int) -> bytes | None: ...
    def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]: ...
    async def purge(self, before: int) -> None: ...
    async def unseat(self) -> None:
        """Asks for another server to lead it, once; whether one does is to be seen."""
