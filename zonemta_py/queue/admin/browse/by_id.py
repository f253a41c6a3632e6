"""Recipients in the order of their message's id, the oldest first, and within a message in that of their addresses.

A recipient's key changes when it is deferred, parked, held, released, moved or set; id and address never do. So the
cursor, id and address of the last one, stays valid whatever comes and goes: whoever is in the queue from the first page
to the last is passed once, wherever it is when its page is made.

The keys of fresh and held ones are in that order for each zone, and the index has all others by id (`of_index`): these
rows of keys are read as one, in portions, each as of one instant. The zones are those that the counters know, and those
of changes that the store may not have yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from heapq import merge
from time import perf_counter
from typing import NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.instant import Instant
from zonemta_py.queue.admin.browse import ranges
from zonemta_py.queue.admin.browse.large_message import LargeMessage
from zonemta_py.queue.admin.browse.of_index import AT_ONCE, IndexRows, InOrder
from zonemta_py.queue.admin.browse.ranges import RangeWalk
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.tasks.where import Where
from zonemta_py.schedule.time.pace import TURN_S, Pace
from zonemta_py.zones import pull

PREFIX = "recipient "
"""How a cursor begins."""
_LAST = "\U0010ffff".encode()
"""After all addresses."""
_END = b"g"
"""After all ids."""


class Passed(NamedTuple):
    """The last recipient of a page: id and address. With b"" for the address: nobody of that message."""

    id: bytes
    address: bytes

    @property
    def cursor(self) -> str:
        return f"{PREFIX}{self.id.decode()} {self.address.decode()}"

    @classmethod
    def of(cls, cursor: str) -> Passed:
        """Raises ValueError."""
        prefix, id_, address = cursor.split(" ", 2)
        if prefix + " " != PREFIX or len(id_) != 16 or not address or int(id_, 16) < 0:
            raise ValueError(cursor)
        return cls(id_.encode(), address.encode())


NOBODY = Passed(b"", b"")


def walk(core: Core, where: Where, after: str, pace: Pace, order: str = "") -> IdWalk | RangeWalk:
    """In this order, if it can be, or was asked for, or begun; else in that of the keys. Raises ValueError."""
    if checked(after, order) is not None and (after or order or core.disk.places.complete):
        return IdWalk(core, where, after, pace)
    return RangeWalk(core, ranges.of(core, where), after.encode(), pace)


def checked(after: str, order: str = "") -> Passed | None:
    """Where a page begins; None: in the order of the keys. Raises ValueError for what is no cursor."""
    if not after:
        return NOBODY
    with suppress(ValueError):
        return Passed.of(after)
    if order or not _is_key(after):
        raise Refused(f"{after!r} is not a cursor; use the one that the previous page ended with, or omit it")
    return None


def _is_key(after: str) -> bool:
    """Whether it is a recipient's key, or one of the index, existing or not: the cursor where there is no order."""
    try:
        key = after.encode()
        return keys.place(keys.indexed(key) if key.startswith(keys.INDEX) else key).family in FAMILY
    except ValueError:
        return False


