"""How much is queued: exact, and read from counters. By zone, domain, provider, campaign and tenant, and in all.

Counts are by state (`metrics/quantities.py`): what a sender has counts as leased only. A domain's provider is what DNS
has said; domains of which that is not known yet are in no provider's sum.

A page is what is the largest at this moment: domains are kept in that order, those of one zone from the first question
about it on, which may be answered before all have been seen (`complete`); the others are put in order in portions while
other work continues. One whose count changes between two pages may be on both, or on neither.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from zonemta_py.queue.admin.browse.zone_domains import of_zone
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.sizes import Sizes
from zonemta_py.queue.core.sums.sums import STATES, Sums
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.questions.question import Refused
from zonemta_py.schedule.time.pace import Pace

BY = ("zone", "domain", "provider", "campaign", "tenant")
AT_ONCE = 2_000
"""Names that are compared before the event loop runs."""
PAGE_MAX = 1_000
ZONES_MAX = 1_000
"""Zones in one answer; there may be more named queues than anybody wants to see at once."""

Counts = dict[str, int]


async def size(queue: QueueContext, **of: str | None) -> dict[str, Any]:
    """Raises ValueError for what is not counted."""
    core, chosen = queue.core, {name: value for name, value in of.items() if value is not None}
    if unknown := chosen.keys() - set(BY):
        raise Refused(f"nothing is counted by {min(unknown)!r}; use {', '.join(BY)}")
    found, names = core.counters.sizes, set(chosen)
    if not chosen:
        return _all(queue)
    if "domain" in chosen:
        chosen["domain"] = chosen["domain"].lower()
    if names == {"zone"}:
        counts = found.zones.get(chosen["zone"])
    elif names == {"domain"}:
        counts = found.of_domain(chosen["domain"])
    elif names == {"zone", "domain"}:
        counts = found.domains.get((chosen["zone"], chosen["domain"]))
    elif names == {"provider"}:
        counts = found.providers.of(chosen["provider"])
    elif names == {"campaign"}:
        counts = found.flows.campaigns.of(chosen["campaign"])
    elif names == {"tenant"}:
        counts = found.flows.tenants.of(chosen["tenant"]) if chosen["tenant"] else await _of_no_tenant(found)
    elif names == {"tenant", "campaign"}:
        counts = found.flows.pairs.of(f"{chosen['tenant']}~{chosen['campaign']}")
    else:
        raise Refused(f"nothing is counted by {' and '.join(sorted(names))} together; `zonemta queue list` finds it")
    mine = (one.state for one in leased(queue) if all(one.of(queue, name) == value for name, value in chosen.items()))
    return _named(counts, Counter(mine))


class Leased(NamedTuple):
    """A recipient that a sender has. state: as which the counters count it meanwhile."""

    lease: Lease
    domain: str
    state: int

    def of(self, queue: QueueContext, by: str) -> str:
        """Its name among those of BY; "": none."""
        if by == "zone":
            return self.lease.zone.name
        if by == "domain":
            return self.domain
        if by == "provider":
            return queue.core.counters.sizes.providers.provider_of.get(self.domain, "")
        flow_id = self.lease.batch.flow_queue.flow_id
        return flow_id.campaign if by == "campaign" else flow_id.tenant


def leased(queue: QueueContext) -> Iterator[Leased]:
    """All of them, in memory: no more than batches times connections."""
    for lease in queue.leases.out.values():
        for entry in lease.open:
            state = sizes.DEFERRED if entry.key.startswith(b"deferred ") else sizes.QUEUED
            yield Leased(lease, entry.address.rpartition("@")[2], state)


def _named(counts: Sequence[int] | None, out: Mapping[int, int]) -> Counts:
    """out: how many of them are leased, by the state as which the counters count them."""
    found = [count - out.get(state, 0) for state, count in enumerate(counts or [0] * STATES)]
    return dict(zip(sizes.NAMES, found, strict=True)) | {"leased": sum(out.values())}


def _by_name(queue: QueueContext, by: str, zone: str | None = None) -> dict[str, Counter[int]]:
    """What is leased, by name and state."""
    found: dict[str, Counter[int]] = {}
    for one in leased(queue):
        if zone is None or one.lease.zone.name == zone:
            found.setdefault(one.of(queue, by), Counter())[one.state] += 1
    return found


async def _of_no_tenant(found: Sizes) -> list[int]:
    """What is not of one; that is not counted, so all that are have to be summed."""
    pace, rest = Pace(), list(found.total)
    async for counts in pace.each(list(found.flows.tenants.by_name.values())):
        rest = [left - count for left, count in zip(rest, counts, strict=True)]
    return rest


def _all(queue: QueueContext) -> dict[str, Any]:
    core, out = queue.core, _by_name(queue, "zone")
    names = dict.fromkeys(islice(chain(core.schedule.zones, core.counters.sizes.zones), 2 * ZONES_MAX))
    zones = {name: _named(core.counters.sizes.zones.get(name), out.get(name, {})) for name in islice(names, ZONES_MAX)}
    total = _named(core.counters.sizes.total, sum(out.values(), Counter()))
    counters = core.counters
    return {"zones": zones, "total": total | {"messages": counters.message_count, "bytes": counters.message_bytes}}


# -- pages

_Ranked = tuple[int, str]
"""How many, and a name."""


async def page(
    queue: QueueContext, by: str, limit: int = 100, after: str = "", zone: str | None = None,
    names: list[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Raises ValueError."""
    found, pace = queue.core.counters.sizes, Pace()
    if by not in BY:
        raise Refused(f"nothing is counted by {by!r}; use {', '.join(BY)}")
    if zone is not None and by != "domain":
        raise Refused(f"of one zone, sizes are counted by domain, not by {by}")
    passed, limit = cursor(after) if after else None, max(1, min(limit, PAGE_MAX))
    complete, rows, of = True, [(0, name) for name in names or ()][:PAGE_MAX], len(names or ())
    if names is not None:
        limit = PAGE_MAX
    elif by == "domain":
        ranked, complete = (found.ranked, True) if zone is None else await of_zone(queue.core, zone)
        rows, of = ranked.page(limit + 1, passed), len(ranked)
    else:
        totals = await _totals(found, by, pace)
        rows, of = await _largest(totals, limit + 1, passed, pace), len(totals)
    counts, out, named = _counts(found, by, zone), _by_name(queue, by, zone), list[dict[str, Any]]()
    async for _, name in pace.each(rows[:limit]):
        if any(there := counts(name)):
            named.append({"name": name} | _named(there, out.get(name, {})))
    following = " ".join(map(str, rows[limit - 1])) if len(rows) > limit else None
    return {"rows": named, "next": following, "of": of, "complete": complete}


