"""About how many people each provider has answered within a day: what bounces that come back later are compared with.

Whoever bounces mail later has taken it before, hours ago perhaps; so what comes back within a minute says nothing
against what was delivered in that minute. Counted in steps of four hours, for a day and up to one step more, of a
bounded number of places (providers, or sites that are no provider's): the smallest make room. Written with the
evidence, and now and then where it is enough to matter; so a crash may lose a minute of what was delivered, and nothing
of what was refused.
"""

from __future__ import annotations

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store

STEP_MS = 4 * 3_600_000
STEPS = 6
PLACES_MAX, PLACES_KEPT = 5_000, 1_000
"""When there are so many, the largest are kept; many sites that get one message each must cost little."""


class ProviderAnswers:
    """Of all places. Times are steady."""

    def __init__(self) -> None:
        self._cells: dict[str, list[list[int]]] = {}
        """Of each place: [step, people about whom it has answered, how many of them it does not know], the oldest
        first."""
        self._believed: dict[str, dict[str, int]] = {}
        """By place and source ("" for all): when a guard ended; what was refused up to then counts no more."""
        self._step = 0
        self._saved: dict[str, int] = {}
        """What the store has of each place: `_total`."""
        self._gone: list[str] = []

    def turn(self, ms: int) -> None:
        """A new step may begin."""
        self._step = max(self._step, int(ms // STEP_MS))

    def took(self, place: str, count: int) -> None:
        """So many people got mail there."""
        self._cell(place)[1] += count

    def refused(self, place: str, later: bool) -> None:
        """It says that somebody does not exist. later: of whom it had taken mail."""
        cell = self._cell(place)
        cell[1] += not later
        cell[2] += 1

    def share(self, place: str) -> float:
        """How many of those about whom it has answered it does not know."""
        cells = [cell for cell in self._cells.get(place, ()) if cell[0] >= self._step - STEPS]
        about, unknown = sum(cell[1] for cell in cells), sum(cell[2] for cell in cells)
        return unknown / max(about, unknown, 1)

    def believe(self, place: str, source: str, ms: int) -> None:
        """What it has refused so far counts no more. source: to which of ours, "" to any."""
        self._cell(place)
        for cell in self._cells[place]:
            cell[2] = 0
        self._believed.setdefault(place, {})[source] = ms

    def believed_ms(self, place: str, source: str) -> int:
        """Until when that is."""
        believed = self._believed.get(place, {})
        return max(believed.get("", 0), believed.get(source, 0))

    def _cell(self, place: str) -> list[int]:
        cells = self._cells.get(place)
        if cells is None:
            if len(self._cells) >= PLACES_MAX:
                self._make_room()
            cells = self._cells[place] = [[self._step, 0, 0]]
        elif cells[-1][0] != self._step:
            cells.append([self._step, 0, 0])
            while cells[0][0] < self._step - STEPS:
                del cells[0]
        return cells[-1]

    def _make_room(self) -> None:
        self._drop(sorted(self._cells, key=self._total)[: PLACES_MAX - PLACES_KEPT])

    def _drop(self, places: list[str]) -> None:
        for place in places:
            del self._cells[place]
            self._believed.pop(place, None)
        self._gone += [place for place in places if self._saved.pop(place, None) is not None]

    def _total(self, place: str) -> int:
        return sum(cell[1] + cell[2] for cell in self._cells[place])

    # -- what survives

    def state(self, place: str) -> list[Operation]:
        """To be written with the evidence."""
        if place not in self._cells:
            return []
        self._saved[place] = self._total(place)
        return [(keys.guard_day(place), packing.pack([self._cells[place], self._believed.get(place, {})]))]

    def changes(self, least: float) -> list[Operation]:
        """What the store does not have, of places that have answered about so many people. least: inf for none."""
        self._drop([place for place, cells in self._cells.items() if cells[-1][0] < self._step - STEPS])
        changes: list[Operation] = [(keys.guard_day(place), None) for place in self._gone if place not in self._cells]
        self._gone = []
        for place in self._cells:
            total = self._total(place)
            if total >= least and total != self._saved.get(place):
                changes += self.state(place)
        return changes

    def load(self, store: Store) -> None:
        """After a start. Raises StoreError."""
        for key, value in store.scan(keys.GUARD_DAYS, keys.end(keys.GUARD_DAYS)):
            place = keys.guard_day_of(key)
            cells, self._believed[place] = packing.unpack(value)[:2]
            self._cells[place] = [list(cell[:3]) for cell in cells]
            self._saved[place] = self._total(place)
