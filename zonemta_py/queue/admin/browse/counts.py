"""How much is queued: exact, and read from counters. By zone, domain, provider, campaign and tenant, and in all.

    size                                              {zones: {name: counts}, total: counts, messages and bytes}
    size zone | domain | zone domain | provider | campaign | tenant | campaign tenant         the counts of that
    sizes by limit after zone                         {rows: [{name, counts …}], next, of}: pages, the largest first

A domain's provider is what DNS has said; domains of which that is not known yet are in no provider's sum.

Pages come in the order of a ranking that is made in portions, while other work continues, and again when it is older
than RANKED_S; the counts are those of this moment. One that has come to nothing meanwhile is left out.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_right
from collections.abc import Callable
from itertools import chain, islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sizes import Sizes
from zonemta_py.queue.core.sums.sums import STATES, Sums
from zonemta_py.queue.lifecycle.context import QueueContext

BY = ("zone", "domain", "provider", "campaign", "tenant")
RANKED_S = 5.0
AT_ONCE = 4_000
"""Names that are ranked before the event loop runs."""
PAGE_MAX = 1_000
RANKINGS_MAX = 50
ZONES_MAX = 1_000
"""Zones in one answer; there may be more named queues than anybody wants to see at once."""

Counts = dict[str, int]


async def size(queue: QueueContext, **of: str | None) -> dict[str, Any]:
    """Raises ValueError for what is not counted."""
    core, chosen = queue.core, {name: value for name, value in of.items() if value is not None}
    if unknown := chosen.keys() - set(BY):
        raise ValueError(f"nothing is counted by {min(unknown)!r}; use {', '.join(BY)}")
    found, names = core.sizes, set(chosen)
    if not chosen:
        return _all(queue)
    if names == {"zone"}:
        return _named(found.zones.get(chosen["zone"])) | {"leased": _leased(queue).get(chosen["zone"], 0)}
    if names == {"domain"}:
        return _named(found.of_domain(chosen["domain"].lower()))
    if names == {"zone", "domain"}:
        return _named(found.domains.get((chosen["zone"], chosen["domain"].lower())))
    if names == {"provider"}:
        return _named(found.providers.of(chosen["provider"]))
    if names == {"campaign"}:
        return _named(found.flows.campaigns.of(chosen["campaign"]))
    if names == {"tenant"}:
        return _named(found.flows.tenants.of(chosen["tenant"]))
    if names == {"tenant", "campaign"}:
        return _named(found.flows.pairs.of(f"{chosen['tenant']}~{chosen['campaign']}"))
    raise ValueError(f"nothing is counted by {' and '.join(sorted(names))} together; `zonemta queue list` finds it")


def _named(counts: list[int] | None) -> Counts:
    return dict(zip(sizes.NAMES, counts or [0] * STATES, strict=True))


def _leased(queue: QueueContext) -> Counts:
    """By zone."""
    leased: Counts = {}
    for lease in queue.leases.out.values():
        name = lease.batch.zone.zone.name
        leased[name] = leased.get(name, 0) + len(lease.open)
    return leased


def _all(queue: QueueContext) -> dict[str, Any]:
    core, leased = queue.core, _leased(queue)
    names = dict.fromkeys(islice(chain(core.schedule.zones, core.sizes.zones), 2 * ZONES_MAX))
    zones = {
        name: _named(core.sizes.zones.get(name)) | {"leased": leased.get(name, 0)} for name in islice(names, ZONES_MAX)
    }
    total = _named(core.sizes.total) | {"leased": sum(leased.values())}
    return {"zones": zones, "total": total | {"messages": core.message_count, "bytes": core.message_bytes}}


# -- pages


_Rows = list[tuple[int, str]]


class _Ranking(NamedTuple):
    """(- how many, name), sorted; and when it was made."""

    rows: _Rows
    made_s: float


_rankings: WeakKeyDictionary[Core, dict[tuple[str, str], _Ranking]] = WeakKeyDictionary()


async def page(
    queue: QueueContext, by: str, limit: int = 100, after: str = "", zone: str | None = None
) -> dict[str, Any]:
    """Raises ValueError."""
    core = queue.core
    if by not in BY:
        raise ValueError(f"nothing is counted by {by!r}; use {', '.join(BY)}")
    if zone is not None and by != "domain":
        raise ValueError(f"of one zone, sizes are counted by domain, not by {by}")
    ranking = await _ranking(core, by, zone or "")
    start = bisect_right(ranking, _cursor(after)) if after else 0
    counts, rows, place = _counts(core.sizes, by, zone), list[dict[str, Any]](), start
    limit = max(1, min(limit, PAGE_MAX))
    while place < len(ranking) and len(rows) < limit:
        name = ranking[place][1]
        if any(found := counts(name)):
            rows.append({"name": name} | _named(found))
        place += 1
    following = f"{-ranking[place - 1][0]} {ranking[place - 1][1]}" if place < len(ranking) else None
    return {"rows": rows, "next": following, "of": len(ranking)}


def _cursor(after: str) -> tuple[int, str]:
    count, _, name = after.partition(" ")
    if not count.isdecimal() or not name:
        raise ValueError(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    return -int(count), name


def _counts(found: Sizes, by: str, zone: str | None) -> Callable[[str], list[int]]:
    """The counts of a name."""
    if by == "domain":
        return found.of_domain if zone is None else lambda domain: found.domains.get((zone, domain), [])
    if by == "zone":
        return lambda name: found.zones.get(name, [])
    return _sums(found, by).of


async def _ranking(core: Core, by: str, zone: str) -> _Rows:
    """As it is, if there is one; then the next is made meanwhile."""
    known, now_s = _rankings.setdefault(core, {}), core.clock.monotonic()
    ranking = known.get((by, zone))
    if ranking is None:
        return await _rank(core, by, zone)
    if now_s > ranking.made_s + RANKED_S:
        known[by, zone] = ranking._replace(made_s=now_s)  # one is enough
        core.keep(asyncio.ensure_future(_rank(core, by, zone)))
    return ranking.rows


async def _rank(core: Core, by: str, zone: str) -> _Rows:
    totals: dict[str, int] = {}
    for number, ((there, name), counts) in enumerate(_tables(core.sizes, by), 1):
        if zone in ("", there):
            totals[name] = totals.get(name, 0) + sum(counts)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    rest, parts = iter([(-total, name) for name, total in totals.items() if total]), list[_Rows]()
    while part := sorted(islice(rest, AT_ONCE)):
        parts.append(part)
        await asyncio.sleep(0)
    merged, rows = heapq.merge(*parts), _Rows()
    while more := list(islice(merged, AT_ONCE)):
        rows += more
        await asyncio.sleep(0)
    known = _rankings.setdefault(core, {})
    if len(known) >= RANKINGS_MAX:
        known.clear()
    known[by, zone] = _Ranking(rows, core.clock.monotonic())
    return rows


def _tables(found: Sizes, by: str) -> list[tuple[tuple[str, str], list[int]]]:
    """All counters: zone, name, counts."""
    if by == "domain":
        return list(found.domains.items())
    names = found.zones if by == "zone" else _sums(found, by).by_name
    return [(("", name), counts) for name, counts in names.items()]


def _sums(found: Sizes, by: str) -> Sums:
    return {"provider": found.providers, "campaign": found.flows.campaigns, "tenant": found.flows.tenants}[by]
