"""How much there is in several queues: sums, by name in pages, by age, and the numbers for Prometheus.

A page of names has exact sums. Its order is that of the sums as long as each queue's names fit into one answer; of
more, it is that of each name's largest part, since a sum is only known once all queues were asked about it, and the
answer says so (`by_part`). Domains are nearly whole in one queue, so there the two differ little. Of ages a queue has
those of its largest names only: what a row may lack of the others is said, too (`lacks`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from zonemta_py.metrics.meter import OwnHistogram
from zonemta_py.queue import questions
from zonemta_py.queue.admin.browse import ages, counts
from zonemta_py.queue.admin.metrics import OF_CAMPAIGNS
from zonemta_py.queue.core.sums.ranking import part
from zonemta_py.queue.core.tasks import STATES
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queues.joined import tasks
from zonemta_py.queues.joined.asked import AskedQueues
from zonemta_py.queues.joined.campaigns import rows_of
from zonemta_py.queues.joined.standing import counted
from zonemta_py.schedule.time.pace import Pace

Row = dict[str, Any]
_TURN, _PART = "queue ", "part "
"""How cursors begin: of one queue after another; of the order of the largest parts."""


async def size(queues: AskedQueues, **of: Any) -> Any:
    found = list((await queues.each(questions.size, of)).values())
    if any(value is not None for value in of.values()):
        return _added(found)
    zones = dict.fromkeys(name for one in found for name in one["zones"])
    return {
        "zones": {name: _added(one["zones"][name] for one in found if name in one["zones"]) for name in zones},
        "total": _added(one["total"] for one in found),
    }


async def named_queues(queues: AskedQueues) -> list[Row]:
    rows = dict[str, Row]()
    for found in (await queues.each(questions.queues, {})).values():
        for row in found:
            rows[row["zone"]] = _added((rows[row["zone"]], row)) if row["zone"] in rows else row
    return sorted(rows.values(), key=lambda row: str(row["queue"]))


def _added(rows: Iterable[Mapping[str, Any]]) -> Row:
    """Whole numbers by name; what is none is the first one's."""
    found: Row = {}
    for row in rows:
        for name, value in row.items():
            found[name] = found[name] + value if name in found and isinstance(value, int) else found.get(name, value)
    return found


# -- pages of names


async def sizes(
    queues: AskedQueues,
    by: str,
    limit: int = 100,
    after: str = "",
    zone: str | None = None,
    names: list[str] | None = None,
) -> Row:
    asked: Row = {"by": by, "zone": zone}
    limit = max(1, min(limit, counts.PAGE_MAX))
    if names is not None:
        return _whole(await queues.each(questions.sizes, asked | {"names": names}), by, counts.PAGE_MAX, "")
    by_part, after = after.startswith(_PART), after.removeprefix(_PART)
    if after:
        counts.cursor(after)
    if not by_part:
        found = await queues.each(questions.sizes, asked | {"limit": counts.PAGE_MAX if after else limit})
        many = any(page["next"] is not None for page in found.values())
        if many and not after and all(page["of"] <= counts.PAGE_MAX for page in found.values()):
            found = await queues.each(questions.sizes, asked | {"limit": counts.PAGE_MAX})
            many = any(page["next"] is not None for page in found.values())
        if not many:
            return _whole(found, by, limit, after)
        if not after:
            return await _parts(queues, asked, limit, after, found)
    return await _parts(queues, asked, limit, after)


def _whole(found: Mapping[int, Row], by: str, limit: int, after: str) -> Row:
    """Of answers that have all names."""
    rows = dict[str, Row]()
    for page in found.values():
        for row in page["rows"]:
            rows[row["name"]] = _added((rows[row["name"]], row)) if row["name"] in rows else row
    ranked = sorted((_rank(by, _total(row), row["name"]), row) for row in rows.values())
    if after:
        ranked = [one for one in ranked if one[0] > _Rank.of(by, after)]
    ordered = [row for _, row in ranked]
    following = ranked[limit - 1][0].cursor if len(ranked) > limit else None
    complete = all(page["complete"] for page in found.values())
    return {"rows": ordered[:limit], "next": following, "of": len(rows), "complete": complete}


