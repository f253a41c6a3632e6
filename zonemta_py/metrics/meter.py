"""Counters and histograms of one process: whole numbers in dictionaries, so that counting costs a fraction of a
microsecond.

Promise: nothing here raises, waits or grows without bound: a metric has at most SETS_MAX sets of labels, and what comes
after that is counted as "other". Not for several threads at once.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from zonemta_py.metrics.table import METRICS, OTHER

SETS_MAX = 2_000
"""Sets of labels of one metric."""
ENDS_MAX = 100
"""Different ends of buckets of one histogram."""
SUM = "sum"
"""Where a report has the end of a bucket: what it adds to the histogram's sum."""

Labels = tuple[str, ...]


class Histogram:
    """bounds: upper ends of the buckets; the last bucket has what is larger."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0


class OwnHistogram:
    """One whose buckets are its own: end → how many; `inf` has what is larger than all ends."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts: dict[float, float] = {math.inf: 0}
        self.sum = 0.0

    def expect(self, ends: Iterable[float]) -> None:
        """These ends are there, if nothing is in their buckets, too."""
        for end in ends:
            if len(self.counts) < ENDS_MAX:
                self.counts.setdefault(end, 0)

    def add(self, end: float, n: float) -> None:
        """After ENDS_MAX different ends (other buckets with each reload, say) it counts in the next larger one."""
        if end not in self.counts and len(self.counts) >= ENDS_MAX:
            end = min(one for one in self.counts if one >= end)
        self.counts[end] = self.counts.get(end, 0) + n

    def row(self, labels: Labels) -> list[Any]:
        ends = sorted(self.counts)
        return [list(labels), [self.counts[end] for end in ends], self.sum, ends[:-1]]


def bucket(end: float | None, ends: Iterable[float]) -> str:
    """What a report names a bucket with that end, among all of its histogram; None: the histogram's sum."""
    return " ".join((SUM if end is None else str(end), *map(str, ends)))


class CountTable:
    """Counters by name and labels."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[Labels, float]] = {}

    def add(self, name: str, labels: Labels = (), n: float = 1) -> None:
        """name: of a counter in the table."""
        rows = self.by_name.get(name)
        if rows is None:
            rows = self.by_name[name] = {}
        try:
            rows[labels] += n
        except KeyError:
            if len(rows) >= SETS_MAX:
                labels = (OTHER,) * len(labels)
            rows[labels] = rows.get(labels, 0) + n

    def add_all(self, *counts: tuple[str, Labels, float]) -> None:
        """Several at once: name, labels, n."""
        for name, labels, n in counts:
            try:
                self.by_name[name][labels] += n
            except KeyError:
                self.add(name, labels, n)

    def rows(self) -> dict[str, list[list[Any]]]:
        """Name → [[labels, value] …]."""
        return {name: [[list(labels), value] for labels, value in rows.items()] for name, rows in self.by_name.items()}

    def total(self, name: str, at: int = 0, label: str | None = None) -> float:
        """Of all sets of labels, or of those that have this one there."""
        rows = self.by_name.get(name, {})
        return sum(value for labels, value in rows.items() if label is None or labels[at] == label)


class Meter(CountTable):
    """What is counted in the queue's process, with what the other processes report."""

    def __init__(self) -> None:
        super().__init__()
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._own: dict[tuple[str, Labels], OwnHistogram] = {}
        self._gauges: dict[str, tuple[float, list[list[Any]]]] = {}

    def observe(self, name: str, labels: Labels, value: float, n: int = 1) -> None:
        """name: of a histogram in the table; value: seconds."""
        found = self._histograms.get((name, labels))
        if found is None:
            if len(self._histograms) >= SETS_MAX:
                labels = (OTHER,) * len(labels)
            found = self._histograms.setdefault((name, labels), Histogram(METRICS[name].buckets))
        if value < 0:  # the clock was set
            value = 0.0
        found.counts[bisect_left(found.bounds, value)] += n
        found.sum += value * n

    def histograms(self) -> dict[str, list[list[Any]]]:
        """Name → [[labels, counts by bucket, sum] …]; the buckets are the table's, and one for what is larger. Where
        the table has none, a row has the ends of its own."""
        rows: dict[str, list[list[Any]]] = {}
        for (name, labels), one in self._histograms.items():
            rows.setdefault(name, []).append([list(labels), list(one.counts), one.sum])
        for (name, labels), own in self._own.items():
            rows.setdefault(name, []).append(own.row(labels))
        return rows

    def reported(self, process: str, counts: Iterable[Any], gauges: list[list[Any]], now: float) -> None:
        """Another process's counts since its last report, and what it measures now. Unknown names are passed over: it
        may be of another version. counts: [name, labels, n], of a histogram with one more label (`bucket`); gauges:
        [name, labels, value]."""
        for name, labels, n in counts:
            metric = METRICS.get(name)
            if metric is None or n <= 0:
                continue
            if metric.kind == "histogram" and len(labels) == len(metric.labels) + 1:
                self._add_to_own(name, tuple(map(str, labels[:-1])), labels[-1], n)
            elif metric.kind == "counter" and len(labels) == len(metric.labels):
                self.add(name, tuple(map(str, labels)), n)
        self._gauges.pop(process, None)
        if gauges:
            self._gauges[process] = (now, gauges)
        while len(self._gauges) > SETS_MAX:
            del self._gauges[next(iter(self._gauges))]

    def _add_to_own(self, name: str, labels: Labels, which: str, n: float) -> None:
        found = self._own.get((name, labels))
        if found is None:
            if len(self._own) >= SETS_MAX:
                labels = (OTHER,) * len(labels)
            found = self._own.setdefault((name, labels), OwnHistogram())
        end, *ends = which.split()
        found.expect(map(float, ends))
        if end == SUM:
            found.sum += n
        else:
            found.add(float(end), n)

    def gauges(self, since: float) -> dict[str, list[list[Any]]]:
        """Name → [[labels, value] …] of what was reported since then; of several processes the sum, or the least
        where the table says so."""
        sums: dict[str, dict[Labels, float]] = {}
        for process, (at, rows) in list(self._gauges.items()):
            if at < since:  # it has ended
                del self._gauges[process]
                continue
            for name, labels, value in rows:
                metric = METRICS.get(name)
                if metric is not None and len(labels) == len(metric.labels):
                    row, key = sums.setdefault(name, {}), tuple(labels)
                    row[key] = min(row.get(key, value), value) if metric.least else row.get(key, 0) + value
        return {name: [[list(labels), value] for labels, value in row.items()] for name, row in sums.items()}
