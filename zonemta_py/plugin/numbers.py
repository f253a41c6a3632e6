"""What a plugin counts and measures in one process, for metrics: counters, gauges and histograms, by name and label.

All is bounded, as names and labels may come from mail: what comes after SETS_MAX different ones is counted as "other",
and not measured. Failures: ValueError for what is no name or no number.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf, isfinite

from zonemta_py.metrics.meter import bucket
from zonemta_py.metrics.table import OTHER

SETS_MAX = 200
"""Names with labels that one plugin may have of a kind."""
NAME_MAX = 100
"""Characters of a name, and of a label."""
BUCKETS_MAX = 30
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets where a plugin names none."""

Named = tuple[str, str]
"""Name and label."""


def check_name(what: str, name: str) -> None:
    """Raises ValueError."""
    if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= NAME_MAX):
        raise ValueError(f"{name!r} is not the name of a {what}; give it a text of up to {NAME_MAX} letters")


class Numbers:
    """Of one plugin."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._told = log, set[str]()
        self.counted: dict[Named, float] = {}
        self.measured: dict[Named, float] = {}
        self._buckets: dict[str, tuple[float, ...]] = {}
        self._observed: dict[Named, _Observed] = {}

    def count(self, name: str, n: float, label: str) -> None:
        key = (name, label)
        if key not in self.counted:
            key = self._place("counter", self.counted, name, label)
        if not 0 <= n < inf:
            raise ValueError(f"the counter {name!r} cannot grow by {n!r}; give a number from 0 up")
        self.counted[key] = self.counted.get(key, 0) + (n if type(n) is int else float(n))

    def measure(self, name: str, value: float | None, label: str) -> None:
        key = (name, label)
        if value is None:
            check_name("gauge", name)
            self.measured.pop((name, _label(label)), None)
            return
        if not isfinite(value):
            raise ValueError(f"the gauge {name!r} cannot be {value!r}; give a finite number, or None to remove it")
        if key not in self.measured:
            check_name("gauge", name)
            key = (name, _label(label))
            if key not in self.measured and len(self.measured) >= SETS_MAX:
                self._tell_once("gauges", f"has {SETS_MAX} gauges and labels; further ones are not measured")
                return
        self.measured[key] = float(value)

    def observe(self, name: str, value: float, label: str, buckets: Sequence[float]) -> None:
        if not 0 <= value < inf:
            raise ValueError(f"the histogram {name!r} has no place for {value!r}; give a number from 0 up")
        known = self._buckets.get(name)
        if known is None:
            check_name("histogram", name)
            known = _ends(name, buckets)
            if len(self._buckets) >= SETS_MAX:
                self._tell_once("histograms", f"has {SETS_MAX} histograms; further ones are not kept")
                return
            self._buckets[name] = known
        elif buckets is not known and tuple(buckets) != known:
            raise ValueError(f"the histogram {name!r} has other buckets; give it the same each time")
        key = (name, label)
        if key not in self._observed:
            key = self._place("histogram", self._observed, name, label)
        found = self._observed.get(key)
        if found is None:
            found = self._observed[key] = _Observed(known)
        found.counts[bisect_left(known, value)] += 1
        found.sum += float(value)

    def histograms(self) -> Iterator[tuple[Named, str, float]]:
        """Name and label, a bucket or the sum, as a report names them, what is in it."""
        for key, one in self._observed.items():
            for end, n in zip((*one.ends, inf), one.counts, strict=True):
                if n:
                    yield key, bucket(end, one.ends), n
            yield key, bucket(None, one.ends), one.sum

    def _place(self, what: str, rows: dict[Named, float] | dict[Named, _Observed], name: str, label: str) -> Named:
        """Where a name and label that may be new are counted. Raises ValueError."""
        check_name(what, name)
        key = (name, _label(label))
        if key in rows or len(rows) < SETS_MAX:
            return key
        self._tell_once(what, f'has {SETS_MAX} {what}s and labels; further ones are counted as "{OTHER}"')
        key = (name, OTHER)
        return key if key in rows or len(rows) < 2 * SETS_MAX else (OTHER, OTHER)

    def _tell_once(self, what: str, sentence: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._log.warning("%s", sentence)


class _Observed:
    """How many are in each bucket; the last has what is larger than all ends."""

    __slots__ = ("counts", "ends", "sum")

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends, self.counts, self.sum = ends, [0] * (len(ends) + 1), 0.0


def _label(label: str) -> str:
    """As Prometheus can have it, whatever mail it came from."""
    text = label if isinstance(label, str) else str(label)
    return text[:NAME_MAX].encode("utf-8", "replace").decode()


def _ends(name: str, buckets: Sequence[float]) -> tuple[float, ...]:
    """Raises ValueError."""
    try:
        ends = tuple(map(float, buckets))
    except (TypeError, ValueError, OverflowError):
        ends = ()
    if not (0 < len(ends) <= BUCKETS_MAX and all(map(isfinite, ends)) and list(ends) == sorted(set(ends))):
        raise ValueError(
            f"the histogram {name!r} needs buckets: 1 to {BUCKETS_MAX} numbers, each greater than the one before"
        )
    return ends