def cursor(after: str) -> _Ranked:
    count, _, name = after.partition(" ")
    if not count.isdecimal() or not name:
        raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    return int(count), name


def _counts(found: Sizes, by: str, zone: str | None) -> Callable[[str], list[int]]:
    """The counts of a name."""
    if by == "domain":
        return found.of_domain if zone is None else lambda domain: found.domains.get((zone, domain), [])
    if by == "zone":
        return lambda name: found.zones.get(name, [])
    return _sums(found, by).of


async def _totals(found: Sizes, by: str, pace: Pace) -> list[_Ranked]:
    """Those of which there are any."""
    tables = list((found.zones if by == "zone" else _sums(found, by).by_name).items())
    totals = list[_Ranked]()
    for at in range(0, len(tables), AT_ONCE):
        totals += [(total, name) for name, counts in tables[at : at + AT_ONCE] if (total := sum(counts))]
        await pace.turn()
    return totals


async def _largest(totals: list[_Ranked], limit: int, cursor: _Ranked | None, pace: Pace) -> list[_Ranked]:
    """The next ones, by name if there are equally many. Nothing is sorted that is not shown."""
    found, after = list[tuple[int, str]](), (-cursor[0], cursor[1]) if cursor else None
    for at in range(0, len(totals), AT_ONCE):
        least = -found[-1][0] if len(found) >= limit else 0
        most = sys.maxsize if cursor is None else cursor[0]
        chosen = [(-total, name) for total, name in totals[at : at + AT_ONCE] if least <= total <= most]
        found = sorted(found + [row for row in chosen if after is None or row > after])[:limit]
        await pace.turn()
    return [(-total, name) for total, name in found]


def _sums(found: Sizes, by: str) -> Sums:
    return {"provider": found.providers, "campaign": found.flows.campaigns, "tenant": found.flows.tenants}[by]
