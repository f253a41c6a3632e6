"""Sizes: how many recipients are queued, deferred and held, for each zone and domain; exact, and O(1) to read.

They are kept in memory and written, if changed, in the same LevelDB batch as the change itself; so whichever batch a
crash leaves as the last one, sizes and recipients agree. `fsck` recounts and compares.
"""

from __future__ import annotations

from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.core.state import COUNTED, COUNTED_MOVES

QUEUED, DEFERRED, HELD = COUNTED.values()
NAMES = tuple(map(str, COUNTED))


class Sizes:
    """Counters by (zone, domain), and their sums by zone."""

    def __init__(self, store: Store) -> None:
        self.domains: dict[tuple[str, str], list[int]] = {}
        self.zones: dict[str, list[int]] = {}
        self._changed: set[tuple[str, str]] = set()
        self._written: set[tuple[str, str]] = set()
        for key, value in store.scan(keys.SIZES, keys.end(keys.SIZES)):
            zone, domain = key.decode().split(" ", 2)[1:]
            self.domains[zone, domain] = counts = list(records.unpack(value))
            total = self.zones.setdefault(zone, [0, 0, 0])
            for state in range(3):
                total[state] += counts[state]

    def move(self, zone: str, domain: str, before: int | None, after: int | None, count: int = 1) -> None:
        """A recipient changes its state; None: it is new, or ends. count: -1 to undo a move.

        Raises ValueError for a move that is not in `state.MOVES`: nothing has been counted.
        """
        if (before, after) not in COUNTED_MOVES:
            raise ValueError(f"{domain} in {zone}: no recipient goes from state {before} to {after}; see state.MOVES")
        key = (zone, domain)
        counts = self.domains.get(key)
        if counts is None:
            counts = self.domains[key] = [0, 0, 0]
        self._changed.add(key)
        total = self.zones.get(zone)
        if total is None:
            total = self.zones[zone] = [0, 0, 0]
        if before is not None:
            counts[before] -= count
            total[before] -= count
        if after is not None:
            counts[after] += count
            total[after] += count

    def rezone(self, zone: str, home: str, domain: str, before: int, after: int) -> None:
        """The same for a recipient whose zone was removed from the configuration; `home` is its new zone."""
        if (before, after) not in COUNTED_MOVES:
            raise ValueError(f"{domain} in {zone}: no recipient goes from state {before} to {after}; see state.MOVES")
        self.move(zone, domain, before, None)
        self.move(home, domain, None, DEFERRED)
        self.move(home, domain, DEFERRED, after)

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        operations: list[Operation] = []
        for key in self._changed:
            counts = self.domains[key]
            if any(counts):
                operations.append((keys.size(*key), records.pack(counts)))
            else:
                operations.append((keys.size(*key), None))
                del self.domains[key]
        self._written, self._changed = self._changed, set()
        return operations

    def again(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        for key in self._written:
            self.domains.setdefault(key, [0, 0, 0])
        self._changed |= self._written
