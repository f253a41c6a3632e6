"""Which keys have to be read to find what a filter means: as few as the keys and the counters allow.

A message's recipients are found by its id; by age, fresh and held ones, and all others by the index, since ids grow
with time. Zones, domains, campaigns and tenants of which the counters know nothing are left out; so are the parked
recipients of other campaigns and tenants. Everything else is asked of each recipient (`tasks.where`).

Promise: the ranges come in the order of their keys, so that a key is a cursor, whatever comes and goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from zonemta_py.disk import keys
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import COUNTED, FAMILY, State
from zonemta_py.queue.tasks.where import Where
from zonemta_py.schedule.flow import FlowId, split_key
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.zones import pull

AT_ONCE = 64
"""Recipients that are read in one go, and looked at before the event loop runs."""
ZONES_MAX = 500
"""With more zones their families are read as a whole."""
OVER = (State.DELETED, State.BOUNCED)
"""States in which nothing waits to be sent."""
_SLACK_MS = 2_000
_LAST = "g"
"""After all ids."""


class Range(NamedTuple):
    """Keys of recipients, or of the index. wanted: whether parked recipients of that destination may be meant."""

    start: bytes
    stop: bytes
    wanted: Callable[[str], bool] | None = None


def of(core: Core, where: Where) -> list[Range]:
    """All that the filter may mean."""
    ids = where.values("id")
    if ids is not None:
        found = [one for message_id in dict.fromkeys(ids) for one in of_message(core, str(message_id))]
    else:
        found = [] if most(core, where) == 0 else _by_family(core, where)
    return sorted(dict.fromkeys(found), key=lambda one: one[:2])


def of_message(core: Core, message_id: str) -> list[Range]:
    """Where recipients of that message can be."""
    found = [_whole(prefix) for prefix in _direct(core, message_id)]
    if core.disk.places.complete:
        return [_whole(keys.index_range(message_id)), *found]
    return [*(_whole(family) for family in keys.PLACED), *found]


def _direct(core: Core, message_id: str) -> list[bytes]:
    families = [(family, COUNTED[state]) for family, state in FAMILY.items() if _is_direct(family)]
    return [
        f"{between}{message_id} ".encode()
        for zone, counts in core.counters.sizes.zones.items()
        for family, at in families
        if counts[at] and not (family == "delivery-zone" and zone.startswith(pull.PREFIX))  # pushed ones are parked
        for between in _before_id(core, family, zone)
    ]


def _before_id(core: Core, family: str, zone: str) -> list[str]:
    """What comes before the id in keys of a family; for deleted ones, of each task that may have deleted some."""
    if family != "deleted":
        return [f"{family} {zone} "]
    tasks = core.tasks.by_number.values()
    return [keys.deleted_range(zone, task.number).decode() for task in tasks if task.done > task.undone]


def _is_direct(family: str) -> bool:
    return f"{family} ".encode() not in keys.PLACED


def _whole(prefix: bytes) -> Range:
    return Range(prefix, keys.end(prefix))


def most(core: Core, where: Where) -> int | None:
    """No more recipients than that can be meant, by the counters; None: not known."""
    found = None
    sizes = core.counters.sizes
    tables = (("campaign", sizes.flows.campaigns.of), ("tenant", sizes.flows.tenants.of),
              ("domain", sizes.of_domain), ("zone", lambda zone: sizes.zones.get(zone, [])))  # fmt: skip
    for name, counts in tables:
        values = where.values(name)
        if values is not None and "" not in values:
            own = sum(sum(counts(value.lower() if name == "domain" else value)) for value in values)
            found = own if found is None else min(own, found)
    return found


def _by_family(core: Core, where: Where) -> list[Range]:
    states, first, last = where.values("state"), *ids(core, where)
    bounded = (first, last) != ("", _LAST)
    if bounded and core.disk.places.complete and where.values("zone") is None:
        found = [Range(keys.INDEX + first.encode(), keys.INDEX + last.encode())]
    else:
        found = placed(core, where)
    for family, state in FAMILY.items():
        if may_be(state, states) and _is_direct(family):
            for zone in _few_zones(core, where, state):
                prefix = f"{family} {zone} ".encode() if zone else f"{family} ".encode()
                start = prefix + first.encode()
                if family == "delivery-zone" and zone in core.schedule.zones:
                    start = max(start, core.schedule.zones[zone].fresh.mark())
                stop = prefix + last.encode() if zone else keys.end(prefix)
                found.append(Range(start if zone else prefix, stop))
    return found


def placed(core: Core, where: Where) -> list[Range]:
    """Keys of those that the index has."""
    states, destinations, found = where.values("state"), wanted(where), list[Range]()
    for family, state in FAMILY.items():
        if may_be(state, states) and not _is_direct(family):
            for zone in _few_zones(core, where, state):
                prefix = f"{family} {zone} ".encode() if zone else f"{family} ".encode()
                start = max(prefix, core.schedule.zones[zone].due.mark()) if _due(core, family, zone) else prefix
                found.append(Range(start, keys.end(prefix), destinations if family == "parked" else None))
    return found


def may_be(state: State, states: tuple[Any, ...] | None) -> bool:
    """Whether recipients with keys of that state are meant. What waits no more is shown to those who ask for it."""
    if states is None:
        return state not in OVER
    return state in states or (State.LEASED in states and state in (State.QUEUED, State.DEFERRED))


def _due(core: Core, family: str, zone: str) -> bool:
    return family == "deferred" and zone in core.schedule.zones


def _few_zones(core: Core, where: Where, state: State) -> list[str]:
    """As `zones`; [""]: too many to look at each."""
    return zones(core, where, state) if are_few(core, where) else [""]


def are_few(core: Core, where: Where) -> bool:
    """The zones that the filter means: few enough to look at each."""
    named = where.values("zone")
    return len(core.counters.sizes.zones if named is None else named) <= ZONES_MAX


def zones(core: Core, where: Where, state: State) -> list[str]:
    """Zones in which keys may be of recipients in that state: by the counters, or because the store may be behind
    them. Where there are very many, not for states in which most zones may have some (`are_few`)."""
    named, domains = where.values("zone"), where.values("domain")
    counters, at, behind = core.counters.sizes, COUNTED[state], core.counters.sizes.zones_behind()
    names = behind.union(_names(core, state)) if named is None else [str(zone) for zone in named]
    if domains is None:
        none = list[int]()
        return [zone for zone in names if zone in behind or any(counters.zones.get(zone, none)[at : at + 1])]
    there = [str(domain).lower() for domain in domains]
    return [
        zone for zone in names
        if zone in behind or any(any(counters.domains.get((zone, one), ())[at : at + 1]) for one in there)
    ]  # fmt: skip


def _names(core: Core, state: State) -> Iterable[str]:
    """There may be very many named queues, in which nothing is ever fresh."""
    if len(core.counters.sizes.zones) <= ZONES_MAX:
        return core.counters.sizes.zones
    return core.counters.sizes.held if state == State.HELD else [zone.name for zone in core.config.zones]


def ids(core: Core, where: Where) -> tuple[str, str]:
    """The ids that the ages mean, if the clock was not set meanwhile, and a little more."""
    step, now_ms = core.clock.steps[-1], core.clock.steady_ms()
    first, last = "", _LAST
    if younger := where.values("younger_s"):
        at = keys.id_at(now_ms - int(max(younger) * 1000) - step.apart_ms - _SLACK_MS)
        first = at if at > step.since else ""
    if older := where.values("older_s"):
        at = keys.id_at(now_ms - int(min(older) * 1000) - step.apart_ms + _SLACK_MS)
        last = at if at > step.since else _LAST
    return first, last


def wanted(where: Where) -> Callable[[str], bool] | None:
    """Of the destination in a parked key: it has the flow in it."""
    campaigns, tenants = where.values("campaign"), where.values("tenant")
    if campaigns is None and tenants is None:
        return None

    def is_wanted(destination: str) -> bool:
        _, tenant, campaign = FlowId.of(split_key(destination)[2])
        return (campaigns is None or campaign in campaigns) and (tenants is None or tenant in tenants)

    return is_wanted


class RangeWalk:
    """Reads ranges in portions. walked: keys that were read. after: the last key, of a recipient or the index."""

    def __init__(self, core: Core, ranges: list[Range], after: bytes, pace: Pace) -> None:
        self._core, self._ranges, self._pace = core, ranges, pace
        self.after, self.walked, self.stopped = after, 0, False

    async def rows(self) -> AsyncIterator[tuple[bytes, bytes]]:
        """Keys and values of recipients, until the time is over (`stopped`)."""
        for one in self._ranges:
            start = max(one.start, self.after + b"\0") if self.after else one.start
            while start < one.stop:
                if self._pace.over and self.walked >= AT_ONCE:
                    self.stopped = True
                    return
                found = list(islice(self._core.disk.store.scan(start, one.stop), AT_ONCE))
                self.walked += len(found)
                start = found[-1][0] + b"\0" if len(found) == AT_ONCE else one.stop
                for key, value in found:
                    self.after = key
                    if one.wanted is not None and not one.wanted(destination := keys.place(key).destination):
                        start = keys.end(keys.parked_range(keys.place(key).zone, destination))
                        break
                    if not key.startswith(keys.INDEX):
                        yield key, value
                    elif (there := self._core.disk.store.get(keys.indexed(key))) is not None:
                        yield keys.indexed(key), there
                await self._pace.turn()
