"""How much happens a second: totals are noted once a second and kept for a minute."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from zonemta_py.metrics.meter import Meter

SECONDS = 60

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
