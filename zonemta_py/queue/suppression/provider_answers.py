"""About how many people each provider has answered within a day: what bounces that come back later are compared with.

Whoever bounces mail later has taken it before, hours ago perhaps; so what comes back within a minute says nothing
against what was delivered in that minute. Counted in steps of four hours, for a day and up to one step more, of a
bounded number of places (providers, or sites that are no provider's): the smallest make room. Written with the
evidence, and now and then where it is enough to matter; so a crash may lose a minute of what was delivered, and nothing
of what was refused.

With several queues it is of what all have heard: each hears of every refusal, and of what others have delivered by
shares (`shared_counts.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.suppression.shared_counts import CountShare, Row, SharedCounts, joined

STEP_MS = 4 * 3_600_000
STEPS = 6
PLACES_MAX, PLACES_KEPT = 5_000, 1_000
"""When there are so many, the largest are kept; many sites that get one message each must cost little."""


class ProviderAnswers:
    """Of all places. Times are steady. process: of several queues, names this one's of all processes."""

    def __init__(self, process: str = "") -> None:
        self._process = process
        self._cells: dict[str, list[list[int]]] = {}
        """Of each place: [step, people about whom it has answered, how many of them it does not know, how many more
        have got mail that this one of several queues tells of], the oldest first."""
        self._shares: SharedCounts[str] = SharedCounts()
        """Who has got mail that others of several queues have told of."""
        self._believed: dict[str, dict[str, int]] = {}
        """By place and source ("" for all): when a guard ended; what was refused up to then counts no more."""
        self._step = 0
        self._saved: dict[str, int] = {}
        """What the store has of each place: `_total`."""
        self._gone: list[str] = []

    def turn(self, ms: int) -> None:
        """A new step may begin."""
        step = int(ms // STEP_MS)
        if step > self._step:
            self._step = step
            self._shares.turn(step - STEPS)

    def took(self, place: str, count: int, told: bool = False) -> None:
        """So many people got mail there. told: the other queues are told."""
        self._cell(place)[3 if told else 1] += count

    def refused(self, place: str, later: bool) -> None:
        """It says that somebody does not exist. later: of whom it had taken mail."""
        cell = self._cell(place)
        cell[1] += not later
        cell[2] += 1

    def share(self, place: str) -> float:
        """How many of those about whom it has answered it does not know."""
        cells = [cell for cell in self._cells.get(place, ()) if cell[0] >= self._step - STEPS]
        about, unknown = sum(cell[1] + cell[3] for cell in cells), sum(cell[2] for cell in cells)
        about += self._shares.total(place, self._step - STEPS)
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

    # -- of several queues

    def shares(self, place: str) -> list[CountShare]:
        """Who has got mail there that the other queues may be told of, or have told of; by steps."""
        own = [CountShare(cell[0], cell[3], self._process, cell[0]) for cell in self._cells.get(place, ()) if cell[3]]
        return [*own, *self._shares.shares(place)]

    def learn(self, place: str, share: CountShare) -> None:
        """Another queue has told it."""
        if share.process != self._process and share.span >= self._step - STEPS:
            self._cell(place)
            self._shares.learn(place, share)

    def _cell(self, place: str) -> list[int]:
        cells = self._cells.get(place)
        if cells is None:
            if len(self._cells) >= PLACES_MAX:
                self._make_room()
            cells = self._cells[place] = [[self._step, 0, 0, 0]]
        elif cells[-1][0] != self._step:
            cells.append([self._step, 0, 0, 0])
            while cells[0][0] < self._step - STEPS:
                del cells[0]
        return cells[-1]

    def _make_room(self) -> None:
        self._drop(sorted(self._cells, key=self._total)[: PLACES_MAX - PLACES_KEPT])

    def _drop(self, places: list[str]) -> None:
        for place in places:
            del self._cells[place]
            self._shares.forget(place)
            self._believed.pop(place, None)
        self._gone += [place for place in places if self._saved.pop(place, None) is not None]

    def _total(self, place: str) -> int:
        return sum(cell[1] + cell[2] + cell[3] for cell in self._cells[place]) + self._shares.total(place, 0)

    # -- what survives

    def state(self, place: str) -> list[Operation]:
        """To be written with the evidence."""
        if place not in self._cells:
            return []
        self._saved[place] = self._total(place)
        cells = [cell[:3] for cell in self._cells[place]]
        rows = [share.row for share in self.shares(place)]
        return [(keys.guard_day(place), _written(cells, self._believed.get(place, {}), rows))]

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
            cells, self._believed[place], rows = _read(value)
            self._cells[place] = [[*cell[:3], 0] for cell in cells]
            for row in rows:
                self._shares.learn(place, CountShare.read(row))
            self._saved[place] = self._total(place)


def _read(value: bytes) -> tuple[list[list[int]], dict[str, int], list[Row]]:
    cells, believed, *more = packing.unpack(value)
    return cells, believed, more[0] if more else []


def _written(cells: list[list[int]], believed: dict[str, int], rows: list[Row]) -> bytes:
    return packing.pack([cells, believed, rows] if rows else [cells, believed])


def merged(value: bytes, other: bytes | None) -> bytes:
    """What two queues have of one place, the same that they have heard once."""
    cells, believed, rows = _read(value)
    known, known_believed, known_rows = _read(other) if other is not None else ([], {}, [])
    later = {one: max(believed.get(one, 0), known_believed.get(one, 0)) for one in {**believed, **known_believed}}
    return _written(_larger([*cells, *known]), later, joined(rows, known_rows))


def _larger(cells: Iterable[list[int]]) -> list[list[int]]:
    """Of the same step, the larger counts. Added up, what a queue had got when it was new would count again with each
    that goes."""
    found: dict[int, list[int]] = {}
    for step, *counts in cells:
        known = found.get(step, counts)
        found[step] = [max(one, other) for one, other in zip(counts, known, strict=True)]
    return [[step, *counts] for step, counts in sorted(found.items())]
