"""What may go now: every limit of the queue is asked here, granted here, and given back here.

A flow queue that is refused waits where it was refused: at the limit (for some combination of zone, source, site,
provider, tenant, campaign), or for the end of a hold (`policy/state.py`). A limit wakes one of each flow's queues that
wait at it, so that flows share by weight what a limit leaves, however many wait. All senders together are held to each
limit exactly, since nobody sends without a lease.

Time is steady seconds (`steady.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config, Zone
from zonemta_py.schedule.admission.idle_connections import IDLE_S, TURN_S, IdleConnections
from zonemta_py.schedule.batch import Batch, Blocked, Entry, FlowQueue, Line, Turn
from zonemta_py.schedule.time.clock import Timers
from zonemta_py.zones.feedback import Concurrency
from zonemta_py.zones.throttle import Limit, Most, Scope, Throttles

if TYPE_CHECKING:
    from zonemta_py.schedule.policy.state import PolicyState

WAKE_AT_LEAST_S = 0.02
_NOTHING_SAID = Most(0, 0, None)


class _Waiting:
    """Who waits at a limit: strands by flow. when: of the timer that is set."""

    __slots__ = ("_blocking", "_cause", "strands", "when")

    def __init__(self) -> None:
        self.strands: dict[Turn, Line] = {}
        self.when = math.inf
        self._blocking = self._cause = ""

    def cause(self, limit: Limit) -> str:
        """What those are told that begin to wait now: one text for all of them."""
        if limit.blocking != self._blocking:
            self._blocking, self._cause = limit.blocking, f"{limit.label} ({limit.blocking})"
        return self._cause


class Admission:
    """All limits, for all zones."""

    def __init__(
        self, config: Config, timers: Timers, terms_of: Callable[[str], dict[str, Any]], standing: PolicyState
    ) -> None:
        self._config, self._timers, self._terms_of, self.standing = config, timers, terms_of, standing
        self.throttles = Throttles(config.throttles)
        self._waiting: dict[Limit, _Waiting] = {}
        self._kept = IdleConnections(timers, self._room)
        self._sized = any(throttle.bytes for throttle in config.throttles)
        self._counting = any(throttle.connections for throttle in config.throttles)
        self._connects = any(throttle.new_connections for throttle in config.throttles)
        path = config.return_path
        self._may_be_alone = path if path.verp or path.list_unsubscribe else None

    # -- what applies

    def limits(self, scope: Scope) -> tuple[Limit, ...]:
        """Those that a delivery has to pass, but for the ones of the zone as a whole."""
        if not self._config.throttles:
            return ()
        limits = self.throttles.of(scope)
        if not any(limit.level == "zone" for limit in limits):
            return limits  # one tuple for all strands of that scope
        return tuple(limit for limit in limits if limit.level != "zone")

    def zone_limits(self, zone: str) -> tuple[Limit, ...]:
        scope = Scope(zone, "", "", "", "", "")
        return tuple(limit for limit in self.throttles.of(scope) if limit.level == "zone")

    def most(self, strand: FlowQueue) -> Most:
        """The strictest bounds on connections and transactions that throttles set."""
        if not self._config.throttles:
            return _NOTHING_SAID
        lane, path = strand.lane, strand.path
        scope = Scope(strand.zone.zone.name, lane.source, lane.site, lane.provider, path.tenant, path.campaign)
        return self.throttles.most(scope)

    def counts_connections(self, strand: FlowQueue) -> bool:
        """Whether a limit on connections is in its way."""
        return self._counting and any(limit.throttle.connections for limit in (*strand.limits, *strand.zone.limits))

    def spans(self, strand: FlowQueue) -> bool:
        """Whether such a limit counts other connections too than those of its lane, which its lane cannot use."""
        if not self._counting:
            return False
        zone = strand.zone
        return any(
            limit.throttle.connections and (zone.by_domain or not self._of_lane(zone.zone, set(limit.throttle.per)))
            for limit in (*strand.limits, *zone.limits)
        )

    def _of_lane(self, zone: Zone, per: set[str]) -> bool:
        one_source = "source" in per or len(self._config.sources(zone)) <= 1
        one_zone = "zone" in per or len(self._config.zones) == 1
        one_site = "site" in per or bool(zone.host)
        return one_site and one_source and one_zone and not per & {"tenant", "campaign"}

    def concurrency(self, zone: Zone, site: str, source: str) -> Concurrency:
        """What a lane has earned; remembered when the lane is forgotten, and over a restart."""
        return self.standing.earned.of(zone, site, source)

    # -- what holds

    def zone_hold(self, zone: Zone, limits: tuple[Limit, ...]) -> Blocked | None:
        """Why the zone as a whole may not send now."""
        hold = self.standing.zone_hold(zone)
        if hold is not None or not limits:
            return hold
        now = self._timers.now()
        for limit in limits:
            wait = limit.wait(now)
            if wait and not (
                limit.blocking == "connections" and self._kept.at(limit)
            ):  # else somebody may use that one
                return Blocked("limit", f"{limit.label} ({limit.blocking})", now + wait, self._timers.now_ms())
        return None

    def hold(self, strand: FlowQueue) -> Blocked | None:
        """Why the strand may not send now, limits aside."""
        return self.standing.hold(strand)

    def source_hold(self, source: str, site: str, provider: str) -> Blocked | None:
        return self.standing.source_hold(source, site, provider)

    # -- grants

    def grant(self, strand: FlowQueue, take: Callable[[FlowQueue, int], list[Entry]]) -> Batch | None:
        """A group whose limits are charged; None: the strand waits at a limit now.

        Merged messages go in series only where no limit counts them: then none needs to know of it.
        """
        lane, merged = strand.lane, strand.entries[0].note.values is not None
        limits = (*strand.limits, *strand.zone.limits)
        learned = self.standing.learned(lane)
        zone = strand.zone.zone
        most = zone.recipients_per_delivery
        if self._may_be_alone is not None and not merged:
            asked = self._terms_of(strand.entries[0].id).get("unsubscribe", False)
            most = 1 if self._may_be_alone.alone(zone.name, asked) else most
        if self.standing.manners.known and not merged:
            most = self.standing.manners.recipients(lane.site, most)
        days = self.standing.warmups.of(lane.source, lane.provider or lane.site) if lane.source else None
        if not limits and learned is None and days is None:
            return Batch(strand, take(strand, strand.zone.series(lane) if merged else most))
        if merged:
            counted = learned is not None or days is not None or any(limit.counts_mail for limit in limits)
            most = 1 if counted else strand.zone.series(lane)
        now = self._timers.now()
        size = self._terms_of(strand.entries[0].id).get("size", 0) if self._sized else 0
        if learned is not None and (wait := learned.wait(now)):
            hold = Blocked("rate", self.standing.rate_cause(lane), now + wait, self._timers.now_ms())
            strand.zone.hold(strand, hold)
            return None
        opening = 0
        if self._connects:
            opening = 0 if lane.idle > 0 and lane.idle_until > now else 1
        kept = self._kept.take(lane) if self._counting else None
        for limit in limits:
            wait = limit.wait(now, 1, 1, opening, size)
            if wait:
                if kept is not None:
                    self._kept.back(lane, kept)
                self._wait_at(limit, strand, now, wait)
                return None
            if limit.recipients is not None:
                most = max(1, min(most, int(limit.recipients.level(now))))
        if days is not None:
            most = max(1, min(most, days.room(round(self._timers.now() * 1000))))
        stricter = self.most(strand).recipients_per_delivery
        entries = take(strand, min(most, stricter) if stricter else most)
        group = Batch(strand, entries, connect=bool(opening) or not self._connects)
        group.taken, group.charge, group.limits = now, (1, len(entries), opening, size), limits
        group.kept, group.since = kept, now if kept is None else kept.since
        if days is not None:
            group.day = days.take(len(entries))
        if opening == 0 and self._connects:
            lane.idle -= 1
        for limit in limits:
            limit.take(now, *group.charge)
            if limit in self._waiting:
                self._let_one(limit, strand.turn)
        if learned is not None:
            learned.take(now)
            group.learned = learned
        return group

    def release(self, group: Batch) -> None:
        """The lease has ended: its connection is free, or kept for the lane."""
        if group.charge is None:
            return
        if group.keep:
            self._kept.keep(group)
            self._go_on(group.strand)
            return
        for limit in group.limits:
            limit.release()
        self._room(group.limits)

    def keeps(self, group: Batch) -> bool:
        """Whether its lane has other connections, open or in use, that its sender alone can use."""
        return group.lane.active > 1 or group.kept is not None or group.lane in self._kept

    def lost(self, worker: str) -> None:
        """A sender has died."""
        self._kept.lost(worker)

    def _room(self, limits: tuple[Limit, ...]) -> None:
        now = self._timers.now()
        for limit in limits:
            if limit in self._waiting:
                self._wake(limit, now)

    def idle_s(self, group: Batch, most: float | None) -> float:
        """How long a group's connection may stay open without mail. most: as throttles say; None: as the zone says."""
        strand = group.strand
        idle_s = strand.zone.zone.idle_s if most is None else most
        if self.spans(strand):
            crowded = strand.zone.strands.fair.pick() is not None or any(
                limit in self._waiting and limit.throttle.connections for limit in group.limits
            )
            over = not strand.entries or self._timers.now() - group.since >= TURN_S
            idle_s = 0.0 if crowded and over else min(idle_s, IDLE_S)
        group.idle_s = idle_s
        return idle_s

    def untouched(self, group: Batch) -> None:
        """Gives back everything: no sender has heard of it. The connection it was to go over is as it was."""
        self.unused(group, opened=False, tried=False, kept=False)
        if group.kept is not None:
            for limit in group.limits:
                limit.release()
            self._kept.back(group.lane, group.kept)
            group.limits = ()

    def unused(self, group: Batch, opened: bool, tried: bool, kept: bool, released: int = 0) -> None:
        """Gives back what a lease did not need: the new connection, or everything. kept: its connection stays open;
        released: so many of those it tried go back untried.
        """
        if group.charge is None:
            return
        now, lane = self._timers.now(), group.lane
        messages, recipients, opening, size = group.charge
        days = self.standing.warmups.of(lane.source, lane.provider or lane.site) if lane.source else None
        if tried:
            messages, recipients, size = 0, released, 0
            if kept:
                lane.idle, lane.idle_until = lane.idle + 1, now + group.idle_s
                group.keep = self.counts_connections(group.strand)
        else:
            lane.idle = 0
        if days is not None and recipients:
            days.give(recipients, group.day)
        if group.learned is not None and not tried:
            group.learned.give(now, 1, group.taken)
        for limit in group.limits:
            limit.give(now, group.taken, messages, recipients, 0 if opened else opening, size)

    # -- who waits at a limit

    def _wait_at(self, limit: Limit, strand: FlowQueue, now: float, wait: float) -> None:
        waiting = self._waiting.get(limit)
        if waiting is None:
            waiting = self._waiting[limit] = _Waiting()
        strand.hold(Blocked("limit", waiting.cause(limit), now + wait, self._timers.now_ms()))
        line = waiting.strands.get(strand.turn)
        if line is None:
            waiting.strands[strand.turn] = Line(strand)
        else:
            line.append(strand)
        self._set_timer(limit, waiting, now + wait)

    def _go_on(self, strand: FlowQueue) -> None:
        """Its lane has a connection: it need not wait for one, nor, if it has no more mail, another of the lane."""
        every = [strand] if strand.entries else strand.lane.strands.values()
        for other in every:
            if other.entries and other.held is not None and other.held.cause.endswith("(connections)"):
                self._wait_no_longer(other)
                return

    def _wait_no_longer(self, strand: FlowQueue) -> None:
        for limit in (*strand.limits, *strand.zone.limits):
            waiting = self._waiting.get(limit)
            line = waiting.strands.get(strand.turn) if waiting else None
            if waiting is not None and line is not None and strand in line:
                if line.remove(strand):
                    del waiting.strands[strand.turn]
                strand.free()
                strand.enlist()

    def _set_timer(self, limit: Limit, waiting: _Waiting, when: float) -> None:
        if when < waiting.when:
            waiting.when = when
            self._timers.wake_at(when, lambda: self._timer(limit, when))

    def _timer(self, limit: Limit, when: float) -> None:
        waiting = self._waiting.get(limit)
        if waiting is not None and waiting.when == when:
            waiting.when = math.inf
            self._wake(limit, self._timers.now())

    def _wake(self, limit: Limit, now: float) -> None:
        """One strand of each flow may try again; the fairest gets what there is, and the others wait again."""
        waiting = self._waiting[limit]
        for turn in list(waiting.strands):
            self._let_one(limit, turn)
        if not waiting.strands:
            del self._waiting[limit]
            return
        wait = max(limit.wait(now), WAKE_AT_LEAST_S)
        if wait < math.inf:
            self._set_timer(limit, waiting, now + wait)

    def _let_one(self, limit: Limit, turn: Turn) -> None:
        waiting = self._waiting[limit]
        line = waiting.strands.get(turn)
        if line is None:
            return
        strand, was_last = line.pop()
        if was_last:
            del waiting.strands[turn]
        strand.free()
        strand.enlist()

    # -- what survives

    def state(self) -> dict[str, Any]:
        """For position records."""
        now = self._timers.now()
        self.throttles.forget(now)
        return {"at": now, "gates": self.throttles.state(now), "concurrency": self.standing.earned.state()}

    def restore(self, state: dict[str, Any]) -> None:
        now = self._timers.now()
        limits = state.get("gates", [])
        if (back := state.get("at", now) - now) > 0:  # the clock was set back: as if no time had passed since
            for _, buckets in limits:
                for bucket in buckets.values():
                    bucket[0] -= back
        self.throttles.restore(limits, now)
        self.standing.earned.restore(state.get("concurrency", []))

    def charge_again(self, scope: Scope, recipients: int, size: int, ms: int) -> None:
        """A lease that was given after the last position record. ms: steady time."""
        at = min(ms / 1000, self._timers.now())
        for limit in self.throttles.of(scope):
            limit.take(at, 1, recipients, 1 if self._connects else 0, size)
            limit.release()
        days = self.standing.warmups.of(scope.source, scope.provider or scope.site)
        if days is not None and days.room(ms) and days.day == ms // 86_400_000:
            days.take(recipients)
