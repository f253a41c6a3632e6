"""Pushing to named queues and taking from them, the same over plain TCP and HTTP.

A push is a message whose bytes stay as they are. Taking is a lease: `Taken.done` is a delivery, all else puts the
message back in its place. A receipt names a lease across connections: `<message id>.<lease>`.

Failures: QueueRefusal as for all mail; what a client can mend is `QueueProblem`, one sentence.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from zonemta_py.config import Config, PullSection
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue import questions
from zonemta_py.queue.api import Admin, Delivery, Incoming, Pull, QueueRefusal, Receipt, Submission
from zonemta_py.reception.permission import Accounts
from zonemta_py.zones.pull import DOMAIN, PUSHED, zone_of

WAIT_S = 10.0
"""How long one question to the queue waits: after it is seen whether the client is still there."""


May = Callable[[str], bool] | None


class QueueProblem(Exception):
    """One sentence with the remedy. gone: what was named is not there, or not any more."""

    def __init__(self, sentence: str, gone: bool = False) -> None:
        super().__init__(sentence)
        self.gone = gone


class PullFace(Submission, Admin, Pull, Protocol):
    """The queue interfaces that named queues need."""


class QueueSize(NamedTuple):
    """Messages of a queue: ready to be taken, leased (reserved or being taken), delayed, held by an operator."""

    queue: str
    ready: int
    leased: int
    delayed: int
    held: int


@dataclass(slots=True)
class Push:
    """What a client says of a message. priority: -9 … 9. delay_s: not before so many seconds. client: its IP address.
    user: name of its key or token. key: name of its HTTP key, if it has one: by that, or its address, the message is
    one of an account."""

    queue: str
    priority: int | None = None
    delay_s: float = 0.0
    client: str = ""
    user: str = ""
    key: str = ""
    complete: Callable[[Envelope], None] = field(default=lambda _: None)
    """Called with the envelope when all bytes have come."""


class NamedQueues:
    """config: its section [pull] and its zones. queue: the queue's interfaces."""

    def __init__(self, config: Config, queue: PullFace) -> None:
        self._config, self._queue, self._accounts = config, queue, Accounts(config)

    async def push(self, push: Push, blocks: AsyncIterator[bytes]) -> Receipt:
        """Returns once the message is on stable storage. Raises QueueRefusal, QueueProblem, and what `blocks` raises:
        nothing is stored then."""
        self._check_delay(push.delay_s)
        incoming: Incoming | None = None
        account = self._accounts.of(push.client, key=push.key)
        most = self._accounts.by_name[account].message_bytes if account else 0
        most = min(most or self._section.message_bytes, self._section.message_bytes)
        kept, size = bytearray(), 0
        try:
            async for block in blocks:
                size += len(block)
                if size > most:
                    raise QueueProblem(f"the message is larger than {most:,} bytes; push less at once")
                kept += block
                while len(kept) > CHUNK_BYTES:
                    incoming = incoming or self._queue.begin(push.client, self._envelope(push, size))
                    await incoming.write(bytes(kept[:CHUNK_BYTES]))
                    del kept[:CHUNK_BYTES]
            envelope = self._envelope(push, size)
            envelope.account = account
            push.complete(envelope)
            if incoming is None:
                return await self._queue.accept(envelope, bytes(kept))
            receipt = await incoming.accept(envelope, bytes(kept))
            incoming = None
            return receipt
        finally:
            if incoming is not None:
                incoming.abort()

    @property
    def _section(self) -> PullSection:
        return self._config.pull

    def _envelope(self, push: Push, size: int) -> Envelope:
        now_ms = time.time_ns() // 1_000_000
        envelope = Envelope(
            "", [Recipient(f"{push.queue}@{DOMAIN}")], size=size, protocol=PUSHED, origin=push.client,
            user=push.user or None, received_ms=now_ms, sending_zone=push.queue,
            priority=push.priority, body="8BITMIME", life_h=self._section.life_h,
        )  # fmt: skip
        if push.delay_s > 0:
            envelope.hold_until_ms, envelope.hold_for = now_ms + round(push.delay_s * 1000), True
            envelope.clock_ahead_ms = now_ms - time.monotonic_ns() // 1_000_000
        return envelope

    async def take(self, queue: str, reserve_s: float, wait_s: float, client: str) -> Taken | None:
        """The oldest message, leased; None if there is none within `wait_s`, or ten seconds: then ask again."""
        found = await self._queue.pull(queue, 1, reserve_s, min(wait_s, WAIT_S), client)
        return Taken(self._queue, found[0]) if found else None

    async def peek(self, queue: str) -> Taken | None:
        """The oldest message, which stays where it is."""
        found = await self._queue.peek(queue)
        return Taken(self._queue, found[0]) if found else None

    # -- reservations; may: whether the client is for a queue, None: for all

    async def ack(self, receipt: str, may: May) -> None:
        """The message is done; returns once that is on stable storage. Raises QueueRefusal, QueueProblem."""
        message_id, lease = await self._parts(receipt, may)
        if not await self._queue.ack(lease, message_id):
            raise _not_reserved(receipt)

    async def nack(self, receipt: str, delay_s: float, may: May) -> None:
        """It takes its place again, after so many seconds. Raises QueueRefusal, QueueProblem."""
        self._check_delay(delay_s)
        message_id, lease = await self._parts(receipt, may)
        if not await self._queue.nack(lease, message_id, delay_s):
            raise _not_reserved(receipt)

    async def extend(self, receipt: str, seconds: float, may: May) -> None:
        """It stays reserved for so many seconds from now. Raises QueueRefusal, QueueProblem."""
        reserve_s = self.reservation(seconds)
        message_id, lease = await self._parts(receipt, may)
        if not await self._queue.extend(lease, message_id, reserve_s):
            raise _not_reserved(receipt)

    async def _parts(self, receipt: str, may: May) -> tuple[str, int]:
        """Message id and lease. Raises QueueProblem, also for a receipt of a queue that the client is not for."""
        message_id, _, lease = receipt.rpartition(".")
        if not message_id or not lease.isdecimal() or len(lease) > 18:
            raise QueueProblem(f"{receipt[:80]!a} is not a receipt; send the one that reserve answered")
        if may is not None:
            queue = await self._queue.ask(questions.leased, lease=int(lease), id=message_id)
            if queue is None or not may(queue):
                raise _not_reserved(receipt)
        return message_id, int(lease)

    # -- limits

    def reservation(self, seconds: float | None) -> float:
        """How long a reservation lasts. Raises QueueProblem."""
        if seconds is None:
            return self._section.reserve_s
        if not 0 < seconds <= self._section.reserve_max_s:
            raise QueueProblem(
                f"a reservation of {seconds:g} s is not possible; ask for more than 0 and at most"
                f" {self._section.reserve_max_s:g} (pull.reserve_max_s)"
            )
        return seconds

    def waiting(self, seconds: float | None) -> float:
        """How long a client may wait for a message. Raises QueueProblem."""
        if seconds is not None and seconds > self._section.reserve_max_s:
            raise QueueProblem(
                f"waiting {seconds:g} s is too long; ask for at most {self._section.reserve_max_s:g}"
                " (pull.reserve_max_s), and again after that"
            )
        return seconds or 0.0

    def _check_delay(self, seconds: float) -> None:
        days = self._config.limits.hold_days
        if seconds > days * 86_400:
            raise QueueProblem(
                f"a delay of {seconds:g} s is too long; at most {days:g} days are possible (limits.hold_days)"
            )

    # -- questions

    async def size(self, queue: str) -> QueueSize:
        """Raises QueueRefusal."""
        zone = zone_of(self._config, queue)
        rows = await self._queue.ask(questions.queues)
        return next((_size_of(row) for row in rows if row["zone"] == zone), QueueSize(queue, 0, 0, 0, 0))

    async def every(self) -> list[QueueSize]:
        """By name. Raises QueueRefusal."""
        return [_size_of(row) for row in await self._queue.ask(questions.queues)]


