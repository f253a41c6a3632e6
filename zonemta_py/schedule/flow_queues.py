"""The flow queues of one zone, which a recipient belongs to: made when they are needed, dropped when they are empty.

A recipient's flow queue is decided by where its mail goes (the host that a plugin named, the zone's, or the site of its
domain), by its message's source address, and by its flow; mail for a domain that is stopped is kept apart from other
mail to the same place. All of it is recovered after a restart, from the note and the flow queue's name in the parked
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from zonemta_py.config import Source, Zone
from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.mail.reroute import HOST, POOL, ZONE, Bypass, RerouteTarget
from zonemta_py.schedule.batch import NEVER_MS, EgressPath, Entry, FlowQueue, Turn
from zonemta_py.schedule.by_length import ByLength
from zonemta_py.schedule.cursor import Ground, Shelf
from zonemta_py.schedule.flow import LEAVING, STOPPED, FlowId, apart_of, flow_queue_name, place_of, split_key
from zonemta_py.schedule.shared import Shared
from zonemta_py.zones import pool
from zonemta_py.zones.destinations import SendingTerms
from zonemta_py.zones.fair import Fair, Flow
from zonemta_py.zones.feedback import Concurrency
from zonemta_py.zones.site import Site
from zonemta_py.zones.throttle import Limit, Scope
from zonemta_py.zones.zone import Destination as Target
from zonemta_py.zones.zone import destination, named

EMPTIED_MAX = 100
NO_SOURCE = "none"
"""Stands for the source address where every one is kept from the domain by the configuration."""


Make: TypeAlias = Callable[[str, EgressPath, Turn, tuple[Limit, ...], Shelf], FlowQueue]


class PathNames:
    """Egress paths by whatever an operator calls them: site, its host without the port, provider, domain, source."""

    def __init__(self) -> None:
        self._by_name: dict[str, EgressPath | dict[EgressPath, None]] = {}  # nearly always one: a dict would be larger

    def of(self, name: str) -> list[EgressPath]:
        found = self._by_name.get(name, {})
        return list(found) if isinstance(found, dict) else [found]

    def add(self, path: EgressPath) -> None:
        for name in self._names(path):
            there = self._by_name.setdefault(name, path)
            if isinstance(there, dict):
                there[path] = None
            elif there is not path:
                self._by_name[name] = {there: None, path: None}

    def remove(self, path: EgressPath) -> None:
        for name in self._names(path):
            there = self._by_name.get(name)
            if isinstance(there, dict):
                there.pop(path, None)
            if there is path or there == {}:
                del self._by_name[name]

    @staticmethod
    def _names(path: EgressPath) -> set[str]:
        names = {path.site, path.site.rpartition(":")[0], path.provider, path.source}
        if path.apart:
            names.add(path.stopped)
        names.discard("")
        return names


class FlowQueues:
    """Of one zone. own: where all its mail goes, if that is one place. make: a flow queue of the zone."""

    def __init__(self, zone: Zone, ground: Ground, shared: Shared, make: Make) -> None:
        self._ground, self._shared, self._new = ground, shared, make
        self.paths: dict[tuple[str, str], EgressPath] = {}
        self.names = PathNames()
        self.by_key: dict[str, FlowQueue] = {}
        self.by_flow: dict[Flow, Turn] = {}
        self.fair = Fair()
        self._turns: dict[FlowId, Turn] = {}
        self._emptied: dict[str, FlowQueue] = {}
        """The latest EMPTIED_MAX that were forgotten: at a quiet hour each message needs its own again."""
        self._read(zone)

    def _read(self, zone: Zone) -> None:
        self.zone = zone
        self._emptied.clear()
        self.own = destination(zone, "") if zone.smart or zone.pulled else None
        self._sources, self._pools = self._shared.config.sources(zone), self._shared.config.pools
        self._plain = SendingTerms((), zone, self._shared.retry)
        self._tables = [] if zone.pulled else self._shared.config.destinations

    def configure(self, zone: Zone) -> bool:
        """Other settings from now on. True: what waits may belong elsewhere now."""
        before = self.own, self._sources, self.zone.port, self._tables, self._pools, self.zone.reroute
        self._read(zone)
        for path in self.paths.values():
            self._aim(path)
            self._settle_terms(path)
            path.idle = 0
            most = 1 << 30 if zone.pulled else path.terms.zone.connections_per_destination
            path.concurrency.configure(self._shared.config.learning, most)
            path.crowded = False
        for flow_id, turn in self._turns.items():
            self.fair.add(turn.flow.path, self._shared.weights.place(*flow_id)[1])
        for flow_queue in self.by_key.values():
            flow_queue.limits = self.limits_of(flow_queue.path, flow_queue.flow_id)
        moved = before != (self.own, self._sources, zone.port, self._tables, self._pools, zone.reroute)
        for path in self.paths.values():
            path.old |= moved
        return moved

    def _aim(self, path: EgressPath) -> None:
        """At the port of today, where no host is named."""
        if not (path.target.host or self.zone.pulled) and path.target.port != self.zone.port:
            path.target = Target(path.site, "", self.zone.port)

    def flows(self) -> list[FlowId]:
        """Those that have a flow queue."""
        return list(self._turns)

    def of_flow(self, kind: str, name: str, tenants: tuple[str, ...] = ()) -> list[ByLength[FlowQueue]]:
        """Those of a campaign or tenant, by length; kind "": of all flows. tenants: only their flows; none: of all."""
        turns = self._turns.items()
        found = [(flow_id, turn.members) for flow_id, turn in turns if not kind or getattr(flow_id, kind) == name]
        return [members for flow_id, members in found if not tenants or flow_id.tenant in tenants]

    def parked(self) -> Iterator[FlowQueue]:
        """Flow queues that have parked recipients in the store: one seek each."""
        start, stop = keys.parked_range(self.zone.name), keys.end(keys.parked_range(self.zone.name))
        while (key := self._ground.store.first(start, stop)) is not None:
            name = keys.place(key).destination
            site, source, flow = split_key(name)
            target = self._target(site, apart_of(name))
            flow_queue = self._make(name, target, source, flow, "")
            flow_queue.parked.exhausted = False
            flow_queue.deadline_ms = 0
            yield flow_queue
            start = keys.end(keys.parked_range(self.zone.name, name))

    def of(self, message_id: str, address: str, note: Note) -> FlowQueue:
        """The recipient's flow queue, made if there is none."""
        key, target, source, provider = self.where(message_id, address, note)
        flow_queue = self.by_key.get(key)
        if flow_queue is None:
            flow_queue = self._again(key, target, provider) or self._make(key, target, source, note.flow, provider)
        elif target.host and not flow_queue.path.target.host:
            flow_queue.path.target = target  # one that was found by its parked recipients learns which host it means
        return flow_queue

    def where(self, message_id: str, address: str, note: Note) -> tuple[str, Target, str, str]:
        """Name of a recipient's flow queue, its host (a plugin's, the zone's or its site's), source, provider."""
        routing, provider, domain = note.routing, "", domain_of(address)
        apart, sources, settings = "", self._sources, self.zone
        if routing and routing.get("host"):
            target = named(routing["host"], routing.get("port") or 25)
        elif self.own is not None:
            target = self.own
        else:
            site = self._shared.sites.known(domain)
            if isinstance(site, Site):
                target, provider = Target(site.key, "", self.zone.port), site.provider
            else:
                target = Target(domain, "", self.zone.port)
        if self._tables and not (routing and routing.get("host")):
            claims = self._shared.destinations.of(self.zone, domain, target.key, provider)
            apart = claims.apart
            if claims.relayed:
                target, provider = destination(claims.terms.zone, ""), ""
            if claims.terms.names:
                settings = claims.terms.zone
                sources = self._shared.config.sources(settings)
        if routing and "pool" in routing:
            sources = self._shared.config.sources(settings, routing["pool"])
        if (to := self._to(domain, target.key, provider, note)) is not None:
            if to.kind == HOST:
                target, provider, apart = named(to.name, to.port), "", ""
            elif to.kind == POOL:
                sources = self._shared.config.sources(settings, to.name)
            elif to.kind == ZONE:
                apart = LEAVING + to.name
        if self._shared.policy.stops:
            apart = self.stopped(domain) or apart
        source = (routing and routing.get("source")) or ""
        if not source and sources:
            source = self._source(sources, message_id, target, provider, domain)
        return flow_queue_name(place_of(target.key, apart), source, note.flow), target, source, provider

    def _to(self, domain: str, site: str, provider: str, note: Note) -> RerouteTarget | None:
        """Where a reroute sends it. What plugins have chosen for it has precedence."""
        if not (self.rerouting or note.done) or self.zone.pulled:
            return None
        found, routing = self._shared.reroutes.of(self.zone, domain, site, provider, note), note.routing
        if found is None or (routing and routing.get("host") and found.to.kind != ZONE):
            return None
        return (
            None if routing and found.to.kind == POOL and (routing.get("pool") or routing.get("source")) else found.to
        )

    def _bypasses(self, path: EgressPath, domain: str, note: Note) -> bool:
        """Whether a reroute may take it away, or has brought it, though DNS has not been asked where it goes."""
        if (path.old and self._shared.reroutes.ever) or path.leaving:
            return True
        return self._to(domain, path.site, path.provider, note) is not None

    @property
    def rerouting(self) -> bool:
        """Whether some of its mail may go another way."""
        return bool(self._shared.reroutes.by_name) or self.zone.reroute is not None

    def bypass(self, address: str, note: Note) -> Bypass | None:
        """The reroute by which a recipient goes now."""
        if not self.rerouting or self.zone.pulled:
            return None
        domain = domain_of(address)
        site = self._shared.sites.known(domain) if self.own is None else None
        place = self.own.key if self.own is not None else site.key if isinstance(site, Site) else domain
        provider = site.provider if isinstance(site, Site) else ""
        if self._to(domain, place, provider, note) is None:
            return None
        return self._shared.reroutes.of(self.zone, domain, place, provider, note)

    def stopped(self, domain: str) -> str:
        """What keeps a domain's mail apart because it is stopped; "" if it is not."""
        return STOPPED + domain if self._shared.policy.stopped("domain", domain) and not self.zone.pulled else ""

    def _source(self, sources: list[Source], message_id: str, target: Target, provider: str, domain: str) -> str:
        """The message's source address, always the same one unless that may not send there."""
        site, admission = target.key, self._shared.admission
        allowed = [source for source in sources if not pool.disabled(source, domain)]

        families = set[int]() if target.host else self._families(domain)

        def usable(source: Source) -> bool:
            reaches = not families or (6 if ":" in source.address else 4) in families
            return reaches and admission.source_hold(source.address, site, provider) is None

        chosen = pool.choose(allowed, message_id, usable) or pool.choose(allowed, message_id, lambda _: True)
        return chosen.address if chosen else NO_SOURCE

    def any_source_at(self, flow_queue: FlowQueue, until: float) -> float:
        """When to look again at a flow queue whose source may not send until then: another one may be free before."""
        path, admission = flow_queue.path, self._shared.admission
        holds = (
            admission.source_hold(source.address, path.site, path.provider)
            for source in self._shared.config.sources(path.terms.zone, pool_of(flow_queue.entries))
        )
        return min((hold.until for hold in holds if hold is not None), default=until)

    def _families(self, domain: str) -> set[int]:
        """IP versions of the domain's hosts, as far as they are known."""
        site = self._shared.sites.known(domain) if self.own is None else None
        if not isinstance(site, Site):
            return set()
        return {6 if ":" in address else 4 for _, addresses in site.hosts for address in addresses}

    def _make(self, key: str, target: Target, source: str, flow: str, provider: str) -> FlowQueue:
        apart = apart_of(key)
        place = place_of(target.key, apart)
        path = self.paths.get((place, source))
        if path is None:
            terms = self._terms(apart, target.key, provider)
            concurrency = self._concurrency(place, source, terms.zone)
            path = self.paths[place, source] = EgressPath(target, source, concurrency, provider, apart, terms)
            self.names.add(path)
        turn = self._turn_of(FlowId.of(flow))
        flow_queue = self._new(key, path, turn, self.limits_of(path, turn.flow_id), Shelf(self._ground, key))
        self.by_key[key] = path.flow_queues[turn.text] = flow_queue
        turn.members.add(flow_queue, 0)
        return flow_queue

    def _again(self, key: str, target: Target, provider: str) -> FlowQueue | None:
        """One that was forgotten, as new; None: it is not there, or what it belongs to has changed since."""
        flow_queue = self._emptied.pop(key, None)
        if flow_queue is None:
            return None
        path, turn = flow_queue.path, flow_queue.turn
        name = path.place, path.source
        if path.target != target or path.provider != provider or self.paths.get(name, path) is not path:
            return None
        if name not in self.paths:
            path.concurrency = self._concurrency(*name, path.terms.zone)
            path.idle, path.crowded, path.old, path.owner = 0, False, False, ""
            self.paths[name] = path
            self.names.add(path)
        if self._turns.setdefault(turn.flow_id, turn) is turn:
            self.by_flow[turn.flow] = turn
        else:
            turn = flow_queue.turn = self._turns[turn.flow_id]
        flow_queue.parked = Shelf(self._ground, key)
        self.by_key[key] = path.flow_queues[turn.text] = flow_queue
        turn.members.add(flow_queue, 0)
        return flow_queue

    def _target(self, site: str, apart: str) -> Target:
        """The host behind the name of a place, as far as it is known."""
        if self.own is not None and self.own.key == site:
            return self.own
        settings = self._terms(apart, site, "").zone if apart else self.zone
        if settings.smart and (found := destination(settings, "")).key == site:
            return found
        return Target(site, "", self.zone.port)

    def _terms(self, apart: str, site: str, provider: str) -> SendingTerms:
        """The settings that hold for all mail of one place."""
        if not self._tables:
            return self._plain
        return self._shared.destinations.there(self.zone, "" if apart.startswith(STOPPED) else apart, site, provider)

    def _settle_terms(self, path: EgressPath) -> None:
        """The settings that hold there now, where its provider or the tables may be others than before."""
        path.terms = self._terms(path.apart, path.site, path.provider)

    def terms_of(self, path: EgressPath, address: str) -> SendingTerms:
        """The settings that hold for a recipient there."""
        if not self._tables:
            return path.terms
        return self._shared.destinations.for_domain(path.terms, self.zone, domain_of(address))

    def _concurrency(self, place: str, source: str, settings: Zone) -> Concurrency:
        """What was learned; nothing is, where we do not connect."""
        if not self.zone.pulled:
            found = self._shared.admission.concurrency(self.zone, place, source)
            if found.most != settings.connections_per_destination:
                found.configure(self._shared.config.learning, settings.connections_per_destination)
            return found
        unlimited = Concurrency(self._shared.config.learning, 1 << 30)
        unlimited.window = unlimited.most
        return unlimited

    def limits_of(self, path: EgressPath, flow_id: FlowId) -> tuple[Limit, ...]:
        scope = Scope(self.zone.name, path.source, path.site, path.provider, flow_id.tenant, flow_id.campaign)
        return self._shared.admission.limits(scope)

    def _turn_of(self, flow_id: FlowId) -> Turn:
        turn = self._turns.get(flow_id)
        if turn is None:
            place, weights = self._shared.weights.place(*flow_id)
            turn = self._turns[flow_id] = Turn(flow_id, self.fair.add(place, weights))
            self.by_flow[turn.flow] = turn
        return turn

    def still(self, flow_queue: FlowQueue, message_id: str, address: str, note: Note, unknown: str = "") -> FlowQueue:
        """Where a recipient of this flow queue belongs now; here, while nothing new is known of its domain."""
        domain = domain_of(address)
        asked = self.by_dns(note, domain) and domain != unknown and self._shared.sites.known(domain) is None
        if asked and not self.strange(flow_queue, domain) and not self._bypasses(flow_queue.path, domain, note):
            return flow_queue
        return self.of(message_id, address, note)

    def strange(self, flow_queue: FlowQueue, domain: str) -> bool:
        """Whether the domain's mail is kept apart, but not here, or no longer, as far as the domain alone says."""
        path = flow_queue.path
        if not (path.apart or self._shared.policy.stops or self._tables):
            return False
        stopped = self.stopped(domain)
        if stopped or path.stopped:
            return path.apart != stopped
        own = self._shared.destinations.apart(self.zone, domain) if self._tables else ""
        first = path.apart.partition("+")[0]
        return first != own if own or not self._tables else False

    def belongs(self, flow_queue: FlowQueue, site: Site, entry: Entry) -> bool:
        """Whether a recipient whose site that is belongs here."""
        if self._tables or self.rerouting:
            return self.where(entry.id, entry.address, entry.note)[0] == flow_queue.key
        return site.key == flow_queue.path.site

    def by_dns(self, note: Note, domain: str) -> bool:
        """Whether DNS decides where it goes."""
        if self.own is not None or not self._shared.sites.asks or (note.routing and note.routing.get("host")):
            return False
        if self.rerouting and (found := self.bypass(f"@{domain}", note)) is not None and found.to.kind == HOST:
            return False
        return not (self._tables and self._shared.destinations.relayed(self.zone, domain))

    def learn_provider(self, path: EgressPath, provider: str) -> None:
        """An egress path that was found by its parked recipients, or by its domain: its limits depend on it."""
        if path.provider != provider:
            self._emptied.clear()  # their limits depend on it
            self.names.remove(path)
            path.provider = provider
            if self.paths.get((path.place, path.source)) is path:
                self.names.add(path)
            if self._tables:
                self._settle_terms(path)
                path.concurrency = self._concurrency(path.place, path.source, path.terms.zone)
            for flow_queue in path.flow_queues.values():
                flow_queue.limits = self.limits_of(path, flow_queue.flow_id)

    def known(self, flow_queue: FlowQueue) -> FlowQueue:
        """It may have been forgotten meanwhile: then it is taken in again, unless there is another of its name."""
        known = self.by_key.get(flow_queue.key)
        if known is None:
            known = self.by_key[flow_queue.key] = flow_queue
            flow_queue.path = self.paths.setdefault((flow_queue.path.place, flow_queue.path.source), flow_queue.path)
            self.names.add(flow_queue.path)
            self._aim(flow_queue.path)
            self._settle_terms(flow_queue.path)
            flow_queue.limits = self.limits_of(flow_queue.path, flow_queue.flow_id)
            flow_queue.turn = self._turn_of(flow_queue.flow_id)
            flow_queue.path.flow_queues[flow_queue.turn.text] = flow_queue
            flow_queue.turn.members.add(flow_queue, len(flow_queue.entries))
        return known

    def forget(self, flow_queue: FlowQueue) -> None:
        """Nothing is left on it, and its egress path is well."""
        path, turn = flow_queue.path, flow_queue.turn
        if flow_queue.entries or flow_queue.listed or flow_queue.held or not flow_queue.parked.exhausted:
            return
        if path.active or path.failures or self.by_key.get(flow_queue.key) is not flow_queue:
            return
        del self.by_key[flow_queue.key]
        path.flow_queues.pop(turn.text, None)
        self.leave(path)
        turn.members.remove(flow_queue, 0)
        if not turn.members.parts:
            self._turns.pop(turn.flow_id, None)
            self.by_flow.pop(turn.flow, None)
        if not self.zone.pulled:
            flow_queue.deadline_ms = NEVER_MS
            self._emptied[flow_queue.key] = flow_queue
            if len(self._emptied) > EMPTIED_MAX:
                del self._emptied[next(iter(self._emptied))]

    def leave(self, path: EgressPath) -> None:
        """Drops an egress path on which nothing is left, once it has no connection that its next mail could use."""
        name = path.place, path.source
        if path.flow_queues or self.paths.get(name) is not path:
            return
        until = self._shared.admission.usable_until(path)
        if until:
            self._shared.wake_at(until, partial(self.leave, path))
            return
        del self.paths[name]
        self.names.remove(path)


def pool_of(entries: Sequence[Entry]) -> str:
    """The pool that a plugin has chosen for the first of these recipients; "" none."""
    routing = entries[0].note.routing if entries else None
    return (routing.get("pool") or "") if routing else ""


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].lower().rstrip(".")
