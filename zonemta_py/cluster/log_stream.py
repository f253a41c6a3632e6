"""The stream of a queue's log in JetStream, as `log.Stream` has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Self

from zonemta_py.cluster.nats import Nats, NatsError, NotThere
from zonemta_py.cluster.stream import NotReached, StreamExtent


def stream_of(cluster: str, number: int) -> str:
    return f"zonemta-{cluster}-LOG-{number}"


class QueueLogStream:
    """One queue's."""

    def __init__(self, nats: Nats, cluster: str, number: int) -> None:
        self._nats = nats
        self.name, self.subject = stream_of(cluster, number), f"zonemta.{cluster}.log.{number}"

    @classmethod
    async def make(cls, nats: Nats, cluster: str, number: int) -> Self:
        """It is there then. Raises NotReached."""
        self = cls(nats, cluster, number)
        try:
            await nats.make_stream(self.name, self.subject)
        except NatsError as error:
            raise NotReached(str(error)) from None
        return self

    def begin_append(self, data: bytes, expected: int) -> asyncio.Future[int]:
        try:
            return self._nats.begin_append(self.subject, data, expected)
        except NatsError as error:
            raise NotReached(str(error)) from None

    async def info(self) -> StreamExtent:
        try:
            found = await self._nats.info(self.name)
        except NatsError as error:
            raise NotReached(str(error)) from None
        return StreamExtent(found.first, found.last, found.bytes, found.last + 1 - found.first - found.messages)

    async def get(self, sequence: int) -> bytes | None:
        try:
            with suppress(NotThere):
                return (await self._nats.get_block(self.name, sequence)).data
        except NatsError as error:
            raise NotReached(str(error)) from None
        return None

    async def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        try:
            async for block in self._nats.read(self.name, first, last):
                yield block
        except NatsError as error:
            raise NotReached(str(error)) from None

    async def purge(self, before: int) -> None:
        try:
            await self._nats.purge(self.name, before)
        except NatsError as error:
            raise NotReached(str(error)) from None

    async def unseat(self) -> None:
        await self._nats.unseat(self.name)
