"""How many of a zone's connections a destination may have: slow ones must never have them all.

A destination that holds each connection for minutes looks like any other until its first message is through. So a
newcomer has one connection until then, or more while nobody else has any; one that was quick has as many as the zone
allows; slow ones, and those that are probed after a failure, share what is free, and leave a quarter of the zone's
connections to everyone else. A quick destination has no more than one out of that quarter either, for it may turn slow
with all that it has. A zone's own smart host is not rationed: it is all there is.

Pure. What is remembered is bounded; a forgotten destination is a newcomer.
"""

from __future__ import annotations

SLOW_MS = 5_000
"""A transaction longer than this, and than its bytes excuse, is slow."""
SLOW_BYTES_PER_MS = 100
SHARE = 4
REMEMBERED_MAX = 10_000


class Pace:
    """Of one zone with that many connections."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self.reserve = connections // SHARE
        self._quick: dict[str, bool] = {}

    def learn(self, destination: str, took_ms: int, size: int) -> None:
        """A transaction with a message of `size` bytes has ended."""
        if len(self._quick) >= REMEMBERED_MAX and destination not in self._quick:
            self._quick.clear()
        self._quick[destination] = took_ms <= SLOW_MS + size // SLOW_BYTES_PER_MS

    def may(self, destination: str, active: int, out: int, failing: bool) -> bool:
        """Whether it may have one more. active: what it has; out: what all have, fewer than the zone's connections."""
        spare = self._connections - out - self.reserve
        quick = self._quick.get(destination)
        if quick is None and not failing:
            return active == 0 or (active == out and spare > 0)
        if quick and not failing:
            return active == 0 or spare > 0
        return spare > 0 and active < max(1, spare // SHARE)
