"""How much happens a second: totals are noted once a second and kept for a minute; by destination, for less long."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from zonemta_py.metrics.meter import Meter

SECONDS = 60
HALF_S = 30.0
NAMES_MAX = 5_000
"""Destinations that are counted within HALF_S."""

SHOWN = ("delivered", "deferred", "bounced")
_ANSWERS = {"out": "delivered", "deferred": "deferred", "bounced": "bounced", "held": "held"}
_TOTALS = {
    "in": "zonemta_recipients_accepted_total",
    "messages": "zonemta_messages_accepted_total",
    "leases": "zonemta_leases_total",
    "removed": "zonemta_recipients_removed_total",
    "sessions": "zonemta_smtp_sessions_total",
    "refused": "zonemta_smtp_refusals_total",
}


class Rates:
    """The last minute of a meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._noted: deque[tuple[float, dict[str, float]]] = deque(maxlen=SECONDS + 1)

    def note(self, now: float) -> None:
        """Once a second. now: monotonic seconds."""
        meter = self._meter
        totals = {name: meter.total(metric) for name, metric in _TOTALS.items()}
        totals |= {name: meter.total("zonemta_answers_total", 1, verdict) for name, verdict in _ANSWERS.items()}
        self._noted.append((now, totals))

    def rows(self) -> dict[str, object]:
        """Per second over at most the last minute, and in "history" for each of its seconds, oldest first."""
        if len(self._noted) < 2:
            return dict.fromkeys((*_TOTALS, *_ANSWERS), 0.0) | {"window_s": 0.0, "history": {}}
        (began, first), (ended, last) = self._noted[0], self._noted[-1]
        seconds = max(ended - began, 0.001)
        noted = [totals for _, totals in self._noted]
        history = {
            name: [after[name] - before[name] for before, after in pairwise(noted)] for name in ("in", *_ANSWERS)
        }
        rates = {name: (last[name] - first[name]) / seconds for name in last}
        return rates | {"window_s": seconds, "history": history}


class DestinationRates:
    """Answers of each recipient domain over the last 30 to 60 seconds. What comes after NAMES_MAX is not counted."""

    def __init__(self) -> None:
        self._counts, self._before = _none(), _none()
        self._began_s = self._noted_s = 0.0
        self._before_s = 0.0

    def add(self, addresses: Iterable[str], verdict: str) -> None:
        """Answers about so many recipients."""
        counts = self._counts.get(verdict)
        if counts is None:  # it is not counted
            return
        for address in addresses:
            domain = address[address.rfind("@") + 1 :]
            try:
                counts[domain] += 1
            except KeyError:
                if len(counts) < NAMES_MAX:
                    counts[domain] = 1

    def note(self, now: float) -> None:
        """Once a second. now: monotonic seconds."""
        self._began_s, self._noted_s = self._began_s or now, now
        if now >= self._began_s + HALF_S:
            self._before, self._counts, self._before_s = self._counts, _none(), now - self._began_s
            self._began_s = now

    def rows(self, most: int) -> dict[str, list[float]]:
        """[delivered, deferred, bounced] a second by domain: those with most answers."""
        seconds, sums = max(1.0, self._before_s + self._noted_s - self._began_s), dict[str, list[int]]()
        for counted in (self._counts, self._before):
            for place, verdict in enumerate(SHOWN):
                for name, n in counted[verdict].items():
                    sums.setdefault(name, [0] * len(SHOWN))[place] += n
        busiest = heapq.nlargest(most, sums, key=lambda name: sum(sums[name]))
        return {name: [n / seconds for n in sums[name]] for name in busiest}


def _none() -> dict[str, dict[str, int]]:
    return {verdict: {} for verdict in SHOWN}
