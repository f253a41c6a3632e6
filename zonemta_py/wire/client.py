"""The other end of the unix socket: `RemoteQueue` is Submission, Dispatch, Pull and Admin for receivers, senders,
those who take what waits in pull zones, and operators.

Requests of one turn of the event loop leave in one write. When the queue's process dies, everything open fails with
451; a receiver reconnects by itself (`lasting`), and its requests meanwhile wait PATIENCE_S for the queue before they
fail likewise; a sender has nothing left to do (`gone`). A message whose answer was outstanding may be stored: the next
process is asked, by the token stored with it, and the client gets its answer. If there is none within ASK_S, Unanswered
is raised, and the client's connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from zonemta_py.disk import body_file
from zonemta_py.disk.bodies import Shrinker, restore, shrink
from zonemta_py.logs.causes import from_outside
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import (
    RELEASED,
    Delivery,
    Feedback,
    OpenConnection,
    Outcome,
    QueueRefusal,
    Receipt,
    Result,
    Retired,
    Unanswered,
    accept_whole,
)
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.wire import SOCKET
from zonemta_py.wire.channel import GONE, Channel, Lost, ignore
from zonemta_py.wire.frames import CHUNKS_AT_ONCE, Operation, delivery_of, feedback_row, result_row
from zonemta_py.wire.pulse import Pulse
from zonemta_py.zones.admittance import Admittance

log = logging.getLogger(__name__)

FAULTS_MAX = 3
STOOD_STILL = Reply(451, "4.3.0", "the sender was stuck")
NO_CHUNK = Reply(451, "4.3.0", "the body has no such chunk")
UNANSWERED = Reply(451, "4.3.0", "the queue's process ended before it said whether the message is stored")
RECONNECT_S = 0.004
"""A client may be waiting for it, and a try costs some 10 µs."""
PATIENCE_S = 30.0
"""How long a request waits for a queue that is starting."""
ASK_S = 240.0
"""How long to wait until it says whether it is stored; clients wait ten minutes after the dot (RFC 5321 4.5.3.2.6)."""
LOOK_S = 0.5
"""How often to look whether there still is such a queue."""
FRAMES_AHEAD_MAX = 16
"""Frames of chunks that the queue has not answered yet, of all messages on their way in together."""
MESSAGES_AHEAD_MAX = 32
"""Messages of which chunks are kept that came along with the one asked for."""
_tokens = count(1)


class _Ahead:
    """Chunks of a message from `first` on that are here already, and the request for the next ones."""

    __slots__ = ("chunks", "first", "following")

    def __init__(self, first: int, chunks: list[bytes]) -> None:
        self.first, self.chunks = first, chunks
        self.following: asyncio.Future[list[bytes]] | None = None


class RemoteQueue:
    """The queue behind the socket."""

    def __init__(
        self, folder: Path, name: str, reconnect: bool, generation: int = 0, socket: str = SOCKET
    ) -> None:  # fmt: skip
        self._path, self._name, self._reconnect, self._generation = folder / socket, name, reconnect, generation
        self._protocol: Channel | None = None
        self._token, self._secret = 0, token_hex(6)
        self._ahead: dict[str, _Ahead] = {}
        self._bodies = folder / body_file.FOLDER
        self.room = asyncio.Semaphore(FRAMES_AHEAD_MAX)
        """For frames of chunks."""
        self._sessions: dict[str, str] = {}
        """Accounts of those that were let in, by the session's id."""
        self._files: dict[str, int] = {}
        """Chunks of messages whose bodies have files, by id."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pulse: Pulse | None = None
        self._back: asyncio.Future[None] | None = None
        self._patience_s = PATIENCE_S if reconnect else 0.0
        self._ended = False
        self.heir: RemoteQueue | None = None
        """Knows what this one has stored, once there is no such queue any more."""

    @classmethod
    def lasting(cls, folder: Path, name: str, lease_s: float = 0, socket: str = SOCKET) -> Self:
        """One that is usable at once and lasts: it connects by itself, now and whenever the queue is back.

        lease_s: as of `connect`. socket: name of the socket in that folder.
        """
        queue = cls(folder, name, reconnect=True, socket=socket)
        if lease_s:
            queue.pulse = Pulse(folder / SOCKET, lease_s)
        queue._lost()
        return queue

    @classmethod
    async def connect(
        cls, folder: Path, name: str, reconnect: bool = False, patience_s: float = 60, lease_s: float = 0,
        generation: int = 0,
    ) -> RemoteQueue:  # fmt: skip
        """Waits up to `patience_s` for the queue to be there. Raises QueueRefusal.

        lease_s: of one that has leases: as in the configuration, so that the queue hears in time that it runs.
        generation: of its configuration.
        """
        queue = cls(folder, name, reconnect, generation)
        if lease_s:
            queue.pulse = Pulse(folder / SOCKET, lease_s)
        deadline = asyncio.get_running_loop().time() + patience_s
        while not await queue._connect():
            if asyncio.get_running_loop().time() > deadline:
                raise QueueRefusal(GONE)
            await asyncio.sleep(RECONNECT_S)
        return queue

    async def _connect(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            _, protocol = await loop.create_unix_connection(lambda: Channel(self._lost), str(self._path))
        except OSError:
            return False
        self._protocol = protocol
        protocol.send((Operation.HELLO, 0, self._name, self.pulse.token if self.pulse else "", self._generation))
        self._say_again(protocol)
        if self._back is not None:
            self._back.set_result(None)
            self._back = None
        return True

    def _say_again(self, protocol: Channel) -> None:
        """To a queue that knows nothing of this process's sessions."""
        for session, account in self._sessions.items():
            protocol.request(Operation.ENTER, (session, account, True)).add_done_callback(ignore)

    @property
    def there(self) -> bool:
        """Whether it is connected now."""
        return self._protocol is not None

    def _lost(self) -> None:
        self._protocol = None
        if self._reconnect:
            self._again = asyncio.ensure_future(self._connect_again())
        elif not self.gone.done():
            self.gone.set_result(None)

    def end(self) -> None:
        """There is no such queue here any more: nobody waits for it, and it is not looked for."""
        self._ended, self._reconnect = True, False
        self._again.cancel()
        if self._back is not None:
            self._back.set_result(None)
            self._back = None

    async def _connect_again(self) -> None:
        while not await self._connect():  # noqa: ASYNC110 (another process is waited for, no event can tell)
            await asyncio.sleep(RECONNECT_S)

    async def _there(self) -> Channel:
        """Waits for a queue that is starting. Raises QueueRefusal."""
        end = asyncio.get_running_loop().time() + self._patience_s
        while self._protocol is None:
            left_s = end - asyncio.get_running_loop().time()
            if left_s <= 0 or self._ended or (self.heir is not None and not self._path.parent.exists()):
                raise QueueRefusal(GONE)
            self._back = self._back or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._back], timeout=min(left_s, LOOK_S) if self.heir is not None else left_s)
        return self._protocol

    async def _asked(self, operation: Operation, *arguments: Any) -> Any:
        """The answer to a request that may wait for the queue to be there."""
        return await (self._protocol or await self._there()).request(operation, arguments)

    def _request(self, operation: Operation, *arguments: Any) -> asyncio.Future[Any]:
        if self._protocol is None:
            raise QueueRefusal(GONE)
        return self._protocol.request(operation, arguments)

    def _request_chunks(self, token: int, chunks: list[bytes], client: str) -> asyncio.Future[Any]:
        if self._protocol is None:
            raise QueueRefusal(GONE)
        return self._protocol.request_chunks(token, chunks, client)

    # -- Submission

    async def accept(self, envelope: Envelope, body: bytes) -> Receipt:
        if len(body) > CHUNK_BYTES:
            return await accept_whole(self, envelope, body)
        self._mark(envelope)
        protocol = self._protocol or await self._there()
        try:
            return Receipt(*await _answer(protocol.request(Operation.ACCEPT, (envelope.to_wire(), shrink(body)))))
        except Lost:
            return await self._found(envelope)

    def _mark(self, envelope: Envelope) -> None:
        if self._reconnect:
            self._token += 1
            envelope.token = f"{self._secret}{self._token:x}"

    async def _found(self, envelope: Envelope) -> Receipt:
        """What the next process of the queue knows of it. Raises QueueRefusal: it was not stored; Unanswered."""
        if not self._reconnect:
            raise Lost(GONE)
        loop = asyncio.get_running_loop()
        until = loop.time() + ASK_S
        while (left := until - loop.time()) > 0:
            try:
                receipt = await asyncio.wait_for(self.known(envelope.token), left)
            except TimeoutError:
                break
            except (Exception, asyncio.CancelledError) as error:
                if from_outside(error):
                    raise
                log.exception("internal error while asking whether a message is stored; asking again")
                continue
            if receipt is None:
                raise QueueRefusal(GONE)
            return Receipt(*receipt)
        raise Unanswered(UNANSWERED)

    async def known(self, token: str) -> Any:
        """The receipt of a message, None: it is not stored. Waits for the queue to be there, or asks its heir."""
        while True:
            try:
                return await self._request(Operation.KNOWN, token)
            except QueueRefusal:
                if self.heir is not None and not self._path.parent.exists():
                    return await self.heir.known(token)
                await asyncio.sleep(RECONNECT_S)

    def begin(self, client: str = "", envelope: Envelope | None = None) -> RemoteIncoming:
        self._token += 1
        return RemoteIncoming(self, self._token, client)

    # -- Reception: sessions of accounts, and what came back

    async def enter(self, session: str, account: str) -> None:
        """As of `Reception`."""
        while True:
            try:
                await self._asked(Operation.ENTER, session, account)
            except Lost:  # the next process of the queue is asked, or says after a while that there is none
                continue
            self._sessions[session] = account
            return

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        """As of `Reception`."""
        packed = list(map(feedback_row, rows))
        while True:
            try:
                found = await self._asked(Operation.FEEDBACK, packed)
            except Lost:  # asking twice is harmless: what was recorded is known
                continue
            return list(found)

    def leave(self, session: str) -> None:
        """As of `Reception`."""
        self._sessions.pop(session, None)
        if self._protocol is not None:
            self._protocol.send((Operation.LEFT, 0, session))

    # -- Dispatch

    async def lease(self, most: int) -> list[Delivery]:
        asked = time.monotonic()
        found = await self._request(Operation.LEASE, most)
        if found is None:
            raise Retired
        deliveries = list(map(whole, found))
        if self.pulse is not None and self.pulse.stale(asked):
            for delivery in deliveries:  # another sender has it by now; if not, no harm is done
                untried = Outcome(RELEASED, STOOD_STILL, "queue", list(range(len(delivery.recipients))))
                await self.settle(Result(delivery.lease, [untried], connection=delivery.connection or 0))
            return []
        return deliveries

    async def settle(self, result: Result) -> None:
        await self._request(Operation.SETTLE, result_row(result))

    def settle_part(self, result: Result) -> None:
        if self._protocol is not None:  # else the end of the lease will say that the queue is gone
            self._protocol.send((Operation.PART, 0, result_row(result)))

    async def place(self, lease: int, site: str, provider: str) -> Admittance:
        return Admittance(*await self._request(Operation.PLACE, lease, site, provider))

    def closed(self, connection: int) -> None:
        if self._protocol is not None:
            self._protocol.closed(connection)

    def left_open(self, connections: list[OpenConnection]) -> None:
        if self._protocol is not None:
            self._protocol.send((Operation.LEFT_OPEN, 0, connections))

    async def chunk(self, message_id: str, number: int) -> bytes:
        ahead = self._ahead.pop(message_id, None)
        if ahead is None or ahead.first != number:
            ahead = _Ahead(number, await self._fetch(message_id, number))
        if not ahead.chunks and ahead.following is not None:
            ahead = _Ahead(number, await ahead.following)
        if not ahead.chunks:
            raise QueueRefusal(NO_CHUNK)
        chunk, ahead.chunks, ahead.first = ahead.chunks[0], ahead.chunks[1:], number + 1
        if ahead.following is None and len(ahead.chunks) == CHUNKS_AT_ONCE - 1:  # there may be more: it comes meanwhile
            ahead.following = asyncio.ensure_future(self._fetch(message_id, number + CHUNKS_AT_ONCE))
            ahead.following.add_done_callback(ignore)
        if ahead.chunks or ahead.following is not None:
            self._ahead[message_id] = ahead
            if len(self._ahead) > MESSAGES_AHEAD_MAX:
                del self._ahead[next(iter(self._ahead))]
        return _restored(chunk)

    async def _fetch(self, message_id: str, first: int) -> list[bytes]:
        """A large body is read here, from its file: the queue's process is spared the copying."""
        chunks = self._files.get(message_id, 0)
        if not chunks:
            found = await self._request(Operation.FETCH, message_id, first, CHUNKS_AT_ONCE, True)
            if not isinstance(found, int):
                return list(found)
            chunks = self._files[message_id] = found
            if len(self._files) > MESSAGES_AHEAD_MAX:
                del self._files[next(iter(self._files))]
        try:
            return await asyncio.to_thread(body_file.read, self._bodies, message_id, chunks, first, CHUNKS_AT_ONCE)
        except (body_file.BodyDamaged, OSError):  # the queue finds that too, and knows what to do about it
            return list(await self._request(Operation.FETCH, message_id, first, CHUNKS_AT_ONCE))

    async def template(self, campaign: str) -> bytes:
        chunks: list[bytes] = []
        while True:
            more = await self._asked(Operation.TEMPLATE, campaign, len(chunks) + 1, CHUNKS_AT_ONCE)
            chunks += more
            if len(more) < CHUNKS_AT_ONCE:
                return b"".join(map(_restored, chunks))

    # -- Pull

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
        return bool(await self._asked(Operation.PULLED, what, lease, message_id, seconds, remote))

    async def peek(self, queue: str, most: int = 1) -> list[Delivery]:
        return list(map(whole, await self._asked(Operation.PEEK, queue, most)))

    # -- what plugins keep

    async def plugin_store(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        """As `queue.core.plugin_store.PluginStore.do`, once, however often the connection or the queue's process ends
        meanwhile. Raises ValueError, QueueRefusal."""
        while True:
            try:
                return await self._asked(Operation.PLUGIN, what, plugin, name, token, arguments)
            except Lost:  # the same token has the same answer
                continue

    # -- Admin

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        found: A = await self._asked(Operation.ASK, question, arguments)
        return found


class RemoteIncoming:
    """A message of several chunks; two frames of them may be on their way at once."""

    def __init__(self, queue: RemoteQueue, token: int, client: str) -> None:
        self._queue, self._token, self._client = queue, token, client
        self._shrink = Shrinker().shrink
        self._gathered: list[bytes] = []
        self._given_up = False
        self._open: asyncio.Future[Any] | None = None
        self._protocol: Channel | None = None  # which has the chunks that were sent

    async def write(self, chunk: bytes) -> None:
        self._gathered.append(self._shrink(chunk))
        if len(self._gathered) < CHUNKS_AT_ONCE:
            return
        before = self._open
        self._open = await self._send()
        if before is not None:
            await before

    async def _send(self) -> asyncio.Future[Any]:
        """Sends what was gathered when there is room: part of an aborted message may still be on its way."""
        room = self._queue.room
        await room.acquire()
        try:
            await self._check()
            chunks, self._gathered = self._gathered, []
            answer = self._queue._request_chunks(self._token, chunks, self._client)
        except BaseException:
            room.release()
            raise
        answer.add_done_callback(lambda _: room.release())
        return answer

    async def accept(self, envelope: Envelope, last_chunk: bytes) -> Receipt:
        await self._check()
        chunks, self._gathered = self._gathered, []
        last = self._shrink(last_chunk) if last_chunk else b""
        self._queue._mark(envelope)
        answer = self._queue._request(Operation.COMMIT, self._token, envelope.to_wire(), chunks, last, self._client)
        answer.add_done_callback(ignore)  # of two refusals the first is reported
        try:
            if self._open is not None:
                await _all_over([self._open, answer])
                self._open.result()
            return Receipt(*await _answer(answer))
        except Lost:
            return await self._queue._found(envelope)

    def abort(self) -> None:
        self._given_up = True
        if self._open is not None:
            self._open.add_done_callback(ignore)
        if self._queue._protocol is self._protocol and self._protocol is not None:
            self._protocol.send((Operation.ABORT, 0, self._token))

    async def _check(self) -> None:
        """The chunks went to a queue process that has ended: the message cannot be completed."""
        if self._protocol is None:  # none were sent yet
            self._protocol = self._queue._protocol or await self._queue._there()
        if self._given_up or self._queue._protocol is not self._protocol:
            raise QueueRefusal(GONE)


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


def _restored(kept: bytes) -> bytes:
    try:
        return restore(kept, CHUNK_BYTES)
    except ValueError:
        raise QueueRefusal(NO_CHUNK) from None


async def _answer(answer: asyncio.Future[Any]) -> Any:
    """What was asked for cannot be taken back: whatever goes wrong here meanwhile, its answer is waited for, lest a
    client hear that what is stored is not."""
    try:
        return await answer
    except (Exception, asyncio.CancelledError) as error:
        if answer.done() or from_outside(error):
            raise
        log.exception("internal error while waiting for the queue; waiting on")
    await _all_over([answer])
    return answer.result()


async def _all_over(answers: list[asyncio.Future[Any]]) -> None:
    """Returns when all are there. Raises Unanswered if that cannot be waited for."""
    for _ in range(FAULTS_MAX):
        try:
            await asyncio.wait(answers)
            return
        except (Exception, asyncio.CancelledError) as error:
            if from_outside(error):
                raise
            log.exception("internal error while waiting for the queue; waiting on")
    raise Unanswered(UNANSWERED)
