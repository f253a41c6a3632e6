"""Checks what follows the recipients' keys: the counters of tenants and campaigns, and the index of places.

If an earlier version wrote to the queue last, both are made again by the next start, and there is nothing to check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.queue.core.sums.flows import tracked
from zonemta_py.queue.core.sums.sums import STATES
from zonemta_py.queue.fsck.campaigns import Finding


def findings(store: Store, counted: dict[str, list[int]]) -> Iterator[Finding]:
    """counted: what the recipients come to, by tenant and campaign (`sums.pair_of`)."""
    whole = tracked(store)
    if whole.flows:
        yield from _flows(store, counted)
    if whole.places:
        yield from _places(store)


def _flows(store: Store, counted: dict[str, list[int]]) -> Iterator[Finding]:
    rows = store.scan(keys.FLOW_SIZES, keys.end(keys.FLOW_SIZES))
    stored = {key.decode().split(" ", 1)[1]: _whole(packing.unpack(value)) for key, value in rows}
    for pair in sorted(stored.keys() | counted.keys()):
        if stored.get(pair) != counted.get(pair):
            tenant, _, campaign = pair.partition("~")
            who = " and ".join(
                f"{kind} {name!r}" for kind, name in (("tenant", tenant), ("campaign", campaign)) if name
            )
            what = f"sizes of {who}: {stored.get(pair)} noted, {counted.get(pair)} counted"
            value = packing.pack(counted[pair]) if pair in counted else None
            yield Finding("repairable", what, "sizes", "counted again", [(keys.flow_size(pair), value)])


def _whole(counts: Sequence[int]) -> list[int]:
    """Older versions knew fewer states."""
    return [*counts, *[0] * (STATES - len(counts))]


def _places(store: Store) -> Iterator[Finding]:
    operations: list[Operation] = []
    for family in keys.PLACED:
        for key in store.keys(family, keys.end(family)):
            if store.get(index := keys.index_of(key)) is None:
                operations.append((index, b""))
    missing = len(operations)
    for index in store.keys(keys.INDEX, keys.end(keys.INDEX)):
        if store.get(keys.indexed(index)) is None:
            operations.append((index, None))
    if operations:
        what = (
            f"of deferred and parked recipients, {missing} are missing in the index, {len(operations) - missing} gone"
        )
        yield Finding("repairable", what, "index", "corrected", operations)
