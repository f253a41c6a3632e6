"""Several queues' schedules in simulated time, with everything that decides about limits as it is in the server:
schedule, zones, throttles, warm-ups, idle connections, steady clock, holder and authority. Disk, network, senders and
servers are not there: what is leased goes over connections that are counted, and ends after a while.

What goes is noted by whom it belongs to, as the configuration says it and not as the server counts it, and compared
with what each limit allows in every interval.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from sharing import SETTLED_S, Fault, Machine, Process, exceeded

from restraint.configurations import DOMAINS, Configuration, Stream, site_of
from zonemta_py.config import Config, Throttle, rate
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.notes import Note
from zonemta_py.queues.grants.holder import GrantHolder
from zonemta_py.queues.shared_limits import SharedLimits
from zonemta_py.schedule.batch import Batch, EgressPath, Entry, FlowQueue
from zonemta_py.schedule.flow import flow_text
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.shared import QueueCallbacks
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.schedule.time.steady import Steady
from zonemta_py.zones.site import Site
from zonemta_py.zones.throttle import Scope

EPOCH_S = 1_700_000_000.0
AHEAD = 16
"""Messages of a stream that wait in memory."""
LATENESS_S = 0.003
"""The schedule looks so much later than it meant to, at most."""
POSITION_S = 2.0
IDLE_S = 1.0
BEGIN_S = 3.0
RECOVERY_S = 3.0
"""So long after a disturbance is over, all limits are used again."""
SAMPLE_S = 0.02
REMEMBERED_S = 5.0
RESERVE = 4
"""That part of a zone's connections is kept from destinations that have some already."""
LONG_S = 4.0
"""No connection is open for longer once there are to be fewer."""
KINDS = ("messages", "recipients", "new_connections", "bytes")

Key = tuple[str, ...]
"""Name of a throttle, and the values that it counts by."""


Name = tuple[Key, str]
"""Of one limit: whose, and of which kind (one of KINDS, "connections", or "leases" of a zone)."""


class Mean:
    """Of a value, over REMEMBERED_S or so."""

    def __init__(self) -> None:
        self._mean, self._at = 0.0, 0.0

    def of(self, value: float, now: float) -> float:
        """It has been that since the last call."""
        kept = math.exp((self._at - now) / REMEMBERED_S)
        self._mean, self._at = kept * self._mean + (1 - kept) * value, now
        return self._mean


class Allowance:
    """What is there of one rate, by all that went."""

    def __init__(self, size: float, burst: float, now: float) -> None:
        self.size, self.burst, self._level, self._at = size, burst, burst, now
        self._speed, self._speed_at = 0.0, now

    def speed(self, now: float) -> float:
        """How much of it went a second, over REMEMBERED_S or so."""
        self._speed *= math.exp((self._speed_at - now) / REMEMBERED_S)
        self._speed_at = now
        return self._speed

    def level(self, now: float) -> float:
        self._level = min(self.burst, self._level + (now - self._at) * self.size)
        self._at = now
        return self._level

    def take(self, now: float, cost: float) -> None:
        self._level = self.level(now) - cost
        self._speed = self.speed(now) + cost / REMEMBERED_S

    def change(self, size: float, burst: float, now: float) -> None:
        self._level = min(self.level(now), burst)
        self.size, self.burst = size, burst


class Use:
    """Of one limit, in its units: what it allowed while there was mail that only it could hold up, and how much of
    that was lost: nobody took it although mail waited."""

    def __init__(self) -> None:
        self.wanted = self.lost = self.calm_wanted = self.calm_lost = 0.0
        self.calm_s = 0.0
        """For how long there was such mail."""

    def add(self, wanted: float, lost: float, calm: bool) -> None:
        self.calm_s += SAMPLE_S if calm else 0.0
        self.wanted += wanted
        self.lost += lost
        if calm:
            self.calm_wanted += wanted
            self.calm_lost += lost

    @property
    def overall(self) -> float:
        return 1 - self.lost / self.wanted if self.wanted else 1.0

    @property
    def calm(self) -> float:
        """Outside of disturbances, and RECOVERY_S after them."""
        return 1 - self.calm_lost / self.calm_wanted if self.calm_wanted else 1.0


