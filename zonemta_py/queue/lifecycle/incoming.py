"""Messages received in several chunks. The last chunk hands them to `Acceptance.accept`, like any other message."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeVar

from zonemta_py.disk.bodies import Shrinker
from zonemta_py.disk.body_file import BodyFile
from zonemta_py.disk.leveldb.trouble import refusal
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import OpenRecord
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal, Receipt
from zonemta_py.queue.core.bodies import Stored, client_of
from zonemta_py.queue.core.commit import Replica
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.accept import Acceptance

GONE = Reply(451, "4.3.0", "the message was abandoned, try again")
IN_STORE_BYTES_MAX = 8 * CHUNK_BYTES
"""Bodies of up to this stored size go into the store, in the one batch that accepts them."""
T = TypeVar("T")


class LocalIncoming:
    """A message of several chunks (api.Incoming): collected in memory up to a limit, then written to a file.

    client: who submits it, for the limits on uncommitted bytes.
    """

    def __init__(self, acceptance: Acceptance, core: Core, client: str = "") -> None:
        self._acceptance, self._core, self._client = acceptance, core, client_of(client)
        self._shrink = Shrinker().shrink
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._counted = 0
        self._id = ""
        self._file: BodyFile | None = None
        self._file_bytes = 0
        self._job: asyncio.Future[None] | None = None
        self._trouble: Reply | None = None

    async def write(self, chunk: bytes) -> None:
        await self.write_kept([self._shrink(chunk)])

    async def write_kept(self, chunks: list[bytes]) -> None:
        """Several chunks as they are stored (`disk.bodies`); at most one write is in progress."""
        self._check()
        self._gather(chunks)
        if self._gathered_bytes <= IN_STORE_BYTES_MAX and self._file is None:
            return
        await self._written()
        self._pass_on()

    def _gather(self, chunks: list[bytes]) -> None:
        size = sum(map(len, chunks))
        reply = self._core.disk.bodies.uncommitted.add(self._client, size)
        if reply is not None:
            self._trouble = reply
            raise QueueRefusal(reply)
        self._counted += size
        self._gathered += chunks
        self._gathered_bytes += size

    def _pass_on(self) -> None:
        """Writes the collected chunks to the file while more arrive."""
        if self._file is None:
            self._file = self._open()
        chunks, self._gathered = self._gathered, []
        self._core.disk.space.fill(self._gathered_bytes)
        self._gathered_bytes = 0
        self._job = self._core.disk.bodies.run(partial(self._file.write, chunks))

    def _open(self) -> BodyFile:
        core = self._core
        self._id = core.disk.ids.next(core.clock.ms())
        core.arriving.add(self._id)
        core.disk.ledger.append(Type.OPEN, OpenRecord(self._id).pack())
        return BodyFile(core.disk.bodies.folder, self._id)

    async def _written(self) -> None:
        """Waits for the write in progress. Raises QueueRefusal."""
        if self._job is not None:
            await self._done(self._job)
        self._job = None
        self._check()

    async def _done(self, job: asyncio.Future[T]) -> T:
        await asyncio.wait([job])  # `abort` cancels the job, not its waiter, which must get an answer
        if job.cancelled():
            raise QueueRefusal(self._trouble or GONE)
        try:
            return job.result()
        except OSError as error:
            self._trouble = self._trouble or refusal(error)
            raise QueueRefusal(self._trouble) from None

    def _check(self) -> None:
        """A refusal is final: part of the message is missing, though its end may already be on its way."""
        self._trouble = self._trouble or self._core.disk.refusal(self._core.clock.monotonic(), here=True)
        if self._trouble is not None:
            raise QueueRefusal(self._trouble)

    async def accept(self, envelope: Envelope, last_chunk: bytes) -> Receipt:
        return await self.accept_kept(envelope, [self._shrink(last_chunk)] if last_chunk else [])

    async def accept_kept(self, envelope: Envelope, last_chunks: list[bytes]) -> Receipt:
        """The same for the last chunks as they are stored."""
        self._check()
        self._gather(last_chunks)
        if self._gathered_bytes > IN_STORE_BYTES_MAX or self._file is not None:
            await self._complete()
        receipt = await self._acceptance.accept(envelope, self._gathered, self)
        self.release()
        return receipt

    async def _complete(self) -> None:
        """Waits until the file is complete and on stable storage."""
        await self._written()
        self._pass_on()
        await self._written()
        assert self._file is not None
        self._file_bytes = await self._done(self._core.disk.bodies.run(self._file.finish))
        if self._core.disk.replica is not None:
            await self._copied(self._core.disk.replica)
        self._check()

    async def _copied(self, replica: Replica) -> None:
        """Until other machines have its file, or are about to, before the batch that accepts it."""
        try:
            await replica.body(self._core.disk.bodies.folder, self._id)
        except OSError as error:  # it was aborted, or the disk fails
            self._trouble = self._trouble or refusal(error)

    def hand_over(self) -> Stored | None:
        """The commit is in progress, so abort must leave the file alone; None: there is no file.

        Raises QueueRefusal if it was aborted during an earlier wait.
        """
        self._check()
        if self._file is None:
            return None
        stored = Stored(self._id, self._file.chunks, self._file_bytes)
        self._id, self._file = "", None
        return stored

    def release(self) -> None:
        """Its bytes no longer count as uncommitted: they are stored, or refused and soon deleted."""
        self._core.disk.bodies.uncommitted.release(self._client, self._counted)
        self._counted = 0

    def abort(self) -> None:
        self._gathered, self._gathered_bytes = [], 0
        if self._job is not None:
            self._job.add_done_callback(_ignore)
            self._job.cancel()  # it may still wait for a thread
        if self._file is not None:
            self._core.disk.bodies.dispose(self._file.abort)
        if self._id:
            self._core.arriving.discard(self._id)
        self._id, self._file, self._trouble = "", None, GONE
        self.release()


def _ignore(job: asyncio.Future[None]) -> None:
    """The result is no longer needed."""
    if not job.cancelled():
        job.exception()
