"""Judges what came, and when, by the limits: how far each was exceeded in any window, and how much of it was reached.

Two clocks: the journal says when each lease was granted, to the millisecond, and there a limit has to hold by itself.
The destination's diary says when mail arrived; there a limit holds but for the way, since what took longer than
others bunches. How long the way was is in the journal, too, so nothing here depends on how fast a machine is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from restraint.destination import Event
from restraint.limits import DOMAINS, Key, Limit
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queues import layout
from zonemta_py.schedule.flow import split_key
from zonemta_py.sink import depth

ROUNDED_S = 0.01
"""A grant is written down in whole milliseconds, by a clock that may be drawn towards the right time meanwhile."""
ROUNDED_MS = 2
"""Of the end of one lease and the beginning of another, which goes over its connection."""
RELEASED = (5, 6)
"""Verdicts that say that nothing was tried: such a lease was given back, with all that it was charged."""


@dataclass
class Series:
    """What one bucket counted: times ascending, seconds."""

    times: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def add(self, time: float, cost: float) -> None:
        self.times.append(time)
        self.costs.append(cost)

    def between(self, start: float, end: float) -> float:
        """Costs behind `start` up to `end`."""
        return sum(cost for time, cost in zip(self.times, self.costs, strict=True) if start < time <= end)

    def first(self, since: float) -> float:
        """When the first came at or after that (inf: none did)."""
        pairs = zip(self.times, self.costs, strict=True)
        return next((time for time, cost in pairs if time >= since and cost > 0), inf)


Counted = dict[tuple[Limit, Key], Series]


class Diary:
    """The destination's events, sorted by limit and key."""

    def __init__(self, limits: Sequence[Limit], events: Iterable[Event]) -> None:
        self.events = list(events)
        self._domains = {limit.domain(label): (limit, group) for limit in limits for label, group in DOMAINS.items()}
        self._servers = {
            address: (limit, host.split(".")[1]) for limit in limits for host, address in limit.hosts.items()
        }
        self.counted: Counted = {(limit, key): Series() for limit in limits for key in limit.buckets()}
        self.open: Counted = {(limit, key): Series() for limit in limits for key in limit.buckets()}
        """Of limits on connections: how many more (1) or fewer (-1) are open."""
        self._owners = self._connections()
        for event in self.events:
            self._take(event)

    def _connections(self) -> dict[int, tuple[Limit, Key]]:
        """Connection → whom it belongs to: whose message came first over it, or whose host it reached."""
        owners: dict[int, tuple[Limit, Key]] = {}
        said: set[int] = set()
        for event in self.events:
            number = event["connection"]
            if event["kind"] == "connect" and event["server"] in self._servers:
                limit, group = self._servers[event["server"]]
                owners[number] = limit, limit.key(event["client"], group)
            elif event["kind"] == "message" and number in owners and number not in said:
                said.add(number)
                owners[number] = self._owner(event)
        return owners

    def _owner(self, event: Event) -> tuple[Limit, Key]:
        limit, group = self._domains[next(iter(event["domains"]))]
        return limit, limit.key(event["client"], group)

    def _take(self, event: Event) -> None:
        kind, at = event["kind"], event["t"]
        if kind == "message":
            owner = self._owner(event)
            costs = {"messages": 1.0, "recipients": float(sum(event["domains"].values())), "bytes": event["bytes"]}
            if owner[0].kind in costs:
                self.counted[owner].add(at, costs[owner[0].kind])
        elif kind in ("connect", "close") and event["connection"] in self._owners:
            owner = self._owners[event["connection"]]
            if owner[0].kind == "new_connections" and kind == "connect":
                self.counted[owner].add(at, 1.0)
            elif owner[0].kind == "connections":
                self.open[owner].add(at, 1.0 if kind == "connect" else -1.0)


class Grants:
    """The leases in the journal. longest_s: from a lease to the end of its delivery."""

    def __init__(self, folder: Path, limits: Sequence[Limit]) -> None:
        self.counted: Counted = {(limit, key): Series() for limit in limits for key in limit.buckets()}
        self.leased: Counted = {(limit, key): Series() for limit in limits for key in limit.buckets()}
        """Of limits on connections: how many more (1) or fewer (-1) are leased."""
        self.longest_s: dict[Limit, float] = dict.fromkeys(limits, 0.0)
        self._domains = {limit.domain(label): (limit, group) for limit in limits for label, group in DOMAINS.items()}
        self._sizes: dict[str, int] = {}
        starts: dict[tuple[int, int], list[Any]] = {}
        ends: dict[tuple[int, int], tuple[int, list[Any]]] = {}
        lost: list[tuple[int, int, list[int]]] = []
        for queue in layout.numbers(folder):  # each numbers its leases by itself
            for record in _records(layout.folder_of(folder, queue)):
                body = unpack(record.body)
                if record.type == Type.ENVELOPE:
                    self._sizes[body[0]] = body[1]["size"]
                elif record.type == Type.START:
                    starts[queue, body[0]] = body
                elif record.type == Type.DELIVERY:
                    ends[queue, body[0]] = record.ms, body
                elif record.type == Type.IN_DOUBT:
                    lost.append((queue, record.ms, body[0]))
        for queue, ms, leases in lost:
            for lease in leases:
                ends.setdefault((queue, lease), (ms, []))
        for lease, start in sorted(starts.items(), key=lambda item: (item[1][5], item[0])):
            self._take(start, ends.get(lease))
        for series in self.leased.values():
            order = sorted(zip(series.times, series.costs, strict=True))  # ends before beginnings
            series.times, series.costs = [time for time, _ in order], [cost for _, cost in order]

    def _take(self, start: list[Any], end: tuple[int, list[Any]] | None) -> None:
        _, message, _, place, recipients, since_ms = start[:6]
        address = recipients[0] if isinstance(recipients[0], str) else recipients[0][0]
        known = self._domains.get(address.rpartition("@")[2])
        if known is None:
            return
        limit, group = known
        owner = limit, limit.key(split_key(place)[1], group)
        if end is not None and end[1]:
            if all(outcome[0] in RELEASED for outcome in end[1][4]):
                return
            trace = end[1][5]
            self.longest_s[limit] = max(self.longest_s[limit], (trace[3] + trace[4] - since_ms) / 1000)
        costs = {"messages": 1.0, "recipients": float(len(recipients)), "bytes": float(self._sizes[message])}
        if limit.kind in costs:
            self.counted[owner].add(since_ms / 1000, costs[limit.kind])
        elif limit.kind == "connections" and end is not None:
            self.leased[owner].add(since_ms / 1000, 1.0)
            self.leased[owner].add(max(since_ms, end[0] - ROUNDED_MS) / 1000, -1.0)