async def _parts(
    queues: AskedQueues, asked: Row, limit: int, after: str, first: Mapping[int, Row] | None = None
) -> Row:
    """Each name where its largest part is, or the first of them. of: at most so many. first: the first pages."""
    rows, by = list[Row](), asked["by"]
    while True:
        found = first or await queues.each(questions.sizes, asked | {"limit": limit, "after": after})
        first = None
        until = min((_Rank.of(by, page["next"]) for page in found.values() if page["next"] is not None), default=None)
        parts = {_rank(by, _total(row), row["name"]): row for page in found.values() for row in page["rows"]}
        ranked = sorted(rank for rank in parts if until is None or rank <= until)
        known = await _known(queues, asked, [rank.name for rank in ranked], found)
        for rank in ranked:
            row = parts[rank]
            there = known.get(row["name"], [row])
            if max(map(_total, there)) <= _total(row):
                rows.append(_added(there))
            if len(rows) == limit:
                until = rank
                break
        following = None if until is None else until.cursor
        if following is None or len(rows) == limit:
            break
        after = following
    of, complete = sum(page["of"] for page in found.values()), all(page["complete"] for page in found.values())
    more = following and _PART + following
    return {"rows": rows, "next": more, "of": of, "complete": complete, "by_part": True}


async def _known(queues: AskedQueues, asked: Row, names: list[str], pages: Mapping[int, Row]) -> dict[str, list[Row]]:
    """What each queue has of them; it is asked for those that it has not told of on its page."""
    found, chosen = dict[str, list[Row]](), dict.fromkeys(names)
    left = {number: dict(chosen) for number in queues.asks}
    for number, page in pages.items():
        for row in page["rows"]:
            if row["name"] in chosen:
                found.setdefault(row["name"], []).append(row)
                left[number].pop(row["name"], None)
    missing = {number: list(some) for number, some in left.items()}
    while missing := {number: some for number, some in missing.items() if some}:
        some = {number: asked | {"names": its[: counts.PAGE_MAX]} for number, its in missing.items()}
        for page in (await queues.each_its(questions.sizes, some)).values():
            for row in page["rows"]:
                found.setdefault(row["name"], []).append(row)
        missing = {number: its[counts.PAGE_MAX :] for number, its in missing.items()}
    return found


def _total(row: Row) -> int:
    return sum(value for name, value in row.items() if name != "name")


class _Rank(NamedTuple):
    """Where a name is in a list by size: the largest first, and equal domains as `Ranking` has them."""

    less: int
    part: int
    name: str

    @classmethod
    def of(cls, by: str, cursor: str) -> _Rank:
        """Raises ValueError."""
        return _rank(by, *counts.cursor(cursor))

    @property
    def cursor(self) -> str:
        return f"{-self.less} {self.name}"


def _rank(by: str, count: int, name: str) -> _Rank:
    return _Rank(-count, -part(name) if by == "domain" else 0, name)


# -- counts of what a filter means


async def tally(queues: AskedQueues, by: str, after: str = "", **where: Any) -> Row:
    """One queue after another, as many as come to their end."""
    numbers, cursor = list(queues.asks), after
    if after:
        first, _, cursor = after.removeprefix(_TURN).partition(" ")
        if not after.startswith(_TURN) or not first.isdecimal() or int(first) not in numbers:
            raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
        numbers = numbers[numbers.index(int(first)) :]
    found = await queues.each(questions.tally, {"by": by, "after": cursor} | where, numbers[:1] if cursor else numbers)
    merged, walked, following = dict[str, Row](), 0, ""
    for number, page in found.items():
        for name, states in page["counts"].items():
            merged[name] = _added((merged.get(name, {}), states))
        walked += page["walked"]
        if page["next"] is not None:
            following = f"{_TURN}{number} {page['next']}"
            break
    if not following and cursor and len(numbers) > 1:
        following = f"{_TURN}{numbers[1]} "
    return {"counts": merged, "walked": walked, "next": following or None}


# -- by age


