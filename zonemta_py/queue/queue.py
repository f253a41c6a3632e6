"""The queue: `LocalQueue` is `Submission`, `Dispatch`, `Pull` and `Admin` in one; its process owns the disk.

Only `recovery.start` creates it; it ends with its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from zonemta_py.disk.bodies import restore, shrink
from zonemta_py.disk.leveldb.store import StoreDamaged, StoreError, StoreUnreadable
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.admin import answers
from zonemta_py.queue.api import (
    UNREADABLE,
    Delivery,
    Feedback,
    OpenConnection,
    QueueRefusal,
    Receipt,
    Result,
    accept_whole,
)
from zonemta_py.queue.campaigns.commands import CampaignCommands
from zonemta_py.queue.core.campaigns import NO_TEMPLATE, whole
from zonemta_py.queue.core.core import Callbacks, Core
from zonemta_py.queue.lifecycle import in_doubt
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.incoming import LocalIncoming
from zonemta_py.queue.lifecycle.lease import DAMAGED
from zonemta_py.queue.lifecycle.lost import KEPT, RETURNED
from zonemta_py.queue.maintenance.maintenance import Maintenance
from zonemta_py.queue.pull.pulls import Done, Pulls
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.queue.tasks.orders import TaskOrders
from zonemta_py.zones.admittance import Admittance
from zonemta_py.zones.throttle import Scope

log = logging.getLogger(__name__)

NOT_NOW = Reply(451, "4.3.0", "the body cannot be read")


class LocalQueue(QueueContext):
    """The queue in this process. Created by `recovery.start`."""

    def __init__(self, make: Callable[[Callbacks], Core], first_lease: int) -> None:
        callbacks = Callbacks(
            pump=lambda: self.leases.pump(),
            before_batch=lambda: self.policy.catch_up(),
            settle=lambda result, done: self.settling.settle(result, done),
            serve_pullers=lambda now_ms: self.pulls.serve(now_ms),
        )
        super().__init__(make(callbacks), first_lease)
        self.tasks = TaskOrders(self)
        self.pulls = Pulls(self)
        self.campaign_commands = CampaignCommands(self.core, self.tasks.cancel_campaign)
        self.maintenance = Maintenance(self, self.campaign_commands.tick)

    def start(self) -> None:
        """Starts the periodic work: positions, the archive, expiry."""
        self.maintenance.start()
        self.sender_domains.start()
        self.core.keep(asyncio.ensure_future(self.core.disk.places.make(self.core.disk.lines)))
        self.core.changed()

    def close(self) -> None:
        """For a process that continues; others just end."""
        self.maintenance.stop()
        self.sender_domains.close()
        self.core.disk.close()

    async def position(self) -> None:
        """Writes a position record now."""
        await self.maintenance.position()

    async def sweep(self) -> None:
        """Ends mail whose lifetime is over now."""
        while await self.maintenance.sweep():
            await self.core.disk.lines.stable()

    # -- Submission

    async def accept(self, envelope: Envelope, body: bytes) -> Receipt:
        if len(body) > CHUNK_BYTES:
            return await accept_whole(self, envelope, body)
        return await self.acceptance.accept(envelope, [shrink(body)])

    def begin(self, client: str = "", envelope: Envelope | None = None) -> LocalIncoming:
        return LocalIncoming(self.acceptance, self.core, client)

    async def feedback(self, rows: list[Feedback]) -> list[bool]:
        return await self.feedback_register.take(rows)

    # -- Dispatch

    async def lease(self, most: int, worker: str = "") -> list[Delivery]:
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()

        taker = self.leases.take(most, worker, partial(_deliver, future))
        try:
            return await future
        except asyncio.CancelledError:
            self.leases.leave(taker)
            for lease in taker.leases:  # leased, but never taken
                self.leases.take_back(lease)
            raise

    async def settle(self, result: Result) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settling.settle(result, partial(_wake, future))
        await future

    def settle_part(self, result: Result) -> None:
        self.settling.settle(result, _nothing)

    async def place(self, lease: int, site: str, provider: str) -> Admittance:
        known, admission = self.leases.out.get(lease), self.core.schedule.admission
        if known is None or known.settling:
            return Admittance(False)
        return admission.elsewhere.place(known.batch, site, provider, admission.throttles)

    def closed(self, connection: int) -> None:
        if self.core.schedule.admission.idle.closed(connection):
            self.core.changed()

    def left_open(self, connections: list[OpenConnection], worker: str = "") -> None:
        for name, lease, *scope in connections:
            self.leases.left_open(worker, name, lease, Scope(*scope))
        self.leases.all_said(worker)

    async def chunk(self, message_id: str, number: int) -> bytes:
        found = await self.chunks(message_id, number, 1)
        if not found:
            raise QueueRefusal(NOT_NOW)
        return restore(found[0], CHUNK_BYTES)

    async def chunks(self, message_id: str, first: int, most: int) -> list[bytes]:
        """Up to `most` chunks from `first` on, as stored; none after the body's end. Raises QueueRefusal."""
        messages, message = self.core.messages, None
        try:
            message = messages.get(message_id)
            read = partial(messages.chunks, message, first, most)
            return await self.core.disk.bodies.run(read) if message.filed else read()
        except StoreError as error:
            over = message is not None and message.left <= 0  # a read-ahead that is not needed any more
            if isinstance(error, StoreDamaged) and not over:
                self.damaged.set_aside(message_id, str(error), RETURNED)
                raise QueueRefusal(DAMAGED) from None
            if isinstance(error, StoreUnreadable) and not over:
                self.damaged.set_aside(message_id, str(error), KEPT)
                raise QueueRefusal(UNREADABLE) from None
            raise QueueRefusal(NOT_NOW) from None

    def filed(self, message_id: str) -> int:
        """How many chunks the message's body file has, for callers that can read it themselves; 0: there is no file."""
        try:
            message = self.core.messages.get(message_id)
        except StoreError:
            return 0
        return message.chunks if message.filed else 0

    async def template(self, campaign: str) -> bytes:
        return whole(self.template_chunks(campaign, 1, 1 << 20))

    def template_chunks(self, campaign: str, first: int, most: int) -> list[bytes]:
        """As `chunks`, for a campaign's template."""
        try:
            return self.core.campaigns.chunks(campaign, first, most)
        except StoreError as error:
            log.error("%s", error)
            raise QueueRefusal(NO_TEMPLATE) from None

    # -- Pull

    async def pull(
        self, queue: str, most: int = 1, reserve_s: float = 0, wait_s: float = 0, remote: str = "",
        worker: str = "",
    ) -> list[Delivery]:  # fmt: skip
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        puller = self.pulls.pull(queue, most, reserve_s, wait_s, worker, partial(_deliver, future), remote)
        try:
            return await future
        except asyncio.CancelledError:
            if puller is not None:
                self.pulls.leave(puller)
                for lease in puller.taker.leases:  # leased, but never taken
                    self.leases.take_back(lease)
            raise

    async def extend(self, lease: int, message_id: str, reserve_s: float) -> bool:
        return self.pulls.extend(lease, message_id, reserve_s)

    async def ack(self, lease: int, message_id: str, remote: str = "") -> bool:
        return await _told(partial(self.pulls.ack, lease, message_id, remote))

    async def nack(self, lease: int, message_id: str, delay_s: float = 0, remote: str = "") -> bool:
        return await _told(partial(self.pulls.nack, lease, message_id, delay_s, remote))

    async def abandon(self, lease: int, message_id: str) -> bool:
        return await _told(partial(self.pulls.abandon, lease, message_id))

    async def peek(self, queue: str, most: int = 1) -> list[Delivery]:
        try:
            found = await self.pulls.peek(queue, most)
        except StoreError:
            raise QueueRefusal(NOT_NOW) from None
        for delivery in found:
            if delivery.body is not None:
                delivery.body = restore(delivery.body, CHUNK_BYTES)
        return found

    # -- Admin

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        found: A = await self.answer(question, arguments)
        return found

    async def answer(self, question: str, arguments: dict[str, Any]) -> Any:
        """As `ask`, of what comes over the socket: whatever somebody has named so."""
        return await answers.answer(self, self.campaign_commands, self.pulls, self.tasks, question, arguments)

    # -- failures

    def lost(self, worker: str, silent: bool = False, pid: int = 0) -> None:
        """A sender has died, or hangs. Its recipients are in doubt: their final replies may have been on their way. Its
        connections count until it is `over`. pid: its process."""
        in_doubt.lost(self, worker, silent, pid)

    def stays(self, worker: str) -> None:
        """It goes on after all."""
        self.core.schedule.admission.idle.stay(worker)

    def outlived(self, pid: int) -> None:
        """A sender of an earlier process of this queue is gone, or it is none."""
        self.leases.before.discard(pid)
        self.core.changed()

    def over(self, worker: str) -> None:
        """A sender's process is gone, and with it its connections."""
        self.core.schedule.admission.idle.over(worker)
        self.leases.look_again()


def _nothing() -> None:
    """A part has no answer to wait for."""


def _deliver(future: asyncio.Future[list[Delivery]], deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        if delivery.body is not None:
            delivery.body = restore(delivery.body, CHUNK_BYTES)
    if not future.done():
        future.set_result(deliveries)


async def _told(ask: Callable[[Done], None]) -> bool:
    """What `ask` calls its argument with."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    ask(lambda found: None if future.done() else future.set_result(found))
    return await future


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
