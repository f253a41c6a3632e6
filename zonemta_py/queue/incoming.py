"""What is on its way in: messages of several chunks, and the one way in which every message that is given is taken."""

from __future__ import annotations

import asyncio
from functools import partial

from zonemta_py.disk import keys, records
from zonemta_py.disk.bodies import shrink
from zonemta_py.disk.records import Type
from zonemta_py.disk.store import Operation
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.accept import Acceptance
from zonemta_py.queue.api import QueueRefusal, Receipt
from zonemta_py.queue.commit import immediately
from zonemta_py.queue.core import Core
from zonemta_py.queue.forgone import forgo

GONE = Reply(451, "4.3.0", "the message was given up, try again")
WRITES_MAX = 2
"""Writes of one message that may be on their way to the store at once."""


class LocalIncoming:
    """A message of several chunks (api.Incoming)."""

    def __init__(self, acceptance: Acceptance, core: Core) -> None:
        self._acceptance, self._core = acceptance, core
        self._id = ""
        self._chunks = 0
        self._pending = 0
        self._trouble: Reply | None = None
        self._wake: asyncio.Future[None] | None = None

    async def write(self, chunk: bytes) -> None:
        await self.write_kept([shrink(chunk)])

    async def write_kept(self, chunks: list[bytes]) -> None:
        """Several chunks at once, in the form in which they are kept (`disk.bodies`)."""
        self._check()
        if not self._id:
            self._open()
        numbers = range(self._chunks + 1, self._chunks + 1 + len(chunks))
        self._chunks += len(chunks)
        self._pending += 1
        operations: list[Operation] = [
            (keys.chunk(self._id, number), chunk) for number, chunk in zip(numbers, chunks, strict=True)
        ]
        self._core.lines.submit(operations, self._written, sync=False, keep=False)
        await self._until(WRITES_MAX - 1)

    def _open(self) -> None:
        core = self._core
        self._id = core.ids.next(core.clock.ms())
        core.arriving.add(self._id)
        core.record(Type.OPEN, records.pack([self._id]))

    def _written(self, reply: Reply | None) -> None:
        self._pending -= 1
        self._trouble = self._trouble or reply
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _until(self, most: int) -> None:
        while self._pending > most:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self._check()

    def _check(self) -> None:
        reply = self._trouble or self._acceptance.refusal()
        if reply is not None:
            raise QueueRefusal(reply)

    async def commit(self, envelope: Envelope, last_chunk: bytes) -> str:
        return (await self.accept(envelope, last_chunk)).id

    async def accept(self, envelope: Envelope, last_chunk: bytes) -> Receipt:
        return await self.accept_kept(envelope, shrink(last_chunk))

    async def accept_kept(self, envelope: Envelope, last_chunk: bytes) -> Receipt:
        """The same for a last chunk in the form in which it is kept."""
        await self._until(0)
        chunks = [last_chunk] if last_chunk else []
        return await take(self._acceptance, self._core, envelope, chunks, self)

    def hand_over(self) -> tuple[str, int]:
        """Id and number of the chunks stored: the commit is on its way, and abort must leave it alone.

        Raises QueueRefusal: it was aborted while something else was waited for.
        """
        self._check()
        message_id, self._id = self._id, ""
        return message_id, self._chunks

    def take_back(self, message_id: str) -> None:
        """The commit was refused: there are chunks to abort again."""
        self._id = message_id if self._chunks else ""

    def abort(self) -> None:
        if self._id:
            numbers = range(1, self._chunks + 1)
            operations: list[Operation] = [(keys.chunk(self._id, number), None) for number in numbers]
            self._core.lines.submit(operations, immediately, sync=False, keep=True)
            self._core.arriving.discard(self._id)
        self._id, self._trouble = "", GONE


async def take(
    acceptance: Acceptance, core: Core, envelope: Envelope, chunks: list[bytes], incoming: LocalIncoming | None = None
) -> Receipt:
    """Takes a message, or answers as before if its request was answered before. Raises QueueRefusal."""
    reply = acceptance.refusal()
    if reply is not None:
        raise QueueRefusal(reply)
    store = partial(_store, acceptance, core, envelope, chunks, incoming)
    if not envelope.request:
        return await store()
    receipt = await core.requests.once(envelope, store)
    if receipt.repeated and incoming:
        incoming.abort()
    return receipt


async def _store(
    acceptance: Acceptance, core: Core, envelope: Envelope, chunks: list[bytes], incoming: LocalIncoming | None
) -> Receipt:
    """Commits a message and waits for it. Raises QueueRefusal."""
    reply = acceptance.unfit(envelope)
    if reply is not None:
        raise QueueRefusal(reply)
    routed = await acceptance.asked_routes(envelope) if core.hooks.routes else acceptance.routes(envelope)
    reply = acceptance.wrong_source(envelope, routed)
    if reply is not None:
        raise QueueRefusal(reply)
    left_out = acceptance.left_out(envelope, routed)
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def done(stored: str, refused: Reply | None) -> None:
        if not future.done():
            if refused is None:
                future.set_result(stored)
            else:
                future.set_exception(QueueRefusal(refused))

    accepted = len(routed) - len(left_out)
    if not accepted:
        if incoming:
            incoming.abort()
        forgo(core, envelope, routed, left_out, done)
        return Receipt(await future, 0, len(left_out))
    message_id, before = incoming.hand_over() if incoming else ("", 0)
    acceptance.commit(envelope, routed, chunks, done, message_id=message_id, before=before, left_out=left_out)
    try:
        return Receipt(await future, accepted, len(left_out))
    except QueueRefusal:
        if incoming:
            incoming.take_back(message_id)
        raise
