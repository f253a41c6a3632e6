"""The domains of one zone in the order of their sizes, kept from the first question about it on, and no longer than
somebody asks: such an order costs a little for every recipient.

They are put in order behind the first answer, which has those that were seen within its time.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from weakref import WeakKeyDictionary

from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sums.ranking import Ranking
from zonemta_py.schedule.time.pace import PAGE_S, Pace, behind

BEHIND = 29.0
"""Putting them in order rests so long for each second of its work, while mail is sent."""
KEPT_S = 600.0
"""How long after the last question."""
ZONES_MAX = 16
"""Zones of which the order is kept at once."""


class _Order:
    """Of one zone."""

    def __init__(self, core: Core, zone: str) -> None:
        self._core, self.zone = core, zone
        self.made = asyncio.Event()
        self.asked_s = 0.0
        self.ranking = core.counters.sizes.ranked_in[zone] = Ranking()

    async def make(self) -> None:
        """Takes in what is there; what changes meanwhile is put by whoever changes it."""
        pace, there = Pace(math.inf), self._core.counters.sizes.domains
        async for zone, domain in pace.each(list(there)):
            if zone == self.zone and (counts := there.get((zone, domain))) is not None:
                self.ranking.put(domain, sum(counts))
        self.made.set()


_orders: WeakKeyDictionary[Core, dict[str, _Order]] = WeakKeyDictionary()


async def of_zone(core: Core, zone: str) -> tuple[Ranking, bool]:
    """The order, and whether it is complete."""
    orders = _orders.setdefault(core, {})
    order = orders.get(zone)
    if order is None:
        if zone not in core.counters.sizes.zones:
            return Ranking(), True
        if len(orders) >= ZONES_MAX:
            _forget(core, min(orders, key=lambda zone: orders[zone].asked_s))
        order = orders[zone] = _Order(core, zone)
        core.keep(asyncio.ensure_future(behind(order.make, BEHIND)))
        asyncio.get_running_loop().call_later(KEPT_S, _look, core, order)
    order.asked_s = core.clock.monotonic()
    if not order.made.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(order.made.wait(), PAGE_S)
    return order.ranking, order.made.is_set()


def _look(core: Core, order: _Order) -> None:
    """Whether somebody still asks about it."""
    left_s = order.asked_s + KEPT_S - core.clock.monotonic()
    if _orders[core].get(order.zone) is not order:
        return
    if left_s > 0:
        asyncio.get_running_loop().call_later(left_s, _look, core, order)
    else:
        _forget(core, order.zone)


def _forget(core: Core, zone: str) -> None:
    del _orders[core][zone], core.counters.sizes.ranked_in[zone]
