"""One zone's part of the schedule: who goes next.

Flows share the zone by weight (`fair.py`), a flow's queues take turns, each egress path has the connections that it has
earned (`feedback.py`), and every limit is asked (`admission`). A destination that cannot be reached is down for a time
that doubles; then one probe may try, and a success opens it. Who is in memory to be chosen from: `window.py`.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial

from zonemta_py.config import Zone
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.mail.classify import NoRoute
from zonemta_py.schedule.admission.zone_share import ZoneShare
from zonemta_py.schedule.batch import Batch, Blocked, EgressPath, Entry, FlowQueue, Turn
from zonemta_py.schedule.flow_queues import NO_SOURCE, domain_of
from zonemta_py.schedule.shared import Shared
from zonemta_py.schedule.window import ZoneWindow
from zonemta_py.zones.site import Site


class ZoneSchedule(ZoneWindow):
    """One zone's window, lanes and turns."""

    def __init__(self, zone: Zone, store: Store, busy: set[bytes], marks: dict[str, bytes], shared: Shared) -> None:
        super().__init__(zone, store, busy, marks, shared, partial(FlowQueue, self))
        self.held: Blocked | None = None
        self._waiting: dict[Turn, deque[FlowQueue]] = {}  # those that may not have the zone's last connections
        self._pace = ZoneShare(zone.connections)
        tls = shared.config.tls
        self.by_domain = tls.mta_sts or tls.dane or bool(zone.tls_required_domains)
        self.limits = shared.permits.zone_limits(zone.name)

    # -- what goes out

    def next(self) -> Batch | None:
        """The next delivery that is allowed now: flows by weight, their strands by turns."""
        if not self._open():
            return None
        while (strand := self._turn()) is not None:
            if strand.may_go() and (group := self._offer(strand)) is not None:
                return self._gone(group)
        return None

    def _offer(self, strand: FlowQueue) -> Batch | None:
        """What the strand may send now; None: it waits for something, and is listed again when that is there."""
        lane, permits, first = strand.lane, self._shared.permits, strand.entries[0]
        site: Site | NoRoute | None = None
        if self.strands.by_dns(first.note):
            domain = domain_of(first.address)
            site = self._shared.sites.known(domain)
            if site is None:
                self._look_up(strand, domain)
                return None
            if isinstance(site, NoRoute):
                return Batch(strand, self._take(strand, 1), refusal=site.reply)
            if site.key == lane.site:
                self.strands.learn_provider(lane, site.provider)
            elif self.reassign(strand):  # it was made before its domain's site was known, or that has changed
                self.unpark(strand)
                strand.enlist()
                return None
        if lane.source == NO_SOURCE:
            reason = "every source address is kept from this domain by disabled_domains"
            self.down(lane, self._shared.now(), 0, reason)
            return None
        hold = permits.hold(strand)
        if hold is not None:
            if hold.kind == "source":
                if self.reassign(strand):
                    self.unpark(strand)  # what is parked goes the same way
                    strand.enlist()
                    return None
                hold = hold._replace(until=self.strands.any_source_at(strand, hold.until))
            self.hold(strand, hold)
            return None
        if not self.may_have(lane):
            if self.zone.connections - self.active <= self._pace.reserve:
                strand.listed = True
                self._waiting.setdefault(strand.turn, deque()).append(strand)
            else:  # it has its share, and is listed again when one of its leases ends
                lane.crowded = True
            return None
        group = permits.grant(strand, self._take)
        if group is not None:
            group.site = site if isinstance(site, Site) else None
        return group

    def _gone(self, group: Batch) -> Batch:
        strand, lane = group.strand, group.lane
        self.strands.fair.charge(strand.turn.flow, len(group.entries))
        lane.active += 1
        self.active += 1
        self.unpark(strand)
        strand.enlist()
        return group

    def _open(self) -> bool:
        """Whether the zone as a whole may send: its hours, and the limits that count for all of it."""
        before = self.held
        if before is not None and self._shared.now() < before.until < math.inf:
            return False
        self.held = self._shared.permits.zone_hold(self.zone, self.limits)
        if self.held is not None:
            if before is not None and before.cause == self.held.cause:
                self.held = before._replace(until=self.held.until)  # it has waited since then
            self._shared.wake_at(self.held.until, self._shared.changed)
        return self.held is None

    def _turn(self) -> FlowQueue | None:
        """Who is looked at next: while connections are plenty, those that waited for them have their turns too."""
        free = self.zone.connections - self.active
        if free <= 0:
            return None
        if self._waiting and free > self._pace.reserve:
            self._end_waiting()
        flow = self.strands.fair.pick()
        if flow is None:
            return None
        turn = self.strands.by_flow[flow]
        strand = turn.strands.popleft()
        if not turn.strands:
            flow.ready = False
        strand.listed = False
        return strand

    def _end_waiting(self) -> None:
        """One strand of each flow that waited for a connection may try again."""
        for turn, strands in list(self._waiting.items()):
            strand = strands.popleft()
            if not strands:
                del self._waiting[turn]
            strand.listed = False
            strand.enlist()

    def _take(self, strand: FlowQueue, most: int) -> list[Entry]:
        """The recipients of the first message, at most so many."""
        entries, count = strand.entries, 1
        first, most = entries[0], min(most, len(entries))
        while count < most:
            other = entries[count]
            if other.id != first.id or other.note.routing != first.note.routing:
                break
            if self.by_domain and domain_of(other.address) != domain_of(first.address):
                break  # what TLS must do there may differ
            count += 1
        group = entries[:count]
        del entries[:count]
        self.loaded -= count
        return group

    def may_have(self, lane: EgressPath) -> bool:
        """Whether the zone has a connection for it, seen how quick it was."""
        own = self.strands.own is not None and lane.site == self.strands.own.key
        return own or self._pace.may(lane.site, lane.active, self.active, lane.failures > 0)

    def series(self, lane: EgressPath) -> int:
        """How many messages of their own may go over one connection as one lease.

        If the sender dies, all without an answer are in doubt: so there is only one where that means to be held.
        """
        return self._pace.series(lane.site) if self.zone.in_doubt == "retry" else 1

    def went(self, lane: EgressPath, count: int, of: int) -> None:
        """So many messages of a lease of its own were tried."""
        self._pace.went(lane.site, count, of)

    def took(self, lane: EgressPath, took_ms: int, size: int) -> None:
        """How long a transaction with a message of `size` bytes took, from connecting to the last reply."""
        self._pace.learn(lane.site, took_ms, size)

    def begin(self, group: Batch) -> None:
        """A lease that the schedule did not give: it counts all the same."""
        group.lane.active += 1
        self.active += 1

    def done(self, group: Batch) -> None:
        """A lease of this group has ended."""
        lane = group.lane
        lane.active -= 1
        self.active -= 1
        self._shared.permits.release(group)
        strand = group.strand
        self.unpark(strand)
        strand.enlist()
        self.strands.forget(strand)
        if lane.crowded:
            lane.crowded = False
            for strand in lane.strands.values():
                if strand.entries and not strand.listed:
                    strand.enlist()
        if not lane.active:
            for strand in [strand for strand in lane.strands.values() if not strand.entries]:
                self.strands.forget(strand)

    # -- what waits

    def hold(self, strand: FlowQueue, hold: Blocked) -> None:
        """The strand waits until the hold ends, or is lifted before."""
        strand.hold(hold)
        self._shared.wake_at(hold.until, partial(self.over, strand, hold))

    def over(self, strand: FlowQueue, hold: Blocked) -> None:
        """The hold has ended, unless another has come in its place."""
        if strand.held is hold:
            strand.free()
            self.unpark(strand)
            strand.enlist()

    def _look_up(self, strand: FlowQueue, domain: str) -> None:
        """Asks where a domain's mail goes; the strand goes on when the answer is there."""
        strand.hold(Blocked("dns", f"{domain} is being looked up", math.inf, self._shared.now_ms()))
        self._shared.sites.look(domain, lambda found: self._looked_up(strand, domain, found))

    def _looked_up(self, strand: FlowQueue, domain: str, found: Site | NoRoute) -> None:
        strand.free()
        if isinstance(found, Site):
            if self.away.waiting:
                self.away.renamed(domain, found.key)
            if found.key == strand.lane.site:
                self.strands.learn_provider(strand.lane, found.provider)
        elif found.temporary and strand.lane.site == domain:
            self.down(strand.lane, self._shared.now(), 0, str(found.reply))
        if strand.lane.failures and not strand.lane.down_until:
            self.up(strand.lane) if isinstance(found, Site) else None
        self.reassign(strand, unknown=domain if isinstance(found, NoRoute) else "")
        self.unpark(strand)
        strand.enlist()
        self._shared.changed()

    def now(self) -> float:
        return self._shared.now()

    def ms_at(self, steady: float) -> int:
        """The UNIX time that a moment of steady seconds is."""
        return self._shared.now_ms() + int((steady - self._shared.now()) * 1000)

    # -- destinations that cannot be reached

    def down(self, lane: EgressPath, now: float, seconds: float, reason: str) -> None:
        """Rests the destination and parks its window; `seconds` 0: as configured, doubling."""
        if lane.down_until:
            return
        retry = self._shared.retry
        lane.failures += 1
        lane.reason = reason
        lane.down_since_ms = lane.down_since_ms or self._shared.now_ms()
        lane.down_until = now + (seconds or min(retry.down_s * 2 ** min(lane.failures - 1, 20), retry.down_max_s))
        self._shared.wake_at(lane.down_until, lambda: self._probe(lane))
        rows: list[tuple[FlowQueue, Entry]] = []
        for strand in lane.strands.values():
            rows += [(strand, entry) for entry in strand.entries]
            self._count(strand, -len(strand.entries))
            strand.entries = []
        if rows:
            self._park(rows)

    def put_away(self, site: str, source: str, key: bytes, before: bool = False) -> None:
        """A deferred recipient is in the store that was put off only since its destination was away.

        before: that was before a restart; the first answer since then is news.
        """
        self.away.add(site, source, key, 0 if before else self._shared.now())

    def answered(self, lane: EgressPath) -> None:
        """Its destination has answered: who was put off only since it was away goes now, and not at his next retry."""
        probed = lane.failures > 0 and not lane.down_until
        if self.away.answered(lane.site, lane.source, probed, self._shared.now()):
            self._shared.changed()

    def up(self, lane: EgressPath) -> None:
        """It can be reached, as far as is known."""
        if lane.failures:
            lane.failures, lane.down_until, lane.down_since_ms, lane.reason = 0, 0.0, 0, ""
            self._go_on(lane)

    def _probe(self, lane: EgressPath) -> None:
        """Its rest is over: one delivery may try."""
        if lane.down_until and lane.down_until <= self._shared.now():
            lane.down_until = 0.0
            self._go_on(lane)

    def _go_on(self, lane: EgressPath) -> None:
        for strand in list(lane.strands.values()):
            self.unpark(strand)
            strand.enlist()
