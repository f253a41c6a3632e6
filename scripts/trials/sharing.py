"""Queues that share limits, in simulated time: random limits and demand; messages that are late; connections that are
cut; processes that are killed or stopped for seconds, queues and authority; limits that change.

What is taken of each limit is recorded, and compared with what the limit allows in every interval.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from zonemta_py.queues.grants.authority import GrantAuthority
from zonemta_py.queues.grants.holder import GrantHolder, Resource, SharedCount, SharedRate
from zonemta_py.queues.grants.messages import QUOTA, RATES, SLOTS, Id

LONG_S = 3.0
"""No connection is open for longer."""
LATENESS_S = 0.003
"""A queue looks so much later than it meant to, at most."""
SETTLED_S = 1.0
"""After a reload all queues have the new limits."""
SLACK_S = 1e-4
LEAST_S = 0.0005
"""A timer is as late as that at least."""


@dataclass
class Limit:
    """rates: kind → units a second and burst."""

    name: str
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    slots: int = 0
    quota: int = 0


@dataclass
class Demand:
    """Deliveries that pass these limits. costs: of messages, recipients, new connections and bytes, at most; at_once:
    so many at the same time; holds_s: how long one has its connection; on_s, off_s: there is mail, and there is none.
    """

    limits: list[str]
    costs: tuple[float, float, float, float] = (1, 1, 1, 1)
    at_once: int = 4
    holds_s: float = 0.1
    on_s: float = math.inf
    off_s: float = 0.0


@dataclass
class Fault:
    """what: cut, kill or stop a queue, kill-authority, stop-authority, reload. for_s: until it is there again."""

    at: float
    what: str
    queue: int = 0
    for_s: float = 0.0
    factor: float = 1.0
    """Of all limits, by a reload."""


@dataclass
class Case:
    seed: int
    queues: int
    limits: list[Limit]
    demands: list[tuple[int, Demand]]
    """With the number of the queue."""
    faults: list[Fault] = field(default_factory=list)
    seconds: float = 20.0
    delay_s: float = 0.001
    """Of a message, on average."""


class _Flow:
    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.out = 0
        self.waits = False
        self.timer = 0
        self.cost: tuple[float, float, float, float] | None = None
        self.went: list[float] = []
        self.waited_s = 0.0


class _Actor:
    """Something that can stand still: what is to happen to it happens then when it goes on."""

    def __init__(self, world: Machine) -> None:
        self.world = world
        self.until = 0.0
        self.alive = True
        self._due = math.inf

    def at(self, when: float, call: Callable[[], None]) -> None:
        self.world.at(when, lambda: self._run(call))

    def _run(self, call: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.world.now < self.until:
            self.world.at(self.until, lambda: self._run(call))
            return
        call()

    def soonest(self, when: float, call: Callable[[], None]) -> None:
        """As `at`, for what looks by itself when it is to be called again: only the soonest counts."""
        when = max(when, self.world.now + LEAST_S)
        if when < self._due or self._due <= self.world.now:
            self._due = when
            self.at(when, lambda: self._soonest(when, call))

    def _soonest(self, when: float, call: Callable[[], None]) -> None:
        if self._due == when:
            self._due = math.inf
            call()


class _Master(_Actor):
    def __init__(self, world: Machine, era: str) -> None:
        super().__init__(world)
        self.authority = GrantAuthority(range(world.queue_count), era, self.now)
        self.tick()

    @property
    def now(self) -> float:
        return self.world.now + 1e6

    def tick(self) -> None:
        for queue, message in self.authority.tick(self.now):
            link = self.world.links.get(queue)
            if link is not None:
                link.to_queue(message)
        self.soonest(self.authority.next_at() - 1e6, self.tick)


class _Link:
    """A connection: in order, or not at all."""

    def __init__(self, world: Machine, queue: Process, master: _Master) -> None:
        self.world, self.queue, self.master = world, queue, master
        self.open = True
        self._up = self._down = 0.0

    def to_queue(self, message: tuple[object, ...]) -> None:
        self._down = max(self._down, self.world.now + self.world.delay())
        self.queue.at(self._down, lambda: self.queue.heard(self, message))

    def to_authority(self, message: tuple[object, ...]) -> None:
        self._up = max(self._up, self.world.now + self.world.delay())
        self.master.at(self._up, lambda: self._arrived(message))

    def _arrived(self, message: tuple[object, ...]) -> None:
        if self.open and self.world.links.get(self.queue.number) is self:
            self.master.authority.heard(self.queue.number, message, self.master.now)
            self.master.tick()

    def cut(self) -> None:
        self.open = False
        if self.world.links.get(self.queue.number) is self:
            del self.world.links[self.queue.number]
        if self.master.alive:
            self.master.at(self.world.now + self.world.delay(), self._noticed_above)
        if self.queue.alive:
            self.queue.at(self.world.now + self.world.delay(), self._noticed_below)

    def _noticed_above(self) -> None:
        if self.queue.number not in self.world.links:
            self.master.authority.disconnected(self.queue.number, self.master.now)
            self.master.tick()

    def _noticed_below(self) -> None:
        if self.world.links.get(self.queue.number) in (None, self):
            self.queue.holder.disconnected()
        self.queue.reconnect()


class Process(_Actor):
    """A process of a queue, and its connection to the authority. holder: what it has of limits."""

    holder: GrantHolder

    def __init__(self, world: Machine, number: int) -> None:
        super().__init__(world)
        self.number = number

    @property
    def now(self) -> float:
        """By its own clock."""
        raise NotImplementedError

    def take(self, message: tuple[object, ...]) -> None:
        """What the authority says."""
        raise NotImplementedError

    def next_message(self) -> tuple[object, ...] | None:
        return self.holder.next_message(self.now)

    def reconnect(self) -> None:
        def connect() -> None:
            world = self.world
            if self.number in world.links or not world.master.alive or world.cut_until[self.number] > world.now:
                self.at(world.now + 0.1, connect)
                return
            link = world.links[self.number] = _Link(world, self, world.master)

            def accepted() -> None:
                if world.links.get(self.number) is link:
                    link.master.authority.connected(self.number, link.master.now)
                    link.master.tick()

            link.master.at(world.now, accepted)

        self.at(self.world.now + self.world.random.uniform(0, 0.1), connect)

    def heard(self, link: _Link, message: tuple[object, ...]) -> None:
        if self.world.links.get(self.number) is link:
            self.take(message)
            self.pump()

    def pump(self) -> None:
        """Says to the authority what there is to say."""
        message = self.next_message()
        link = self.world.links.get(self.number)
        if message is not None:
            if link is None:
                self.holder.disconnected()
            else:
                link.to_authority(message)
        when = self.holder.next_at()
        if when < math.inf:
            self.soonest(when - (self.now - self.world.now), self.pump)


class _Queue(Process):
    """Takes what it may, as the limits' classes say. before: the process before it, whose senders may still have
    connections."""

    world: World

    def __init__(self, world: World, number: int, before: Process | None) -> None:
        super().__init__(world, number)
        assert before is None or isinstance(before, _Queue)
        self.skew = 1e5 * (number + 1)
        self.holder = GrantHolder(f"{number}/{world.next()}", world.case.queues, haunted=before is not None)
        self.resources: dict[Id, Resource] = {}
        self.limits: dict[str, list[Resource]] = {}
        self.configure()
        if before is not None:  # as its journal says
            for id, resource in self.resources.items():
                old = before.resources.get(id)
                if isinstance(old, SharedRate) and isinstance(resource, SharedRate):
                    resource.own.restore(old.own.tat, self.now)
                elif isinstance(old, SharedCount) and isinstance(resource, SharedCount) and id[0] == QUOTA:
                    resource.in_use = old.in_use
            world.at(world.now + world.random.uniform(0, 3), lambda: self.at(world.now, self._exorcise))
        self.flows = (
            before.flows if before else [_Flow(demand) for queue, demand in world.case.demands if queue == number]
        )
        for flow in self.flows:
            flow.out, flow.waits, flow.cost, flow.timer = 0, False, None, flow.timer + 1
            self.soon(flow)
            if flow.demand.on_s < math.inf and before is None:
                self._off(flow)
        self.reconnect()

    @property
    def now(self) -> float:
        return self.world.now + self.skew

    def configure(self) -> None:
        for limit in self.world.limits.values():
            found: list[Resource] = [
                self.holder.rate((kind, limit.name), size, burst, self.now)
                for kind, (size, burst) in limit.rates.items()
            ]
            if limit.slots:
                found.append(self.holder.count((SLOTS, limit.name), limit.slots))
            if limit.quota:
                found.append(self.holder.count((QUOTA, limit.name), limit.quota))
            self.limits[limit.name] = found
            self.resources.update({resource.id: resource for resource in found})

    def _exorcise(self) -> None:
        if any(number == self.number and owner is not self for number, owner in self.world.open.values()):
            self.at(self.world.now + 0.5, self._exorcise)
            return
        self.holder.exorcise()
        self.pump()

    def take(self, message: tuple[object, ...]) -> None:
        woken = self.holder.heard(message, self.now)
        for flow in self.flows:
            if flow.waits and any(r.id in woken for name in flow.demand.limits for r in self.limits[name]):
                self.try_next(flow)

    # -- demand

    def soon(self, flow: _Flow, wait: float = 0.0) -> None:
        flow.timer += 1
        timer = flow.timer
        late = self.world.random.uniform(0.0001, LATENESS_S)

        def look() -> None:
            if flow.timer == timer:
                self.try_next(flow)

        self.at(self.world.now + wait + late, look)

    def _off(self, flow: _Flow) -> None:
        demand, random = flow.demand, self.world.random

        def on() -> None:
            flow.demand = demand
            self.soon(flow)
            self.at(self.world.now + random.uniform(0, 2 * demand.on_s), off)

        def off() -> None:
            flow.demand = Demand(demand.limits, demand.costs, 0, demand.holds_s)
            self.at(self.world.now + random.uniform(0, 2 * demand.off_s), on)

        self.at(self.world.now + random.uniform(0, 2 * demand.on_s), off)

    def try_next(self, flow: _Flow) -> None:
        demand, random, now = flow.demand, self.world.random, self.now
        flow.waits = False
        while flow.out < demand.at_once:
            if flow.cost is None:
                m, r, c, b = demand.costs
                flow.cost = m, random.uniform(r / 2, r), c, random.uniform(b / 2, b)
            costs = dict(zip(RATES, flow.cost, strict=True))
            wanted = [(r, costs.get(r.id[0], 1.0)) for name in demand.limits for r in self.limits[name]]
            wait = max((resource.wait(now, cost) for resource, cost in wanted), default=0.0)
            if wait:
                if not flow.waits:
                    self.holder.need(wanted, now)
                flow.waits = True
                if wait < math.inf:
                    self.soon(flow, wait)
                break
            for resource, cost in wanted:
                if isinstance(resource, SharedRate):
                    resource.take(now, cost)
                else:
                    resource.take()
                self.world.record(resource.id, cost)
            self.holder.served(resource for resource, _ in wanted)
            flow.cost = None
            flow.out += 1
            flow.went.append(self.world.now)
            self._lease(flow, [resource for resource, _ in wanted])
            if self.world.random.random() < 0.02:
                for resource, cost in wanted:
                    if isinstance(resource, SharedRate) and self.world.give_back:
                        resource.give(now, cost, now)
                        self.world.taken[resource.id].pop()
        self.pump()

    def _lease(self, flow: _Flow, resources: list[Resource]) -> None:
        world, number = self.world, self.world.next()
        slots = [one for one in resources if isinstance(one, SharedCount) and one.id[0] == SLOTS]
        for one in slots:
            world.open[number, one.id] = self.number, self
            world.count(one.id)
        began = world.now
        ends = world.now + world.random.uniform(0, 2 * flow.demand.holds_s)

        def closed() -> None:
            for one in slots:
                world.open.pop((number, one.id))
                world.open_s[one.id] = world.open_s.get(one.id, 0.0) + world.now - began
            self.at(world.now, released)

        def released() -> None:
            flow.out -= 1
            for one in slots:
                one.release()
                for other in self.flows:
                    if other.waits and any(r is one for name in other.demand.limits for r in self.limits[name]):
                        self.soon(other)
            self.soon(flow)

        world.at(ends, closed)


class Machine:
    """Processes of queues and the authority, what happens to them, and the time."""

    def __init__(self, seed: int, queues: int, delay_s: float, faults: list[Fault]) -> None:
        self.random = random.Random(seed)
        self.queue_count, self.delay_s = queues, delay_s
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.events = self.messages = 0
        self.links: dict[int, _Link] = {}
        self.cut_until = [0.0] * queues
        self.master = _Master(self, "era 0")
        self.queues = [self.started(number, None) for number in range(queues)]
        for fault in faults:
            self.at(fault.at, lambda fault=fault: self._fault(fault))

    def started(self, number: int, before: Process | None) -> Process:
        """Another process of a queue. before: the one that was killed."""
        raise NotImplementedError

    def reload(self, fault: Fault) -> None:
        raise NotImplementedError

    def next(self) -> int:
        self._number += 1
        return self._number

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), self.next(), call))

    def delay(self) -> float:
        self.messages += 1
        return min(self.random.expovariate(1 / self.delay_s), 30 * self.delay_s)

    def pass_until(self, end: float) -> None:
        while self._events and self._events[0][0] < end:
            self.now, _, call = heapq.heappop(self._events)
            self.events += 1
            call()
        self.now = end

    def _fault(self, fault: Fault) -> None:
        queue, back = self.queues[fault.queue], self.now + fault.for_s
        if fault.what == "cut":
            self.cut_until[fault.queue] = back
            if fault.queue in self.links:
                self.links[fault.queue].cut()
        elif fault.what == "stop":
            queue.until = max(queue.until, back)
        elif fault.what == "stop-authority":
            self.master.until = max(self.master.until, back)
        elif fault.what == "kill" and queue.alive:
            queue.alive = False
            if fault.queue in self.links:
                self.links[fault.queue].cut()
            self.at(back, lambda: self.queues.__setitem__(fault.queue, self.started(fault.queue, queue)))
        elif fault.what == "kill-authority" and self.master.alive:
            self.master.alive = False
            for link in list(self.links.values()):
                link.cut()
            self.at(back, lambda: setattr(self, "master", _Master(self, f"era {self.next()}")))
        elif fault.what == "reload":
            self.reload(fault)


class World(Machine):
    """One case, from beginning to end."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.limits = {limit.name: limit for limit in case.limits}
        self.versions: list[tuple[float, dict[str, Limit]]] = [(0.0, dict(self.limits))]
        self.taken: dict[Id, list[tuple[float, float]]] = {}
        self.open: dict[tuple[int, Id], tuple[int, _Queue]] = {}
        self.open_s: dict[Id, float] = {}
        self.broken: list[str] = []
        self.give_back = True
        super().__init__(case.seed, case.queues, case.delay_s, case.faults)

    def started(self, number: int, before: Process | None) -> Process:
        return _Queue(self, number, before)

    def run(self) -> World:
        self.pass_until(self.case.seconds)
        return self

    def record(self, id: Id, cost: float) -> None:
        self.taken.setdefault(id, []).append((self.now, cost))

    def count(self, id: Id) -> None:
        is_open = sum(1 for _, one in self.open if one == id)
        most = max(limits[id[1]].slots for at, limits in self.versions if at >= self._settled_before())
        if is_open > most:
            self.broken.append(f"{self.now:.3f}: {is_open} connections at {id}, of {most}")

    def _settled_before(self) -> float:
        """Of the versions that may hold, the last that surely does."""
        sure = [at for at, _ in self.versions if at + SETTLED_S + LONG_S <= self.now]
        return sure[-1] if sure else -1.0

    def reload(self, fault: Fault) -> None:
        factor = fault.factor
        self.limits = {
            limit.name: Limit(
                limit.name,
                {kind: (size * factor, burst * max(1.0, factor)) for kind, (size, burst) in limit.rates.items()},
                max(1, round(limit.slots * factor)) if limit.slots else 0,
                limit.quota,
            )
            for limit in self.case.limits
        }
        self.versions.append((self.now, dict(self.limits)))
        for queue in self.queues:
            assert isinstance(queue, _Queue)
            queue.at(self.now + self.random.uniform(0, 0.3), lambda queue=queue: (queue.configure(), queue.pump()))

    # -- what is checked

    def check(self) -> list[str]:
        """What was broken, in sentences."""
        for id, taken in self.taken.items():
            if id[0] == QUOTA:
                if len(taken) > self.limits[id[1]].quota:
                    self.broken.append(f"{len(taken)} of quota {id}")
            elif id[0] in RATES:
                versions = [(at, limits[id[1]].rates[id[0]]) for at, limits in self.versions]
                bursts = [burst for _, (_, burst) in versions]
                self._check(id, taken, (max(size for _, (size, _) in versions), max(bursts)), max(bursts) - min(bursts))
                for (at, spec), (end, _) in zip(versions, [*versions[1:], (math.inf, None)], strict=True):
                    settled = at + SETTLED_S if at else 0.0
                    self._check(id, [one for one in taken if settled <= one[0] < end], spec)
        return self.broken

    def _check(self, id: Id, taken: list[tuple[float, float]], spec: tuple[float, float], fuller: float = 0.0) -> None:
        if (found := exceeded(taken, spec, fuller)) is not None:
            size, burst, worst, when = found
            self.broken.append(
                f"{id}: {worst:.3f} more than rate {size:.3f} and burst {burst:.3f} allow, until {when:.3f}"
            )

    def used(self, since: float = 0.0) -> dict[Id, float]:
        """Share of each rate that was used."""
        found = dict[Id, float]()
        for limit in self.limits.values():
            for kind, (size, burst) in limit.rates.items():
                taken = sum(cost for at, cost in self.taken.get((kind, limit.name), ()) if at >= since)
                found[kind, limit.name] = taken / (size * (self.case.seconds - since) + (0 if since else burst))
        return found


