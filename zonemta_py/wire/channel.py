"""One connection to the queue's socket: numbers requests, and gives each its answer, in whatever order they come.

Requests of one turn of the event loop leave in one write. Failures: when the connection ends, everything that is open
fails with Lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.wire.frames import FAULT, OK, REFUSED, Operation, pack, pack_chunks, unpacker

GONE = Reply(451, "4.3.0", "the queue is restarting; try again in a moment")


class Lost(QueueRefusal):
    """The queue's process ended before it answered the request."""


CLOSED_S = 0.002
"""How long it may wait for company that a connection is closed: a write of its own costs both processes far more."""


class Channel(asyncio.Protocol):
    """lost: called when it has ended."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._unpacker = unpacker()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._out: list[bytes] = []
        self._closed: list[int] = []
        self._due = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def send(self, frame: tuple[Any, ...]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(pack(frame))

    def closed(self, connection: int) -> None:
        """That one of this process's own is: said with the next frame, whatever that is, or in CLOSED_S."""
        self._closed.append(connection)
        if not self._due:
            self._due = True
            self._loop.call_later(CLOSED_S, self._say_closed)

    def _say_closed(self) -> None:
        self._due = False
        if self._closed and not self._out:
            self._flush()

    def _flush(self) -> None:
        if self._closed:
            self._out.append(pack((Operation.CLOSED, 0, self._closed)))
            self._closed = []
        if self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out = []

    def request(self, operation: Operation, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        self._number += 1
        future = self._open[self._number] = self._loop.create_future()
        self.send((operation, self._number, *arguments))
        return future

    def request_chunks(self, token: int, chunks: list[bytes], client: str) -> asyncio.Future[Any]:
        self._number += 1
        future = self._open[self._number] = self._loop.create_future()
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += pack_chunks((int(Operation.CHUNK), self._number, token), chunks, (client,))
        return future

    def data_received(self, data: bytes) -> None:
        self._unpacker.feed(data)
        for number, status, payload in self._unpacker:
            future = self._open.pop(number, None)
            if future is None or future.done():
                continue
            if status == OK:
                future.set_result(payload)
            else:
                future.set_exception(_error(status, payload))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for future in self._open.values():
            if not future.done():
                future.set_exception(Lost(GONE))
                future.add_done_callback(ignore)
        self._open.clear()
        self._lost()


def ignore(future: asyncio.Future[Any]) -> None:
    """Nothing may be left to retrieve it."""
    if not future.cancelled():
        future.exception()


def answer_of(status: int, payload: Any) -> Any:
    """What an answer says. Raises ValueError, QueueRefusal, QueueFault."""
    if status == OK:
        return payload
    raise _error(status, payload)


def _error(status: int, payload: Any) -> Exception:
    if status == REFUSED:
        return QueueRefusal(Reply(*payload))
    return QueueFault(payload) if status == FAULT else ValueError(payload)
