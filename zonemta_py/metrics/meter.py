"""Counters and histograms of one process: whole numbers in dictionaries, so that counting costs a fraction of a
microsecond.

Promise: nothing here raises, waits or grows without bound: a metric has at most SETS_MAX sets of labels, and what comes
after that is counted as "other". Not for several threads at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from zonemta_py.metrics.table import METRICS, OTHER

SETS_MAX = 2_000
"""Sets of labels of one metric."""

Labels = tuple[str, ...]


class Histogram:
    """bounds: upper ends of the buckets; the last bucket has what is larger."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0


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
        """Name → [[labels, counts by bucket, sum] …]; the buckets are the table's, and one for what is larger."""
        rows: dict[str, list[list[Any]]] = {}
        for (name, labels), one in self._histograms.items():
            rows.setdefault(name, []).append([list(labels), list(one.counts), one.sum])
        return rows

    def reported(self, process: str, counts: Iterable[Any], gauges: list[list[Any]], now: float) -> None:
        """Another process's counts since its last report, and what it measures now. Unknown names are passed over: it
        may be of another version. counts: [name, labels, n]; gauges: [name, labels, value]."""
        for name, labels, n in counts:
            metric = METRICS.get(name)
            if metric is not None and len(labels) == len(metric.labels) and n > 0:
                self.add(name, tuple(map(str, labels)), n)
        self._gauges.pop(process, None)
        if gauges:
            self._gauges[process] = (now, gauges)
        while len(self._gauges) > SETS_MAX:
            del self._gauges[next(iter(self._gauges))]

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