class IdWalk:
    """As `RangeWalk`: keys and values, until the time is over (`stopped`). after: the cursor of the last one."""

    def __init__(self, core: Core, where: Where, after: str, pace: Pace) -> None:
        """Raises ValueError while the index is being made, since an earlier version wrote to the queue."""
        if not core.disk.places.complete:
            raise Refused(
                "recipients are not in the order of their age yet, since an older version has used the queue; try again"
                " in a minute"
            )
        self._core, self._where, self._pace = core, where, pace
        self._passed = NOBODY
        self._go_on(Passed.of(after) if after else NOBODY)
        self.after, self.walked, self.stopped = after.encode(), 0, False
        self._large = b""
        """A message that the next portion is of."""

    async def rows(self) -> AsyncIterator[tuple[bytes, bytes]]:
        for first, last in _spans(self._core, self._where):
            self._passed = max(self._passed, Passed(first, b""))
            more = self._passed.id < last
            while more:
                if self._pace.over and self.walked >= ranges.AT_ONCE:
                    self.stopped = True
                    return
                found, passed, more = await self._of_large() if self._large else self._portion(last)
                for one in found:
                    self.after = Passed(one.id, one.address).cursor.encode()
                    yield one.key, one.value
                if more:
                    self._go_on(passed)
                    self.after = passed.cursor.encode() if passed.address else self.after
                await self._pace.turn()

    def _portion(self, last: bytes) -> tuple[list[InOrder], Passed, bool]:
        """The next ones that the filter may mean, the last that was passed, and whether there may be more."""
        found, passed, walked, until = list[InOrder](), NOBODY, 0, perf_counter() + TURN_S
        last_one: InOrder | None = None
        with self._core.disk.store.instant() as instant:
            placed = IndexRows(self._core, instant, self._where, self._passed, last)
            for one in merge(placed, *_direct(self._core, instant, self._where, self._passed, last)):
                if placed.large and one.id >= placed.large:
                    break
                walked, last_one = walked + 1, one
                if one.key and self._where.is_to(one.address.decode()):
                    found.append(one if one.value else one._replace(value=instant.get(one.key) or b""))
                if walked >= placed.at_once and (len(found) >= placed.at_once or perf_counter() >= until):
                    passed = Passed(one.id, one.address)
                    break
            if passed is NOBODY and placed.large:
                self._large, passed = placed.large, self._passed if last_one is None else Passed(*last_one[:2])
        self.walked += walked
        return found, passed, passed is not NOBODY or bool(self._large)

    async def _of_large(self) -> tuple[list[InOrder], Passed, bool]:
        """As `_portion`, of one message, whose recipients are too many for it."""
        found, end = list[InOrder](), self._large + b"!"
        with LargeMessage(self._core, self._where, self._large, self._passed) as large:
            await large.look(self._pace)
            self.walked, self._large = self.walked + large.walked, b""
            with large.instant() as instant:
                direct = _direct(self._core, instant, self._where, Passed(large.id, large.behind), end)
                passed = Passed(large.id, _LAST if large.whole else large.rows[-1].address)
                for one in merge(large.rows, *direct):
                    if (one.id, one.address) > passed:
                        break
                    if self._where.is_to(one.address.decode()):
                        found.append(one if one.value else one._replace(value=instant.get(one.key) or b""))
                        if len(found) >= AT_ONCE:
                            passed = Passed(one.id, one.address)
                            break
        return found, passed, True

    def _go_on(self, passed: Passed) -> None:
        """Behind that one."""
        self._passed = Passed(passed.id + b"!", b"") if passed.address == _LAST else passed


def _spans(core: Core, where: Where) -> list[tuple[bytes, bytes]]:
    """From which id, and up to which one that is not meant any more."""
    named = where.values("id")
    if named is not None:
        return [(id.encode(), id.encode() + b"!") for id in sorted(set(map(str, named)))]
    if ranges.most(core, where) == 0:
        return []
    first, last = ranges.ids(core, where)
    return [(first.encode(), min(last.encode(), _END))]


def _direct(core: Core, instant: Instant, where: Where, passed: Passed, last: bytes) -> Iterator[Iterator[InOrder]]:
    """A row of keys for each zone that may have fresh or held ones."""
    states = where.values("state")
    if ranges.may_be(State.QUEUED, states):
        for zone in ranges.zones(core, where, State.QUEUED):
            if not zone.startswith(pull.PREFIX):  # what is pushed is never fresh
                known = core.schedule.zones.get(zone)
                mark = known.fresh.mark() if known is not None else b""
                yield _of_zone(instant, keys.fresh_range(zone), mark, passed, last)
    if ranges.may_be(State.HELD, states):
        for zone in ranges.zones(core, where, State.HELD):
            yield _of_zone(instant, keys.held_range(zone), b"", passed, last)


def _of_zone(instant: Instant, prefix: bytes, mark: bytes, passed: Passed, last: bytes) -> Iterator[InOrder]:
    """Keys in which the id follows the zone, and then the address."""
    start = prefix + passed.id + (b" %b\0" % passed.address if passed.address else b"")
    for key, value in instant.scan(max(start, mark), prefix + last):
        id_, address = key[len(prefix) :].split(b" ", 1)
        yield InOrder(id_, address, key, value)
