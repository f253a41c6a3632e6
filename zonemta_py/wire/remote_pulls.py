"""`Pull` over the socket: what `RemoteQueue` has for those who take messages from pull zones."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from itertools import count
from typing import Any

from zonemta_py.disk.bodies import restore
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import Delivery
from zonemta_py.wire.channel import Channel, ignore
from zonemta_py.wire.frames import Operation, delivery_of

_tokens = count(1)


class RemotePulls(ABC):
    """A part of `RemoteQueue`."""

    @abstractmethod
    async def _there(self) -> Channel:
        """Waits for a queue that is starting. Raises QueueRefusal."""

    async def pull(
        self, queue: str, most: int = 1, reserve_s: float = 0, wait_s: float = 0, remote: str = ""
    ) -> list[Delivery]:
        channel, token = await self._there(), next(_tokens)
        answer = channel.request(Operation.PULL, (token, queue, most, reserve_s, wait_s, remote))
        try:
            return list(map(whole, await asyncio.shield(answer)))
        except asyncio.CancelledError:
            channel.send((Operation.LEAVE, 0, token))
            answer.add_done_callback(partial(_give_back, channel))
            raise

    async def extend(self, lease: int, message_id: str, reserve_s: float) -> bool:
        return await self._told("extend", lease, message_id, reserve_s)

    async def ack(self, lease: int, message_id: str, remote: str = "") -> bool:
        return await self._told("ack", lease, message_id, 0, remote)

    async def nack(self, lease: int, message_id: str, delay_s: float = 0, remote: str = "") -> bool:
        return await self._told("nack", lease, message_id, delay_s, remote)

    async def abandon(self, lease: int, message_id: str) -> bool:
        return await self._told("abandon", lease, message_id, 0)

    async def _told(self, what: str, lease: int, message_id: str, seconds: float, remote: str = "") -> bool:
        channel = await self._there()
        return bool(await channel.request(Operation.PULLED, (what, lease, message_id, seconds, remote)))

    async def peek(self, queue: str, most: int = 1) -> list[Delivery]:
        channel = await self._there()
        return list(map(whole, await channel.request(Operation.PEEK, (queue, most))))


def whole(row: list[Any]) -> Delivery:
    """A delivery whose body is as it came. That it cannot be restored is said when its chunk is asked for."""
    delivery = delivery_of(row)
    if delivery.body is not None:
        try:
            delivery.body = restore(delivery.body, CHUNK_BYTES)
        except ValueError:
            delivery.body = None
    return delivery


def _give_back(channel: Channel, answer: asyncio.Future[Any]) -> None:
    """What came although nobody waited for it any more."""
    if answer.cancelled() or answer.exception() is not None:
        return
    for delivery in map(delivery_of, answer.result()):
        channel.request(Operation.PULLED, ("nack", delivery.lease, delivery.id, 0, "")).add_done_callback(ignore)