def exceeded(
    taken: list[tuple[float, float]], spec: tuple[float, float], fuller: float = 0.0
) -> tuple[float, float, float, float] | None:  # fmt: skip
    """Rate, burst, by how much they were exceeded in the worst interval, and its end. taken: moments and costs. fuller:
    by how much less a smaller burst makes a bucket full, so that a cost above that may go."""
    size, burst = spec
    if not taken:
        return None
    burst = max(burst, fuller + max(cost for _, cost in taken))
    total, least, worst, when, slack = 0.0, math.inf, -math.inf, 0.0, 0.0
    for at, cost in taken:
        least = min(least, total - size * at)
        total += cost
        slack += 2e-6 * size
        excess = total - size * at - least - burst
        if excess > worst:
            worst, when = excess, at
    return (size, burst, worst, when) if worst > 1e-3 + slack + SLACK_S * size else None


def random_case(random: random.Random, faults: bool = True, seconds: float = 20.0) -> Case:
    """Anything: few or many queues, limits and flows, tiny and large."""
    if random.random() < 0.5:
        return _one_limit(random, faults, seconds)
    queues = random.randint(1, 5)
    limits = [_random_limit(random, f"limit-{number}") for number in range(random.randint(1, 4))]
    demands = [
        (queue, _random_demand(random, [limit.name for limit in limits]))
        for queue in range(queues)
        for _ in range(random.randint(0 if queue else 1, 3))
    ]
    case = Case(random.randrange(1 << 30), queues, limits, demands, seconds=seconds)
    case.delay_s = random.choice([0.0003, 0.001, 0.01, 0.05])
    if faults:
        case.faults = [_random_fault(random, queues, seconds) for _ in range(random.randint(0, 8))]
    return case


