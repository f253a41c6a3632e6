"""Connections that are open between two messages, under a limit on connections.

The limit is on those that are open, so such a connection counts until it ends. Its lane uses it again for as long as it
has mail; where others share the limit and wait, for TURN_S at most: then the next lane has its turn. There nobody keeps
one that is idle for longer than IDLE_S.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from zonemta_py.schedule.batch import Batch, EgressPath, IdleConnection
from zonemta_py.schedule.time.clock import Timers
from zonemta_py.zones.throttle import Limit

IDLE_S = 1.0
TURN_S = 5.0
_LATE_S = 0.1
"""How much later than the sender's its end is believed: it must not count as closed while it is open."""


class IdleConnections:
    """The kept ones, by lane. ended(limits): the limits that one of them counted at have room again."""

    def __init__(self, timers: Timers, ended: Callable[[tuple[Limit, ...]], None]) -> None:
        self._timers, self._ended = timers, ended
        self._by_lane: dict[EgressPath, list[IdleConnection]] = {}
        self._at: Counter[Limit] = Counter()

    def __contains__(self, lane: EgressPath) -> bool:
        return lane in self._by_lane

    def at(self, limit: Limit) -> int:
        """How many count there."""
        return self._at[limit] if self._at else 0

    def keep(self, group: Batch) -> None:
        """A lease has ended and left its connection open, which goes on counting where the lease did."""
        self._add(group.lane, IdleConnection(group, self._timers.now() + group.idle_s + _LATE_S))

    def take(self, lane: EgressPath) -> IdleConnection | None:
        """The lane's newest, which no longer counts: whoever takes it over does."""
        every = self._by_lane.get(lane)
        if not every:
            return None
        kept = every[-1]
        self._release(lane, kept)
        return kept

    def back(self, lane: EgressPath, kept: IdleConnection) -> None:
        """It was not used after all, and counts again."""
        for limit in kept.limits:
            limit.hold()
        self._add(lane, kept)

    def lost(self, worker: str) -> None:
        """A sender has died, and its connections with it."""
        gone = [(lane, kept) for lane, every in self._by_lane.items() for kept in every if kept.worker == worker]
        for lane, kept in gone:
            self._release(lane, kept)
        for _, kept in gone:
            self._ended(kept.limits)

    def _add(self, lane: EgressPath, kept: IdleConnection) -> None:
        self._by_lane.setdefault(lane, []).append(kept)
        self._at.update(kept.limits)
        self._timers.wake_at(kept.until, lambda: self._end(lane, kept))

    def _release(self, lane: EgressPath, kept: IdleConnection) -> None:
        every = self._by_lane[lane]
        every.remove(kept)
        if not every:
            del self._by_lane[lane]
        self._at.subtract(kept.limits)
        if not self._by_lane:
            self._at.clear()
        for limit in kept.limits:
            limit.release()

    def _end(self, lane: EgressPath, kept: IdleConnection) -> None:
        if kept in self._by_lane.get(lane, ()):
            self._release(lane, kept)
            self._ended(kept.limits)
