"""An operator's reroutes: made, removed and listed. One that could have no effect, or leads back, is refused.

Failures: ValueError, one sentence.
"""

from __future__ import annotations

import difflib
import heapq
import math
from contextlib import suppress
from itertools import islice
from typing import Any

from zonemta_py.config import ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.config.values import domain_rule
from zonemta_py.mail.reroute import REROUTE, ZONE, RerouteTarget, name_of, parts_of
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused, is_sure
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.zones.site import Providers

OPERATOR = "an operator"
_TEXT_MAX = 1_000
_NAMES_MAX = 20_000

Row = dict[str, Any]


async def add(
    queue: QueueContext, zone: str, destination: str, to: str, seconds: float | None, cause: str, by: str
) -> Row:  # fmt: skip
    """Mail of that zone, for that destination ("" any), goes there from now on; seconds None: until removed. Another
    one for the same mail ends."""
    try:
        target, name = RerouteTarget.of(to), name_of(zone, destination)
    except ValueError as error:
        raise Refused(str(error)) from None
    if seconds is not None and not 0 < seconds < math.inf:
        raise Refused(f"a reroute of {seconds:g} seconds has no effect; give more than 0, or leave it out")
    if len(cause) + len(by) > _TEXT_MAX:
        raise Refused(f"the cause is longer than {_TEXT_MAX:,} characters; shorten it")
    if not is_sure():
        _check(queue.core.schedule, *parts_of(name), target)
        if destination:
            _check_destination(queue, parts_of(name)[1])
    why = f"by {by or OPERATOR}" + (f": {cause}" if cause else "")
    policy = queue.core.schedule.policy
    if (before := policy.reroutes_now().get(name)) is not None and before.to == target.text:
        policy.lift(REROUTE, name, "it is made anew")  # else it would not become shorter
    policy.stop(REROUTE, name, math.inf if seconds is None else seconds, why, chosen=True, to=target.text)
    queue.core.changed()
    return next(row for row in rows(queue) if row["name"] == name)


def remove(queue: QueueContext, zone: str, destination: str) -> bool:
    """Its mail goes as ever, that which waits too. False: there is none."""
    try:
        name = name_of(zone, destination)
    except ValueError as error:
        raise Refused(str(error)) from None
    removed = queue.core.schedule.policy.lift(REROUTE, name, "by an operator")
    queue.core.changed()
    return removed


def rows(queue: QueueContext) -> list[Row]:
    """Those that hold, the oldest first."""
    schedule, apart_ms, found = queue.core.schedule, queue.core.clock.apart_ms(), list[Row]()
    for name, stop in schedule.policy.reroutes_now().items():
        zone, destination = parts_of(name)
        found.append({
            "name": name, "zone": zone, "destination": destination, "to": stop.to, "cause": stop.cause,
            "since_ms": stop.since_ms, "until_ms": stop.until_ms and stop.until_ms - apart_ms,
            "lacks": schedule.reroutes.lacks(RerouteTarget.of(stop.to)),
        })  # fmt: skip
    return found


def _check(schedule: Schedule, zone: str, destination: str, to: RerouteTarget) -> None:
    sends = [name for name, one in schedule.zones.items() if not one.zone.pulled]
    if zone and zone not in sends:
        raise Refused(f"there is no zone {zone!r} that sends; there are {', '.join(sends)}")
    if lack := schedule.reroutes.lacks(to):
        there = sends if to.kind == ZONE else [pool.name for pool in schedule.config.pools]
        raise Refused(f"there is no {lack} to reroute to; there are {', '.join(there) or 'none'}")
    if to.kind != ZONE:
        return
    if to.name == zone:
        raise Refused(f"mail of zone {zone!r} goes there already; name another zone")
    own = schedule.zones[to.name].zone.reroute
    if own is not None and own.to.startswith("zone "):
        raise Refused(f"zone {to.name!r} reroutes to {own.to} itself, and mail is rerouted once; name another zone")
    for name, stop in schedule.policy.reroutes_now().items():
        of, place = parts_of(name)
        leads = of in ("", to.name) and stop.to.startswith("zone ") and stop.to != to.text
        if leads and (not place or not destination or place == destination):
            raise Refused(
                f"mail in zone {to.name!r} is itself rerouted to {stop.to} ({name}), and mail is rerouted once; remove "
                "that first, or name another zone"
            )


def _check_destination(queue: QueueContext, name: str) -> None:
    """Anything may be a domain that has a dot in it; else it is a provider, or a place that mail goes to."""
    schedule = queue.core.schedule
    zones = schedule.zones.values()
    paths = [path for zone in zones for path in islice(zone.flow_queues.paths.values(), _NAMES_MAX)]
    known = {one for path in paths for one in (path.site, path.provider)} - {""}
    known |= {zone.flow_queues.own.key for zone in zones if zone.flow_queues.own is not None}
    with suppress(ConfigError):
        known |= set(Providers.load(queue.core.config.dns.providers or shipped("providers.toml")).names)
    if name in known:
        return
    with suppress(ValueError):
        domain_rule(name)
        if "." in name or any(name == row.partition("+")[0] for row in known):
            return
    close = difflib.get_close_matches(name, heapq.nsmallest(500, known, key=lambda one: abs(len(one) - len(name))), n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "; give a domain, a site or a provider"
    raise Refused(f"there is no destination {name!r}{meant}")
