"""Recipients in the order of their age, the oldest first.

Fresh and held ones of a zone are in that order, and so is the index, which has all others. These rows of keys are read
as one, so that a page takes as long as one in the order of keys. The cursor is an id and a key: like a key alone it
stays valid, whatever comes and goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from zonemta_py.disk import keys
from zonemta_py.queue.admin.browse import ranges
from zonemta_py.queue.admin.browse.pace import Pace
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sizes import HELD, QUEUED
from zonemta_py.queue.tasks.where import Where
from zonemta_py.zones import queues

AT_ONCE = 64
PREFIX = b"by-age "
"""How a cursor begins."""


class Aged(NamedTuple):
    """A recipient. id, then key: its place in the order."""

    id: bytes
    key: bytes

    @property
    def cursor(self) -> bytes:
        return b"%b%b %b" % (PREFIX, self.id, self.key)

    @classmethod
    def of(cls, cursor: str) -> Aged:
        """Raises ValueError."""
        prefix, id_, key = cursor.encode().split(b" ", 2)
        if prefix + b" " != PREFIX or keys.place(key).id.encode() != id_:
            raise ValueError(cursor)
        return cls(id_, key)


class AgeWalk:
    """As `RangeWalk`: keys and values, until the time is over (`stopped`). after: the cursor of the last one."""

    def __init__(self, core: Core, where: Where, after: str, pace: Pace) -> None:
        """Raises ValueError while the index is being made, since an earlier version wrote to the queue."""
        if not core.places.complete:
            raise ValueError(
                "recipients are not in the order of their age yet, since an older version has used the queue; try again"
                " in a minute"
            )
        self._core, self._pace = core, pace
        first, last = ranges.ids(core, where)
        start = Aged.of(after) if after else Aged(first.encode(), b"")
        self._last, self._rows = last.encode(), _oldest_first(core, start, where.values("zone"))
        self.after, self.walked, self.stopped = after.encode(), 0, False

    async def rows(self) -> AsyncIterator[tuple[bytes, bytes]]:
        for aged in self._rows:
            if aged.id >= self._last:
                return
            self.after, self.walked = aged.cursor, self.walked + 1
            if (value := self._core.store.get(aged.key)) is not None:
                yield aged.key, value
            if self.walked % AT_ONCE == 0:
                if self._pace.over:
                    self.stopped = True
                    return
                await self._pace.turn()


def _oldest_first(core: Core, start: Aged, zones: tuple[Any, ...] | None) -> Iterator[Aged]:
    """Behind that place. Nothing of the store stays open between two of them. Raises StoreError."""
    return merge(_indexed(core, start), *(_direct(core, prefix, start) for prefix in _prefixes(core, zones)))


def _prefixes(core: Core, zones: tuple[Any, ...] | None) -> Iterator[bytes]:
    for zone, counts in core.sizes.zones.items():
        if zones is None or zone in zones:
            if counts[QUEUED] and not zone.startswith(queues.PREFIX):  # what is pushed is never fresh
                yield keys.fresh_range(zone)
            if counts[HELD]:
                yield keys.held_range(zone)


def _direct(core: Core, prefix: bytes, last: Aged) -> Iterator[Aged]:
    """Keys in which the id follows the zone."""
    start = prefix + last.id
    if last.key.startswith(prefix):
        start = last.key + b"\0"
    elif prefix < last.key:  # all of that message was before
        start = keys.end(start + b" ")
    zone = core.schedule.zones.get(prefix.split(b" ")[1].decode())
    if zone is not None and prefix.startswith(b"delivery-zone "):
        start = max(start, zone.fresh.mark())
    for key in _read(core, start, keys.end(prefix)):
        yield Aged(key[len(prefix) :].partition(b" ")[0], key)


def _indexed(core: Core, last: Aged) -> Iterator[Aged]:
    start = keys.INDEX + last.id
    if last.key:
        placed = last.key.startswith(keys.PLACED)
        start = keys.index_of(last.key) + b"\0" if placed else b"%b %b" % (start, last.key)
    for key in _read(core, start, keys.end(keys.INDEX)):
        yield Aged(key.split(b" ", 2)[1], keys.indexed(key))


def _read(core: Core, start: bytes, stop: bytes) -> Iterator[bytes]:
    while rows := list(islice(core.store.keys(start, stop), AT_ONCE)):
        yield from rows
        start = rows[-1] + b"\0"