@dataclass(slots=True)
class Taken:
    """A message that is leased, or only shown."""

    _queue: PullFace
    delivery: Delivery

    @property
    def receipt(self) -> str:
        return f"{self.delivery.id}.{self.delivery.lease}"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes. Raises QueueRefusal."""
        if self.delivery.body is not None:
            yield self.delivery.body
            return
        for number in range(1, self.delivery.chunks + 1):
            yield await self._queue.chunk(self.delivery.id, number)

    async def done(self) -> None:
        """It was delivered; returns once that is on stable storage. If the queue is gone, it is in doubt there, and
        comes again."""
        with suppress(QueueRefusal):
            await self._queue.ack(self.delivery.lease, self.delivery.id)

    async def give_back(self) -> None:
        """Nobody knows whether all of it was taken: it takes its place again. A queue that is gone does so itself."""
        with suppress(QueueRefusal):
            await self._queue.abandon(self.delivery.lease, self.delivery.id)

    def header(self) -> dict[str, str]:
        """The envelope as fields, for those who deliver the message further."""
        one = self.delivery
        fields = {"Id": one.id, "Size": str(one.size), "Sender": f"<{one.sender}>"}
        fields["Recipients"] = ", ".join(f"<{recipient.address}>" for recipient in one.recipients)
        fields["Attempts"] = str(max(one.attempts, default=0))
        if one.received_ms:
            fields["Received-Ms"] = str(one.received_ms)
        return fields


def _size_of(row: questions.PullZoneSize) -> QueueSize:
    return QueueSize(row["queue"], row["ready"], row["leased"], row["delayed"], row["held"])


def _not_reserved(receipt: str) -> QueueProblem:
    return QueueProblem(
        f"{receipt[:80]} is not reserved any more: its time was up, or it is settled; reserve again", gone=True
    )
