"""How old the queue's mail is, by destination: Postfix's qshape. Counted in passes over all recipients.

A pass begins when somebody asks and the last one is older than KEPT_S. It goes in portions, at the pace of a question
(`schedule/time/pace.py`), and goes on when the question has been answered; so the first answers may have a part only:
`walked` says how many recipients were counted `of` how many, and `complete` whether these were all. The ages are those
at the moment when each was counted.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.admin.browse.ranges import OVER
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.schedule.time.pace import PAGE_S, Pace, behind
from zonemta_py.zones.site import Site

MINUTES = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Where one age ends and the next begins; the last has no end."""
BY = ("domain", "site", "provider")
KEPT_S = 30.0
BEHIND = 29.0
"""A pass rests so long for each second of its work, while mail is sent."""
AT_ONCE = 500
NAMED_AT_ONCE, PART = 1_000, 20_000
"""What is named before the event loop runs; and of a pass that goes on, in one answer."""
PAGE_MAX = 1_000
_BOUNDS_MS = tuple(minutes * 60_000 for minutes in MINUTES)
_AGES = len(MINUTES) + 1


class Table(NamedTuple):
    """The largest, PAGE_MAX at most: names and ages; the ages of all of them, and how many names there are. walked: of
    how many recipients; complete: whether these are all."""

    largest: list[tuple[str, list[int]]]
    all_of_it: list[int]
    names: int
    walked: int
    complete: bool


class Shape:
    """One pass: recipients by zone, domain and age."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.counts: dict[tuple[bytes, bytes, int], int] = {}
        self.tables: dict[tuple[str, str | None], Table] = {}
        """Of a pass that is complete, as they were asked for."""
        self._making: set[tuple[str, str | None]] = set()
        self.walked, self.complete, self.ended = 0, False, asyncio.Event()
        self.begun_s, self.begun_ms = core.clock.monotonic(), core.clock.ms()

    async def run(self) -> None:
        """Raises StoreError."""
        for family in sorted(family for family, state in FAMILY.items() if state not in OVER):
            prefix = f"{family} ".encode()
            start, stop, pace = prefix, keys.end(prefix), Pace(math.inf)
            before_id = 3 if prefix in keys.PLACED else 2
            while rows := list(islice(self._core.store.keys(start, stop), AT_ONCE)):
                self._count(rows, before_id)
                start = rows[-1] + b"\0"
                await pace.turn()
        self.complete = True

    def _count(self, rows: list[bytes], before_id: int) -> None:
        """Keys are only cut, not taken apart: there may be millions. before_id: how many parts are before the id."""
        now_ms, counts = self._core.clock.ms(), self.counts
        bounds = [keys.id_at(now_ms - ms + 1).encode() for ms in reversed(_BOUNDS_MS)]
        for key in rows:
            parts = key.split(b" ", before_id + 1)
            where = parts[1], parts[-1].rpartition(b"@")[2], _AGES - 1 - bisect_right(bounds, parts[before_id])
            counts[where] = counts.get(where, 0) + 1
        self.walked += len(rows)

    async def table(self, by: str, zone: str | None, pace: Pace) -> Table:
        """Of one zone, or of all. If there is too much for its time, of a part; the whole is made behind the answer."""
        known = self.tables.get((by, zone))
        if known is not None:
            return known
        table = await self._made(by, zone, pace)
        if table.complete:
            self.tables[by, zone] = table
        elif self.complete and (by, zone) not in self._making:
            self._making.add((by, zone))
            self._core.keep(asyncio.ensure_future(behind(self._keep(by, zone), BEHIND)))
        return table

    async def _keep(self, by: str, zone: str | None) -> None:
        self.tables[by, zone] = await self._made(by, zone, Pace(math.inf))

    async def _made(self, by: str, zone: str | None, pace: Pace) -> Table:
        found, total, there = dict[str, list[int]](), [0] * _AGES, (zone or "").encode()
        by_domain, name_of, complete, walked = dict[bytes, list[int]](), _names(self._core, by), self.complete, 0
        # what is complete changes no more, so that it can be walked in portions
        items = iter(self.counts.items() if complete else list(islice(self.counts.items(), PART)))
        while part := list(islice(items, NAMED_AT_ONCE)):
            if walked and pace.over:
                complete = False
                break
            for (zone_name, domain, age), count in part:
                walked += count
                if zone is None or zone_name == there:
                    ages = by_domain.get(domain)
                    if ages is None:
                        ages = by_domain[domain] = found.setdefault(name_of(domain.decode()), [0] * _AGES)
                    ages[age] += count
                    total[age] += count
            await pace.turn()
        names, largest = iter(found), list[tuple[int, str]]()
        while some := [(sum(found[name]), name) for name in islice(names, NAMED_AT_ONCE)]:
            largest = heapq.nlargest(PAGE_MAX, largest + some)
            await pace.turn()
        return Table([(name, found[name]) for _, name in largest], total, len(found), walked, complete)


_shapes: WeakKeyDictionary[Core, tuple[Shape | None, Shape | None]] = WeakKeyDictionary()
"""The last complete pass, and the one that is being made."""


async def qshape(
    queue: QueueContext, by: str = "domain", zone: str | None = None, limit: int = 50, after: int = 0
) -> dict[str, Any]:
    """rows: {name, total, ages}, the largest first, without the first `after`; `all`: the same of all; `minutes`: where
    each age ends.

    Raises ValueError.
    """
    core = queue.core
    if by not in BY:
        raise ValueError(f"ages are counted by {', '.join(BY)}, not by {by!r}")
    pace = Pace()
    shape = await _shape(core)
    table = await shape.table(by, zone, pace)
    rows = [_row(name, ages) for name, ages in table.largest[max(0, after) :][: max(1, limit)]]
    return {
        "by": by, "minutes": list(MINUTES), "rows": rows, "all": _row("all", table.all_of_it), "names": table.names,
        "walked": table.walked, "of": sizes.waiting(core.sizes.total), "complete": table.complete,
        "at_ms": shape.begun_ms,
    }  # fmt: skip


def _row(name: str, ages: list[int]) -> dict[str, Any]:
    return {"name": name, "total": sum(ages), "ages": ages}


def _names(core: Core, by: str) -> Callable[[str], str]:
    if by == "provider":
        return lambda domain: core.sizes.providers.provider_of.get(domain, "")
    if by == "site":
        known = core.schedule.sites.known
        return lambda domain: site.key if isinstance(site := known(domain), Site) else domain
    return lambda domain: domain


async def _shape(core: Core) -> Shape:
    """The last one, if it is new enough; otherwise a new one begins, and there is a moment to wait for it."""
    last, running = _shapes.get(core, (None, None))
    if last is not None and core.clock.monotonic() < last.begun_s + KEPT_S:
        return last
    if running is None:
        running = Shape(core)
        _shapes[core] = last, running
        core.keep(asyncio.ensure_future(_run(core, running)))
    with suppress(TimeoutError):
        await asyncio.wait_for(running.ended.wait(), PAGE_S / 2)
    return running if running.complete or last is None else last


async def _run(core: Core, shape: Shape) -> None:
    last = _shapes[core][0]
    try:
        await behind(shape.run(), BEHIND)
        last = shape
    except StoreError:
        pass  # the next question begins again
    finally:
        _shapes[core] = last, None
        shape.ended.set()