class MachineClock(Clock):
    """The machine's clocks; somebody may set the one that can be set."""

    def __init__(self, world: Simulation) -> None:
        self._world = world

    def ms(self) -> int:
        return int((EPOCH_S + self._world.now + self._world.clock_set_s) * 1000)

    def monotonic(self) -> float:
        return 1000.0 + self._world.now

    def boot(self) -> str:
        return "first"

    def random(self) -> float:
        return self._world.random.random()


class Dns:
    """A resolver that knows all domains."""

    async def site(self, domain: str, now: float) -> Site:
        return await site_of(domain)


class Connection:
    """name: the lease that opened it. at: limits that count it, by its latest mail. idle: none goes over it now."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.at: list[Key] = []
        self.open = True
        self.idle = False
        self.used = 0


class Queue(Process):
    """A process of a queue, with its senders. before: the process before it."""

    world: Simulation

    def __init__(self, world: Simulation, number: int, before: Process | None) -> None:
        super().__init__(world, number)
        assert before is None or isinstance(before, Queue)
        self.journal: list[tuple[int, str, str, str, int, int]] = []
        """Leases since the last position."""
        self._streams = [stream for stream in world.configuration.streams if stream.queue == number]
        self._waiting = dict.fromkeys(self._streams, 0)
        self._of: dict[str, Stream] = {}
        self._idle: dict[EgressPath, list[Connection]] = defaultdict(list)
        self._connections: dict[int, Connection] = {}
        self._lease = before._lease if before else 0
        self._looking = math.inf
        self._kept = before._kept if before else None
        clock = MachineClock(world)
        self.clock = Steady(clock, self._kept["clock"] if self._kept else None, clock.ms() if before else 0)
        callbacks = QueueCallbacks(
            rekey=_never, changed=self.soon, unpin=_nothing, requeued=_never, record=_nothing, looked_up=_nothing,
            terms_of=lambda id: {"size": self._of[id].size}, halted=lambda: (), rehome=_never,
        )  # fmt: skip
        self._dns = Dns()
        self.schedule = Schedule(world.config(number), world.store, {}, self.clock, self._dns, callbacks)
        asyncio.run(self._look_up())
        if before is not None:
            self._recover(before)
        self.holder = GrantHolder(f"{number}/{world.next()}", world.queue_count, haunted=before is not None)
        self.limits = SharedLimits(self.schedule, self.holder, []) if world.queue_count > 1 else None
        if before is not None:
            before.end_senders()
            self.at(world.now + 0.2, lambda: self._exorcise(before))
        self._position()
        for stream in self._streams:
            for start, _ in stream.spans:
                if start > world.now:
                    self.at(start, lambda stream=stream: self._begins(stream))
            for _, end in stream.spans:
                if end < math.inf:
                    self.at(end, lambda stream=stream: self._ends(stream))
            self._begins(stream)
        if self.limits is not None:
            self.reconnect()

    @property
    def now(self) -> float:
        return self.clock.steady()

    async def _look_up(self) -> None:
        for domain in DOMAINS:
            done = asyncio.Event()
            self.schedule.sites.look(domain, lambda found, done=done: done.set())
            await done.wait()

    # -- limits

    def take(self, message: tuple[object, ...]) -> None:
        assert self.limits is not None
        self.limits.heard(message)

    def next_message(self) -> tuple[object, ...] | None:
        return self.limits.next_message() if self.limits is not None else None

    def configure(self) -> None:
        """Another configuration."""
        out = list(self.world.out.get(self, {}).values())
        self.schedule.configure(self.world.config(self.number), self._dns, out)
        self.soon()

    # -- ends and beginnings

    def _position(self) -> None:
        schedule = self.schedule
        self._kept = {
            "admission": schedule.admission.state(), "policy": schedule.policy.state(), "clock": self.clock.state(),
        }  # fmt: skip
        self.journal = []
        self.at(self.world.now + POSITION_S, self._position)

    def _recover(self, before: Queue) -> None:
        """As `recovery.start` does it."""
        assert self._kept is not None
        self.schedule.admission.restore(self._kept["admission"])
        self.schedule.policy.restore(self._kept["policy"])
        for ms, zone, place, provider, recipients, size in before.journal:
            self.schedule.charge_again(zone, place, provider, recipients, size, ms)

    def end_senders(self) -> None:
        """The process has ended, and its senders close what is idle, and the rest when it is done with."""
        for connection in list(self._connections.values()):
            if connection.idle:
                self.world.at(
                    self.world.now + self.world.random.uniform(0, 0.3), connection_closer(self.world, connection)
                )

    def _exorcise(self, before: Queue) -> None:
        if any(one.open for one in before._connections.values()):
            self.at(self.world.now + 0.1, lambda: self._exorcise(before))
            return
        self.holder.exorcise()
        self.pump()
        self.soon()

    # -- demand

    def _begins(self, stream: Stream) -> None:
        self._feed(stream)
        self.soon()

    def _ends(self, stream: Stream) -> None:
        zone = self.schedule.zones[stream.zone]
        for flow_queue in list(zone.flow_queues.by_key.values()):
            gone = zone.withdraw(flow_queue, lambda entry: self._of[entry.id] is stream)
            self._waiting[stream] -= len(gone)

    def _feed(self, stream: Stream) -> None:
        if not any(start <= self.world.now < end for start, end in stream.spans):
            return
        zone = self.schedule.zones[stream.zone]
        note = Note(flow=flow_text(0, stream.tenant, stream.campaign))
        while self._waiting[stream] < AHEAD * stream.recipients:
            id = f"{self.world.next():016x}"
            self._of[id] = stream
            addresses = [f"{number}@{stream.domain}" for number in range(stream.recipients)]
            flow_queue = zone.flow_queues.of(id, addresses[0], note)
            entries = [Entry(keys.fresh(stream.zone, id, address), id, address, note) for address in addresses]
            self._waiting[stream] += len(entries)
            zone.put_new(flow_queue, entries)

    def waiting(self) -> list[FlowQueue]:
        """All that has mail."""
        return [one for zone in self.schedule.zones.values() for one in zone.flow_queues.by_key.values() if one.entries]

    def size_of(self, entry: Entry) -> int:
        return self._of[entry.id].size

    def has_idle(self, path: EgressPath) -> bool:
        return bool(self._idle.get(path))

    # -- leases

    def soon(self) -> None:
        """Something may be allowed now that was not before."""
        self._look_at(self.world.now + self.world.random.uniform(0.0001, LATENESS_S))

    def _look_at(self, when: float) -> None:
        if when < self._looking or self._looking <= self.world.now:
            self._looking = when
            self.at(when, lambda: self._look(when))

    def _look(self, when: float) -> None:
        if self._looking != when:
            return
        self._looking = math.inf
        now = self.now
        self.schedule.timers.wake(now)
        more = self.schedule.fill(round(now * 1000))
        while not self.holder.haunted and (batch := self.schedule.next()) is not None:
            self._leased(batch)
        if self.limits is not None:
            self.pump()
        if more:
            self.soon()
        self._look_at(
            self.world.now + max(0.001, self.schedule.next_wake(now)) + self.world.random.uniform(0, LATENESS_S)
        )

    def _leased(self, batch: Batch) -> None:
        world, admission, stream = self.world, self.schedule.admission, self._of[batch.entries[0].id]
        assert batch.refusal is None
        self._lease += 1
        batch.worker, batch.number = "sender", self._lease
        counted = admission.connection(batch) if batch.limits or batch.idle_connection else None
        idle_s = admission.idle_s(batch, admission.most(batch.flow_queue).idle_s)
        self._waiting[stream] -= len(batch.entries)
        self._feed(stream)
        scope, place = batch.flow_queue.scope, batch.flow_queue.key
        taken_ms = math.floor((batch.taken or self.now) * 1000)
        self.journal.append((taken_ms, scope.zone, place, scope.provider, len(batch.entries), stream.size))
        world.out[self][self._lease] = batch
        world.zone_leases[scope.zone] += 1
        connection = self._connection(batch, counted)
        if connection is None:  # its sender has none for it, and gives it back
            self.at(world.now + world.delay(), lambda: self._untried(batch))
            return
        opened = not connection.used
        connection.used += 1
        connection.idle = False
        world.passes_on(connection, scope)
        world.went(scope, len(batch.entries), stream.size, opened, self)
        world.check_zone(scope.zone)
        took = world.random.uniform(0.3, 1.7) * world.configuration.holds_s

        def delivered() -> None:
            world.zone_leases[scope.zone] -= 1
            if not self.alive:
                world.close(connection)
                return
            self._idles(batch.path, connection, idle_s)
            self.at(world.now + world.delay(), lambda: self._settled(batch, connection, opened, idle_s, counted, took))

        world.at(world.now + took, delivered)

    def _connection(self, batch: Batch, counted: int | None) -> Connection | None:
        """The one that its sender uses; None: it has none, and may not open one."""
        every = self._idle[batch.path]
        if counted:
            named = self._connections.get(counted)
            if named is not None and named.open and named.idle:
                every.remove(named)
                return named
        elif counted is None and every:
            return every.pop()
        if not batch.connect:
            return None
        made = self._connections[batch.number] = Connection(batch.number)
        return made

    def _idles(self, path: EgressPath, connection: Connection, idle_s: float) -> None:
        """Its sender keeps it for so long."""
        world = self.world
        if not idle_s:
            world.close(connection)
            return
        connection.idle = True
        self._idle[path].append(connection)
        used = connection.used

        def over() -> None:
            if connection.open and connection.idle and connection.used == used:
                if connection in self._idle[path]:
                    self._idle[path].remove(connection)
                world.close(connection)
                self.at(world.now + world.delay(), lambda: self._closed(connection))

        world.at(world.now + idle_s, over)

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection.name, None)
        if self.schedule.admission.idle.closed(connection.name):
            self.soon()

    def _settled(
        self, batch: Batch, connection: Connection, opened: bool, idle_s: float, counted: int | None, took: float
    ) -> None:  # fmt: skip
        kept, admission = bool(idle_s), self.schedule.admission
        name = connection.name if kept and counted is not None else 0
        admission.idle.report(batch, name, kept)
        batch.zone.took(batch.path, round(took * 1000), 0)
        admission.unused(batch, opened, True, kept)
        batch.path.concurrency.succeeded(batch.path.active)
        self._done(batch)

    def _untried(self, batch: Batch) -> None:
        self.world.zone_leases[batch.zone.zone.name] -= 1
        admission = self.schedule.admission
        admission.idle.report(batch, 0, False)
        admission.unused(batch, False, False, False)
        self._done(batch)
        stream = self._of[batch.entries[0].id]
        self._waiting[stream] += len(batch.entries)
        batch.zone.put_back(batch, batch.entries)

    def _done(self, batch: Batch) -> None:
        del self.world.out[self][batch.number]
        batch.zone.done(batch)
        self.soon()


def connection_closer(world: Simulation, connection: Connection) -> Any:
    return lambda: world.close(connection) if connection.open and connection.idle else None


def _never(*_: Any) -> None:
    raise AssertionError("nothing is parked here")


def _nothing(*_: Any) -> None:
    """Nobody wants to know."""


class Simulation(Machine):
    """One configuration, from beginning to end."""

    def __init__(self, configuration: Configuration, folder: Path) -> None:
        self.configuration = configuration
        self.store = Store(folder)
        self.clock_set_s = 0.0
        self._factors = iter(configuration.factors)
        self._base = Config.model_validate(self._document(configuration.throttles))
        self.versions: list[tuple[float, dict[str, Throttle]]] = [(0.0, self._throttles())]
        self.taken: dict[tuple[Key, str], list[tuple[float, float]]] = defaultdict(list)
        self.level: dict[Key, list[tuple[float, int]]] = defaultdict(lambda: [(0.0, 0)])
        """How many connections were open from when on."""
        self.used: dict[Name, Use] = defaultdict(Use)
        self.starved: dict[tuple[Key, int], float] = defaultdict(float)
        """For how long a queue with mail has had nothing of a limit of one connection, in calm seconds, at most."""
        self._starving: dict[tuple[Key, int], float] = defaultdict(float)
        self._there: dict[Name, Allowance] = {}
        self._occupied: dict[Name, Mean] = defaultdict(Mean)
        """Which share of connections was in use."""
        self._calm = self._quiet_spans()
        self.out: dict[Queue, dict[int, Batch]] = defaultdict(dict)
        self.zone_leases: dict[str, int] = defaultdict(int)
        self.broken: list[str] = []
        self._applying: dict[Scope, list[tuple[Key, str]]] = {}
        super().__init__(configuration.number, configuration.queues, configuration.delay_s, configuration.faults)
        self.at(BEGIN_S, self._sample)

    def run(self) -> Simulation:
        self.pass_until(self.configuration.seconds)
        self.store.close()
        return self

    # -- configuration

    def _document(self, throttles: list[dict[str, Any]]) -> dict[str, Any]:
        zones = [
            zone | {"idle_s": IDLE_S, "connections_per_destination": 100, "recipients_per_delivery": 20}
            for zone in self.configuration.zones
        ]
        server = {"folder": "/nowhere", "hostname": "mta.test", "queues": self.configuration.queues}
        return {
            "server": server, "zones": zones, "throttles": throttles, "learning": {"initial": 100},
            "suppression": {"automatic": False},
        }  # fmt: skip

    def config(self, number: int) -> Config:
        return self._base.for_queue(number, Path("/nowhere"))

    def _throttles(self) -> dict[str, Throttle]:
        return {throttle.name: throttle for throttle in self._base.throttles}

    def started(self, number: int, before: Process | None) -> Process:
        return Queue(self, number, before)

    def reload(self, fault: Fault) -> None:
        tables = []
        for table, factor in zip(self.configuration.throttles, next(self._factors), strict=True):
            changed = dict(table)
            for kind in KINDS:
                if kind in changed:
                    amount = rate(changed[kind])
                    a_minute = amount.amount / amount.seconds * 60 * factor
                    changed[kind] = f"{a_minute:.0f}{'B' if kind == 'bytes' else ''}/min"
            if "connections" in changed:
                changed["connections"] = max(1, round(changed["connections"] * factor))
            tables.append(changed)
        self._base = Config.model_validate(self._document(tables))
        self.versions.append((self.now, self._throttles()))
        for queue in self.queues:
            assert isinstance(queue, Queue)
            queue.at(self.now + self.random.uniform(0, 0.3), queue.configure)

    def _fault(self, fault: Fault) -> None:
        if fault.what == "clock":
            self.clock_set_s += fault.factor
        super()._fault(fault)

    # -- whom what goes belongs to

    def limits_of(self, scope: Scope) -> Iterator[tuple[Key, Throttle]]:
        """By what the configuration says."""
        found = self._applying.get(scope)
        throttles = self.versions[-1][1]
        if found is None:
            found = self._applying[scope] = [
                ((throttle.name, *(_value(scope, dimension) for dimension in throttle.per)), throttle.name)
                for throttle in throttles.values()
                if all(fnmatchcase(getattr(scope, dimension), pattern) for dimension, pattern in throttle.only.items())
            ]
        return ((key, throttles[name]) for key, name in found)

    def went(self, scope: Scope, recipients: int, size: int, opened: bool, queue: Queue) -> None:
        costs = {"messages": 1, "recipients": recipients, "new_connections": int(opened), "bytes": size}
        for key, throttle in self.limits_of(scope):
            for kind, cost in costs.items():
                if cost and getattr(throttle, kind):
                    self.taken[key, kind].append((self.now, cost))
                    self._allowance(key, kind, throttle).take(self.now, cost)
            self._starving.pop((key, queue.number), None)

    def passes_on(self, connection: Connection, scope: Scope) -> None:
        """Mail of that scope goes over it now."""
        before, connection.at = connection.at, [key for key, one in self.limits_of(scope) if one.connections]
        self.count([key for key in before if key not in connection.at], -1)
        self.count([key for key in connection.at if key not in before], 1)

    def count(self, keys: list[Key], more: int) -> None:
        for key in keys:
            level = self.level[key]
            level.append((self.now, level[-1][1] + more))
            if more > 0:
                most = max(throttles[key[0]].connections for at, throttles in self.versions if at >= self._sure())
                if level[-1][1] > most:
                    self.broken.append(f"{self.now:.3f}: {level[-1][1]} connections at {key}, of {most}")

    def close(self, connection: Connection) -> None:
        if connection.open:
            connection.open = False
            self.count(connection.at, -1)

    def check_zone(self, name: str) -> None:
        most = next(zone["connections"] for zone in self.configuration.zones if zone["name"] == name)
        if self.zone_leases[name] > most:
            self.broken.append(f"{self.now:.3f}: {self.zone_leases[name]} leases of zone {name}, of {most}")

    def _sure(self) -> float:
        """Of the versions that may hold, when the last began that surely does."""
        sure = [at for at, _ in self.versions if at + SETTLED_S + LONG_S <= self.now]
        return sure[-1] if sure else -1.0

    # -- what is judged

    def check(self) -> list[str]:
        """What was exceeded, in sentences."""
        for (key, kind), taken in self.taken.items():
            specs = [(at, _spec(throttles[key[0]], kind)) for at, throttles in self.versions]
            bursts = [burst for _, (_, burst) in specs]
            loosest = max(size for _, (size, _) in specs), max(bursts)
            found = exceeded(taken, loosest, max(bursts) - min(bursts))
            for (at, spec), (end, _) in pairwise([*specs, (math.inf, (0.0, 0.0))]):
                settled = at + SETTLED_S if at else 0.0
                found = found or exceeded([one for one in taken if settled <= one[0] < end], spec)
            if found is not None:
                size, burst, worst, when = found
                self.broken.append(
                    f"{kind} of {key}: {worst:.3f} more than rate {size:.3f} and burst {burst:.3f}, until {when:.3f}"
                )
        return self.broken

    def _quiet_spans(self) -> list[tuple[float, float]]:
        """Spans without a disturbance, and without what comes after one. A change of the machine's clock is none."""
        at, found = BEGIN_S, list[tuple[float, float]]()
        for fault in sorted(self.configuration.faults, key=lambda fault: fault.at):
            if fault.what == "clock":
                continue
            if fault.at > at:
                found.append((at, fault.at))
            at = max(at, fault.at + fault.for_s + RECOVERY_S)
        return [*found, (at, math.inf)]

    def _allowance(self, key: Key, kind: str, throttle: Throttle) -> Allowance:
        spec, found = _spec(throttle, kind), self._there.get((key, kind))
        if found is None:
            found = self._there[key, kind] = Allowance(*spec, self.now)
        elif (found.size, found.burst) != spec:
            found.change(*spec, self.now)
        return found

    def _sample(self) -> None:
        """Looks what waits, and for what."""
        self.at(self.now + SAMPLE_S, self._sample)
        if self.now < BEGIN_S:
            return
        wanted, hungry = dict[Name, tuple[float, float]](), set[tuple[Key, int]]()
        for queue in self.queues:
            assert isinstance(queue, Queue)
            if queue.alive and queue.until <= self.now:
                for flow_queue in queue.waiting():
                    self._look_at(flow_queue, queue, wanted, hungry)
        calm = any(start <= self.now < end for start, end in self._calm)
        for name, (size, lost) in wanted.items():
            self.used[name].add(size * SAMPLE_S, lost * SAMPLE_S, calm)
        for starving in list(self._starving):
            if starving not in hungry:
                del self._starving[starving]
        if calm:
            for starving in hungry:
                self._starving[starving] += SAMPLE_S
                self.starved[starving] = max(self.starved[starving], self._starving[starving])

    def _look_at(
        self, flow_queue: FlowQueue, queue: Queue, wanted: dict[Name, tuple[float, float]], hungry: set[tuple[Key, int]]
    ) -> None:  # fmt: skip
        """Which limits alone could hold it up now."""
        scope, size = flow_queue.scope, queue.size_of(flow_queue.entries[0])
        opens = not queue.has_idle(flow_queue.path)
        costs = {"messages": 1, "recipients": 1, "new_connections": int(opens), "bytes": size}
        most = next(zone["connections"] for zone in self.configuration.zones if zone["name"] == scope.zone)
        usable = most - most // RESERVE
        leases, busy = self.zone_leases[scope.zone], dict[Name, float]()
        busy[(scope.zone,), "leases"] = self._occupied[(scope.zone,), "leases"].of(leases / usable, self.now)
        every: list[tuple[Name, bool, float, float]] = [
            (((scope.zone,), "leases"), leases < usable, usable, max(0, usable - leases))
        ]
        for key, throttle in self.limits_of(scope):
            for kind, cost in costs.items():
                if cost and getattr(throttle, kind):
                    one = self._allowance(key, kind, throttle)
                    level = one.level(self.now)
                    busy[key, kind] = one.speed(self.now) / one.size
                    full = level >= one.burst - 1e-9
                    enough = min(cost * self.queue_count, one.burst)  # each queue has too little of a part of less
                    every.append(((key, kind), level >= enough - 1e-9, one.size, one.size * full))
            if throttle.connections and opens:
                free = throttle.connections - self.level[key][-1][1]
                busy[key, "connections"] = self._occupied[key, "connections"].of(
                    1 - free / throttle.connections, self.now
                )
                every.append(((key, "connections"), free > 0, throttle.connections, max(0, free)))
        closed = [name for name, room, _, _ in every if not room]
        narrowest = max((name for name, *_ in every), key=busy.__getitem__)
        for name, _, whole, lost in every:
            if not closed or closed == [name]:
                if name == narrowest:
                    wanted[name] = whole, max(lost, wanted.get(name, (0.0, 0.0))[1])
                if whole == 1 and name[1] == "connections":
                    hungry.add((name[0], queue.number))


def _value(scope: Scope, dimension: str) -> str:
    """A site without a provider is one by itself."""
    return str(getattr(scope, dimension) or (scope.site if dimension == "provider" else ""))


def _spec(throttle: Throttle, kind: str) -> tuple[float, float]:
    amount = rate(getattr(throttle, kind))
    a_second = amount.amount / amount.seconds
    return a_second, throttle.burst or max(1.0, a_second)


def simulated(configuration: Configuration) -> Simulation:
    """Runs it."""
    with tempfile.TemporaryDirectory(prefix="zonemta-limits-") as folder:
        return Simulation(configuration, Path(folder)).run()
