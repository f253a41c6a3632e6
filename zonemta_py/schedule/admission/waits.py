"""For how long limits hold mail: of each the time during which some of the mail waits at it, and how often a flow queue
began to. `WAITED` records say it once a minute, for summaries and the lake.

A limit on a zone as a whole holds it until a known moment, which is counted then; one on a zone's connections is not.
"""

from __future__ import annotations

import math


class LimitWaits:
    """By the limits' names in the configuration. Time is steady seconds."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, float]] = {}
        """How many wait there, and since when any do."""
        self._sums: dict[str, tuple[float, int]] = {}

    def began(self, name: str, now: float) -> None:
        waiting, since = self._open.get(name, (0, now))
        self._open[name] = waiting + 1, since
        self._add(name, 0, 1)

    def ended(self, name: str, now: float) -> None:
        waiting, since = self._open.pop(name, (1, now))
        if waiting > 1:
            self._open[name] = waiting - 1, since
        else:
            self._add(name, now - since, 0)

    def held(self, name: str, seconds: float) -> None:
        """All mail of a zone, for so long."""
        self._add(name, seconds if seconds < math.inf else 0, 1)

    def over(self, now: float) -> None:
        """None waits at any limit: there are others from now on."""
        for name, (_, since) in self._open.items():
            self._add(name, now - since, 0)
        self._open.clear()

    def take(self, now: float) -> dict[str, tuple[int, int]]:
        """Milliseconds and times since it was asked last, of limits that have held mail."""
        for name, (waiting, since) in self._open.items():
            self._add(name, now - since, 0)
            self._open[name] = waiting, now
        taken = {name: (round(1000 * seconds), times) for name, (seconds, times) in self._sums.items()}
        self._sums = {}
        return {name: row for name, row in taken.items() if row != (0, 0)}

    def _add(self, name: str, seconds: float, times: int) -> None:
        before = self._sums.get(name, (0.0, 0))
        self._sums[name] = before[0] + max(0.0, seconds), before[1] + times
