"""How old the queue's mail is, by destination: Postfix's qshape. Counted in passes over all recipients.

A pass begins when somebody asks and the last one is older than KEPT_S. It goes in portions, at the pace of a question
(`pace.py`), and goes on when the question has been answered; so the first answers may have a part only: `walked` says
how many recipients were counted `of` how many, and `complete` whether these were all. The ages are those at the moment
when each was counted.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.admin.browse.pace import PAGE_S, Pace, measured
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.zones.site import Site

MINUTES = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Where one age ends and the next begins; the last has no end."""
BY = ("domain", "site", "provider")
KEPT_S = 30.0
AT_ONCE = 500
PAGE_MAX = 1_000
_BOUNDS_MS = tuple(minutes * 60_000 for minutes in MINUTES)
_AGES = len(MINUTES) + 1


class Shape:
    """One pass: recipients by zone and domain, and by age."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.counts: dict[tuple[str, str], list[int]] = {}
        self.walked, self.complete, self.ended = 0, False, asyncio.Event()
        self.begun_s, self.begun_ms = core.clock.monotonic(), core.clock.ms()

    async def run(self) -> None:
        """Raises StoreError."""
        for family in sorted(FAMILY):
            prefix = f"{family} ".encode()
            start, stop, pace = prefix, keys.end(prefix), Pace(math.inf)
            while rows := list(islice(self._core.store.keys(start, stop), AT_ONCE)):
                self._count(rows)
                start = rows[-1] + b"\0"
                await pace.turn()
        self.complete = True

    def _count(self, rows: list[bytes]) -> None:
        now_ms, counts = self._core.clock.ms(), self.counts
        for key in rows:
            place = keys.place(key)
            who = place.zone, place.recipient.rpartition("@")[2]
            ages = counts.get(who)
            if ages is None:
                ages = counts[who] = [0] * _AGES
            ages[bisect_right(_BOUNDS_MS, now_ms - (int(place.id, 16) >> 20))] += 1
        self.walked += len(rows)


_shapes: WeakKeyDictionary[Core, tuple[Shape | None, Shape | None]] = WeakKeyDictionary()
"""The last complete pass, and the one that is being made."""


async def qshape(queue: QueueContext, by: str = "domain", zone: str | None = None, limit: int = 50) -> dict[str, Any]:
    """rows: {name, total, ages}, the largest first; `all`: the same of all; `minutes`: where each age ends.

    Raises ValueError.
    """
    core = queue.core
    if by not in BY:
        raise ValueError(f"ages are counted by {', '.join(BY)}, not by {by!r}")
    shape, pace = await _shape(core), Pace()
    name_of, found, total = _names(core, by), dict[str, list[int]](), [0] * _AGES
    async for (there, domain), ages in pace.each(list(shape.counts.items())):
        if zone not in (None, there):
            continue
        name = name_of(domain)
        sums = found.setdefault(name, [0] * _AGES)
        for at, count in enumerate(ages):
            sums[at] += count
            total[at] += count
    largest = heapq.nlargest(max(1, min(limit, PAGE_MAX)), found.items(), key=lambda item: sum(item[1]))
    return {
        "by": by, "minutes": list(MINUTES), "rows": [_row(name, ages) for name, ages in largest],
        "all": _row("all", total), "names": len(found), "walked": shape.walked, "of": sum(core.sizes.total),
        "complete": shape.complete, "at_ms": shape.begun_ms,
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
        await asyncio.wait_for(running.ended.wait(), PAGE_S)
    return running if running.complete or last is None else last


async def _run(core: Core, shape: Shape) -> None:
    last = _shapes[core][0]
    try:
        await measured(shape.run())
        last = shape
    except StoreError:
        pass  # the next question begins again
    finally:
        _shapes[core] = last, None
        shape.ended.set()
