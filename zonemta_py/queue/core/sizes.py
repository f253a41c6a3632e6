"""Sizes: how many recipients are in each state, for each zone and domain; exact, and O(1) to read.
Those of tenants, campaigns and providers are in `sums.py`.

They are kept in memory and written, if changed, in the same LevelDB batch as the change itself; so whichever batch a
crash leaves as the last one, sizes and recipients agree. `fsck` recounts and compares.
"""

from __future__ import annotations

from collections.abc import Sequence

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.core.state import COUNTED, COUNTED_MOVES
from zonemta_py.queue.core.sums.flows import FlowSizes, tracked
from zonemta_py.queue.core.sums.ranking import Ranking
from zonemta_py.queue.core.sums.sums import STATES, ProviderSizes
from zonemta_py.zones import pull

QUEUED, DEFERRED, HELD, DELETED, BOUNCED = COUNTED.values()
NONE = (0,) * len(COUNTED)
"""The counts where there is nothing."""
NAMES = tuple(map(str, COUNTED))


def waiting(counts: Sequence[int]) -> int:
    """How many of them are to be sent, some day: not what a task has deleted, nor what has bounced."""
    return sum(counts) - counts[DELETED] - counts[BOUNCED]


class Sizes:
    """Counters by (zone, domain), and their sums: by zone, of all, and by what `sums` has."""

    def __init__(self, store: Store) -> None:
        self.domains: dict[tuple[str, str], list[int]] = {}
        self.ranked = Ranking()
        """Domains by how many there are, in all zones and states."""
        self.ranked_in: dict[str, Ranking] = {}
        """The same of a zone about which somebody asks; of others nothing is kept."""
        self.zones: dict[str, list[int]] = {}
        self.total = _none()
        self.flows = FlowSizes(store, tracked(store).flows)
        self.providers = ProviderSizes()
        self.unwritten: set[tuple[str, str]] = set()
        self.written: set[tuple[str, str]] = set()
        self._zones_changed, self._zones_written = set[str](), set[str]()
        self.held = set[str]()
        """Zones with held recipients."""
        for key, value in store.scan(keys.SIZES, keys.end(keys.SIZES)):
            zone, domain = key.decode().split(" ", 2)[1:]
            self.domains[zone, domain] = counts = _none()
            total = self.zones.setdefault(zone, _none())
            for state, count in enumerate(packing.unpack(value)):
                counts[state] = count
                total[state] += count
                self.total[state] += count
            if counts[HELD]:
                self.held.add(zone)
            self.ranked.add(domain, sum(counts))

    def move(
        self, zone: str, domain: str, before: int | None, after: int | None, count: int = 1, flow: str = ""
    ) -> None:
        """A recipient changes its state; None: it is new, or ends. count: -1 to undo a move. flow: of its note.

        Raises ValueError for a move that is not in `state.MOVES`: nothing has been counted.
        """
        if (before, after) not in COUNTED_MOVES:
            raise ValueError(f"{domain} in {zone}: no recipient goes from state {before} to {after}; see state.MOVES")
        key = (zone, domain)
        counts = self.domains.get(key)
        if counts is None:
            counts = self.domains[key] = _none()
        self.unwritten.add(key)
        self._zones_changed.add(zone)
        total = self.zones.get(zone)
        if total is None:
            total = self.zones[zone] = _none()
        if before is not None:
            counts[before] -= count
            total[before] -= count
            self.total[before] -= count
        if after is not None:
            counts[after] += count
            total[after] += count
            self.total[after] += count
        if HELD in (before, after):
            (self.held.add if total[HELD] else self.held.discard)(zone)
        if before is None or after is None:
            self.ranked.add(domain, count if before is None else -count)
            if self.ranked_in and zone in self.ranked_in:
                self.ranked_in[zone].put(domain, sum(counts))
        if flow:
            self.flows.move(flow, before, after, count)
        provider = self.providers.provider_of.get(domain)
        if provider is not None:
            self.providers.move(provider, before, after, count)

    def rezone(self, zone: str, home: str, domain: str, before: int, after: int, flow: str = "") -> None:
        """The same for a recipient whose zone was removed from the configuration; `home` is its new zone."""
        if (before, after) not in COUNTED_MOVES:
            raise ValueError(f"{domain} in {zone}: no recipient goes from state {before} to {after}; see state.MOVES")
        self.move(zone, domain, before, None, 1, flow)
        self.move(home, domain, None, DEFERRED, 1, flow)
        self.move(home, domain, DEFERRED, after, 1, flow)

    def of_domain(self, domain: str) -> list[int]:
        """By state, in all zones. No mail but what is pushed is for the domain of queues, which may be very many."""
        pushed = domain == pull.DOMAIN
        found = list(self.total) if pushed else _none()
        for zone, all_of_it in self.zones.items():
            if zone.startswith(pull.PREFIX):
                continue
            for state, count in enumerate(self.domains.get((zone, domain), ())):
                found[state] += count
            if pushed:
                for state, count in enumerate(all_of_it):
                    found[state] -= count
        return found

    def zones_behind(self) -> set[str]:
        """Zones of which the store may be behind what is counted, or have more than that."""
        return self._zones_changed | self._zones_written

    def is_behind(self, zone: str, domain: str) -> bool:
        """The same, of a domain's recipients."""
        return (zone, domain) in self.unwritten or (zone, domain) in self.written

    def told(self, domain: str, provider: str) -> None:
        """DNS has said whose the domain is."""
        if provider or domain in self.providers.provider_of:
            self.providers.told(domain, provider, self.of_domain(domain))

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        operations: list[Operation] = []
        for key in self.unwritten:
            counts = self.domains[key]
            if any(counts):
                operations.append((keys.size(*key), packing.pack(counts)))
            else:
                operations.append((keys.size(*key), None))
                del self.domains[key]
        self.written, self.unwritten = self.unwritten, set()
        self._zones_written, self._zones_changed = self._zones_changed, set()
        return operations

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        for key in self.written:
            self.domains.setdefault(key, _none())
        self.unwritten |= self.written
        self._zones_changed |= self._zones_written


def _none() -> list[int]:
    return [0] * STATES
