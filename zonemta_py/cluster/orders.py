"""The log of orders of a cluster: a stream of JetStream in the place of `queues.orders.OrderLog`, with its records.

Whoever leads opens it: it appends that it has begun, so that nothing is taken any more of what a former leader still
writes, and then reads all that is there. An order is on stable storage with the quorum before any queue hears of it.
Where no answer came the next call finds out first whether the order is in the log, and makes it void: nobody has heard
of it.

What all queues have carried out is purged from time to time, after a record that says so. Gaps and damage are named
(`lost`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from secrets import token_hex
from typing import Any, TypeVar

from zonemta_py.cluster.nats import PART_BYTES, Nats, NatsError, NoQuorum, StreamMessage, WrongSequence
from zonemta_py.config import Config
from zonemta_py.disk import frame, packing
from zonemta_py.disk.frame import Damage, Record
from zonemta_py.queues.orders import BASE, GIVEN, VOID, GivenOrder, KnownOrders, given_in, record_of

BEGUN = 4
"""Somebody leads: the body is the node's name, and what tells this log's writer from others."""
WHOLE, FIRST, MIDDLE, LAST = b"\0", b"\1", b"\2", b"\3"
"""How a message begins. Records that are larger than PART_BYTES are several; one that was not finished is none."""
TRIM_EVERY = 64
"""Messages after which what all queues have is purged."""
AGAIN_S = 0.1
T = TypeVar("T")


class Assembly:
    """Of what one append was, from its messages. start: the sequence of the first of them."""

    def __init__(self) -> None:
        self.start, self._end, self._parts = 0, 0, list[bytes]()

    def add(self, block: StreamMessage) -> bytes | None:
        """All of it, with its last message."""
        kind, data = block.data[:1], block.data[1:]
        if kind in (WHOLE, FIRST):
            self.start, self._parts = block.sequence, [data]
        elif self._parts and block.sequence == self._end + 1:
            self._parts.append(data)
        else:  # the beginning is missing
            self._parts = []
        self._end = block.sequence
        if kind in (WHOLE, LAST) and self._parts:
            parts, self._parts = self._parts, []
            return b"".join(parts)
        return None


class NotLeading(OSError):
    """Another node has begun to write this log, or nobody could: nothing was added."""


class ClusterOrders(KnownOrders):
    """Of one cluster. What waits for the servers is called in a thread that is not the loop's, as of `OrderLog`; raises
    OSError: nothing has been added that any queue will hear of."""

    def __init__(self, nats: Nats, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        name = config.cluster.name
        self._nats, self._loop, self._one = nats, loop, asyncio.Lock()
        self._stream, self._subject = f"zonemta-{name}-ORDERS", f"zonemta.{name}.orders"
        self._token = token_hex(8)
        self._begun = WHOLE + frame.frame([Record(0, 0, BEGUN, packing.pack([config.node, self._token]))], 0)
        self._places = dict[int, int]()
        """Where an order's record begins, by its number."""
        self._sequence = 0
        """Of the last message that is known."""
        self._first = 0
        self._is_sure = True
        """Nothing is on its way of which it is not known whether it is in the log."""
        self.is_over = False
        """Another one writes now."""
        self._noted = 0
        """What the log says of `dropped`."""

    @classmethod
    async def open(cls, nats: Nats, config: Config, loop: asyncio.AbstractEventLoop) -> ClusterOrders:
        """Nobody else writes from now on. Raises NatsError."""
        self = cls(nats, config, loop)
        await nats.make_stream(self._stream, self._subject)
        begun = await self._begin()
        info = await nats.info(self._stream)
        self._first = min(info.first, begun)
        await self._read(self._first, begun)
        return self

    async def _begin(self) -> int:
        """The sequence of the record that says that this one begins."""
        last = (await self._nats.info(self._stream)).last
        while True:
            try:
                return await self._nats.append(self._subject, self._begun, last)
            except WrongSequence as error:  # the one before is still writing, or the server did not know all
                await asyncio.sleep(AGAIN_S)
                last = (await self._nats.info(self._stream)).last if error.last is None else error.last

    async def _read(self, first: int, last: int) -> None:
        message, expected = Assembly(), first
        async for block in self._nats.read(self._stream, first, last):
            if block.sequence != expected:
                self._lack(expected, block.sequence - 1)
            expected = block.sequence + 1
            if (data := message.add(block)) is not None:
                self._parse(data, message.start)
        if expected <= last:
            self._lack(expected, last)
        self._sequence = last

    def _lack(self, first: int, last: int) -> None:
        which = f"message {first} is" if first == last else f"messages {first} to {last} are"
        self.lost.append(f"stream {self._stream}: {which} missing; orders there are lost")

    def _parse(self, data: bytes, sequence: int) -> None:
        damages: list[Damage] = []
        for record in frame.parse(data, damages):
            self._take(record, sequence)
        for damage in damages:
            self.lost.append(
                f"stream {self._stream}: message {sequence} is damaged ({damage.what}); the order there is lost"
            )

    def _take(self, record: Record, sequence: int) -> None:
        if record.type == BEGUN:
            return
        self.last = max(self.last, record.seq)
        if record.type == BASE:
            self.dropped = self._noted = record.seq
            self.last = max(self.last, packing.unpack(record.body))
            self._forget(record.seq)
        elif record.type == GIVEN:
            self._orders[record.seq] = given_in(record)
            self._places[record.seq] = sequence
        elif record.type == VOID:
            self._orders.pop(record.seq, None)
            self._places.pop(record.seq, None)

    # -- as of OrderLog

    def write(self, ms: int, question: str, arguments: dict[str, Any]) -> GivenOrder:
        """The next one, on stable storage when this returns; `given` must follow."""
        return self._wait(self._write(ms, question, arguments))

    def settle(self, number: int, settled: dict[str, Any]) -> GivenOrder:
        """What is meant by it, as a queue has found out: the others carry it out so."""
        order = self._orders[number]
        order = order._replace(arguments=order.arguments | settled)
        self._places[number] = self._wait(self._add(record_of(order)))
        self._orders[number] = order
        return order

    def void(self, number: int) -> None:
        """No queue has taken it; one that has not heard of it does not any more."""
        order = self._orders.pop(number)
        self._wait(self._add(Record(number, order.ms, VOID, b"")))

    def done(self, number: int) -> None:
        """All queues have carried out those up to there. They are purged later: this does not wait."""
        self.dropped = max(self.dropped, number)
        self._forget(number)

    def _forget(self, number: int) -> None:
        for place in [place for place in self._orders if place <= number]:
            del self._orders[place]
            self._places.pop(place, None)

    # -- in the loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except NatsError as error:
            raise NotLeading(str(error)) from None

    async def _write(self, ms: int, question: str, arguments: dict[str, Any]) -> GivenOrder:
        async with self._one:
            await self._make_sure()
            order = GivenOrder(self.last + 1, ms, question, arguments)
            self._places[order.number] = await self._append(record_of(order))
            await self._trim()
            return order

    async def _add(self, record: Record) -> int:
        async with self._one:
            await self._make_sure()
            return await self._append(record)

    async def _append(self, record: Record) -> int:
        """The sequence at which it begins."""
        data = frame.frame([record], 0)
        pieces = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
        kinds = [WHOLE] if len(pieces) == 1 else [FIRST, *[MIDDLE] * (len(pieces) - 2), LAST]
        start = self._sequence + 1
        for kind, piece in zip(kinds, pieces, strict=True):
            self._is_sure = False
            try:
                self._sequence = await self._nats.append(self._subject, kind + piece, self._sequence)
            except WrongSequence:
                await self._make_sure()
                raise NoQuorum("what another has written was not known; try again") from None
            self._is_sure = True
        return start

    async def _make_sure(self) -> None:
        """Finds out what became of what had no answer. Raises NoQuorum if another one writes now."""
        while not self._is_sure:
            message, last, unheard = Assembly(), self._sequence, list[int]()
            async for block in self._nats.read(self._stream, last + 1):
                last = block.sequence
                for record in frame.parse(message.add(block) or b"", []):
                    if record.type == BEGUN and packing.unpack(record.body)[1] != self._token:
                        self.is_over = True
                        raise NoQuorum("another node leads the cluster now")
                    if record.type == GIVEN and record.seq not in self._orders:
                        unheard.append(record.seq)
            try:
                self._sequence = await self._nats.append(self._subject, self._begun, last)
            except WrongSequence:
                await asyncio.sleep(AGAIN_S)
                continue
            self._is_sure = True
            for number in unheard:
                self.last = max(self.last, number)
                await self._append(Record(number, 0, VOID, b""))

    async def _trim(self) -> None:
        """What all queues have carried out."""
        if self._sequence - self._first < TRIM_EVERY or self.dropped == self._noted:
            return
        base = Record(self.dropped, 0, BASE, packing.pack(self.last))
        keep = min([*self._places.values(), await self._append(base)])
        self._noted = self.dropped
        try:
            await self._nats.purge(self._stream, keep)
        except NatsError:
            return  # next time
        self._first = keep
