"""Hosts that were unreachable a moment ago: skipped while the destination has another one that may be alive.

Each sender process keeps its own list. A host that refused, or hung up before its greeting, is dead for DEAD_S; one
that timed out for SILENT_S, since each try costs a connection for the whole timeout. If all are dead, all are tried:
resting a whole destination is the scheduler's job.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TypeVar

DEAD_S = 120.0
SILENT_S = 900.0
REMEMBERED_MAX = 10_000

Place = TypeVar("Place", bound=Hashable)


class DeadHosts:
    """A place is all that a connection depends on: (source, address, port). now: steady seconds."""

    def __init__(self) -> None:
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def died(self, place: Hashable, now: float, silent: bool = False, rest_s: float = DEAD_S) -> None:
        """silent: it timed out."""
        self._until[place] = now + (SILENT_S if silent else rest_s)
        self._until.move_to_end(place)
        if len(self._until) > REMEMBERED_MAX:
            self._until.popitem(last=False)

    def lives(self, place: Hashable) -> None:
        """It was reached."""
        self._until.pop(place, None)

    def is_dead(self, place: Hashable, now: float) -> bool:
        until = self._until.get(place)
        if until is None:
            return False
        if until <= now:
            del self._until[place]
            return False
        return True

    def order(self, places: Sequence[Place], now: float) -> list[Place]:
        """The live ones in their order; all of them if none is alive."""
        if not self._until:
            return list(places)
        return [place for place in places if not self.is_dead(place, now)] or list(places)
