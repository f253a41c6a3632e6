"""Deferred, parked, deleted and bounced recipients in the order of id and address.

The index has them by id; those of a message are sorted here. If the counters say that only a few are meant, their own
keys are read and sorted instead, however many others the index has: which way it is makes no difference to what is
found, nor to its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import NamedTuple, Protocol

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.instant import Instant
from zonemta_py.queue.admin.browse import ranges
from zonemta_py.queue.admin.browse.ranges import Range
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import COUNTED, FAMILY, State
from zonemta_py.queue.tasks.where import Where

FEW = 2_000
"""So many keys are read and sorted at once."""
SHARE = 4
"""Of what was sorted, so much is used before that is done again."""
AT_ONCE = 512
"""But no more than that."""
LARGE = 4_000
"""More of one message are not sorted here (`large_message`)."""
_ID = slice(len(keys.INDEX), len(keys.INDEX) + 16)


class InOrder(NamedTuple):
    """A recipient: id, then address is its place in the order. key b"": one that is not meant. value b"": not read."""

    id: bytes
    address: bytes
    key: bytes
    value: bytes = b""


class PlaceInOrder(Protocol):
    @property
    def id(self) -> bytes: ...
    @property
    def address(self) -> bytes: ...


class IndexRows:
    """Those behind `passed`, with ids before `last`. sorted: how many keys had to be read for those that come now.
    large: a message that has too many; they end before it."""

    def __init__(self, core: Core, instant: Instant, where: Where, passed: PlaceInOrder, last: bytes) -> None:
        self._instant, self._where, self._passed, self._last = instant, where, passed, last
        self._few = _few(instant, ranges.placed(core, where)) if _are_few(core, where) else None
        self.sorted, self.large = 0, b""

    @property
    def at_once(self) -> int:
        """How many should be used before anything is read again."""
        return max(ranges.AT_ONCE, min(AT_ONCE, self.sorted // SHARE))

    def __iter__(self) -> Iterator[InOrder]:
        return self._by_id() if self._few is None else self._of_few(self._few)

    def _of_few(self, few: list[InOrder]) -> Iterator[InOrder]:
        self.sorted, behind = len(few), (self._passed.id, self._passed.address)
        for one in few:
            if behind < (one.id, one.address) and one.id < self._last:
                yield one

    def _by_id(self) -> Iterator[InOrder]:
        meant, passed = meant_by(self._where), self._passed
        found = self._instant.keys(keys.INDEX + passed.id, keys.INDEX + self._last)
        for id_, group in groupby(found, key=lambda key: key[_ID]):
            parts = [index.split(b" ", 5) for index in islice(group, LARGE + 1)]
            self.sorted = len(parts)
            if len(parts) > LARGE:
                self.large = id_
                return
            if id_ == passed.id:
                parts = [one for one in parts if one[5] > passed.address]
            if len(parts) > 1:
                parts.sort(key=lambda one: one[5])
            for _, _, family, zone, middle, address in parts:
                key = b" ".join((family, zone, middle, id_, address)) if meant(family, zone, middle) else b""
                yield InOrder(id_, address, key)


def _are_few(core: Core, where: Where) -> bool:
    """Parked ones of a campaign or tenant are found among any number of others."""
    if not ranges.are_few(core, where):
        return False
    states, total = where.values("state"), 0
    for state, at in COUNTED.items():
        parked = state == State.QUEUED
        if state != State.HELD and ranges.may_be(state, states) and not (parked and ranges.wanted(where)):
            counts = core.counters.sizes.zones
            total += sum(counts[zone][at] for zone in ranges.zones(core, where, state) if zone in counts)
    return total <= FEW


def _few(instant: Instant, narrow: list[Range]) -> list[InOrder] | None:
    """None: they are too many."""
    found, left = list[InOrder](), FEW
    for one in narrow:
        start = one.start
        while start < one.stop:
            most = min(left, ranges.AT_ONCE) if one.wanted is not None else left
            read = list(islice(instant.keys(start, one.stop), most))
            left -= len(read)
            if left <= 0:
                return None
            start = read[-1] + b"\0" if len(read) == most else one.stop
            for key in read:
                family, zone, middle, id_, address = key.split(b" ", 4)
                if one.wanted is not None and not one.wanted(middle.decode()):
                    start = keys.end(b" ".join((family, zone, middle, b"")))
                    break
                found.append(InOrder(id_, address, key))
    return sorted(found)


def meant_by(where: Where) -> Callable[[bytes, bytes, bytes], bool]:
    """Whether a recipient may be meant, by family, zone and what is between zone and id in its key."""
    states, zones, wanted = where.values("state"), where.values("zone"), ranges.wanted(where)
    families = {family.encode() for family, state in FAMILY.items() if ranges.may_be(state, states)}
    names = None if zones is None else {str(zone).encode() for zone in zones}

    def meant(family: bytes, zone: bytes, middle: bytes) -> bool:
        if family not in families or (names is not None and zone not in names):
            return False
        return wanted is None or family != b"parked" or wanted(middle.decode())

    return meant
