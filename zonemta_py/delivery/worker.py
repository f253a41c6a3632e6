"""The main loop of a sender process: lease as many deliveries as there is room for, deliver each, settle.

A slot is free as soon as its result has been written to the queue: leasing goes on without waiting for the queue's
answer, and results leave in the order in which they became known. One task per delivery. The limits (connections,
rates) were charged with the lease; `most` only bounds this process.

Failures: if the queue refuses a lease or a result it is gone, and `run` returns: the process ends and is restarted. A
delivery that hits a bug is logged with its traceback, and ends all the same: one message must not stop all others. What
was answered stays; who is past the dot without an answer is in doubt, and held; the others are deferred (451 4.3.0).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from zonemta_py.config import Config
from zonemta_py.delivery.context import SenderContext
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.lease import deliver
from zonemta_py.delivery.smtp.connections import Connections
from zonemta_py.delivery.smtp.transaction import NO_ANSWER
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.delivery.verdicts import OUR_FAULT
from zonemta_py.logs.causes import from_outside
from zonemta_py.metrics import report
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import (
    DEFERRED,
    DELIVERED,
    DOUBTFUL,
    Delivery,
    Dispatch,
    Outcome,
    QueueRefusal,
    Result,
    Retired,
)

log = logging.getLogger(__name__)


class Slots:
    """Slots for deliveries in progress."""

    def __init__(self, most: int) -> None:
        self.free = most
        self._freed = asyncio.Event()

    async def some(self) -> int:
        """The number of free slots, waiting until there is at least one."""
        while not self.free:
            self._freed.clear()
            await self._freed.wait()
        return self.free

    def release(self) -> None:
        self.free += 1
        self._freed.set()


async def run(
    config: Config, dispatch: Dispatch, host: Host, most: int, *,
    resolver: DnsDestinationResolver | None = None, contexts: TlsContexts | None = None,
) -> None:  # fmt: skip
    """Delivers until the queue is gone, or has nothing more for this process; at most `most` deliveries at once."""
    names = resolver or DnsDestinationResolver(config)
    policies = TlsPolicies(config, names, contexts)
    connections = Connections(dispatch.closed, dispatch.left_open)
    context = SenderContext(config, dispatch, host, names, policies, connections, config.server.name)
    report.measure(lambda: [("zonemta_connections_idle", (), len(connections))])
    slots = Slots(most)
    try:
        async with asyncio.TaskGroup() as group:
            with suppress(Retired):
                while True:
                    for delivery in await dispatch.lease(await slots.some()):
                        slots.free -= 1
                        group.create_task(_handle(context, delivery, slots))
            await connections.end()
    except* QueueRefusal as refusals:
        log.warning("the queue is gone (%s), stopping", refusals.exceptions[0])


async def _handle(context: SenderContext, delivery: Delivery, slots: Slots) -> None:
    try:
        whole, parts = await deliver(context, delivery)
    except (Exception, asyncio.CancelledError) as error:
        if from_outside(error):
            raise
        log.exception("internal error while delivering message %s of zone %s", delivery.id, delivery.zone)
        whole, parts = _unknown(context, delivery), []
    context.connections.left(delivery, whole)
    slots.release()  # the settle below writes before it first waits, so the next lease request follows it
    try:
        await context.dispatch.settle(whole)
        if context.host.listens("sender_delivered"):
            await _tell_plugins(context, parts)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, QueueRefusal) or from_outside(error):
            raise
        log.exception("internal error after delivering message %s of zone %s", delivery.id, delivery.zone)


def _unknown(context: SenderContext, delivery: Delivery) -> Result:
    """Nobody can say how far it came. Whoever was answered in an earlier part keeps that."""
    everyone = [*range(len(delivery.recipients))]
    if context.connections.used(delivery):
        return Result(delivery.lease, [Outcome(DOUBTFUL, NO_ANSWER, "dot", everyone)])
    return Result(delivery.lease, [Outcome(DEFERRED, OUR_FAULT, "plugin", everyone)])


async def _tell_plugins(context: SenderContext, parts: list[tuple[Delivery, Result]]) -> None:
    for one, result in parts:
        if any(outcome.verdict == DELIVERED for outcome in result.outcomes):
            await context.host.call("sender_delivered", delivery=one, result=result)