async def qshape(
    queues: AskedQueues, by: str = "domain", zone: str | None = None, limit: int = 50, after: int = 0,
    states: list[str] | None = None, minutes: list[int] | None = None, subdomains: int = 0,
) -> Row:  # fmt: skip
    asked = {"by": by, "zone": zone, "limit": ages.PAGE_MAX, "states": states, "minutes": minutes}
    found = list((await queues.each(questions.qshape, asked)).values())
    names, fits = dict[str, list[int]](), all(one["names"] <= ages.PAGE_MAX for one in found)
    for one in found:
        for row in one["rows"]:
            names[row["name"]] = _side(names.get(row["name"], ()), row["ages"])
    count = len(names) if fits else sum(one["names"] for one in found)
    if subdomains:
        names |= await ages.parents(names, subdomains, Pace())
    rows = [_shape(name, its) for name, its in names.items()]
    rows.sort(key=lambda row: (row["total"], row["name"]), reverse=True)
    whole = _side(*(one["all"]["ages"] for one in found))
    cut = [one for one in found if one["names"] > len(one["rows"]) > 0]
    missing = sum(one["all"]["total"] - sum(row["total"] for row in one["rows"]) for one in cut)
    least = missing if subdomains else sum(one["rows"][-1]["total"] for one in cut)
    lacks = {"lacks": min(missing, least)} if cut else {}
    return lacks | {
        "by": by, "minutes": found[0]["minutes"], "rows": rows[: ages.PAGE_MAX][max(0, after) :][: max(1, limit)],
        "all": _shape("all", whole), "names": count,
        "walked": sum(one["walked"] for one in found),
        "of": sum(one["of"] for one in found), "complete": all(one["complete"] for one in found),
        "counting": any(one["counting"] for one in found), "at_ms": min(one["at_ms"] for one in found),
    }  # fmt: skip


def _side(*rows: Sequence[Any]) -> list[Any]:
    """Sums, place by place from the first on."""
    return [sum(values) for values in zip_longest(*rows, fillvalue=0)]


def _shape(name: str, its: list[int]) -> Row:
    return {"name": name, "total": sum(its), "ages": its}


# -- what happens a second


async def now(queues: AskedQueues, destinations: int = 0) -> Row:
    found = list((await queues.each(questions.now, {"destinations": destinations})).values())
    rates = {name: sum(one[name] for one in found) for name, value in found[0].items() if isinstance(value, float)}
    named = dict.fromkeys(name for one in found for name in one["history"])
    history = {name: _side(*(one["history"].get(name, [])[::-1] for one in found))[::-1] for name in named}
    rates |= {"window_s": max(one["window_s"] for one in found), "history": history}
    if destinations > 0:
        busy = dict[str, list[float]]()
        for one in found:
            for name, its in one["destinations"].items():
                busy[name] = _side(busy.get(name, ()), its)
        chosen = sorted(busy, key=lambda name: -sum(busy[name]))[:destinations]
        rates["destinations"] = {name: busy[name] for name in chosen}
    return rates


# -- for Prometheus


class _Of(NamedTuple):
    """How the values of several queues become one."""

    join: Any
    """None: they are not made of one another's values."""