def _records(folder: Path) -> Iterable[Any]:
    faults: list[segments.Fault] = []
    for place in (folder / "archive", folder / "journal"):
        yield from segments.read(place, 0, faults)


@dataclass
class Row:
    """One bucket. most: what it allows in no time at all (burst; connections: the limit). granted: the most that
    went beyond the rate, by the journal; came: the same, by the destination. reached: share of the limit that was used
    while the MTA ran. away_s: from a kill to the first that came after it, the longest."""

    limit: Limit
    key: Key
    most: float
    granted: float | None
    came: float
    bunch: float
    reached: float
    away_s: float

    def broken(self, least: float) -> list[str]:
        name = f"{self.limit.name}{' ' if self.key else ''}{' '.join(self.key)}"
        rules = []
        if self.granted is not None and self.granted > self.most + self.limit.terms.rate * ROUNDED_S:
            rules.append(f"{name}: {self.granted:.6g} were granted at once where {self.most:g} are the most")
        if self.came > self.most + self.bunch:
            rules.append(
                f"{name}: {self.came:.6g} came at once where {self.most:g} are the most, {self.bunch:.3g} late"
            )
        if self.away_s == inf:
            rules.append(f"{name}: nothing came any more after a kill")
        elif self.reached < least:
            rules.append(f"{name}: only {self.reached:.1%} of the limit were reached")
        return rules


def judge(limits: Sequence[Limit], diary: Diary, grants: Grants, moments: Sequence[float]) -> list[Row]:
    """moments: the beginning, each kill, and the end, in the diary's seconds."""
    return [
        (_connections if limit.kind == "connections" else _rate)(limit, key, diary, grants, moments)
        for limit in limits
        for key in limit.buckets()
    ]


def _rate(limit: Limit, key: Key, diary: Diary, grants: Grants, moments: Sequence[float]) -> Row:
    series, granted, terms = diary.counted[limit, key], grants.counted[limit, key], limit.terms
    spans = [(series.first(start), end) for start, end in pairwise(moments)]
    spans = [(start, max(start, end)) for start, end in spans]
    time = sum(end - start for start, end in spans if start < end)
    got = sum(series.between(start, end) for start, end in spans)
    return Row(
        limit, key, terms.burst,
        depth(granted.times, terms.rate, granted.costs) if granted.times else None,
        depth(series.times, terms.rate, series.costs),
        terms.rate * grants.longest_s[limit] + max(series.costs, default=0.0),
        got / (terms.rate * time) if time else 0.0,
        max(start - moment for (start, _), moment in zip(spans, moments, strict=False)),
    )  # fmt: skip


def _connections(limit: Limit, key: Key, diary: Diary, grants: Grants, moments: Sequence[float]) -> Row:
    series, leased, most = diary.open[limit, key], grants.leased[limit, key], limit.terms.rate
    begin, *kills, _ = moments
    starts = [begin, *(series.first(kill) for kill in kills)]  # what was open at the beginning stays open
    spans = [(start, max(start, end)) for start, end in zip(starts, moments[1:], strict=True)]
    time = sum(end - start for start, end in spans if start < end)
    used = sum(_area(series, start, end, most) for start, end in spans if start < end)
    away_s = max(start - moment for start, moment in zip(starts, moments, strict=False))
    return Row(limit, key, most, _peak(leased), _peak(series), 0.0, used / (most * time) if time else 0.0, away_s)


def _peak(series: Series) -> float:
    level = peak = 0.0
    for cost in series.costs:
        level += cost
        peak = max(peak, level)
    return peak


def _area(series: Series, start: float, end: float, most: float) -> float:
    """How many were open, at most `most`, times how long."""
    level, last, area = 0.0, start, 0.0
    for time, cost in zip(series.times, series.costs, strict=True):
        if time > end:
            break
        if time > last:
            area += min(level, most) * (time - last)
            last = time
        level += cost
    return area + min(level, most) * (end - last)


def by_limit(rows: Iterable[Row]) -> dict[Limit, list[Row]]:
    found: dict[Limit, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.limit].append(row)
    return found
