"""One zone's part of the schedule: who goes next.

Flows share the zone by weight (`fair.py`), a flow's queues take turns, each egress path has its learned concurrency
(`feedback.py`), and every limit is checked (`admission`). A destination that cannot be reached is down for a time that
doubles; then one probe may try, and a success opens it. Which recipients are in memory: `window.py`.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.notes import Note
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reroute import ANY
from zonemta_py.schedule.admission.grants import Grants, Slots
from zonemta_py.schedule.admission.zone_share import ZoneShare
from zonemta_py.schedule.batch import Batch, Blocked, EgressPath, Entry, FlowQueue, Turn
from zonemta_py.schedule.flow import LEAVING, apart_of
from zonemta_py.schedule.flow_queues import NO_SOURCE, domain_of
from zonemta_py.schedule.shared import Shared
from zonemta_py.schedule.window import ZoneWindow
from zonemta_py.zones.site import Site


class ZoneSchedule(ZoneWindow):
    """One zone's window, egress paths and turns."""

    def __init__(
        self, zone: Zone, store: Store, busy: set[bytes], marks: dict[str, bytes], shared: Shared,
        make: type[FlowQueue] = FlowQueue,
    ) -> None:  # fmt: skip
        super().__init__(zone, store, busy, marks, shared, partial(make, self))
        self.held: Blocked | None = None
        self._waiting: dict[Turn, deque[FlowQueue]] = {}  # those that may not have the zone's last connections
        self._pace = ZoneShare(zone.connections)
        self.most = zone.connections
        """Connections that it may have."""
        self._slots: Slots | None = None
        """Of those that it shares with other queues."""
        self.resting: dict[EgressPath, None] = {}
        """Egress paths whose last connections have failed."""
        self._read(zone)

    def _read(self, zone: Zone) -> None:
        tls = self._shared.config.tls
        self.by_domain = tls.mta_sts or tls.dane or bool(zone.tls_required_domains)
        self.limits = self._shared.admission.zone_limits(zone.name)

    def configure(self, zone: Zone) -> None:
        if self._slots is None:
            self.allow(zone.connections)
        self._read(zone)
        own = self.flow_queues.own
        super().configure(zone)
        if own != self.flow_queues.own:  # what rests is a place to which nothing goes any more
            for path in list(self.flow_queues.paths.values()):
                self.up(path)

    def share(self, grants: Grants) -> None:
        """Other queues share its connections, as configured now."""
        before, self._slots = self._slots, grants.slots(self.zone.name, self.zone.connections, self.allow)
        if before is None:
            self._slots.take(self.active)
        self.allow(self._slots.most)

    def allow(self, connections: int) -> None:
        """So many from now on."""
        self.most = connections
        self._pace.configure(connections)

    # -- what goes out

    def next(self) -> Batch | None:
        """The next delivery that is allowed now: flows by weight, their flow queues by turns."""
        if self.held is None and not (self.flow_queues.fair.root.ready_count or self._waiting):
            return None  # there is nothing that could be held
        if not self._open():
            return None
        while (flow_queue := self._turn()) is not None:
            if not flow_queue.may_go():
                self.tidy(flow_queue)  # what it was listed for has gone another way; more may be parked
            elif (batch := self._offer(flow_queue)) is not None:
                return self._gone(batch)
        return None

    def _offer(self, flow_queue: FlowQueue) -> Batch | None:
        """What the flow queue may send now; None: it waits for something, and is listed again when that is there."""
        path, admission, first = flow_queue.path, self._shared.admission, flow_queue.entries[0]
        site: Site | NoRoute | None = None
        domain = domain_of(first.address)
        if self.flow_queues.strange(flow_queue, domain) and self._moved(flow_queue):
            return None
        if self.flow_queues.own is None and self.flow_queues.by_dns(first.note, domain):
            site = self._shared.sites.known(domain)
            if site is None:
                self._look_up(flow_queue, domain)
                return None
            if isinstance(site, NoRoute):
                return Batch(flow_queue, self._take(flow_queue, 1), refusal=site.reply)
            if site.key == path.site:
                self.flow_queues.learn_provider(path, site.provider)
            if not self.flow_queues.belongs(flow_queue, site, first) and self._moved(flow_queue):
                return None  # it was made before its domain's site was known, or that has changed
        if path.source == NO_SOURCE:
            reason = "every source address is kept from this domain by disabled_domains"
            self.down(path, self._shared.now(), 0, reason)
            return None
        hold = self._shared.policy.hold(flow_queue)
        if hold is not None:
            if hold.kind == "source":
                if self._moved(flow_queue):  # what is parked goes the same way
                    return None
                hold = hold._replace(until=self.flow_queues.any_source_at(flow_queue, hold.until))
            self.hold(flow_queue, hold)
            if flow_queue.aside:
                self._park(self._clear(flow_queue))
            return None
        if not self.may_have(path):
            if self.most - self.active <= self._pace.reserve:
                flow_queue.listed = True
                self._waiting.setdefault(flow_queue.turn, deque()).append(flow_queue)
            else:  # it has its share, and is listed again when one of its leases ends
                path.crowded = True
            return None
        batch = admission.grant(flow_queue, self._take)
        if batch is not None:
            batch.site = site if isinstance(site, Site) else None
        return batch

    def move(self, flow_queue: FlowQueue) -> None:
        """Lets what waits there, in the window and parked, go where it belongs now, whatever it waits for."""
        if flow_queue.held is not None and flow_queue.held.kind != "dns":
            self._shared.admission.leave(flow_queue)
            flow_queue.free()
        if flow_queue.path.failures and self._shared.policy.stopped("source", flow_queue.path.source):
            self.up(flow_queue.path)  # that a destination rests for it is of no use to others
        self.reassign(flow_queue)
        self.unpark(flow_queue)
        flow_queue.enlist()
        self.tidy(flow_queue)

    def go_around(self, about: set[str]) -> list[FlowQueue]:
        """Reroutes of mail to these sites, providers or domains have begun or ended: what rests, or waits for one that
        is away, is looked at now. Whose mail may go another way: those to be moved."""
        sites = {site.key for one in about if isinstance(site := self._shared.sites.known(one), Site)}
        found = list[FlowQueue]()
        for path in list(self.flow_queues.paths.values()):
            path.old = True
            names = {path.site, path.site.partition("+")[0], path.provider}
            if ANY in about or names & about or path.site in sites or path.leaving:
                self.up(path)
                self.away.answered(path.site, path.source, True, self._shared.now())
                found += path.flow_queues.values()
        return found

    def _moved(self, flow_queue: FlowQueue) -> bool:
        """Lets what waits go where it belongs now; False if that is here."""
        moved = self.reassign(flow_queue)
        if moved:
            self.unpark(flow_queue)
            flow_queue.enlist()
        return moved

    def _gone(self, batch: Batch) -> Batch:
        flow_queue, path = batch.flow_queue, batch.path
        self.flow_queues.fair.charge(flow_queue.turn.flow, len(batch.entries))
        path.active += 1
        self.active += 1
        grants = self._shared.admission.grants
        if self._slots is not None and grants is not None:
            self._slots.take()
            grants.served((), (0, 0, 0, 0), self.zone.name)
        if not flow_queue.parked.exhausted:
            self.unpark(flow_queue)
        if flow_queue.entries:
            flow_queue.enlist()
        return batch

    def _open(self) -> bool:
        """Whether the zone as a whole may send: its hours, and the limits that count for all of it."""
        before = self.held
        if before is not None and self._shared.now() < before.until < math.inf:
            return False
        self.held = self._shared.admission.zone_hold(self.zone, self.limits)
        if self.held is not None:
            if before is not None and before.cause == self.held.cause:
                self.held = before._replace(until=self.held.until)  # it has waited since then
            self._shared.wake_at(self.held.until, self._shared.changed)
            if self.held.kind == "limit":
                self._shared.admission.zone_waits(self.limits)
        return self.held is None

    def _turn(self) -> FlowQueue | None:
        """Which are checked next: while connections are plenty, those that waited for them have their turns too."""
        free = self.most - self.active
        if free <= 0:
            self._need_slot()
            return None
        if self._waiting and free > self._pace.reserve:
            self._end_waiting()
        flow = self.flow_queues.fair.pick()
        if flow is None:
            return None
        turn = self.flow_queues.by_flow[flow]
        flow_queue = turn.flow_queues.popleft()
        if not turn.flow_queues:
            flow.sleep()
        flow_queue.listed = False
        return flow_queue

    def _need_slot(self) -> None:
        """All that it may have are in use; other queues may have more."""
        grants = self._shared.admission.grants
        if grants is not None and self.flow_queues.fair.root.ready_count:
            grants.need_slot(self.zone.name, self._shared.now())

    def _end_waiting(self) -> None:
        """One flow queue of each flow that waited for a connection may try again."""
        for turn, flow_queues in list(self._waiting.items()):
            flow_queue = flow_queues.popleft()
            if not flow_queues:
                del self._waiting[turn]
            flow_queue.listed = False
            flow_queue.enlist()

    def _take(self, flow_queue: FlowQueue, most: int) -> list[Entry]:
        """The recipients of the first message, at most so many."""
        entries, count = flow_queue.entries, 1
        first, most = entries[0], min(most, len(entries))
        own = self.zone.reroute
        by_domain = self.by_domain or flow_queue.path.terms.zone.last_mx or self.flow_queues.rerouting
        while count < most:
            other = entries[count]
            if other.id != first.id or other.note.routing != first.note.routing:
                break
            if own is not None and (other.note.attempts < own.after_tries) != (first.note.attempts < own.after_tries):
                break
            if by_domain and domain_of(other.address) != domain_of(first.address):
                break  # what TLS must do there may differ
            count += 1
        batch = entries[:count]
        del entries[:count]
        self._count(flow_queue, -count)
        return batch

    def may_have(self, path: EgressPath) -> bool:
        """Whether the zone has a connection for it, seen how quick it was."""
        own = self.flow_queues.own is not None and path.site == self.flow_queues.own.key
        return own or self._pace.may(path.place, path.active, self.active, path.failures > 0)

    def series(self, path: EgressPath) -> int:
        """How many messages of their own may go over one connection as one lease.

        If the sender dies, all without an answer are in doubt: so there is only one where that means to be held.
        """
        return self._pace.series(path.place) if self.zone.in_doubt == "retry" else 1

    def went(self, path: EgressPath, count: int, of: int) -> None:
        """So many messages of a lease of its own were tried."""
        self._pace.went(path.place, count, of)

    def took(self, path: EgressPath, took_ms: int, size: int) -> None:
        """How long a transaction with a message of `size` bytes took, from connecting to the last reply."""
        self._pace.learn(path.place, took_ms, size)

    def begin(self, batch: Batch) -> None:
        """A lease that the schedule did not give: it counts all the same."""
        batch.path.active += 1
        self.active += 1
        if self._slots is not None:
            self._slots.take()

    def done(self, batch: Batch) -> None:
        """A lease of this batch has ended."""
        path = batch.path
        path.active -= 1
        self.active -= 1
        if self._slots is not None:
            self._slots.release()
        self._shared.admission.release(batch)
        flow_queue = batch.flow_queue
        if not flow_queue.parked.exhausted:
            self.unpark(flow_queue)
        flow_queue.enlist()
        if not flow_queue.entries:
            self.flow_queues.forget(flow_queue)
        if path.crowded:
            path.crowded = False
            for flow_queue in path.flow_queues.values():
                if flow_queue.entries and not flow_queue.listed:
                    flow_queue.enlist()
        if not path.active:
            for other in list(path.flow_queues.values()):
                if not other.entries:
                    self.flow_queues.forget(other)

    # -- what waits

    def hold(self, flow_queue: FlowQueue, hold: Blocked) -> None:
        """The flow queue waits until the hold ends, or is lifted before."""
        flow_queue.hold(hold)
        self._shared.wake_at(hold.until, partial(self.over, flow_queue, hold))

    def over(self, flow_queue: FlowQueue, hold: Blocked) -> None:
        """The hold has ended, unless another has come in its place."""
        if flow_queue.held is hold:
            flow_queue.free()
            self.unpark(flow_queue)
            flow_queue.enlist()

    def _look_up(self, flow_queue: FlowQueue, domain: str) -> None:
        """Asks where a domain's mail goes; the flow queue goes on when the answer is there."""
        flow_queue.hold(Blocked("dns", f"{domain} is being looked up", math.inf, self._shared.now_ms()))
        self._shared.sites.look(domain, lambda found: self._looked_up(flow_queue, domain, found))

    def _looked_up(self, flow_queue: FlowQueue, domain: str, found: Site | NoRoute) -> None:
        flow_queue.free()
        if isinstance(found, Site):
            if self.away.waiting:
                self.away.renamed(domain, found.key)
            if found.key == flow_queue.path.site:
                self.flow_queues.learn_provider(flow_queue.path, found.provider)
        elif found.temporary and flow_queue.path.site == domain:
            self.down(flow_queue.path, self._shared.now(), 0, str(found.reply))
        if flow_queue.path.failures and not flow_queue.path.down_until:
            self.up(flow_queue.path) if isinstance(found, Site) else None
        self.reassign(flow_queue, unknown=domain if isinstance(found, NoRoute) else "")
        self.unpark(flow_queue)
        flow_queue.enlist()
        self._shared.changed()

    def now(self) -> float:
        return self._shared.now()

    def ms_at(self, steady: float) -> int:
        """The UNIX time that a moment of steady seconds is."""
        return self._shared.now_ms() + int((steady - self._shared.now()) * 1000)

    # -- destinations that cannot be reached

    def down(self, path: EgressPath, now: float, seconds: float, reason: str) -> None:
        """Rests the destination and parks its window; `seconds` 0: as configured, doubling."""
        if path.down_until:
            return
        retry = path.terms.retry
        path.failures += 1
        path.reason = reason
        self.resting[path] = None
        path.down_since_ms = path.down_since_ms or self._shared.now_ms()
        path.down_until = now + (seconds or min(retry.down_s * 2 ** min(path.failures - 1, 20), retry.down_max_s))
        self._shared.wake_at(path.down_until, lambda: self._probe(path))
        rows: list[tuple[FlowQueue, Entry]] = []
        for flow_queue in path.flow_queues.values():
            rows += self._clear(flow_queue)
        if rows:
            self._park(rows)

    def put_away(self, site: str, source: str, key: bytes, before: bool = False) -> None:
        """A recipient that was deferred only because its destination was away is in the store.

        before: that was before a restart; the first answer since then is news.
        """
        if self.flow_queues.rerouting and self._goes_around(site, key):
            self.away.back.append(key)
            self._shared.changed()
            return
        self.away.add(site, source, key, 0 if before else self._shared.now())

    def _goes_around(self, site: str, key: bytes) -> bool:
        """Whether a deferred recipient would not go to that site any more, by a reroute."""
        value, place = self.due.ground.store.get(key), keys.place(key)
        if value is None:
            return False
        name, target, _, _ = self.flow_queues.where(place.id, place.recipient, Note.of(value))
        return target.key != site or apart_of(name).startswith(LEAVING)

    def answered(self, path: EgressPath) -> None:
        """Its destination has answered: recipients deferred only because it was away go now, not at their next
        retry."""
        probed = path.failures > 0 and not path.down_until
        if self.away.answered(path.site, path.source, probed, self._shared.now()):
            self._shared.changed()

    def up(self, path: EgressPath) -> None:
        """It can be reached, as far as is known."""
        if path.failures:
            path.failures, path.down_until, path.down_since_ms, path.reason = 0, 0.0, 0, ""
            self.resting.pop(path, None)
            self._go_on(path)

    def probe(self, path: EgressPath) -> None:
        """By an order its rest is over now."""
        if path.down_until:
            path.down_until = 0.0
            self._go_on(path)

    def _probe(self, path: EgressPath) -> None:
        """Its rest is over: one delivery may try."""
        if path.down_until and path.down_until <= self._shared.now():
            path.down_until = 0.0
            self._go_on(path)

    def _go_on(self, path: EgressPath) -> None:
        for flow_queue in list(path.flow_queues.values()):
            self.unpark(flow_queue)
            flow_queue.enlist()
