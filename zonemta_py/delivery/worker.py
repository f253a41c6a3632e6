"""The main loop of a sender process: lease as many deliveries as there is room for, deliver each, settle.

A slot is free as soon as its result has been written to the queue: leasing goes on without waiting for the queue's
answer, and results leave in the order in which they became known. One task per delivery. The limits (connections,
rates) were charged with the lease; `most` only bounds this process.

A lease is one attempt, or, where each recipient has a message of its own, several in a row: if plugins inspect outgoing
messages, one by one, each an attempt that reuses the connection of the one before; otherwise as a `PipelinedBatch`.
Recipients that were not tried when the connection ended, or when PIPELINED_S had passed, are released, as if never
leased.

Failures: if the queue refuses a lease or a result it is gone, and `run` returns: the process ends and is restarted. A
delivery that hits a bug is logged with its traceback, and ends all the same: one message must not stop all others. What
was answered stays; who is past the dot without an answer is in doubt, and held; the others are deferred (451 4.3.0).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace

from zonemta_py.config import Config
from zonemta_py.delivery.attempt import Attempt
from zonemta_py.delivery.context import SenderContext
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.pipelined import PIPELINED_S, PipelinedBatch
from zonemta_py.delivery.portions import UNTRIED, restricted
from zonemta_py.delivery.smtp.connections import Connections
from zonemta_py.delivery.smtp.transaction import NO_ANSWER
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.delivery.verdicts import OUR_FAULT
from zonemta_py.logs.causes import from_outside
from zonemta_py.mail.classify import CONNECTING, DeliveryError
from zonemta_py.mail.notes import NotesBefore
from zonemta_py.metrics import report
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import (
    DEFERRED,
    DELIVERED,
    DOUBTFUL,
    RELEASED,
    Delivery,
    Dispatch,
    Outcome,
    QueueRefusal,
    Result,
    Retired,
)

BEFORE_DOT = CONNECTING | {"mail", "rcpt", "data", "body"}
"""Stages at which no server can have taken the message."""
LOOKING = (
    "sender_fetch", "sender_headers", "sender_connecting", "sender_connection", "sender_response_error",
    "sender_delivered",
)  # fmt: skip
"""Hooks that run for each message."""


async def deliver(context: SenderContext, delivery: Delivery) -> tuple[Result, list[tuple[Delivery, Result]]]:
    """Delivers a lease. Returns the result that ends it, and what plugins are told: deliveries with their results."""
    if delivery.values is None or len(delivery.recipients) == 1:
        attempt = Attempt(context, delivery)
        result = await attempt.run()
        whole = replace(result, outcomes=attempt.reported + result.outcomes) if attempt.reported else result
        return result, [(delivery, whole)]
    own = [restricted(delivery, [index]) for index in range(len(delivery.recipients))]
    if any(map(context.host.listens, LOOKING)):
        return await _one_by_one(context, own)
    following = PipelinedBatch(context, own)
    result = await Attempt(context, own[0], following).run()
    if following.begun:  # includes the first message's
        result.outcomes, result.down_s, result.security = [], None, []
        result.started_ms, result.took_ms = following.started_ms, 0
    result.outcomes += following.unreported
    return _released(result, following.untried), []


async def _one_by_one(context: SenderContext, own: list[Delivery]) -> tuple[Result, list[tuple[Delivery, Result]]]:
    """Stops when the destination cannot be reached: a lease grants one connection, so no second one is opened."""
    parts: list[tuple[Delivery, Result]] = []
    whole, until = Result(own[0].lease, []), time.monotonic() + PIPELINED_S
    for index, delivery in enumerate(own):
        delivery.routing = dict(delivery.routing)  # a plugin may change it
        delivery.may_connect = delivery.may_connect and not whole.opened
        result = await Attempt(context, delivery).run()
        parts.append((delivery, result))
        outcomes = [replace(outcome, recipients=[index]) for outcome in result.outcomes]
        released = any(outcome.verdict in (RELEASED, DOUBTFUL) for outcome in outcomes)
        kept = result.kept or (whole.kept and not (result.remote or released))  # the last may not have needed one
        whole = replace(result, outcomes=outcomes, opened=whole.opened or result.opened, kept=kept)
        last = index == len(own) - 1 or time.monotonic() >= until
        if last or released or result.down_s is not None:
            break
        context.dispatch.settle_part(replace(whole, more=True))
    return _released(whole, list(range(len(parts), len(own)))), parts


def _released(result: Result, untried: list[int]) -> Result:
    if untried:
        result.outcomes.append(Outcome(RELEASED, UNTRIED, "limit", untried))
    return result


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
        if self.free == 1:
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
    watching = asyncio.ensure_future(context.sources.watch())
    try:
        async with asyncio.TaskGroup() as group:
            with suppress(Retired):
                while True:
                    for delivery in await dispatch.lease(slots.free or await slots.some()):
                        slots.free -= 1
                        group.create_task(_handle(context, delivery, slots))
            host.retire()
            await connections.end()
    except* QueueRefusal as refusals:
        log.warning("the queue is gone (%s), stopping", refusals.exceptions[0])
    finally:
        watching.cancel()


async def _handle(context: SenderContext, delivery: Delivery, slots: Slots) -> None:
    before = NotesBefore(delivery.notes, delivery.recipients) if context.noting else None
    try:
        whole, parts = await deliver(context, delivery)
    except (Exception, asyncio.CancelledError) as error:
        if from_outside(error):
            raise
        log.exception("internal error while delivering message %s of zone %s", delivery.id, delivery.zone)
        whole, parts = _unknown(context, delivery), []
    if delivery.source and any(_broke(outcome) for outcome in whole.outcomes):
        await _own_up(context, delivery, whole)
    if before is not None:
        try:
            whole.notes = before.changes(delivery.notes, delivery.recipients)
        except (TypeError, ValueError, RecursionError) as error:  # changed after its hook had ended
            log.error("a plugin has left notes on message %s that cannot be kept: %s", delivery.id, error)
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


def _broke(outcome: Outcome) -> bool:
    """Whether its connection ended, and nobody said why, before the message can have been taken."""
    return outcome.verdict == DEFERRED and outcome.kind == "network" and outcome.stage in BEFORE_DOT


async def _own_up(context: SenderContext, delivery: Delivery, result: Result) -> None:
    """What broke because our source address, or its proxy, has gone meanwhile is no word about the destination."""
    if result.chosen:
        return
    try:
        egress = context.sources.of(context.zone(delivery.zone, delivery.tables), delivery.source,
                                    delivery.routing.get("pool") or "")  # fmt: skip
    except DeliveryError:
        return  # a plugin's choice that is no address
    if egress.proxied and all(outcome.stage == "connect" for outcome in result.outcomes if _broke(outcome)):
        return  # the proxy is there: it has told of the destination
    error = await egress.lost()
    if error is None:
        return
    result.down_s = None
    result.outcomes = [
        replace(outcome, reply=error.reply, stage=error.stage, kind=error.reply_class) if _broke(outcome) else outcome
        for outcome in result.outcomes
    ]


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
