"""The bytes of an outgoing message: in one piece, or chunk by chunk, with its header section changed or extended.

Chunks are fetched from the queue when the server is ready for them, so no process ever holds a whole large message. A
large merged message is a list of pieces; those common to all recipients are in memory once. Failures: `Dispatch.chunk`
raises QueueRefusal; the transaction then cuts the connection before the final dot.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator

from zonemta_py.mail.dkim.canonical import BodyHash, Form
from zonemta_py.mail.headers import split
from zonemta_py.mail.limits import CHUNK_BYTES, HEADER_BYTES_MAX
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Delivery, Dispatch

WHOLE_BYTES_MAX = 256 * 1024
"""A message made here that is larger stays in pieces."""


class Body:
    """One message. whole: all of it, or None if it comes in chunks or pieces. size: bytes to announce.

    changed: plugins have given it another header section. variant: how it was recoded, "" if it is as stored. added:
    bytes that were put on top.
    """

    __slots__ = (
        "_chunks", "_delivery", "_dispatch", "_head", "_next", "_pieces", "added", "changed", "size", "variant",
        "whole",
    )  # fmt: skip

    def __init__(self, delivery: Delivery, dispatch: Dispatch, pieces: list[bytes] | None = None) -> None:
        self._delivery, self._dispatch = delivery, dispatch
        self._pieces = None if pieces is None else _cut(pieces)
        self._chunks = delivery.chunks if self._pieces is None else len(self._pieces)
        self.whole = delivery.body
        self.size = delivery.size or len(delivery.body or b"")
        self._head = b""
        self._next = 1
        self.changed, self.variant, self.added = False, "", 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """First what has been read already, then the rest on demand; can be called again. Raises QueueRefusal."""
        if self.whole is not None:
            yield self.whole
            return
        if self._head:
            yield self._head
        for number in range(self._next, self._chunks + 1):
            yield await self._chunk(number)

    async def head(self) -> bytes:
        """The message at least up to the end of its header section (bounded by HEADER_BYTES_MAX)."""
        if self.whole is not None:
            return self.whole
        while b"\r\n\r\n" not in self._head and len(self._head) < HEADER_BYTES_MAX:
            if self._next > self._chunks:
                break
            self._head += await self._chunk(self._next)
            self._next += 1
        return self._head

    async def everything(self) -> bytes:
        """All of it, at once in memory. Raises QueueRefusal."""
        return self.whole if self.whole is not None else b"".join([bytes(chunk) async for chunk in self.chunks()])

    def replaced(self, message: bytes, variant: str) -> Body:
        """Another message in its place, of which nothing is signed."""
        made = copy.copy(self)
        made.size, made.variant, made.added = len(message), variant, 0
        made._head, made._next = b"", 1
        small = len(message) <= WHOLE_BYTES_MAX
        made.whole, made._pieces = (message, None) if small else (None, _cut([message]))
        made._chunks = len(made._pieces or ())
        return made

    def unfinished(self) -> Body:
        """The same without what was put on top."""
        made = copy.copy(self)
        made.put((self._head if self.whole is None else self.whole)[self.added :])
        made.added = 0
        return made

    async def wanted(self, host: Host, delivery: Delivery) -> bytes:
        """The header section as plugins (`sender_headers`) want it for one delivery of this message; the body object
        itself does not change.

        Raises their verdict.
        """
        before = await self.head()
        headers, _ = split(before)
        await host.call("sender_headers", delivery=delivery, headers=headers)
        return headers.build()

    async def with_header(self, fields: bytes) -> Body:
        """The same message with another header section."""
        before = await self.head()
        end = split(before)[1]
        made = copy.copy(self)
        if fields != before[:end]:
            made.put(fields + before[end:])
            made.changed = True
        return made

    def put(self, head: bytes) -> None:
        """Replaces what `head` returns."""
        self.size += len(head) - len(self._head if self.whole is None else self.whole)
        if self.whole is not None:
            self.whole = head
        else:
            self._head = head

    async def section(self) -> bytes:
        """The raw header section as it will be sent, without the empty line after it."""
        head = await self.head()
        end = head.find(b"\r\n\r\n")
        return head[: end + 2] if end >= 0 else head

    def put_on_top(self, fields: bytes) -> None:
        """Prepends raw fields, each with its CRLF; `head` must have been called before."""
        self.put(fields + (self._head if self.whole is None else self.whole))
        self.added += len(fields)

    async def hash(self, form: Form) -> bytes:
        """SHA-256 of the body in canonical form; a large one is read once more for it. Raises QueueRefusal."""
        hashed = BodyHash(form)
        if self.whole is not None:
            hashed.add(self.whole.partition(b"\r\n\r\n")[2])
            return hashed.digest()
        head = b""
        number = 0
        while number < self._chunks and b"\r\n\r\n" not in head:
            number += 1
            head += await self._chunk(number)
        hashed.add(head.partition(b"\r\n\r\n")[2])
        for rest in range(number + 1, self._chunks + 1):
            hashed.add(await self._chunk(rest))
        return hashed.digest()

    async def _chunk(self, number: int) -> bytes:
        if self._pieces is None:
            return await self._dispatch.chunk(self._delivery.id, number)
        return bytes(self._pieces[number - 1])


def _cut(pieces: list[bytes]) -> list[memoryview]:
    """The same bytes, in pieces small enough for a single write."""
    views = [memoryview(piece) for piece in pieces]
    return [view[at : at + CHUNK_BYTES] for view in views for at in range(0, len(view), CHUNK_BYTES)]
