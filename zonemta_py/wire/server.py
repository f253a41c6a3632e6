"""The queue's end of the unix socket. One connection is one receiver, sender or operator.

Everything that arrives in one turn of the event loop is answered in one write. When a connection ends, so does
its unfinished work: messages that were not committed are dropped, leases are in doubt (`LocalQueue.lost`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Coroutine
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, cast

import msgpack

from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Delivery, QueueFault, QueueRefusal, Receipt
from zonemta_py.queue.lifecycle.accept import Acceptance
from zonemta_py.queue.lifecycle.incoming import LocalIncoming
from zonemta_py.queue.lifecycle.lease import Taker
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.wire import SOCKET
from zonemta_py.wire.frames import (
    FAULT,
    OK,
    REFUSED,
    WRONG,
    Operation,
    delivery_row,
    pack,
    pack_chunks,
    result_of,
    unpacker,
)
from zonemta_py.wire.peer_process import PeerProcess
from zonemta_py.wire.pulse import sibling
from zonemta_py.wire.requests import (
    SETTLE_S,
    ConnectionRequests,
    PullRequests,
    SessionRequests,
    answered,
    kept,
    outlived,
    owed,
    packed,
)

log = logging.getLogger(__name__)

RECEIVERS = ("receiver", "pull", "http", "links")
"""Names of processes that may be in the middle of a message when the queue is to end."""
"""Name of the socket in the queue's folder."""


