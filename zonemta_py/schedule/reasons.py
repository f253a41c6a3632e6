"""What keeps a flow queue from sending: from the limits, stops, rests and connections as they are at this moment.

A reason is {kind, cause, since_ms, until_ms}; since_ms 0: unknown; until_ms 0: until something happens. Kinds:

    copy, drain, recovery, orders, disk   nothing at all is sent (`whole`); orders: of several queues, one that has not
                               heard of all orders yet
    resting, probing           the destination cannot be reached; one delivery tries whether it answers again
    dns                        its domain is being looked up, or waits for that
    limit, rate                a limit as configured; a rate as learned
    suspended, source, hours   a stop; the source address may not send there; outside the sending hours
    away                       this machine does not have the zone, or its source addresses; another node does, or did
    pull                       it is in a pull zone, and nobody has come for it
    concurrency, connections   the connections of the destination, or of the zone, are all in use
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.schedule.batch import Blocked, FlowQueue
from zonemta_py.schedule.flow_queues import domain_of
from zonemta_py.schedule.schedule import Schedule

_ROUNDING_MS = 0.01
"""What sums of seconds as floating-point numbers may be off by."""


WHOLE = ("copy", "drain", "recovery", "orders", "disk")
"""Kinds of reasons that concern all mail."""


def whole(schedule: Schedule) -> list[dict[str, Any]]:
    """Why nothing at all is sent, whatever it is."""
    return [{"kind": kind, "cause": cause, "since_ms": 0, "until_ms": 0} for kind, cause in schedule.halted()]


def row_of(schedule: Schedule, flow_queue: FlowQueue) -> dict[str, Any]:
    """A flow queue: who it is, how many wait on it in memory, whether more are parked, and why."""
    path, flow_id, zone = flow_queue.path, flow_queue.flow_id, flow_queue.zone
    window = 0 if zone.zone.pulled else path.concurrency.window
    return {
        "zone": zone.zone.name, "site": path.site, "source": path.source, "provider": path.provider,
        "apart": path.apart, "tables": list(path.terms.names),
        "priority": flow_id.priority, "tenant": flow_id.tenant, "campaign": flow_id.campaign,
        "waiting": len(flow_queue.entries), "parked": _parked(flow_queue), "active": path.active, "window": window,
        "learned": path.concurrency.cause, "reasons": reasons(schedule, flow_queue),
        "limits": _bounds(schedule, flow_queue),
    }  # fmt: skip


def _bounds(schedule: Schedule, flow_queue: FlowQueue) -> list[dict[str, Any]]:
    """The limits of messages and recipients that it is under (`Bucket.shown`)."""
    found, now = list[dict[str, Any]](), schedule.now()
    for limit in dict.fromkeys((*flow_queue.limits, *flow_queue.zone.limits)):
        for kind, bucket in (("messages", limit.messages), ("recipients", limit.recipients)):
            if bucket is not None:
                found.append({"name": limit.label, "of": kind} | bucket.shown(now))
    return found


def _parked(flow_queue: FlowQueue) -> bool:
    try:
        return not flow_queue.parked.exhausted and flow_queue.parked.peek() is not None
    except StoreError:
        return True  # as far as is known


def reasons(schedule: Schedule, flow_queue: FlowQueue) -> list[dict[str, Any]]:
    """Everything that keeps the flow queue from sending now, the nearest first; each once."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for hold in _holds(schedule, flow_queue):
        until_ms = 0 if hold.until == math.inf else _ms_at(schedule, hold.until)
        row = {"kind": hold.kind, "cause": hold.cause, "since_ms": hold.since_ms, "until_ms": until_ms}
        found.setdefault((hold.kind, hold.cause), row)
    return list(found.values())


def _ms_at(schedule: Schedule, steady: float) -> int:
    """The UNIX time of a moment of steady seconds, not before it: what ends at midnight ends that day."""
    return schedule.now_ms() + math.ceil((steady - schedule.now()) * 1000 - _ROUNDING_MS)


def _holds(schedule: Schedule, flow_queue: FlowQueue) -> Iterator[Blocked]:
    zone, path, admission = flow_queue.zone, flow_queue.path, schedule.admission
    now = schedule.now()
    for kind, cause in schedule.halted():
        yield Blocked(kind, cause, math.inf, 0)
    if path.down_until:
        yield Blocked("resting", path.reason, path.down_until, path.down_since_ms)
    elif path.failures:
        cause = f"one trial delivery is in progress: {path.reason}"
        yield Blocked("probing", cause, math.inf, path.down_since_ms)
    if flow_queue.held is not None and flow_queue.held.until > now:
        yield _looked_up(schedule, flow_queue, flow_queue.held) if flow_queue.held.kind == "dns" else flow_queue.held
    if zone.held is not None and zone.held.until > now:
        yield zone.held
    elif (hold := admission.zone_hold(zone.zone, zone.limits)) is not None:
        yield hold if hold.kind == "suspended" else hold._replace(since_ms=0)
    if (hold := admission.hold(flow_queue)) is not None:
        yield hold
    yield from _connections(flow_queue)
    if flow_queue.held is None:
        yield from _limits(schedule, flow_queue, now)


def _looked_up(schedule: Schedule, flow_queue: FlowQueue, hold: Blocked) -> Blocked:
    """Only so many domains are looked up at once: how many come before this one."""
    domain = domain_of(flow_queue.entries[0].address) if flow_queue.entries else flow_queue.path.site
    before = schedule.sites.before(domain)
    return (
        hold
        if before is None
        else hold._replace(cause=f"{domain} is queued for its DNS lookup ({before:,} ahead of it)")
    )


def _connections(flow_queue: FlowQueue) -> Iterator[Blocked]:
    zone, path = flow_queue.zone, flow_queue.path
    if zone.zone.pulled:
        yield Blocked("pull", "it waits for a client to fetch it", math.inf, 0)
        return
    if path.active >= path.concurrency.window:
        cause = f"all {path.concurrency.window} connections learned for {path.site} are in use"
        yield Blocked("concurrency", cause, math.inf, 0)
    if zone.active >= zone.most:
        cause = f"all {zone.zone.connections} connections of zone {zone.zone.name!r} are in use"
        if zone.most < zone.zone.connections:
            cause = f"other queues have {zone.zone.connections - zone.most} of {cause.removesuffix(' are in use')} now"
        if zone.most == zone.zone.connections or (flow_queue.held is None and zone.held is None):
            yield Blocked("connections", cause, math.inf, 0)
    elif not zone.may_have(path):
        cause = f"{path.site} uses its full share; other connections of zone {zone.zone.name!r} are reserved"
        yield Blocked("connections", cause, math.inf, 0)


def _limits(schedule: Schedule, flow_queue: FlowQueue, now: float) -> Iterator[Blocked]:
    """Those that would refuse one message more."""
    learned = schedule.policy.learned(flow_queue.path)
    if learned is not None and (wait := learned.wait(now)):
        yield Blocked("rate", schedule.policy.rate_cause(flow_queue.path), now + wait, 0)
    for limit in flow_queue.limits:
        if wait := limit.wait(now):
            yield Blocked("limit", f"{limit.label} ({limit.why})", now + wait, 0)
