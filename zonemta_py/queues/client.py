"""All queues of an MTA as one, for receivers, HTTP, named queues and links: `Queues` is Reception, Pull and Admin.

A message goes where `placement.py` says. One that may go anywhere goes to the next queue if the first is not there, or
refuses it for its disk; whatever belongs to one queue alone (an idempotency key, a named queue, an account) waits for
that. Questions and orders go to the authority. What is about a stored message goes to the queue that its id
names, then to the others, as it may have been moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from zonemta_py.config import Config, queue_count
from zonemta_py.disk.keys import queue_of
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue import questions
from zonemta_py.queue.api import (
    Delivery,
    Feedback,
    Incoming,
    QueueRefusal,
    Receipt,
    Unanswered,
    accept_whole,
)
from zonemta_py.queue.questions.question import A, Ask, P, Question
from zonemta_py.queues import layout, placement
from zonemta_py.queues.placement import Placement
from zonemta_py.wire import AUTHORITY
from zonemta_py.wire.client import RemoteQueue

T = TypeVar("T")
STUCK_S = 3.0
"""After so long without an answer to a message a queue gets no others, as long as another one takes them."""
LEASES_MAX = 100_000
"""Leases of named queues of which it is remembered where they are."""
_OF_ITS_OWN = ("4.3.0", "4.3.1")
"""Refusals that are about the queue, and not about the message."""


def lasting(config: Config, name: str, lease_s: float = 0) -> RemoteQueue | Queues:
    """The queue, or all queues if there are several. lease_s: as of `RemoteQueue.connect`."""
    if queue_count(config) == 1:
        return RemoteQueue.lasting(config.folder, name, lease_s)
    return Queues(config.folder, placement.of(config), name, lease_s)


class Queues:
    """folder: the MTA's. place: which queue takes a message. name: of this process's kind."""

    def __init__(self, folder: Path, place: Placement, name: str, lease_s: float = 0) -> None:
        self._queues = {
            number: RemoteQueue.lasting(layout.folder_of(folder, number), name, lease_s) for number in place.numbers
        }
        for queue in self._queues.values():
            queue.heir = self._queues[min(self._queues)]
        self._authority = RemoteQueue.lasting(folder, name, socket=AUTHORITY)
        self._placement = place
        self._under_way: dict[int, dict[int, float]] = {number: {} for number in place.numbers}
        """Of each queue: since when messages wait for its answer, the longest first."""
        self._leased: dict[int, int] = {}
        """The queue of a lease whose message's id names another one."""

    # -- Submission

    async def accept(self, envelope: Envelope, body: bytes) -> Receipt:
        if len(body) > CHUNK_BYTES:
            return await accept_whole(self, envelope, body)
        order = self._placement.order(envelope)
        for number in self._ready(order)[:-1]:
            try:
                return await self._accepted(number, envelope, body)
            except Unanswered:
                raise
            except QueueRefusal as refusal:
                if refusal.reply.enhanced not in _OF_ITS_OWN:
                    raise
        return await self._accepted(self._ready(order)[-1], envelope, body)

    async def _accepted(self, number: int, envelope: Envelope, body: bytes) -> Receipt:
        under_way = self._under_way[number]
        under_way[id(envelope)] = asyncio.get_running_loop().time()
        try:
            return await self._queues[number].accept(envelope, body)
        finally:
            del under_way[id(envelope)]

    def _takes(self, number: int) -> bool:
        """Whether it runs, as far as is known here: one that is stuck has not answered for a while."""
        since = next(iter(self._under_way[number].values()), None)
        stuck = since is not None and asyncio.get_running_loop().time() - since > STUCK_S
        return self._queues[number].there and not stuck

    def begin(self, client: str = "", envelope: Envelope | None = None) -> Incoming:
        order = self._placement.order(envelope) if envelope is not None else list(self._queues)
        return self._queues[self._ready(order)[0]].begin(client, envelope)

    def _ready(self, order: Sequence[int]) -> Sequence[int]:
        """Those that run come first."""
        if len(order) == 1:
            return order
        there = [number for number in order if self._takes(number)]
        return [*there, *(number for number in order if number not in there)]

    # -- Reception

    async def enter(self, session: str, account: str) -> None:
        await self._of_account(account).enter(session, account)

    def leave(self, session: str) -> None:
        for queue in self._queues.values():
            queue.leave(session)

    def _of_account(self, account: str) -> RemoteQueue:
        return self._queues[self._placement.of_account(account)]

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        """Each row goes to the queue whose message it is about; else to that of the person."""
        places = await asyncio.gather(*map(self._place, rows))
        new = [False] * len(rows)
        for number in set(places):
            mine = [at for at, place in enumerate(places) if place == number]
            found = await self._queues[number].feedback([rows[at] for at in mine])
            for at, is_new in zip(mine, found, strict=True):
                new[at] = is_new
        return new

    async def _place(self, row: Feedback) -> int:
        numbers = list(self._queues)
        if row.message and (number := queue_of(row.message)) in self._queues:
            numbers.sort(key=lambda one: one != number)
        if row.message or row.message_id or row.mark:
            for number in numbers:
                ties = await self._queues[number].ask(questions.feedback_ties, rows=[_row(row)])
                if ties and ties[0][3]:
                    return number
        if row.message:
            return numbers[0]
        return sorted(numbers)[crc32(row.recipient.lower().encode()) % len(numbers)]

    # -- Pull

    async def pull(
        self, queue: str, most: int = 1, reserve_s: float = 0, wait_s: float = 0, remote: str = ""
    ) -> list[Delivery]:
        number = self._placement.of_queue(queue)
        found = await self._queues[number].pull(queue, most, reserve_s, wait_s, remote)
        for delivery in found:
            if queue_of(delivery.id) != number:
                self._leased[delivery.lease] = number
                if len(self._leased) > LEASES_MAX:
                    del self._leased[next(iter(self._leased))]
        return found

    async def extend(self, lease: int, message_id: str, reserve_s: float) -> bool:
        return await self._that_has(lease, message_id, lambda queue: queue.extend(lease, message_id, reserve_s))

    async def ack(self, lease: int, message_id: str, remote: str = "") -> bool:
        return await self._that_has(lease, message_id, lambda queue: queue.ack(lease, message_id, remote))

    async def nack(self, lease: int, message_id: str, delay_s: float = 0, remote: str = "") -> bool:
        return await self._that_has(lease, message_id, lambda queue: queue.nack(lease, message_id, delay_s, remote))

    async def abandon(self, lease: int, message_id: str) -> bool:
        return await self._that_has(lease, message_id, lambda queue: queue.abandon(lease, message_id))

    async def _that_has(self, lease: int, message_id: str, tell: Callable[[RemoteQueue], Awaitable[bool]]) -> bool:
        for number in self._likely(message_id, self._leased.get(lease)):
            if await tell(self._queues[number]):
                return True
        return False

    def _likely(self, message_id: str, first: int | None = None) -> list[int]:
        first = queue_of(message_id) if first is None else first
        return sorted(self._queues, key=lambda number: number != first)

    async def chunk(self, message_id: str, number: int) -> bytes:
        return await self._first(message_id, lambda queue: queue.chunk(message_id, number))

    async def peek(self, queue: str, most: int = 1) -> list[Delivery]:
        return await self._queues[self._placement.of_queue(queue)].peek(queue, most)

    async def template(self, campaign: str) -> bytes:
        return await self._first("", lambda queue: queue.template(campaign))

    async def _first(self, message_id: str, get: Callable[[RemoteQueue], Awaitable[T]]) -> T:
        """Of the first queue that does not refuse it. Raises QueueRefusal."""
        refused: QueueRefusal | None = None
        for number in self._likely(message_id, None if message_id else 0):
            try:
                return await get(self._queues[number])
            except QueueRefusal as refusal:
                refused = refused or refusal
        assert refused is not None
        raise refused

    # -- Admin

    @property
    def asks(self) -> dict[int, Ask]:
        """Of each queue, by number."""
        return {number: queue.ask for number, queue in self._queues.items()}

    async def ask(self, question: Question[P, A], *args: P.args, **arguments: P.kwargs) -> A:
        return await self._authority.ask(question, *args, **arguments)


def _row(row: Feedback) -> list[Any]:
    from zonemta_py.wire.frames import feedback_row

    return list(feedback_row(row))
