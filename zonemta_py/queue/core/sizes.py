"""Sizes: how many recipients are queued, deferred and held, for each zone and domain; exact, and O(1) to read.

They are kept in memory and written, those that changed, into the same LevelDB batch as the change itself; so whatever
batch a crash leaves as the last one, sizes and recipients agree. `fsck` counts again and compares.
"""

from __future__ import annotations

from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation, Store

QUEUED, DEFERRED, HELD = 0, 1, 2
NAMES = ("queued", "deferred", "held")


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

    def add(self, zone: str, domain: str, state: int, count: int) -> None:
        """Adds to one counter (or takes from it, if negative)."""
        key = (zone, domain)
        counts = self.domains.get(key)
        if counts is None:
            counts = self.domains[key] = [0, 0, 0]
        counts[state] += count
        self._changed.add(key)
        total = self.zones.get(zone)
        if total is None:
            total = self.zones[zone] = [0, 0, 0]
        total[state] += count

    def changes(self) -> list[Operation]:
        """Operations that write what has changed since the last call."""
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
        """The batch that the last changes went into did not reach the disk: write them with the next one."""
        for key in self._written:
            self.domains.setdefault(key, [0, 0, 0])
        self._changed |= self._written
