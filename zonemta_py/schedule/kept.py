"""Connections that are open between two messages, under a limit on connections that several lanes share.

The limit is on those that are open, so such a connection counts until it ends. Its lane uses it again for as long as it
has mail, but for TURN_S at most while others wait at the limit: then the next lane has its turn. Nobody keeps one that
is idle for longer than IDLE_S.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from zonemta_py.schedule.clock import Timers
from zonemta_py.schedule.lane import Group, Lane
from zonemta_py.zones.throttle import Gate

IDLE_S = 1.0
TURN_S = 5.0
_LATE_S = 0.1
"""How much later than the sender's its end is believed: it must not count as closed while it is open."""


class Kept(NamedTuple):
    """gates: what it counts at. since: when its lane was given it."""

    gates: tuple[Gate, ...]
    since: float
    number: int


class KeptOpen:
    """The kept ones, by lane. ended(gates): the limits that one of them counted at have room again."""

    def __init__(self, timers: Timers, ended: Callable[[tuple[Gate, ...]], None]) -> None:
        self._timers, self._ended = timers, ended
        self._by_lane: dict[Lane, list[Kept]] = {}
        self._at: Counter[Gate] = Counter()
        self._count = 0

    def at(self, gate: Gate) -> int:
        """How many count there."""
        return self._at[gate] if self._at else 0

    def keep(self, group: Group) -> None:
        """A lease has ended and left its connection open: it goes on counting."""
        self._count += 1
        kept, lane = Kept(group.gates, group.since, self._count), group.lane
        self._by_lane.setdefault(lane, []).append(kept)
        self._at.update(kept.gates)
        self._timers.wake_at(self._timers.now() + group.idle_s + _LATE_S, lambda: self._end(lane, kept))

    def take(self, lane: Lane) -> Kept | None:
        """The lane's newest, which no longer counts: whoever takes it over does."""
        every = self._by_lane.get(lane)
        if not every:
            return None
        kept = every[-1]
        self._forget(lane, kept)
        for gate in kept.gates:
            gate.release()
        return kept

    def back(self, lane: Lane, kept: Kept) -> None:
        """It could not be used after all; its end comes as it would have."""
        self._by_lane.setdefault(lane, []).append(kept)
        self._at.update(kept.gates)
        for gate in kept.gates:
            gate.hold()

    def _forget(self, lane: Lane, kept: Kept) -> None:
        every = self._by_lane[lane]
        every.remove(kept)
        if not every:
            del self._by_lane[lane]
        self._at.subtract(kept.gates)
        if not self._by_lane:
            self._at.clear()

    def _end(self, lane: Lane, kept: Kept) -> None:
        if kept in self._by_lane.get(lane, ()):
            self._forget(lane, kept)
            for gate in kept.gates:
                gate.release()
            self._ended(kept.gates)
