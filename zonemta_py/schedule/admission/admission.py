"""Admission: every limit of the queue is checked, charged and released here.

A flow queue that is refused waits where it was refused: at the limit (for some combination of zone, source, site,
provider, tenant, campaign), or for the end of a hold (`policy/state.py`). A limit wakes one of each flow's queues that
wait at it, so that flows share by weight what a limit leaves, however many wait. All senders together are held to each
limit exactly, since no mail is sent without a lease.

Time is steady seconds (`steady.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config, Zone
from zonemta_py.schedule.admission.fallback import Elsewheres, limits_of
from zonemta_py.schedule.admission.grants import Grants
from zonemta_py.schedule.admission.idle_connections import IDLE_S, TURN_S, IdleConnections
from zonemta_py.schedule.admission.waits import LimitWaits
from zonemta_py.schedule.batch import Batch, Blocked, EgressPath, Entry, FlowQueue, Line, Turn
from zonemta_py.schedule.time.clock import Timers
from zonemta_py.zones.admittance import Charge
from zonemta_py.zones.feedback import Concurrency
from zonemta_py.zones.throttle import Limit, Most, Scope, Throttles

if TYPE_CHECKING:
    from zonemta_py.schedule.policy.state import PolicyState

WAKE_AT_LEAST_S = 0.02
_NOTHING_SAID = Most(0, 0, None)


def _connections(limits: Iterable[Limit]) -> bool:
    """Whether one of them is on connections."""
    return any(limit.throttle.connections for limit in limits)


class Admission:
    """All limits, for all zones."""

    def __init__(
        self, config: Config, timers: Timers, terms_of: Callable[[str], dict[str, Any]], policy: PolicyState
    ) -> None:
        self._timers, self._terms_of, self.policy = timers, terms_of, policy
        self.away: dict[str, Blocked] = {}
        """Zones of which nothing is sent from here."""
        self._waiting: dict[Limit, Waiting] = {}
        self.grants: Grants | None = None
        """Other queues share these limits."""
        self.reached: dict[str, int] = {}
        """How often mail began to wait at each limit, by its name in the configuration."""
        self.waits = LimitWaits()
        self.idle = IdleConnections(self._room)
        self.elsewhere = Elsewheres(timers, policy, self.idle, self._charge)
        self.throttles = Throttles(config.throttles)
        self._read(config)

    def _read(self, config: Config) -> None:
        self._config = config
        self._sized = any(throttle.bytes for throttle in config.throttles)
        self._counting = any(throttle.connections for throttle in config.throttles)
        self._connects = any(throttle.new_connections for throttle in config.throttles)
        named = config.return_path.verp or config.unsubscribing.wanted
        self._may_be_alone = config.unsubscribing if named else None

    def configure(self, config: Config) -> None:
        """Other settings from now on: what is used of a limit stays used. `count_out` must follow."""
        changed = config.throttles != self._config.throttles
        self._read(config)
        if changed:
            self._renew()

    def share(self, grants: Grants) -> None:
        """Other queues share all limits from now on. `count_out` must follow."""
        self.grants = grants
        self.elsewhere.need = grants.need
        self._renew()

    def _renew(self) -> None:
        now = self._timers.now()
        for waiting in self._waiting.values():
            waiting.end()
        self._waiting = {}
        self.waits.over(now)
        used = self.throttles.state(now)
        if self.grants is None:
            self.throttles = Throttles(self._config.throttles)
        else:
            self.grants.anew()
            self.throttles = Throttles(self._config.throttles, self.grants.limit)
        self.throttles.restore(used, now)

    def count_out(self, batches: Iterable[Batch]) -> None:
        """All limits are new: the leases that are out, and open connections, count at these from now on."""
        for batch in batches:
            batch.charge = batch.charge or (0, 0, 0, 0)
            batch.taken = -math.inf  # these have never been charged for it, and so give nothing back
            batch.limits = limits_of(self.throttles, batch.flow_queue.scope, batch.elsewhere)
            for limit in batch.limits:
                limit.hold()
        self.idle.count_again(partial(limits_of, self.throttles), self._counting)

    def left_open(self, worker: str, name: int, scope: Scope) -> None:
        """A retired sender has it open without a lease, and no result has named it."""
        self.idle.left_open(worker, name, scope, self.throttles.of(scope))

    # -- what applies

    def limits(self, scope: Scope) -> tuple[Limit, ...]:
        """Those that a delivery has to pass, but for the ones of the zone as a whole."""
        if not self._config.throttles:
            return ()
        limits = self.throttles.of(scope)
        if not any(limit.level == "zone" for limit in limits):
            return limits  # one tuple for all flow queues of that scope
        return tuple(limit for limit in limits if limit.level != "zone")

    def zone_limits(self, zone: str) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.throttles.of(Scope(zone, *5 * ("",))) if limit.level == "zone")

    def most(self, flow_queue: FlowQueue) -> Most:
        """The strictest bounds on connections and transactions that throttles set."""
        if not self._config.throttles:
            return _NOTHING_SAID
        return self.throttles.most(flow_queue.scope)

    def counts_connections(self, flow_queue: FlowQueue) -> bool:
        """Whether a limit on connections is in its way."""
        return self._counting and _connections((*flow_queue.limits, *flow_queue.zone.limits))

    def spans(self, flow_queue: FlowQueue) -> bool:
        """Whether such a limit counts other connections too than those of its egress path, which its egress path cannot
        use."""
        zone = flow_queue.zone
        return any(
            limit.throttle.connections
            and (limit.wanted or zone.by_domain or not self._of_path(zone.zone, set(limit.throttle.per)))
            for limit in (*flow_queue.limits, *zone.limits)
        )

    def _of_path(self, zone: Zone, per: set[str]) -> bool:
        one_source = "source" in per or len(self._config.sources(zone)) <= 1
        one_zone = "zone" in per or len(self._config.zones) == 1
        if self._config.destinations:  # several egress paths may go to one site
            return False
        one_site = "site" in per or zone.smart
        return one_site and one_source and one_zone and not per & {"tenant", "campaign"}

    def concurrency(self, zone: Zone, site: str, source: str) -> Concurrency:
        """The learned concurrency of an egress path; kept when the egress path is dropped, and across a restart."""
        return self.policy.learned_concurrency.of(zone, site, source)

    # -- what holds

    def zone_hold(self, zone: Zone, limits: tuple[Limit, ...]) -> Blocked | None:
        """Why the zone as a whole may not send now."""
        hold = self.away.get(zone.name) or self.policy.zone_hold(zone)
        if hold is not None or not limits:
            return hold
        now = self._timers.now()
        for limit in limits:
            wait = limit.wait(now)
            if wait and not (
                limit.blocking == "connections" and self.idle.at(limit)
            ):  # otherwise another may use that one
                self.waits.held(limit.throttle.name, wait)
                return Blocked("limit", f"{limit.label} ({limit.why})", now + wait, self._timers.now_ms())
        return None

    def hold(self, flow_queue: FlowQueue) -> Blocked | None:
        """Why the flow queue may not send now, limits aside."""
        return self.policy.hold(flow_queue)

    def source_hold(self, source: str, site: str, provider: str) -> Blocked | None:
        return self.policy.source_hold(source, site, provider)

    # -- grants

    def grant(self, flow_queue: FlowQueue, take: Callable[[FlowQueue, int], list[Entry]]) -> Batch | None:
        """A batch whose limits are charged; None: the flow queue waits at a limit now.

        Merged messages go in series only where no limit counts them: then none needs to know of it.
        """
        path, merged = flow_queue.path, flow_queue.entries[0].note.values is not None
        limits = (*flow_queue.limits, *flow_queue.zone.limits)
        learned = self.policy.learned(path)
        zone = flow_queue.zone.zone
        most = path.terms.zone.recipients_per_delivery
        if self._may_be_alone is not None and not merged:
            asked = self._terms_of(flow_queue.entries[0].id).get("unsubscribe", False)
            most = 1 if self._may_be_alone.alone(zone.name, asked) else most
        if self.policy.manners.known and not merged:
            most = self.policy.manners.recipients(path.site, most)
        days = self.policy.warmups.of(path.source, path.provider or path.site) if path.source else None
        if not limits and learned is None and days is None:
            return Batch(flow_queue, take(flow_queue, flow_queue.zone.series(path) if merged else most))
        if merged:
            counted = learned is not None or days is not None or any(limit.counts_mail for limit in limits)
            most = 1 if counted else flow_queue.zone.series(path)
        now = self._timers.now()
        size = self._terms_of(flow_queue.entries[0].id).get("size", 0) if self._sized else 0
        if learned is not None and (wait := learned.wait(now)):
            hold = Blocked("rate", self.policy.rate_cause(path), now + wait, self._timers.now_ms())
            flow_queue.zone.hold(flow_queue, hold)
            return None
        opening = int(self._connects and not (path.idle > 0 and path.idle_until > now))
        connection = self.idle.take(path) if self._counting and _connections(limits) else None
        for limit in limits:
            wait = limit.wait(now, 1, 1, opening, size)
            if wait:
                if connection is not None:
                    self.idle.put_back(connection)
                if self.grants is not None:
                    self.grants.need(limits, (1, 1, opening, size), now, zone.name, connection is not None)
                self._wait_at(limit, flow_queue, now, wait)
                return None
            if limit.recipients is not None:
                most = max(1, min(most, int(limit.recipients.level(now))))
        if days is not None:
            most = max(1, min(most, days.room(round(self._timers.now() * 1000))))
        stricter = self.most(flow_queue).recipients_per_delivery
        entries = take(flow_queue, min(most, stricter) if stricter else most)
        batch = Batch(flow_queue, entries, connect=bool(opening) or not self._connects)
        batch.taken, batch.charge, batch.limits = now, (1, len(entries), opening, size), limits
        batch.idle_connection, batch.since = connection, now if connection is None else connection.since
        if connection is not None:
            connection.user = batch
        if days is not None:
            batch.day = days.take(len(entries))
        if opening == 0 and self._connects:
            path.idle -= 1
        if self.grants is not None:
            self.grants.served(limits, (1, 1, opening, size), zone.name)
        for limit in limits:
            limit.take(now, *batch.charge)
            if limit in self._waiting:
                self._let_one(limit, flow_queue.turn)
        if learned is not None:
            learned.take(now)
            batch.learned = learned
        return batch

    def release(self, batch: Batch) -> None:
        """The lease has ended: its connection is free, or counts until it is closed."""
        if self.idle.remains(batch, batch.charge is not None and _connections(batch.limits)):
            if batch.keep:
                self._go_on(batch.flow_queue)
            return
        if batch.charge is None:
            return
        for limit in batch.limits:
            limit.release()
        self._room(batch.limits)

    def keeps(self, batch: Batch) -> bool:
        """Whether its egress path has other connections, open or in use, that its sender alone can use."""
        return batch.path.active > 1 or batch.idle_connection is not None or batch.path in self.idle

    def usable_until(self, path: EgressPath) -> float:
        """Until when it may have an idle connection, steady seconds; inf: until that is closed; 0: it has none."""
        if path in self.idle:
            return math.inf
        return path.idle_until if self._connects and path.idle > 0 and path.idle_until > self._timers.now() else 0.0

    @staticmethod
    def connection(batch: Batch) -> int | None:
        """As `Delivery.connection`."""
        if batch.idle_connection is not None:
            return batch.idle_connection.name
        return 0 if _connections(batch.limits) else None

    def _room(self, limits: tuple[Limit, ...]) -> bool:
        """Whether somebody may have waited for it."""
        waiting = [limit for limit in limits if limit in self._waiting]
        for limit in waiting:
            self._wake(limit, self._timers.now())
        return bool(waiting) or any(one.level == "zone" and one.connections + 1 >= one.most for one in limits)

    def _charge(self, entries: list[Entry]) -> Charge:
        size = self._terms_of(entries[0].id).get("size", 0) if self._sized else 0
        return 1, len(entries), int(self._connects), size

    def idle_s(self, batch: Batch, most: float | None) -> float:
        """How long a batch's connection may stay open without mail. most: as throttles say; None: as the zone says."""
        flow_queue = batch.flow_queue
        idle_s = batch.path.terms.zone.idle_s if most is None else most
        if self._counting and self.spans(flow_queue):
            crowded = flow_queue.zone.flow_queues.fair.root.ready_count > 0 or any(
                (limit in self._waiting or limit.wanted) and limit.throttle.connections for limit in batch.limits
            )
            over = not flow_queue.entries or self._timers.now() - batch.since >= TURN_S
            idle_s = 0.0 if crowded and over else min(idle_s, IDLE_S)
        batch.idle_s = idle_s
        return idle_s

    def untouched(self, batch: Batch) -> None:
        """Gives back everything: it has reached no sender. The connection it was to use is as before."""
        self.unused(batch, opened=False, tried=False, kept=False)
        batch.worker = ""
        if self.idle.back(batch):
            for limit in batch.limits:
                limit.release()
            batch.limits = ()

    def unused(self, batch: Batch, opened: bool, tried: bool, kept: bool, released: int = 0) -> None:
        """Gives back what a lease did not need: the new connection, or everything. kept: its connection stays open;
        released: so many of those it tried go back untried."""
        if batch.charge is None:
            return
        now, path = self._timers.now(), batch.path
        messages, recipients, opening, size = batch.charge
        days = self.policy.warmups.of(path.source, path.provider or path.site) if path.source else None
        if tried:
            messages, recipients, size = 0, released, 0
            if kept and batch.worker not in self.idle.retired:
                path.idle, path.idle_until = path.idle + 1, now + batch.idle_s
        else:
            path.idle = 0
        if days is not None and recipients:
            days.give(recipients, batch.day)
        if batch.learned is not None and not tried:
            batch.learned.give(now, 1, batch.taken)
        if batch.elsewhere is not None:
            batch.elsewhere.give(now, recipients, tried)
        for limit in batch.limits:
            limit.give(now, batch.taken, messages, recipients, 0 if opened else opening, size)

    # -- who waits at a limit

    def granted(self, limits: Iterable[Limit]) -> None:
        """This queue has more of them than before."""
        for limit in limits:
            if limit in self._waiting:
                self._wake(limit, self._timers.now())

    def zone_waits(self, limits: tuple[Limit, ...]) -> None:
        """A zone as a whole waits at one of its limits."""
        if self.grants is not None:
            self.grants.need(limits, (1, 1, 0, 0), self._timers.now())

    def _wait_at(self, limit: Limit, flow_queue: FlowQueue, now: float, wait: float) -> None:
        waiting = self._waiting.get(limit)
        if waiting is None:
            waiting = self._waiting[limit] = Waiting()
        name = limit.throttle.name
        self.reached[name] = self.reached.get(name, 0) + 1
        self.waits.began(name, now)
        flow_queue.hold(Blocked("limit", waiting.cause(limit), now + wait, self._timers.now_ms()))
        line = waiting.flow_queues.get(flow_queue.turn)
        if line is None:
            waiting.flow_queues[flow_queue.turn] = Line(flow_queue)
        else:
            line.append(flow_queue)
        self._set_timer(limit, waiting, now + wait)

    def _go_on(self, flow_queue: FlowQueue) -> None:
        """Its egress path has a connection: it need not wait for one, nor, if it has no more mail, another there."""
        every = [flow_queue] if flow_queue.entries else flow_queue.path.flow_queues.values()
        for other in every:
            if other.entries and other.held is not None and "(connections" in other.held.cause:
                self._wait_no_longer(other)
                return

    def leave(self, flow_queue: FlowQueue) -> None:
        """It waits at no limit any more."""
        if flow_queue.held is not None and flow_queue.held.kind == "limit":
            self._wait_no_longer(flow_queue)

    def _wait_no_longer(self, flow_queue: FlowQueue) -> None:
        for limit in (*flow_queue.limits, *flow_queue.zone.limits):
            waiting = self._waiting.get(limit)
            line = waiting.flow_queues.get(flow_queue.turn) if waiting else None
            if waiting is not None and line is not None and flow_queue in line:
                if line.remove(flow_queue):
                    del waiting.flow_queues[flow_queue.turn]
                self.waits.ended(limit.throttle.name, self._timers.now())
                flow_queue.free()
                flow_queue.enlist()

    def _set_timer(self, limit: Limit, waiting: Waiting, when: float) -> None:
        if when < waiting.when:
            waiting.when = when
            self._timers.wake_at(when, lambda: self._timer(limit, when))

    def _timer(self, limit: Limit, when: float) -> None:
        waiting = self._waiting.get(limit)
        if waiting is not None and waiting.when == when:
            waiting.when = math.inf
            self._wake(limit, self._timers.now())

    def _wake(self, limit: Limit, now: float) -> None:
        """One flow queue of each flow may try again; the fairest gets what there is, and the others wait again."""
        waiting = self._waiting[limit]
        for turn in list(waiting.flow_queues):
            self._let_one(limit, turn)
        if not waiting.flow_queues:
            del self._waiting[limit]
            return
        wait = max(limit.wait(now), WAKE_AT_LEAST_S)
        if wait < math.inf:
            self._set_timer(limit, waiting, now + wait)

    def _let_one(self, limit: Limit, turn: Turn) -> None:
        waiting = self._waiting[limit]
        line = waiting.flow_queues.get(turn)
        if line is None:
            return
        flow_queue, was_last = line.pop()
        if was_last:
            del waiting.flow_queues[turn]
        self.waits.ended(limit.throttle.name, self._timers.now())
        flow_queue.free()
        flow_queue.enlist()

    # -- what survives

    def state(self) -> dict[str, Any]:
        """For position records."""
        now = self._timers.now()
        self.throttles.forget(now)
        return {"at": now, "gates": self.throttles.state(now), "concurrency": self.policy.learned_concurrency.state()}

    def restore(self, state: dict[str, Any]) -> None:
        now = self._timers.now()
        limits = state.get("gates", [])
        if (back := state.get("at", now) - now) > 0:  # the clock was set back: as if no time had passed since
            for _, buckets in limits:
                for bucket in buckets.values():
                    bucket[0] -= back
        self.throttles.restore(limits, now)
        self.policy.learned_concurrency.restore(state.get("concurrency", []))

    def charge_again(self, scope: Scope, recipients: int, size: int, ms: int) -> None:
        """A lease that was given after the last position record. ms: steady time."""
        at = min(ms / 1000, self._timers.now())
        for limit in self.throttles.of(scope):
            limit.take(at, 1, recipients, 1 if self._connects else 0, size)
            limit.release()
        days = self.policy.warmups.of(scope.source, scope.provider or scope.site)
        if days is not None and days.room(ms) and days.day == ms // 86_400_000:
            days.take(recipients)


class Waiting:
    """Flow queues that wait at a limit, by flow. when: of the timer that is set."""

    __slots__ = ("_cause", "_why", "flow_queues", "when")

    def __init__(self) -> None:
        self.flow_queues: dict[Turn, Line] = {}
        self.when = math.inf
        self._why = self._cause = ""

    def end(self) -> None:
        """None waits here any more."""
        for line in self.flow_queues.values():
            was_last = False
            while not was_last:
                flow_queue, was_last = line.pop()
                flow_queue.free()
                flow_queue.enlist()

    def cause(self, limit: Limit) -> str:
        """The reason given to those that begin to wait now: one text for all."""
        if (why := limit.why) != self._why:
            self._why, self._cause = why, f"{limit.label} ({why})"
        return self._cause
