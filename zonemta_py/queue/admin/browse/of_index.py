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
_SHARE = 4
"""Of what was sorted, so much is used before that is done again."""
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


def rows(
    core: Core, instant: Instant, where: Where, passed: PlaceInOrder, last: bytes
) -> tuple[Iterator[InOrder], int]:
    """Those behind `passed`, with ids before `last`, and how many may be asked for at once."""
    if _are_few(core, where):
        few = _few(instant, ranges.placed(core, where))
        if few is not None:
            behind = (passed.id, passed.address)
            behind_it = [one for one in few if behind < (one.id, one.address) and one.id < last]
            return iter(behind_it), max(ranges.AT_ONCE, len(few) // _SHARE)
    return _by_id(instant, _meant(where), passed, last), ranges.AT_ONCE


def _are_few(core: Core, where: Where) -> bool:
    """Parked ones of a campaign or tenant are found among any number of others."""
    states, total = where.values("state"), 0
    for state, at in COUNTED.items():
        parked = state == State.QUEUED
        if state != State.HELD and ranges.may_be(state, states) and not (parked and ranges.wanted(where)):
            total += sum(
                core.sizes.zones[zone][at] for zone in ranges.zones(core, where, state) if zone in core.sizes.zones
            )
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


def _meant(where: Where) -> Callable[[bytes, bytes, bytes], bool]:
    """Whether a recipient may be meant, by family, zone and what is between zone and id in its key."""
    states, zones, wanted = where.values("state"), where.values("zone"), ranges.wanted(where)
    families = {family.encode() for family, state in FAMILY.items() if ranges.may_be(state, states)}
    names = None if zones is None else {str(zone).encode() for zone in zones}

    def meant(family: bytes, zone: bytes, middle: bytes) -> bool:
        if family not in families or (names is not None and zone not in names):
            return False
        return wanted is None or family != b"parked" or wanted(middle.decode())

    return meant


def _by_id(
    instant: Instant, meant: Callable[[bytes, bytes, bytes], bool], passed: PlaceInOrder, last: bytes
) -> Iterator[InOrder]:
    """Of the index."""
    found = instant.keys(keys.INDEX + passed.id, keys.INDEX + last)
    for id_, group in groupby(found, key=lambda key: key[_ID]):
        of_message = list[InOrder]()
        for index in group:
            _, _, family, zone, middle, address = index.split(b" ", 5)
            if id_ != passed.id or address > passed.address:
                key = b" ".join((family, zone, middle, id_, address)) if meant(family, zone, middle) else b""
                of_message.append(InOrder(id_, address, key))
        if len(of_message) > 1:
            of_message.sort()
        yield from of_message