async def serve(queue: LocalQueue, folder: Path) -> asyncio.AbstractServer:
    """Listens on `folder`/socket, readable by this user only; a socket left by a dead process is replaced."""
    path = folder / SOCKET
    queue.core.counters.sessions.settled_at = asyncio.get_running_loop().time() + SETTLE_S
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        server = await asyncio.get_running_loop().create_unix_server(lambda: ClientConnection(queue), str(path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    queue.core.keep(asyncio.ensure_future(_watch(queue)))
    return server


def retire(queue: LocalQueue, generation: int) -> None:
    """Senders of earlier generations get nothing more; they are told so when they ask, or ask already."""
    queue.generation = generation
    for connection in list(ClientConnection.pulsed.values()):
        connection.retire()


async def _watch(queue: LocalQueue) -> None:
    """Senders whose pulse has stopped lose their leases."""
    loop = asyncio.get_running_loop()
    while True:
        lease_s = queue.core.config.queue.lease_s
        step = lease_s / 4
        due = loop.time() + step
        await asyncio.sleep(step)
        now = loop.time()
        for connection in list(ClientConnection.pulsed.values()):
            if now - due > step:  # this process itself was stuck: their pulses are still to be read
                connection.heard_at = now
            elif now - connection.heard_at > lease_s:
                connection.fall_silent()


class ClientConnection(asyncio.Protocol):
    """One peer."""

    count = 0
    receivers: ClassVar[set[ClientConnection]] = set()
    """Those that hand in mail, or messages to named queues."""
    pulsed: ClassVar[dict[str, ClientConnection]] = {}
    """Those whose process must send pulses, by token."""

    def __init__(self, queue: LocalQueue) -> None:
        ClientConnection.count += 1
        self._number = ClientConnection.count
        self._queue = queue
        self._name = f"connection-{self._number}"
        self._loop = asyncio.get_running_loop()
        self._unpacker = unpacker()
        self._out: list[bytes] = []
        self._incoming: dict[int, LocalIncoming] = {}
        self._order: dict[int, asyncio.Task[None]] = {}
        self._takers: dict[int, Taker] = {}
        """Those that wait, by their request's number."""
        self._silent, self._pulse, self._generation = False, "", 0
        self.heard_at, self._process = 0.0, PeerProcess(0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._handlers: dict[int, Callable[..., None]] = {
            Operation.HELLO: self._hello,
            Operation.PUT: self._put,
            Operation.CHUNK: self._chunk,
            Operation.COMMIT: self._commit,
            Operation.ABORT: self._abort,
            Operation.LEASE: self._lease,
            Operation.SETTLE: self._settle,
            Operation.PART: self._part,
            Operation.FETCH: self._fetch,
            Operation.ASK: self._ask,
            Operation.TEMPLATE: self._template,
            Operation.ACCEPT: self._accept,
            Operation.KNOWN: self._known,
            Operation.PLUGIN: self._plugin,
            Operation.BEAT: self._beat,
        }
        self._pulls = PullRequests(queue, lambda: self._name, self._answer, self._run)
        self._sessions = SessionRequests(queue, self._answer, self._run)
        own = ConnectionRequests(queue, lambda: self._name, self._run)
        self._handlers |= self._pulls.handlers() | self._sessions.handlers() | own.handlers()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        try:
            self._unpacker.feed(data)
            for frame in self._unpacker:
                self._handlers[frame[0]](*frame[1:])
        except (msgpack.UnpackException, ValueError, KeyError, TypeError, IndexError, AttributeError):
            if self._transport is not None:  # not one of ours: it cannot be trusted
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.receivers.discard(self)
        self.pulsed.pop(self._pulse, None)
        for taker in self._takers.values():
            self._queue.leases.leave(taker)
        self._pulls.end()
        self._sessions.end()
        self._takers = {}
        del self._handlers, self._pulls, self._sessions  # which refer to this: it goes with its last user
        for task in self._tasks:
            task.cancel()
        for incoming in self._incoming.values():
            incoming.abort()
        self._queue.lost(self._name, pid=self._process.pid)
        self._process.when_over(partial(self._queue.over, self._name))

    # -- answers

    def _answer(self, number: int, status: int, payload: Any) -> None:
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(pack((number, status, payload)))

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out = []

    def _refuse(self, number: int, reply: Reply) -> None:
        self._answer(number, REFUSED, (reply.code, reply.enhanced, reply.text))

    def _run(self, number: int, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Answers with what the coroutine returns or raises."""
        return self._keep(self._finish(number, work))

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Ends with the connection."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _finish(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self._answer(number, OK, await work)
        except QueueFault as fault:
            self._answer(number, FAULT, fault.reply.text)
        except QueueRefusal as refusal:
            self._refuse(number, refusal.reply)
        except ValueError as error:
            self._answer(number, WRONG, str(error))
        except Exception:  # a bug of ours: the client must neither wait for ever nor take it for an answer
            log.exception("connection %s: a request failed", self._name)
            if self._transport is not None:
                self._transport.abort()

    # -- requests

    def _hello(self, _: int, name: str, pulse: str = "", generation: int = 0) -> None:
        self._name, self._generation = f"{name}-{self._number}", int(generation)
        if name in RECEIVERS:
            self.receivers.add(self)
        if pulse:
            self._pulse, self.heard_at = pulse, self._loop.time()
            self.pulsed[pulse] = self
            self._process = PeerProcess(sibling(self._transport))
            self._queue.outlived(self._process.pid)

    def _beat(self, _: int, token: str) -> None:
        connection = self.pulsed.get(token)
        if connection is not None:
            connection.heard_at = self._loop.time()
            connection._speak_again()

    def fall_silent(self) -> None:
        """Its process is stuck: other senders send what it had, and it gets nothing more until it runs again."""
        if self._silent:
            return
        self._silent = True
        log.warning(
            "%s has not been heard from for %.0f s: it loses its leases; what it may have sent is in doubt",
            self._name, self._loop.time() - self.heard_at,
        )  # fmt: skip
        for taker in self._takers.values():
            self._queue.leases.leave(taker)
        self._pulls.fall_silent()
        self._queue.lost(self._name, silent=True)
        self._loop.call_later(self._queue.core.config.queue.lease_s, self._end_silent)

    def _end_silent(self) -> None:
        """As long again: the supervisor has another one in its place, which may be the only one there is."""
        if self._silent and self._process.kill():
            log.warning("%s, process %d, is still stuck: it is killed and restarted", self._name, self._process.pid)

    def _speak_again(self) -> None:
        if self._silent:
            self._silent = False
            log.warning("%s runs again", self._name)
            self._queue.stays(self._name)
            waiting, self._takers = self._takers, {}
            for number, taker in waiting.items():
                self._lease(number, taker.most)

    @property
    def _retired(self) -> bool:
        return 0 < self._generation < self._queue.generation

    def retire(self) -> None:
        """If it is of an earlier generation. What it has already it ends; what was on its way to it goes back."""
        if self._retired:
            for number, taker in self._takers.items():
                self._queue.leases.leave(taker)
                self._answer(number, OK, None)
            self._takers = {}
            self._queue.leases.retire(self._name)

    def _put(self, number: int, envelope: list[Any], body: bytes) -> None:
        """Answered with the id alone."""
        self._take(number, _checked(envelope, body), body, attrgetter("id"))

    def _accept(self, number: int, envelope: list[Any], body: bytes) -> None:
        self._take(number, _checked(envelope, body), body, tuple)

    def _take(self, number: int, message: Envelope, body: bytes, shape: Callable[[Receipt], Any]) -> None:
        acceptance = self._queue.acceptance
        if acceptance.waits(message):
            self._run(number, _accepted(acceptance, message, body, shape))
        else:
            acceptance.admit(message, [body], partial(self._taken, number, shape))

    def _taken(self, number: int, shape: Callable[[Receipt], Any], taken: Receipt | Reply) -> None:
        if isinstance(taken, Receipt):
            self._answer(number, OK, shape(taken))
        else:
            self._refuse(number, taken)

    def _known(self, number: int, token: str) -> None:
        self._run(number, owed(self._queue, token))

    def _plugin(self, number: int, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> None:
        self._run(number, kept(self._queue, what, plugin, name, token, arguments))

    def _chunk(self, number: int, token: int, chunks: list[bytes], client: str = "") -> None:
        _bytes(*chunks)
        incoming = self._incoming.get(token)
        if incoming is None:
            incoming = self._incoming[token] = self._queue.begin(str(client))
        self._in_order(number, token, incoming.write_kept(chunks))

    def _commit(
        self, number: int, token: int, envelope: list[Any], chunks: list[bytes], last: bytes, client: str = ""
    ) -> None:
        _bytes(*chunks)
        message = _checked(envelope, last)
        incoming = self._incoming.get(token)
        if incoming is None:  # all its chunks are in this frame; kept, so that it is aborted with the connection
            incoming = self._incoming[token] = self._queue.begin(str(client))
        work = self._commit_one(token, incoming, message, chunks, last)
        self._in_order(number, token, work)

    async def _commit_one(
        self, token: int, incoming: LocalIncoming, envelope: Envelope, chunks: list[bytes], last: bytes
    ) -> Receipt:
        try:
            return await incoming.accept_kept(envelope, [*chunks, last] if last else chunks)
        except QueueRefusal:
            incoming.abort()
            raise
        finally:
            self._incoming.pop(token, None)
            self._order.pop(token, None)

    def _in_order(self, number: int, token: int, work: Coroutine[Any, Any, Any]) -> None:
        before = self._order.get(token)

        async def after() -> Any:
            if before is not None:
                await asyncio.wait([before])
            return await work

        self._order[token] = self._run(number, after())

    def _abort(self, _: int, token: int) -> None:
        incoming = self._incoming.pop(token, None)
        self._order.pop(token, None)
        if incoming is not None:
            incoming.abort()

    def _lease(self, number: int, most: int) -> None:
        if not isinstance(most, int) or most < 1:  # it would be ahead of all others for ever
            raise TypeError("the number of deliveries must be a number")
        if self._retired:
            self._answer(number, OK, None)
            return
        taker = self._takers[number] = self._queue.leases.take(most, self._name, partial(self._leased, number))
        if self._silent:  # it speaks again when its pulse says so
            self._queue.leases.leave(taker)

    def _leased(self, number: int, deliveries: list[Delivery]) -> None:
        self._takers.pop(number, None)
        self._answer(number, OK, list(map(delivery_row, deliveries)))

    def _settle(self, number: int, result: list[Any]) -> None:
        self._queue.settling.settle(result_of(result), partial(self._answer, number, OK, None))

    def _part(self, _: int, result: list[Any]) -> None:
        self._queue.settling.settle(result_of(result), _nothing)

    def _fetch(self, number: int, message_id: str, first: int, most: int, reads: bool = False) -> None:
        if reads and (count := self._queue.filed(message_id)):
            self._answer(number, OK, count)
        else:
            self._keep(self._fetched(number, message_id, first, most))

    async def _fetched(self, number: int, message_id: str, first: int, most: int) -> None:
        try:
            self._answer_chunks(number, await self._queue.chunks(message_id, first, most))
        except QueueRefusal as refusal:
            self._refuse(number, refusal.reply)

    def _template(self, number: int, campaign: str, first: int, most: int) -> None:
        try:
            self._answer_chunks(number, self._queue.template_chunks(campaign, first, most))
        except QueueRefusal as refusal:
            self._refuse(number, refusal.reply)

    def _answer_chunks(self, number: int, chunks: list[bytes]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += pack_chunks((number, OK), chunks)

    def _ask(self, number: int, question: str, arguments: dict[str, Any]) -> None:
        work = asyncio.ensure_future(answered(self._queue, question, arguments))
        self._queue.core.keep(work)
        self._keep(packed(question, self._finish(number, outlived(work))))


async def _accepted(acceptance: Acceptance, message: Envelope, body: bytes, shape: Callable[[Receipt], Any]) -> Any:
    return shape(await acceptance.accept(message, [body]))


def _nothing() -> None:
    """Takes a part of a message; it has no answer."""


def _bytes(*values: Any) -> None:
    """LevelDB must not be given anything else: what it refuses counts as damage. Raises TypeError."""
    if not all(isinstance(value, bytes) for value in values):
        raise TypeError("a body must be bytes")


def _checked(row: list[Any], body: Any) -> Envelope:
    """An envelope that can be stored. Raises TypeError, ValueError, KeyError, AttributeError for any other."""
    if not isinstance(body, bytes):
        _bytes(body)
    envelope = Envelope.from_wire(row)
    if not envelope.recipients:
        raise ValueError("an envelope needs a recipient")
    for recipient in envelope.recipients:
        recipient.address.encode()
    return envelope
