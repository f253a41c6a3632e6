"""Sums of sizes by tenant and campaign; O(1) to read.

Mail with a tenant or campaign is counted by both, in memory and in a key for each pair, which is written in the same
batch as the change itself, as the sizes are (`sizes.py`). Mail with neither costs nothing.

A queue written by a version without these keys is counted once, at the start (`tracked`): a version that does not know
them writes batches without changing the key `tracked`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.state import COUNTED, FAMILY
from zonemta_py.queue.core.sums.sums import STATES, Sums

_BETWEEN = "~"
_NEITHER = _BETWEEN
PARTS_MAX = 10_000


class FlowSizes:
    """By tenant, by campaign, and by the pairs of both, as they stand in the store."""

    def __init__(self, store: Store, counted: bool) -> None:
        """counted: the keys of the store are complete; otherwise the recipients are counted now."""
        self.pairs, self.tenants, self.campaigns = Sums(), Sums(), Sums()
        self._parts: dict[str, tuple[str, str, str]] = {}
        """Pair, tenant and campaign of the flows that were counted lately."""
        self.unwritten: set[str] = set()
        self.written: set[str] = set()
        if counted:
            self._read(store)
        else:
            self._count(store)

    def _read(self, store: Store) -> None:
        for key, value in store.scan(keys.FLOW_SIZES, keys.end(keys.FLOW_SIZES)):
            self._take(key.decode().split(" ", 1)[1], packing.unpack(value))

    def _count(self, store: Store) -> None:
        self.unwritten.update(
            key.decode().split(" ", 1)[1] for key in store.keys(keys.FLOW_SIZES, keys.end(keys.FLOW_SIZES))
        )
        for pair, counts in counted(store).items():
            self._take(pair, counts)
            self.unwritten.add(pair)

    def _take(self, pair: str, counts: Iterable[int]) -> None:
        counts = list(counts)
        tenant, campaign = self._split(pair)
        self.pairs.add(pair, counts)
        if tenant:
            self.tenants.add(tenant, counts)
        if campaign:
            self.campaigns.add(campaign, counts)

    def _split(self, pair: str) -> tuple[str, str]:
        tenant, _, campaign = pair.partition(_BETWEEN)
        return tenant, campaign

    def move(self, flow: str, before: int | None, after: int | None, count: int) -> None:
        """As `Sizes.move`, of a recipient with that flow in its note."""
        parts = self._parts.get(flow)
        if parts is None:
            if len(self._parts) >= PARTS_MAX:
                self._parts.clear()
            pair = pair_of(flow)
            parts = self._parts[flow] = (pair, *self._split(pair))
        pair, tenant, campaign = parts
        if pair == _NEITHER:
            return
        self.pairs.move(pair, before, after, count)
        if tenant:
            self.tenants.move(tenant, before, after, count)
        if campaign:
            self.campaigns.move(campaign, before, after, count)
        self.unwritten.add(pair)

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        operations: list[Operation] = []
        for pair in self.unwritten:
            counts = self.pairs.by_name.get(pair)
            operations.append((keys.flow_size(pair), packing.pack(counts) if counts else None))
        self.written, self.unwritten = self.unwritten, set()
        return operations

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        self.unwritten |= self.written


class Tracked(NamedTuple):
    """What of the store has followed every batch: the keys of flows, and those of places (`locator.Places`)."""

    flows: bool
    places: bool


def tracked(store: Store) -> Tracked:
    """As the last batch left it."""
    state, value = store.get(keys.STATE), store.get(keys.TRACKED)
    if state is None:
        return Tracked(True, True)  # nothing has been written yet
    batches, places = packing.unpack(value)[:2] if value else (-1, False)
    whole = batches == (packing.unpack(state) + [0] * 5)[4]
    return Tracked(whole, whole and bool(places))


def pair(tenant: str, campaign: str) -> str:
    """As it stands in the key of the sums."""
    return f"{tenant}{_BETWEEN}{campaign}"


def pair_of(flow: str) -> str:
    """Tenant and campaign of a flow, as they stand in its key."""
    return flow.partition(_BETWEEN)[2]


def counted(store: Store) -> dict[str, list[int]]:
    """What the recipients in the store come to, by pair."""
    found: dict[str, list[int]] = {}
    for family, state in FAMILY.items():
        prefix, place = f"{family} ".encode(), COUNTED[state]
        for _, value in store.scan(prefix, keys.end(prefix)):
            if value and (flow := Note.of(value).flow) and (pair := pair_of(flow)) != _NEITHER:
                found.setdefault(pair, [0] * STATES)[place] += 1
    return found
