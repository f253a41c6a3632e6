"""All queues of an MTA as one, for receivers, HTTP, named queues and links: `Queues` is Reception, Pull and Admin.

A message goes where `placement.py` says. One that may go anywhere goes to the next queue if the first is not there, or
refuses it for its disk; whatever belongs to one queue alone (an idempotency key, a named queue, an account) waits for
that. Questions and orders go to the authority. What is about a stored message goes to the queue that its id
names, then to the others, as it may have been moved.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from zonemta_py.config import Config, is_shared
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
LOOK_S = 1.0
"""How often a node looks which queues the cluster has."""
LEASES_MAX = 100_000
"""Leases of named queues of which it is remembered where they are."""
_OF_ITS_OWN = ("4.3.0", "4.3.1")
"""Refusals that are about the queue, and not about the message."""


def lasting(config: Config, name: str, lease_s: float = 0) -> RemoteQueue | Queues:
    """The queue, or all queues if there are several. lease_s: as of `RemoteQueue.connect`."""
    if not is_shared(config):
        return RemoteQueue.lasting(config.folder, name, lease_s)
    names = Cluster(config) if config.cluster.enabled else None
    return Queues(config.folder, placement.of(config), name, lease_s, names)


class Cluster:
    """All queues of all nodes, as this node's agent says (`layout.NODES`); whoever is started before it has said so
    knows of those of this node."""

    def __init__(self, config: Config) -> None:
        self._config, self._path = config, config.folder / layout.FOLDER / layout.NODES
        self._looked_at, self._written = -LOOK_S, 0
        self._placement = placement.of(config)

    @property
    def placement(self) -> Placement:
        """Where names are that belong to one queue of the cluster."""
        now = time.monotonic()
        if now >= self._looked_at + LOOK_S:
            self._looked_at = now
            with suppress(OSError, ValueError):
                written = self._path.stat().st_mtime_ns
                if written != self._written:
                    self._placement = placement.of(self._config, map(int, json.loads(self._path.read_bytes())))
                    self._written = written
        return self._placement

    def queue(self, number: int, name: str, lease_s: float) -> RemoteQueue:
        """One of another node."""
        return RemoteQueue.lasting(layout.far_folder(self._config.folder, number), name, lease_s)


class Queues:
    """folder: the MTA's. place: which queue takes a message. name: of this process's kind. cluster: of a node of one:
    what may go to any queue goes to one of this node, and a name that belongs to one queue alone to that one, wherever
    it is."""

    def __init__(
        self, folder: Path, place: Placement, name: str, lease_s: float = 0, cluster: Cluster | None = None
    ) -> None:  # fmt: skip
        self._cluster, self._name, self._lease_s = cluster, name, lease_s
        self._far: dict[int, RemoteQueue] = {}
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
        order = self._order(envelope)
        for number in self._ready(order)[:-1]:
            try:
                return await self._accepted(number, envelope, body)
            except Unanswered:
                raise
            except QueueRefusal as refusal:
                if refusal.reply.enhanced not in _OF_ITS_OWN:
                    raise
        return await self._accepted(self._ready(order)[-1], envelope, body)

    def _order(self, envelope: Envelope) -> Sequence[int]:
        """As `Placement.order`."""
        if self._cluster is not None and len(order := self._cluster.placement.order(envelope)) == 1:
            return order
        return self._placement.order(envelope)

    @property
    def _names(self) -> Placement:
        return self._cluster.placement if self._cluster is not None else self._placement

    def _queue(self, number: int) -> RemoteQueue:
        queue = self._queues.get(number) or self._far.get(number)
        if queue is None:
            assert self._cluster is not None
            queue = self._far[number] = self._cluster.queue(number, self._name, self._lease_s)
        return queue

    async def _accepted(self, number: int, envelope: Envelope, body: bytes) -> Receipt:
        under_way = self._under_way.setdefault(number, {})
        under_way[id(envelope)] = asyncio.get_running_loop().time()
        try:
            return await self._queue(number).accept(envelope, body)
        finally:
            del under_way[id(envelope)]

    def _takes(self, number: int) -> bool:
        """Whether it runs, as far as is known here: one that is stuck has not answered for a while."""
        since = next(iter(self._under_way.get(number, {}).values()), None)
        stuck = since is not None and asyncio.get_running_loop().time() - since > STUCK_S
        return self._queue(number).there and not stuck

    def begin(self, client: str = "", envelope: Envelope | None = None) -> Incoming:
        order = self._order(envelope) if envelope is not None else list(self._queues)
        return self._queue(self._ready(order)[0]).begin(client, envelope)

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
        for queue in (*self._queues.values(), *self._far.values()):
            queue.leave(session)

    def _of_account(self, account: str) -> RemoteQueue:
        return self._queue(self._names.of_account(account))

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        """Each row goes to the queue whose message it is about; else to that of the person."""
        places = await asyncio.gather(*map(self._place, rows))
        new = [False] * len(rows)
        for number in set(places):
            mine = [at for at, place in enumerate(places) if place == number]
            found = await self._queue(number).feedback([rows[at] for at in mine])
            for at, is_new in zip(mine, found, strict=True):
                new[at] = is_new
        return new

    async def _place(self, row: Feedback) -> int:
        numbers = [*self._queues, *(one for one in self._names.numbers if one not in self._queues)]
        if row.message:
            first = queue_of(row.message)
            numbers.sort(key=lambda one: one != first)
        if row.message or row.message_id or row.mark:
            for number in numbers:
                ties = await self._queue(number).ask(questions.feedback_ties, rows=[_row(row)])
                if ties and ties[0][3]:
                    return number
        if row.message:
            return numbers[0]
        return sorted(numbers)[crc32(row.recipient.lower().encode()) % len(numbers)]

    # -- Pull

    async def pull(
        self, queue: str, most: int = 1, reserve_s: float = 0, wait_s: float = 0, remote: str = ""
    ) -> list[Delivery]:
        number = self._names.of_queue(queue)
        found = await self._queue(number).pull(queue, most, reserve_s, wait_s, remote)
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
            if await tell(self._queue(number)):
                return True
        return False

    def _likely(self, message_id: str, first: int | None = None) -> list[int]:
        first = queue_of(message_id) if first is None else first
        known = self._queues if first in self._queues or first not in self._names.numbers else (first, *self._queues)
        return sorted(known, key=lambda number: number != first)

    async def chunk(self, message_id: str, number: int) -> bytes:
        return await self._first(message_id, lambda queue: queue.chunk(message_id, number))

    async def peek(self, queue: str, most: int = 1) -> list[Delivery]:
        return await self._queue(self._names.of_queue(queue)).peek(queue, most)

    async def template(self, campaign: str) -> bytes:
        return await self._first("", lambda queue: queue.template(campaign))

    async def _first(self, message_id: str, get: Callable[[RemoteQueue], Awaitable[T]]) -> T:
        """Of the first queue that does not refuse it. Raises QueueRefusal."""
        refused: QueueRefusal | None = None
        for number in self._likely(message_id, None if message_id else 0):
            try:
                return await get(self._queue(number))
            except QueueRefusal as refusal:
                refused = refused or refusal
        assert refused is not None
        raise refused

    # -- what plugins keep

    async def plugin_store(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        """As of `RemoteQueue`: of the queue that has that name."""
        queue = self._queue(self._names.of_plugin(plugin, name))
        return await queue.plugin_store(what, plugin, name, token, arguments)

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