SUM, MOST, LEAST, ELSEWHERE = _Of(sum), _Of(max), _Of(min), _Of(None)
GAUGES = {
    "zonemta_smtp_sessions_open": SUM,
    "zonemta_account_sessions_open": SUM,
    "zonemta_pull_sessions_open": SUM,
    "zonemta_pull_waiting": SUM,
    "zonemta_pull_reservations": SUM,
    "zonemta_connections_idle": SUM,
    "zonemta_queue_recipients": SUM,
    "zonemta_in_doubt": SUM,
    "zonemta_queue_messages": SUM,
    "zonemta_queue_bytes": SUM,
    "zonemta_spooled_messages": SUM,
    "zonemta_spooled_bytes": SUM,
    "zonemta_oldest_recipient_age_seconds": MOST,
    "zonemta_campaign_recipients": ELSEWHERE,
    "zonemta_campaign_attempts": ELSEWHERE,
    "zonemta_leases_out": SUM,
    "zonemta_suspended": ELSEWHERE,
    "zonemta_resting": ELSEWHERE,
    "zonemta_learned": ELSEWHERE,
    "zonemta_source_resting": MOST,
    "zonemta_damage": ELSEWHERE,
    "zonemta_suppression_guards_up": ELSEWHERE,
    "zonemta_tasks": ELSEWHERE,
    "zonemta_accepting": LEAST,
    "zonemta_disk_free_bytes": LEAST,  # all are on one disk
    "zonemta_disk_reserve_bytes": MOST,
    "zonemta_process_failure_time_seconds": MOST,  # a process may be told to several queues
    "zonemta_process_resident_memory_bytes": MOST,
    "zonemta_process_start_time_seconds": MOST,
    "zonemta_event_sink_lag_records": SUM,
    "zonemta_event_sink_lag_seconds": MOST,
    "zonemta_event_sink_up": LEAST,
    "zonemta_certificate_expiry_timestamp_seconds": LEAST,
    "zonemta_plugin_recent_failures": SUM,
    "zonemta_plugin_tasks": SUM,
    "zonemta_plugin_value": MOST,  # of one process, which tells one queue
    "zonemta_build_info": MOST,
}
"""Every gauge."""
_OF_PROCESSES = frozenset((
    "zonemta_process_starts_total", "zonemta_process_failures_total", "zonemta_process_cpu_seconds_total",
))  # fmt: skip
"""Counters that are not added up: of a process that may be told to several queues."""


async def metrics(queues: AskedQueues, node: bool = False) -> Row:
    """node: of a cluster, its agent has asked only those of this node."""
    found = list((await queues.each(questions.metrics, {})).values())
    counters = {
        name: _joined((one["counters"].get(name, ()) for one in found), MOST if name in _OF_PROCESSES else SUM)
        for name in _names(one["counters"] for one in found)
    }
    gauges = {
        name: _joined((one["gauges"].get(name, ()) for one in found), GAUGES.get(name, SUM))
        for name in _names(one["gauges"] for one in found)
        if GAUGES.get(name, SUM).join is not None
    }
    histograms = {
        name: _histogram(row for one in found for row in one["histograms"].get(name, ()))
        for name in _names(one["histograms"] for one in found)
    }
    gauges |= await _of_campaigns(queues, found) | await counted(queues)
    states = Counter((await tasks.states(queues)).values())
    gauges["zonemta_tasks"] = [[[state], states[state]] for state in STATES]
    return {"counters": counters, "histograms": histograms, "gauges": gauges}


def _names(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table))


def _joined(tables: Iterable[Sequence[Any]], of: _Of) -> list[list[Any]]:
    values = dict[tuple[str, ...], list[Any]]()
    for rows in tables:
        for labels, value in rows:
            values.setdefault(tuple(labels), []).append(value)
    return [[list(labels), of.join(each)] for labels, each in values.items()]


def _histogram(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    found = dict[tuple[str, ...], tuple[list[int], float]]()
    own = dict[tuple[str, ...], OwnHistogram]()
    for labels, buckets, total, *ends in rows:
        if ends:
            one = own.setdefault(tuple(labels), OwnHistogram())
            one.sum += total
            for end, n in zip((*ends[0], math.inf), buckets, strict=True):
                one.add(end, n)
        else:
            known, before = found.get(tuple(labels), ([], 0.0))
            found[tuple(labels)] = _side(known, buckets), before + total
    whole = [[list(labels), buckets, total] for labels, (buckets, total) in found.items()]
    return [*whole, *(one.row(labels) for labels, one in own.items())]


async def _of_campaigns(queues: AskedQueues, found: list[Row]) -> Row:
    """Each that any queue tells of: each tells of `http.metrics_campaigns` at most."""
    of = next(iter(OF_CAMPAIGNS))
    names = dict.fromkeys(row[0][0] for one in found for row in one["gauges"].get(of, ()))
    rows = (await rows_of(queues, list(names))).values()
    return {
        metric: [[[row["name"], what], row[what]] for row in rows for what in of] for metric, of in OF_CAMPAIGNS.items()
    }
