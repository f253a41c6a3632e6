"""Delivers one lease: as one attempt, or, where each recipient has a message of its own, as several in a row.

If plugins inspect outgoing messages, messages go one by one, each an attempt that reuses the connection of the one
before; otherwise as a `PipelinedBatch`. Recipients that were not tried when the connection ended, or when
PIPELINED_S had passed, are released, as if never leased.

Failures: `deliver` returns a Result for everything that a server, DNS or a plugin can do.
"""

from __future__ import annotations

import time
from dataclasses import replace

from zonemta_py.delivery.attempt import Attempt
from zonemta_py.delivery.context import SenderContext
from zonemta_py.delivery.pipelined import PIPELINED_S, PipelinedBatch
from zonemta_py.delivery.portions import UNTRIED, restricted
from zonemta_py.queue.api import DOUBTFUL, RELEASED, Delivery, Outcome, Result

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
