"""What keeps a strand from sending: asked of the limits, stops, rests and connections as they are at this moment.

A reason is {kind, cause, since_ms, until_ms}; since_ms 0: nobody noted it; until_ms 0: until something happens. Kinds:

    resting, probing           the destination cannot be reached; one delivery tries whether it answers again
    dns                        its domain is being looked up, or waits for that
    limit, rate                a limit as configured; a rate as learned
    suspended, source, hours   a stop; the source address may not send there; outside the sending hours
    concurrency, connections   the connections of the destination, or of the zone, are all in use
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.schedule.batch import Blocked, FlowQueue
from zonemta_py.schedule.flow_queues import domain_of
from zonemta_py.schedule.schedule import Schedule

_ROUNDING_MS = 0.01
"""What sums of seconds as floating-point numbers may be off by."""


def rows_of(schedule: Schedule, strands: Iterable[FlowQueue]) -> list[dict[str, Any]]:
    """Those of which something waits or is under way, or that something holds."""
    rows = (_row(schedule, strand) for strand in strands)
    return [row for row in rows if row["waiting"] or row["parked"] or row["active"] or row["reasons"]]


def _row(schedule: Schedule, strand: FlowQueue) -> dict[str, Any]:
    """A strand: who it is, what waits on it in memory, and why."""
    lane, path, zone = strand.lane, strand.path, strand.zone
    return {
        "zone": zone.zone.name, "site": lane.site, "source": lane.source, "provider": lane.provider,
        "priority": path.priority, "tenant": path.tenant, "campaign": path.campaign, "waiting": len(strand.entries),
        "parked": _parked(strand), "active": lane.active, "window": lane.concurrency.window,
        "learned": lane.concurrency.cause, "reasons": reasons(schedule, strand),
    }  # fmt: skip


def _parked(strand: FlowQueue) -> bool:
    try:
        return not strand.parked.exhausted and strand.parked.peek() is not None
    except StoreError:
        return True  # as far as is known


def reasons(schedule: Schedule, strand: FlowQueue) -> list[dict[str, Any]]:
    """Everything that keeps the strand from sending now, the nearest first; each once."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for hold in _holds(schedule, strand):
        until_ms = 0 if hold.until == math.inf else _ms_at(schedule, hold.until)
        row = {"kind": hold.kind, "cause": hold.cause, "since_ms": hold.since_ms, "until_ms": until_ms}
        found.setdefault((hold.kind, hold.cause), row)
    return list(found.values())


def _ms_at(schedule: Schedule, steady: float) -> int:
    """The UNIX time of a moment of steady seconds, not before it: what ends at midnight ends that day."""
    return schedule.now_ms() + math.ceil((steady - schedule.now()) * 1000 - _ROUNDING_MS)


def _holds(schedule: Schedule, strand: FlowQueue) -> Iterator[Blocked]:
    zone, lane, permits = strand.zone, strand.lane, schedule.permits
    now = schedule.now()
    if lane.down_until:
        yield Blocked("resting", lane.reason, lane.down_until, lane.down_since_ms)
    elif lane.failures:
        cause = f"one delivery tries whether it answers again: {lane.reason}"
        yield Blocked("probing", cause, math.inf, lane.down_since_ms)
    if strand.held is not None and strand.held.until > now:
        yield _looked_up(schedule, strand, strand.held) if strand.held.kind == "dns" else strand.held
    if zone.held is not None and zone.held.until > now:
        yield zone.held
    elif (hold := permits.zone_hold(zone.zone, zone.limits)) is not None:
        yield hold if hold.kind == "suspended" else hold._replace(since_ms=0)
    if (hold := permits.hold(strand)) is not None:
        yield hold
    yield from _connections(strand)
    if strand.held is None:
        yield from _limits(schedule, strand, now)


def _looked_up(schedule: Schedule, strand: FlowQueue, hold: Blocked) -> Blocked:
    """Only so many domains are looked up at once: how many come before this one."""
    domain = domain_of(strand.entries[0].address) if strand.entries else strand.lane.site
    before = schedule.sites.before(domain)
    return hold if before is None else hold._replace(cause=f"{domain} waits for its DNS lookup ({before:,} before it)")


def _connections(strand: FlowQueue) -> Iterator[Blocked]:
    zone, lane = strand.zone, strand.lane
    if lane.active >= lane.concurrency.window:
        cause = f"all {lane.concurrency.window} connections that {lane.site} has earned are in use"
        yield Blocked("concurrency", cause, math.inf, 0)
    if zone.active >= zone.zone.connections:
        cause = f"all {zone.zone.connections} connections of zone {zone.zone.name!r} are in use"
        yield Blocked("connections", cause, math.inf, 0)
    elif not zone.may_have(lane):
        cause = f"{lane.site} has its share, the other connections of zone {zone.zone.name!r} are kept for others"
        yield Blocked("connections", cause, math.inf, 0)


def _limits(schedule: Schedule, strand: FlowQueue, now: float) -> Iterator[Blocked]:
    """Those that would refuse one message more."""
    learned = schedule.standing.learned(strand.lane)
    if learned is not None and (wait := learned.wait(now)):
        yield Blocked("rate", schedule.standing.rate_cause(strand.lane), now + wait, 0)
    for limit in strand.limits:
        if wait := limit.wait(now):
            yield Blocked("limit", f"{limit.label} ({limit.blocking})", now + wait, 0)
