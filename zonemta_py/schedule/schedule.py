"""The schedule: all zones in turns, and the clock for whatever waits for a moment.

Zones take turns; within each, `zone.py` says who is next, and `admission/admission.py` whether that is allowed. Time is
steady seconds (`now`) for rests and limits, UNIX milliseconds for due times.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from time import thread_time

from zonemta_py.config import Config, Zone
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.mail.reroute import ZONE
from zonemta_py.schedule.admission.grants import Grants
from zonemta_py.schedule.batch import Batch, Blocked, FlowQueue
from zonemta_py.schedule.flow import FlowId, split_key
from zonemta_py.schedule.pull_zone import PullZone
from zonemta_py.schedule.reroutes import places
from zonemta_py.schedule.shared import QueueCallbacks, Shared
from zonemta_py.schedule.sites import DestinationResolver
from zonemta_py.schedule.source_health import SourceHealth
from zonemta_py.schedule.time.clock import AT_ONCE, Clock
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones import pull
from zonemta_py.zones.throttle import Scope

FILL_S = 0.003
"""Zones read on for so long before the event loop has its turn: processor time."""


class Schedule(Shared):
    """All zones."""

    def __init__(
        self,
        config: Config,
        store: Store,
        marks: dict[str, dict[str, bytes]],
        clock: Clock,
        resolver: DestinationResolver | None,
        queue: QueueCallbacks,
    ) -> None:
        super().__init__(config, clock, resolver, queue)
        self._store = store
        self.zones: dict[str, ZoneSchedule] = {}
        self.stirred: set[PullZone] = set()
        """Pull zones from which somebody waits to take something, and where there may be something."""
        self.foreign: set[str] = set()
        """Zones that the configuration lacks (`add_foreign`)."""
        self.source_health = SourceHealth(self, self._redirect)
        self._awaited: set[str] = set()  # all those where somebody waits, also if there is no such zone yet
        for zone in config.zones:
            self._add(zone, marks.get(zone.name, {}))
        self._in_turn()

    def _add(self, zone: Zone, marks: dict[str, bytes]) -> None:
        kept = (self._store, self.busy, marks, self)
        self.zones[zone.name] = PullZone(zone, *kept, self.stirred) if zone.pulled else ZoneSchedule(zone, *kept)

    def _in_turn(self) -> None:
        self._sent = [zone for zone in self.zones.values() if not zone.zone.pulled]
        self._turns, self._fills = deque(self._sent), deque(self._sent)

    def configure(self, config: Config, resolver: DestinationResolver | None, out: list[Batch]) -> None:
        """Other settings from now on, all at once: what waits, what is stopped and what was learned stays.

        out: the leases that are out. Zones that `config` lacks, or whose kind it changes, must be empty.
        """
        limits_changed = config.throttles != self.config.throttles
        self.source_health.configure(self.config.source_addresses, config.source_addresses)
        super()._configure(config, resolver)
        for name, place in list(self.zones.items()):
            zone = pull.settings_of(config, name)
            if zone is None and name in self.foreign:
                continue
            self.foreign.discard(name)
            if zone is None or zone.pulled != place.zone.pulled:
                del self.zones[name]
                self.stirred.discard(place)
        if limits_changed:  # all limits of zones first: leases count there too
            for name, place in self.zones.items():
                place.limits = self.admission.zone_limits(name)
            self.admission.count_out(out)
        for zone in config.zones:
            if zone.name in self.zones:
                self.zones[zone.name].configure(zone)
            else:
                self._add(zone, {})
        for name in filter(pull.is_made, self.zones):
            self.zones[name].configure(self.zones[name].zone)
        self._in_turn()
        self._share_zones()
        self.lift()

    def add_foreign(self, name: str, marks: dict[str, bytes] | None = None) -> None:
        """A zone that the configuration lacks, whose mail waits here until another node has it: as the default zone is,
        and nothing of it is sent."""
        zone = self.config.default_zone.model_copy(update={"name": name, "default": False})
        self._add(zone, marks or {})
        self.foreign.add(name)
        self._in_turn()

    def drop_foreign(self, name: str) -> None:
        """Its mail is in another zone now."""
        self.foreign.discard(name)
        del self.zones[name]
        self._in_turn()

    def set_away(self, zones: dict[str, str]) -> None:
        """Zones of which nothing is sent from here, and why; all others go on."""
        away, now_ms = self.admission.away, self.now_ms()
        gone = away.keys() - zones.keys()
        for name in gone:
            del away[name]
        changed = bool(gone)
        for name, why in zones.items():
            before = away.get(name)
            if before is None or before.cause != why:
                away[name] = Blocked("away", why, math.inf, before.since_ms if before is not None else now_ms)
                changed = True
        if changed:
            self.lift()

    def share(self, grants: Grants, out: list[Batch]) -> None:
        """Other queues share all limits from now on. out: the leases that are out."""
        self.admission.share(grants)
        for zone in self.zones.values():
            zone.limits = self.admission.zone_limits(zone.zone.name)
            for flow_queue in zone.flow_queues.by_key.values():
                flow_queue.limits = zone.flow_queues.limits_of(flow_queue.path, flow_queue.flow_id)
        self.admission.count_out(out)
        self._share_zones()

    def _share_zones(self) -> None:
        if self.admission.grants is not None:
            for zone in self._sent:
                zone.share(self.admission.grants)

    def pull_zone(self, name: str) -> PullZone | None:
        """The pull zone of that name; None: there is none."""
        zone = self.zones.get(name)
        return zone if isinstance(zone, PullZone) else None

    def make(self, name: str, marks: dict[str, bytes] | None = None) -> PullZone:
        """The pull zone of a queue without a table of its own, made if there is none."""
        zone = self.pull_zone(name)
        if zone is None:
            zone = PullZone(pull.made(name), self._store, self.busy, marks or {}, self, self.stirred)
            self.zones[name] = zone
            self.awaits(name, name in self._awaited)
        return zone

    def awaits(self, name: str, somebody: bool) -> None:
        """Whether somebody waits to take something from a pull zone."""
        (self._awaited.add if somebody else self._awaited.discard)(name)
        zone = self.pull_zone(name)
        if zone is not None:
            zone.awaits(somebody)

    def drop(self, zone: PullZone) -> None:
        """A queue without a table of its own has nothing left."""
        zone.awaits(False)
        del self.zones[zone.zone.name]

    def next(self) -> Batch | None:
        """What a sender may deliver now."""
        for _ in range(len(self._turns)):
            zone = self._turns[0]
            self._turns.rotate(-1)
            batch = zone.next()
            if batch is not None:
                return batch
        return None

    def fill(self, now_ms: int) -> bool:
        """Every zone of which mail is sent reads more where it has room, by turns; True: call again soon."""
        if self.reroutes.seen != self.policy.rerouted or self.now() >= self.reroutes.until:
            self._reroute()
        more, until = False, thread_time() + FILL_S if len(self._sent) > 1 else 0.0
        for number, _ in enumerate(self._sent):
            if number and thread_time() >= until:
                return True
            zone = self._fills[0]
            self._fills.rotate(-1)
            more |= zone.fill(now_ms)
        return more

    def _reroute(self) -> None:
        """Reroutes may have begun or ended: what waits goes the way that it has now."""
        changed = self.reroutes.look(self.policy)
        self.wake_at(self.reroutes.until, self.changed)
        if not changed:
            return
        found = dict[FlowQueue, None]()
        for zone in self._sent:
            about = set[str]()
            for one in changed:
                of, names = places(one)
                if of in ("", zone.zone.name) or one.to[:2] == (ZONE, zone.zone.name):
                    about |= names
            found |= dict.fromkeys(zone.go_around(about) if about else ())
        self.lift()
        self._move(iter(found))

    def flow_queues(self) -> Iterator[FlowQueue]:
        """They may come and go meanwhile."""
        for zone in list(self.zones.values()):
            yield from list(zone.flow_queues.by_key.values())

    def charge_again(self, zone: str, place: str, provider: str, recipients: int, size: int, ms: int) -> None:
        """A lease that was given before the process ended, and is in no saved state of the limits."""
        site, source, flow = split_key(place)
        flow_id = FlowId.of(flow)
        self.admission.charge_again(
            Scope(zone, source, site, provider, flow_id.tenant, flow_id.campaign), recipients, size, ms
        )

    # -- what waits for a moment

    def lift(self) -> None:
        """Holds may have ended before their time: all are checked again, of very many the rest after other work."""
        for zone in self.zones.values():
            zone.held = None
        for name in list(self._awaited):
            self.awaits(name, True)
        self._lift(self.flow_queues())

    def _lift(self, flow_queues: Iterator[FlowQueue]) -> None:
        part = list(islice(flow_queues, AT_ONCE))
        for flow_queue in part:
            if flow_queue.held is not None and flow_queue.held.kind not in ("limit", "dns"):
                flow_queue.zone.over(flow_queue, flow_queue.held)
        if len(part) == AT_ONCE:
            self.timers.soon(partial(self._lift, flow_queues))
        self.changed()

    def _redirect(self, source: str, back: bool) -> None:
        """What waits for a source goes by others of its pool, even if it waits at a limit, or for a connection; back:
        what waits for others, and would have gone by it, does."""
        if back:
            self.lift()
            self._move(one for one in self.flow_queues() if one.path.source not in ("", source))
        else:
            self._move(one for one in self.flow_queues() if one.path.source == source)

    def _move(self, flow_queues: Iterator[FlowQueue]) -> None:
        part = list(islice(flow_queues, AT_ONCE))
        for flow_queue in part:
            self.zones[flow_queue.zone.zone.name].move(flow_queue)
        if len(part) == AT_ONCE:
            self.timers.soon(partial(self._move, flow_queues))
        self.changed()

    def next_wake(self, now: float) -> float:
        """Seconds until time alone changes something (a hold ends, a deferred recipient is due); at most 60."""
        wait_s = min(60.0, self.timers.wait_s(now))
        for zone in self._sent:
            wait_s = min(wait_s, zone.next_due_ms / 1000 - now)
        return max(0.0, wait_s)

    def marks(self) -> dict[str, dict[str, bytes]]:
        """Low-water marks for the position record; none of a pull zone that has waited for nothing since the start."""
        marks = {name: {"fresh": zone.fresh.mark(), "due": zone.due.mark()} for name, zone in self.zones.items()}
        return {
            name: found
            for name, found in marks.items()
            if not self.zones[name].zone.pulled or found["due"] != keys.deferred_range(name)
        }