def _one_limit(random: random.Random, faults: bool, seconds: float) -> Case:
    """Of one kind, which all queues want all the time."""
    queues, kind = random.randint(2, 4), random.choice([*RATES, SLOTS, QUOTA])
    size = random.choice([0.2, 1, 3, 20])
    limit, costs = Limit("limit"), [1.0, 1.0, 1.0, 1.0]
    if kind in RATES:
        limit.rates[kind] = size, random.choice([1, 1.5, 5, 20])
        costs[RATES.index(kind)] = random.choice([1, 3, 10]) if kind in ("recipients", "bytes") else 1
    elif kind == SLOTS:
        limit.slots = random.randint(1, 4)
    else:
        limit.quota = random.choice([1, 5, 100, 1000])
    demand = Demand(["limit"], (costs[0], costs[1], costs[2], costs[3]), 50, random.choice([0.05, 0.3, LONG_S / 2]))
    case = Case(random.randrange(1 << 30), queues, [limit], [(queue, demand) for queue in range(queues)])
    case.seconds = seconds
    if faults:
        case.faults = [_random_fault(random, queues, seconds) for _ in range(random.randint(1, 8))]
    return case


def _random_limit(random: random.Random, name: str) -> Limit:
    limit = Limit(name)
    for kind in random.sample(RATES, random.randint(0, 2)):
        size = random.choice([0.05, 0.5, 1, 3, 10, 50, 300]) * random.uniform(1, 2)
        if kind == "bytes":
            size *= 1000
        limit.rates[kind] = size, max(1.0, size) if random.random() < 0.5 else random.choice([1, 2, 5, size, 3 * size])
    if random.random() < 0.5 or not limit.rates:
        limit.slots = random.choice([1, 1, 2, 3, 5, 20])
    if random.random() < 0.2:
        limit.quota = random.choice([1, 3, 10, 50, 1000])
    return limit


