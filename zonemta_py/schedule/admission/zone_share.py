"""The share of a zone's connections that a destination may have: slow ones must never have them all.

A destination that holds each connection for minutes looks like any other until its first message is through. So a
newcomer has one connection until then, or more while no other has any; one that was quick has as many as the zone
allows; slow ones, and those that are probed after a failure, share what is free, and leave a quarter of the zone's
connections to everyone else. A quick destination has no more than one out of that quarter either, for it may turn slow
with all that it has. A zone's own smart host is not rationed: it is the only destination.

And how many messages a lease may have that follow each other over one connection (`series`): what the destination has
been seen to take in PIPELINED_MS, and no more than went the last time, doubled for each lease of which all went: a
server may end its connections early.

Pure. What is remembered is bounded; a forgotten destination is a newcomer.
"""

from __future__ import annotations

SLOW_MS = 5_000
"""A transaction longer than this, and than its bytes excuse, is slow."""
SLOW_BYTES_PER_MS = 100
SHARE = 4
PIPELINED_MS = 250
SERIES_MAX = 20
REMEMBERED_MAX = 10_000


class ZoneShare:
    """Of one zone with that many connections."""

    def __init__(self, connections: int) -> None:
        self.configure(connections)
        self._took: dict[str, tuple[bool, int]] = {}
        """Whether the last transaction was quick; ms that one takes, a moving mean."""
        self._bounds: dict[str, int] = {}
        """Messages of the next lease, where not all of one went."""

    def configure(self, connections: int) -> None:
        """So many from now on."""
        self._connections = connections
        self.reserve = connections // SHARE

    def learn(self, destination: str, took_ms: int, size: int) -> None:
        """A transaction with a message of `size` bytes has ended."""
        before = self._took.get(destination)
        if before is None and len(self._took) >= REMEMBERED_MAX:
            self._took.clear()
            self._bounds.clear()
        mean = took_ms if before is None else (3 * before[1] + took_ms) // 4
        self._took[destination] = took_ms <= SLOW_MS + size // SLOW_BYTES_PER_MS, mean

    def series(self, destination: str) -> int:
        """Messages of one lease, 1…SERIES_MAX; a newcomer has one."""
        known = self._took.get(destination)
        if known is None:
            return 1
        return max(1, min(SERIES_MAX, PIPELINED_MS // max(1, known[1]), self._bounds.get(destination, SERIES_MAX)))

    def went(self, destination: str, count: int, of: int) -> None:
        """So many messages of a lease were tried before its connection ended."""
        if count < of:
            self._bounds[destination] = max(1, count)
        elif (bound := self._bounds.get(destination)) is not None and bound <= of:
            if bound >= SERIES_MAX:
                del self._bounds[destination]
            else:
                self._bounds[destination] = 2 * bound

    def may(self, destination: str, active: int, out: int, failing: bool) -> bool:
        """Whether it may have one more. active: what it has; out: what all have, fewer than the zone's connections."""
        spare = self._connections - out - self.reserve
        known = self._took.get(destination)
        quick = None if known is None else known[0]
        if quick is None and not failing:
            return active == 0 or (active == out and spare > 0)
        if quick and not failing:
            return active == 0 or spare > 0
        return spare > 0 and active < max(1, spare // SHARE)
