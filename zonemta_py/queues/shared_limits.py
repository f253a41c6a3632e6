"""A queue's limits where other queues share them: what its schedule asks (`schedule/admission/grants.py`) is said by
its holder (`grants/holder.py`).

Each configured limit has a rate for each bucket, and slots for its connections; each zone has slots for its own. What
is granted wakes the mail that waits for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from zonemta_py.config import Throttle
from zonemta_py.queues.grants.holder import GrantHolder, Resource, SharedCount, SharedRate
from zonemta_py.queues.grants.messages import SLOTS, ZONE_SLOTS, Asking, Hello, Id
from zonemta_py.schedule.batch import Batch
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.zones.admittance import Charge
from zonemta_py.zones.throttle import Level, Limit


class SharedLimit(Limit):
    """A limit of which this queue has a part. Its buckets are `SharedRate`s."""

    __slots__ = ("_holder", "_now", "_rates", "slots")

    def __init__(
        self, throttle: Throttle, key: tuple[str, ...], label: str, level: Level, kept: deque[Limit],
        holder: GrantHolder, now: float,
    ) -> None:  # fmt: skip
        super().__init__(throttle, key, label, level, kept)
        self._holder = holder
        self.slots = holder.count((SLOTS, *key), throttle.connections) if throttle.connections else None
        self._rates = list[tuple[int, str, SharedRate]]()
        for index, kind, bucket in self._limits:
            rate = holder.rate((kind, *key), 1 / bucket.interval_s, bucket.burst, now)
            setattr(self, kind, rate)
            self._rates.append((index, kind, rate))
        self._limits = [(index, kind, rate) for index, kind, rate in self._rates]
        self._used = [(index, kind, rate.own) for index, kind, rate in self._rates]

    @property
    def most(self) -> float:
        """Connections that this queue may have."""
        return math.inf if self.slots is None else self.slots.most

    @most.setter
    def most(self, most: float) -> None:
        """As granted, whatever is configured."""

    @property
    def wanted(self) -> bool:  # type: ignore[override]  # a constant where nobody shares it
        return self.slots is not None and self.slots.cut is not None

    @property
    def why(self) -> str:
        if self.blocking == SLOTS:
            mine = self.slots is None or self.slots.in_use >= self.throttle.connections
        else:
            mine = any(kind == self.blocking and rate.parts for _, kind, rate in self._rates)
        return self.blocking if mine or not self.blocking else f"{self.blocking}, which other queues have now"

    def wait(
        self, now: float, messages: float = 1, recipients: float = 1, new_connections: float = 0, bytes: float = 0
    ) -> float:
        """As of `Limit`; inf also: when more of it is granted."""
        self.blocking, longest = "", 0.0
        costs = (messages, recipients, new_connections, bytes)
        for index, kind, rate in self._rates:
            if costs[index] and (wait := rate.wait(now, costs[index])) > longest:
                longest, self.blocking = wait, kind
        if self.slots is not None and not self.slots.room:
            longest, self.blocking = math.inf, SLOTS
        return longest

    def hold(self) -> None:
        super().hold()
        if self.slots is not None:
            self.slots.take()

    def release(self) -> None:
        super().release()
        if self.slots is not None:
            self.slots.release()

    def wants(self, charge: Charge) -> list[tuple[Resource, float]]:
        """What it takes to be charged with that."""
        found: list[tuple[Resource, float]] = [(rate, charge[index]) for index, _, rate in self._rates if charge[index]]
        if self.slots is not None:
            found.append((self.slots, 1))
        return found


class SharedLimits:
    """Of one queue; `Grants` of its schedule. What is to be sent is asked for after each event, and at `next_at`."""

    def __init__(self, schedule: Schedule, holder: GrantHolder, out: list[Batch]) -> None:
        self._schedule, self._holder = schedule, holder
        self._limits: WeakValueDictionary[Id, SharedLimit] = WeakValueDictionary()
        self._zones: dict[str, tuple[SharedCount, Callable[[int], None]]] = {}
        self._allowed: dict[str, int] = {}
        schedule.share(self, out)

    # -- the schedule

    def anew(self) -> None:
        self._holder.count_again(SLOTS)

    def limit(
        self, throttle: Throttle, key: tuple[str, ...], label: str, level: Level, kept: deque[Limit]
    ) -> Limit:  # fmt: skip
        limit = SharedLimit(throttle, key, label, level, kept, self._holder, self._schedule.now())
        self._limits[key] = limit
        return limit

    def slots(self, zone: str, connections: int, allow: Callable[[int], None]) -> SharedCount:
        slots = self._holder.count((ZONE_SLOTS, zone), connections)
        self._zones[zone] = slots, allow
        self._allowed.pop(zone, None)
        return slots

    def need(
        self, limits: tuple[Limit, ...], charge: Charge, now: float, zone: str = "", connected: bool = False
    ) -> None:  # fmt: skip
        wanted = self._wants(limits, charge)
        if connected:
            wanted = [one for one in wanted if isinstance(one[0], SharedRate)]
        if zone in self._zones and self._zones[zone][0].scarce:  # else it has some, and keeps them
            wanted.append((self._zones[zone][0], 1))
        self._holder.need(wanted, now)

    def need_slot(self, zone: str, now: float) -> None:
        self._holder.need([(self._zones[zone][0], 1)], now)

    def served(self, limits: tuple[Limit, ...], charge: Charge, zone: str) -> None:
        if self._holder.waiting:
            wanted = [resource for resource, _ in self._wants(limits, charge)]
            rates: list[Resource] = [resource for resource in wanted if isinstance(resource, SharedRate)]
            slots: list[Resource] = [self._zones[zone][0]] if zone in self._zones else []
            for some in (wanted, [*wanted, *slots], rates, [*rates, *slots]):  # whichever way it has waited
                self._holder.served(some)

    @staticmethod
    def _wants(limits: tuple[Limit, ...], charge: Charge) -> list[tuple[Resource, float]]:
        return [wanted for limit in limits if isinstance(limit, SharedLimit) for wanted in limit.wants(charge)]

    # -- the authority

    def heard(self, message: Sequence[Any]) -> None:
        """What the authority says."""
        woken = self._holder.heard(message, self._schedule.now())
        self._allow()
        if woken:
            self._schedule.admission.granted([limit for id in woken if (limit := self._limits.get(id[1:])) is not None])
            self._schedule.changed()

    def next_message(self) -> Hello | Asking | None:
        """What is to be said to it now."""
        message = self._holder.next_message(self._schedule.now())
        if message is not None:
            self._allow()
        return message

    def _allow(self) -> None:
        for zone, (slots, allow) in self._zones.items():
            if self._allowed.get(zone) != slots.most:
                self._allowed[zone] = slots.most
                allow(slots.most)