def _random_demand(random: random.Random, names: list[str]) -> Demand:
    costs = 1.0, random.choice([1.0, 1.0, 5.0]), 1.0, random.choice([1.0, 100.0, 3000.0])
    demand = Demand(random.sample(names, random.randint(1, min(3, len(names)))), costs, random.choice([1, 3, 50]))
    demand.holds_s = random.choice([0.01, 0.1, LONG_S / 2])
    if random.random() < 0.4:
        demand.on_s, demand.off_s = random.choice([0.2, 2.0]), random.choice([0.2, 4.0])
    return demand


def _random_fault(random: random.Random, queues: int, seconds: float) -> Fault:
    what = random.choice(
        ["cut", "kill", "stop", "stop", "kill-authority", "kill-authority", "stop-authority", "reload"]
    )
    fault = Fault(random.uniform(0, seconds), what, random.randrange(queues), random.choice([0.01, 0.5, 2.2, 4.0]))
    fault.factor = random.choice([0.3, 0.9, 1.5, 4.0])
    return fault


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").replace("\n", " "))
    parser.add_argument("--cases", type=int, default=1000, help="how many are tried")
    parser.add_argument("--first", type=int, default=0, help="the number of the first; each number is always the same")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated, of each")
    options = parser.parse_args()
    began, events, broken = time.monotonic(), 0, 0
    for number in range(options.first, options.first + options.cases):
        case = random_case(random.Random(number), seconds=options.seconds)
        world = World(case).run()
        events += world.events
        if found := world.check():
            broken += 1
            print(f"case {number}: {found[0]}\n  {case}")
    took = time.monotonic() - began
    print(f"{options.cases:,} cases, {events:,} events, {took:,.0f} s: {broken} with a limit that was exceeded")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
