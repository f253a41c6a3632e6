"""The state of policy: what holds back sources, sites, tenants and campaigns for a while, and what was learned.

    suspend   a destination, domain, tenant, campaign or zone sends nothing until a time (a rule, or an operator)
    rest      a source sends nothing to a site until a time (it is blocked there); other sources take over
    rate      a source's rate at a provider, lowered when that asked for it, and raised again (`learned_rates.py`)
    concurrency   how many connections a destination takes (`learned_concurrency.py`)
    recipients, pipelining   the SMTP dialogue with a site (`manners.py`)
    warmup    how far a new source has come at a provider
    reroute   mail of a zone, or for a destination, goes another way until a time (`schedule.reroutes`)

Each change is a record in the journal with its cause, and all of it stands in position records; so it survives any
crash, an operator sees it (`rows`) and can undo it (`lift`). Times: steady seconds inside, UNIX ms in records.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.config import Config, Zone, queue_numbers
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, OutcomeRow
from zonemta_py.mail.reroute import REROUTE
from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.schedule.batch import Blocked, EgressPath, FlowQueue
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.policy.learned_concurrency import LearnedConcurrency
from zonemta_py.schedule.policy.learned_rates import LearnedRates
from zonemta_py.schedule.policy.manners import KINDS as MANNERS
from zonemta_py.schedule.policy.manners import Manners
from zonemta_py.schedule.policy.standing import (
    LEARNED,
    NOTED,
    RESTING,
    SUSPENDED,
    ByWord,
    Portions,
    Row,
    portions,
)
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.zones import window
from zonemta_py.zones.rates import Learned
from zonemta_py.zones.warmup import DAY_MS, Warmups

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Classified

SOURCE, UNUSABLE = "source", "it cannot be used"
"""The kind of a source address, and how the cause begins if it rests because of itself."""
NO_TLS = "no-tls"
"""What a rule stops at a site where TLS fails: opportunistic TLS."""
GUARD = "guard"
"""What a provider says of recipients is not believed (`queue.suppression.guard`); it stops no mail."""
LOST = "lost"
"""What may have been lost of this, and of the suppression list, to damage: shown until an operator acknowledges it."""
CONNECT = "connect"
"""The stage at which no server was reached."""
SEEN_MAX = 10_000


class Suspension(NamedTuple):
    """Something that is stopped. until_ms: steady time, 0 until it is lifted. since_ms: by the clock.

    chosen: an operator's order, or a bound set by one, and not a destination's reply: while it holds, mail does not
    age because of it (`Pauses`). begun_ms: since when it was, steady time. tenants: of a campaign, whose mail is
    stopped ("": that of none); empty: everybody's. to: of a reroute, which stops nothing: where that mail goes.
    """

    until_ms: int
    since_ms: int
    cause: str
    chosen: bool = True
    begun_ms: int = 0
    tenants: tuple[str, ...] = ()
    to: str = ""

    def is_about(self, tenant: str) -> bool:
        return not self.tenants or tenant in self.tenants


class PolicyState:
    """All of it, for all zones. now: steady seconds; now_ms: the clock; record: writes a change to the journal."""

    def __init__(
        self,
        config: Config,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        record: Callable[[list[object]], None],
    ) -> None:
        self._now, self._now_ms, self._record = now, now_ms, record
        self.stops: dict[tuple[str, str], Suspension] = {}
        self._stops_named = ByWord[tuple[str, str]]()
        self.unusable: dict[str, Suspension] = {}
        """Source addresses that are stopped because they cannot be used (`schedule.source_health`); also in `stops`."""
        self.suspected: set[str] = set()
        """Those of them of which it is not known yet whether they can: no row, event or record for what is mostly over
        within a second."""
        self.reroutes: dict[str, Suspension] = {}
        """Those that hold, by name; also in `stops`."""
        self.rerouted = 0
        """Grows whenever that changes."""
        self.pauses = Pauses()
        self._lost: dict[str, tuple[int, str]] = {}
        self._rates = LearnedRates(config)
        self._seen: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()
        self.learned_concurrency = LearnedConcurrency(config, now_ms, record)
        self.manners = Manners(now_ms, record)
        self._read(config)

    def _read(self, config: Config) -> None:
        self._config = config
        sources = [source for pool in config.pools for source in pool.sources]
        self.warmups = Warmups(config.warmups, sources, _part(config))
        self._windows = {found.name: found for found in config.windows}

    def configure(self, config: Config) -> None:
        """Other settings from now on: what is stopped and what was learned stays, as does what was sent today."""
        self.day()
        days = self.warmups.state()
        self._read(config)
        self.warmups.restore(days)
        self.learned_concurrency.configure(config)
        self._rates.configure(config)

    # -- what holds

    def zone_hold(self, zone: Zone) -> Blocked | None:
        """Why a zone sends nothing now: it is suspended, or its hours are over."""
        if self.stops and (stop := self._stop("zone", zone.name)):
            return self._hold("suspended", f"zone {zone.name}", stop)
        found = self._windows.get(zone.window)
        if found is not None and found.time_zone != "recipient":
            now_ms = self._now_ms()
            opens = window.opens(found, "", now_ms)
            if opens > now_ms:
                return Blocked("hours", f"outside the hours {found.name!r}", self._steady(opens), now_ms)
        return None

    def hold(self, flow_queue: FlowQueue) -> Blocked | None:
        """Why a flow queue sends nothing now."""
        path = flow_queue.path
        if self.stops:
            flow_id = flow_queue.flow_id
            for kind, name in (
                ("domain", path.stopped), ("destination", path.site), ("destination", path.provider),
                ("tenant", flow_id.tenant), ("campaign", flow_id.campaign),
            ):  # fmt: skip
                if name and (stop := self._stop(kind, name)) and stop.is_about(flow_id.tenant):
                    return self._hold("suspended", f"{kind} {name}", stop)
        return self.source_hold(path.source, path.site, path.provider) if path.source else None

    def hold_at(self, source: str, site: str, provider: str) -> Blocked | None:
        """Why nothing goes to a site now, for which its mail has not waited. source: "" for any."""
        for name in (site, provider):
            if self.stops and name and (stop := self._stop("destination", name)):
                return self._hold("suspended", f"destination {name}", stop)
        return self.source_hold(source, site, provider) if source else None

    def source_hold(self, source: str, site: str, provider: str) -> Blocked | None:
        """Why a source sends nothing to a site now: stopped, resting there, or its share of the day is used up."""
        if self.stops:
            if stop := self._stop(SOURCE, source):
                return self._hold("source", f"source {source}", stop)
            if stop := self._stop("rest", f"{source} {site}"):
                return self._hold("source", f"source {source} at {site}", stop)
        days = self.warmups.of(source, provider or site)
        if days is not None and days.room(self._steady_ms()) <= 0:
            cap = f"{days.own_cap}, its part of the {days.cap}" if days.own_cap != days.cap else f"its {days.cap}"
            cause = f"warm-up: {source} has sent {cap} of today to {provider or site}"
            return Blocked("source", cause, days.next_ms() / 1000, self._now_ms())
        return None

    def reroutes_now(self) -> dict[str, Suspension]:
        """Those whose time is not over."""
        return {name: stop for name in list(self.reroutes) if (stop := self._stop(REROUTE, name)) is not None}

    def stopped(self, kind: str, name: str) -> bool:
        return bool(self.stops) and self._stop(kind, name) is not None

    def _stop(self, kind: str, name: str) -> Suspension | None:
        stop = self.stops.get((kind, name))
        if stop is not None and stop.until_ms and stop.until_ms <= self._steady_ms():
            self._ended(kind, name, stop.until_ms)
            return None
        return stop

    def _ended(self, kind: str, name: str, at_ms: int) -> None:
        stop = self.stops.pop((kind, name), None)
        if stop is None:
            return
        self._stops_named.discard((kind, name), name)
        if kind == SOURCE:
            self.unusable.pop(name, None)
            self.suspected.discard(name)
        if kind == REROUTE:
            del self.reroutes[name]
            self.rerouted += 1
        elif stop.chosen:
            self.pauses.add(kind, name, stop.begun_ms, at_ms)

    def _begun(self, kind: str, name: str, stop: Suspension) -> None:
        self.stops[kind, name] = stop
        self._stops_named.add((kind, name), name)
        if kind == SOURCE and not stop.chosen:
            self.unusable[name] = stop
        if kind == REROUTE:
            self.reroutes[name] = stop
            self.rerouted += 1

    def _hold(self, kind: str, what: str, stop: Suspension) -> Blocked:
        rests = kind == SOURCE and not stop.chosen
        cause = f"{what} {'rests' if rests else 'is suspended'}: {stop.cause}"
        return Blocked(kind, cause, stop.until_ms / 1000 if stop.until_ms else math.inf, stop.since_ms)

    def _steady(self, ms: int) -> float:
        """Of a time by the clock."""
        return self._now() + (ms - self._now_ms()) / 1000

    def _steady_ms(self) -> int:
        return round(self._now() * 1000)

    def paused_ms(
        self, path: EgressPath, flow_id: FlowId, zone: str, domain: str, since_ms: int, until_ms: int, more: list[Span]
    ) -> int:  # fmt: skip
        """For how long of that (steady) time somebody had chosen to stop what goes this way to that domain, or one of
        the stretches `more` was."""
        if not (self.stops or self.pauses or more):
            return 0
        names = (
            ("zone", zone), ("domain", domain), ("destination", path.site), ("destination", path.provider),
            ("tenant", flow_id.tenant), ("campaign", flow_id.campaign), ("source", path.source),
        )  # fmt: skip
        under_way = more + [
            (stop.begun_ms, until_ms)
            for of in names
            if (stop := self.stops.get(of)) is not None and stop.chosen and stop.is_about(flow_id.tenant)
        ]
        return self.pauses.within(names, under_way, since_ms, until_ms)

    # -- what is stopped

    def stop(
        self, kind: str, name: str, seconds: float, cause: str, chosen: bool = False, tenants: tuple[str, ...] = (),
        to: str = "",
    ) -> None:  # fmt: skip
        """Stops it, for so many seconds (inf: until it is lifted). chosen, tenants, to: as of `Suspension`; where it is
        stopped for others already, it is for all of them, and where it is rerouted, that goes elsewhere now."""
        begun_ms = self._steady_ms()
        until_ms = 0 if seconds == math.inf else begun_ms + int(seconds * 1000)
        before = self._stop(kind, name)
        if before is not None and before.to == to and not (chosen and name in self.unusable and kind == SOURCE):
            tenants = _together(before.tenants, tenants)
            longer = bool(before.until_ms) and not 0 < until_ms <= before.until_ms
            if not longer and tenants == before.tenants:
                return  # it is already, for as long
            until_ms = until_ms if longer else before.until_ms
        value = [until_ms, self._now_ms(), chosen, begun_ms, *([list(tenants)] if tenants or to else [])]
        value += [to] if to else []
        self._change(["stop", [kind, name], value, cause])

    def suspect(self, source: str, seconds: float, cause: str) -> None:
        """A source address sends nothing until it is known whether it can be used."""
        now_ms = self._steady_ms()
        self._ended(SOURCE, source, now_ms)
        self._begun(SOURCE, source, Suspension(now_ms + int(seconds * 1000), self._now_ms(), cause, False, now_ms))
        self.suspected.add(source)

    def trust(self, source: str) -> None:
        """It is suspected no longer."""
        self._ended(SOURCE, source, self._steady_ms())

    def lift(self, kind: str, name: str, cause: str, tenants: tuple[str, ...] = ()) -> bool:
        """Ends a stop, or forgets a learned rate or concurrency; False if there is none. tenants: of a campaign,
        whose mail goes again; the stop holds on for all others that it is about."""
        stop = self._stop(kind, name) if tenants else None
        if stop is not None and (others := [tenant for tenant in stop.tenants if tenant not in tenants]):
            if len(others) < len(stop.tenants):
                value = [stop.until_ms, stop.since_ms, stop.chosen, self._steady_ms(), others]
                self._change(["stop", [kind, name], value, stop.cause])
            return len(others) < len(stop.tenants)
        if kind == "rate":
            source, _, provider = name.rpartition(" ")
            found = self._rates.known(source, provider) is not None
        elif kind == "concurrency":
            found = self.learned_concurrency.knows(name)
        elif kind in MANNERS:
            found = self.manners.knows(kind, name)
        elif kind == LOST:
            found = name in self._lost
        else:
            found = self._stop(kind, name) is not None
        if found:
            self._change(["lift", [kind, name], self._steady_ms() if (kind, name) in self.stops else None, cause])
        return found

    def _change(self, body: list[Any]) -> None:
        self._record(body)
        self.apply(body)

    def apply(self, body: Sequence[Any]) -> None:
        """Makes a record true: now, or after a crash."""
        what, (kind, name), value, cause = body[:4]
        if what == "stop":
            until_ms, since_ms, chosen, begun_ms = [*value, True, value[1]][:4] if len(value) < 4 else value[:4]
            self._ended(kind, name, begun_ms)
            tenants, to = tuple(value[4]) if len(value) > 4 else (), value[5] if len(value) > 5 else ""
            self._begun(kind, name, Suspension(until_ms, since_ms, cause, chosen, begun_ms, tenants, to))
        elif what == "lift" and kind == "rate":
            source, _, provider = name.rpartition(" ")
            self._rates.forget(source, provider)
        elif kind == "concurrency":
            self.learned_concurrency.apply(name, value, cause)
        elif kind in MANNERS and what in ("manner", "lift"):
            self.manners.apply(kind, name, value, cause)
        elif what == LOST:
            self._lost[name] = (value, cause)
        elif kind == LOST:
            self._lost.pop(name, None)
        elif what == "lift":
            self._ended(kind, name, value or self._steady_ms())
        elif what == "rate":
            self._rates.restore(kind, name, value, self._now())
        elif what == "warmup" and value is not None and (days := self.warmups.of(kind, name)) is not None:
            days.set_step(*value)

    def lost(self, name: str, cause: str) -> None:
        """An order may have been lost to damage: shown until it is lifted."""
        self._change([LOST, [LOST, name], self._now_ms(), cause])

    # -- what was learned

    def learned(self, path: EgressPath) -> Learned | None:
        """The rate that was learned for the egress path's source at its provider; None: no bound."""
        return self._rates.known(path.source, path.provider or path.site)

    def learned_at(self, source: str, provider: str) -> Learned | None:
        """The same. provider: or a site that has none."""
        return self._rates.known(source, provider)

    def rate_cause(self, path: EgressPath) -> str:
        found = self._rates.of(path.source, path.provider or path.site)
        return f"learned rate {found.rate(self._now()):.3g}/s: {found.cause}"

    def count(
        self, source: str, site: str, provider: str, verdict: int, kind: str, recipients: int, stage: str = "",
        day: int | None = None,
    ) -> None:  # fmt: skip
        """What became of recipients, for the day of a source that is warmed up. kind: the class of the reply. Where no
        server was reached nothing was sent: that says nothing of the day, and is given back to the `day` of the lease,
        if that is known."""
        days = self.warmups.of(source, provider or site) if source else None
        if days is None or verdict not in (DELIVERED, DEFERRED, BOUNCED):
            return
        if stage == CONNECT:
            if day is not None:
                days.give(recipients, day)
            return
        blocked = kind in BLOCKED_CLASSES
        served = verdict == DELIVERED or (verdict == BOUNCED and not blocked)  # refused because of the recipient
        days.room(self._steady_ms())  # a new day may begin with it
        days.result(
            delivered=recipients if served else 0,
            deferred=0 if served or blocked else recipients,
            blocked=recipients if blocked else 0,
        )

    def count_again(
        self, source: str, site: str, provider: str, outcomes: list[OutcomeRow], started_ms: int
    ) -> None:  # fmt: skip
        """A result from the journal that no saved state has counted."""
        day = started_ms // DAY_MS if started_ms else None
        for outcome in outcomes:
            count = len(outcome.recipients)
            self.count(source, site, provider, outcome.verdict, outcome.kind, count, outcome.stage, day)

    def delivered(self, path: EgressPath) -> None:
        """The destination has taken a message: its capacity is learned from that."""
        key = (path.source, path.provider or path.site)
        found = self._rates.accepted(*key, self._now())
        if found is not None:
            self._record(["rate", [*key], found.state(), found.cause])

    def day(self) -> None:
        """Called now and then: a new day of the warm-ups begins here, and what it changes is told."""
        for source, provider, cause in self.warmups.changes(self._steady_ms()):
            self._record(["warmup", [source, provider], None, cause])

    def set_warmup(self, source: str, provider: str, step: int, cause: str) -> None:
        """So many good days of a source at a provider (or a site that is no provider's) count as done from now on."""
        self.day()
        self._change(["warmup", [source, provider], [step, self._steady_ms()], cause])

    def ended_rest(self, name: str, cause: str) -> None:
        """An operator ended an egress path's rest, which is the schedule's own: the journal says so, and no more."""
        self._record(["lift", ["resting", name], None, cause])

    def slowed(self, path: EgressPath, cause: str, sent_ms: int) -> None:
        """The destination asks this source to slow down; its reply is about what was sent then."""
        source, provider = path.source, path.provider or path.site
        found = self._rates.slowed(source, provider, self._now(), cause, self._steady(sent_ms))
        if found is not None:
            self._record(["rate", [source, provider], found.state(), found.cause])

    def counted(self, path: EgressPath, classified: Classified) -> bool:
        """Whether this is the reply from which on the rule acts (`after` n `within_s` seconds, by source and site)."""
        action = classified.action
        if action.after <= 1:
            return True
        key = (classified.counted_as, path.source, path.site)
        times = self._seen.setdefault(key, deque(maxlen=action.after))
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        now = self._now()
        times.append(now)
        return len(times) == action.after and now - times[0] <= action.within_s

    # -- what survives, and what is seen

    async def gather(self, pace: Pace) -> None:
        """Prepares `state` in portions: the next one has of what was learned what was gathered."""
        for learned in (self._rates, self.learned_concurrency, self.manners):
            await learned.gather(pace)

    def state(self) -> dict[str, Any]:
        """For position records."""
        stops = [
            [kind, name, *stop]
            for (kind, name), stop in list(self.stops.items())
            if self._stop(kind, name) and not (kind == SOURCE and name in self.suspected)
        ]
        found = {"stops": stops, "rates": self._rates.state(), "warmups": self.warmups.state()}
        found |= {"manners": self.manners.state(), "pauses": self.pauses.state(self._steady_ms())}
        return found | {"lost": [[name, *row] for name, row in self._lost.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        for kind, name, *stop in state.get("stops", []):
            until_ms, since_ms, cause, chosen, begun_ms = (*stop, True, stop[1])[:5] if len(stop) < 5 else stop[:5]
            of, to = tuple(stop[5]) if len(stop) > 5 else (), stop[6] if len(stop) > 6 else ""
            self._begun(kind, name, Suspension(until_ms, since_ms, cause, chosen, begun_ms, of, to))
        self.pauses.restore(state.get("pauses", []))
        for source, provider, learnt in state.get("rates", []):
            self._rates.restore(source, provider, learnt, self._now())
        self.warmups.restore(state.get("warmups", []))
        self.manners.restore(state.get("manners", []))
        self._lost.update((name, (since_ms, cause)) for name, since_ms, cause in state.get("lost", []))

    def rows(self, what: str = "") -> Portions:
        """All stops, and what was learned and limits sending, for operators; it may change meanwhile. what: only those
        with that name, or with it as a word of their name; others are not looked at."""
        yield from portions(list(self._lost), self._lost_row, what)
        yield from portions(self._stops_named.of(what) if what else list(self.stops), self._stop_row, what)
        yield from self._rates.rows(self._now(), what)
        yield from self.learned_concurrency.rows(what)
        yield from self.manners.rows((what,) if what else None)

    def _lost_row(self, name: str) -> Row | None:
        if name not in self._lost:
            return None
        since_ms, cause = self._lost[name]
        return {"kind": LOST, "name": name, "cause": cause, "since_ms": since_ms, "until_ms": 0, "group": NOTED}

    def _stop_row(self, key: tuple[str, str]) -> Row | None:
        stop = self._stop(*key)
        if stop is None or (key[0] == SOURCE and key[1] in self.suspected):
            return None
        until_ms = stop.until_ms and stop.until_ms - (self._steady_ms() - self._now_ms())
        row: Row = {"kind": key[0], "name": key[1], "until_ms": until_ms, "since_ms": stop.since_ms}
        row |= {"cause": stop.cause, "group": _group(key[0], stop)}
        row |= {"to": stop.to} if stop.to else {}
        return row | ({"tenants": list(stop.tenants)} if stop.tenants else {})


def _group(kind: str, stop: Suspension) -> str:
    if kind == NO_TLS:
        return LEARNED
    return NOTED if kind in (GUARD, REROUTE) else SUSPENDED if stop.chosen and kind != "rest" else RESTING


def _together(before: tuple[str, ...], tenants: tuple[str, ...]) -> tuple[str, ...]:
    """None on either side: everybody."""
    return tuple(dict.fromkeys((*before, *tenants))) if before and tenants else ()


KEPT_MS = 400 * 86_400_000
STRETCHES_MAX = 100
"""Of one name; beyond that the two oldest are joined, so that mail lives too long rather than too short."""

Span = tuple[int, int]


class Pauses:
    """For how long mail was stopped by choice: stretches of steady time, by kind and name of what was stopped.

    A message does not age while an operator has stopped its path. What is stopped now is in `PolicyState`; past stops
    are here, for as long as a message that waited through them may live.
    """

    def __init__(self) -> None:
        self._spans: dict[tuple[str, str], list[Span]] = {}

    def __bool__(self) -> bool:
        return bool(self._spans)

    def add(self, kind: str, name: str, since_ms: int, until_ms: int) -> None:
        """It was stopped for so long."""
        if until_ms <= since_ms:
            return
        spans = self._spans.setdefault((kind, name), [])
        spans.append((since_ms, until_ms))
        if len(spans) > STRETCHES_MAX:
            spans[:2] = [(spans[0][0], spans[1][1])]

    def within(self, names: Iterable[tuple[str, str]], more: list[Span], since_ms: int, until_ms: int) -> int:
        """How much of that time at least one of the names was stopped; `more`: stretches besides."""
        spans = sorted([*more, *(span for name in names for span in self._spans.get(name, ()))])
        total, at = 0, since_ms
        for begin, end in spans:
            begin, end = max(begin, at), min(end, until_ms)
            if end > begin:
                total, at = total + end - begin, end
        return total

    def state(self, now_ms: int) -> list[Any]:
        """For position records; forgets what is long ago."""
        for name, spans in list(self._spans.items()):
            self._spans[name] = [span for span in spans if span[1] > now_ms - KEPT_MS]
            if not self._spans[name]:
                del self._spans[name]
        return [[kind, name, [list(span) for span in spans]] for (kind, name), spans in self._spans.items()]

    def restore(self, state: list[Any]) -> None:
        for kind, name, spans in state:
            self._spans[kind, name] = [(begin, end) for begin, end in spans]


def _part(config: Config) -> tuple[int, int]:
    """Of a warm-up's cap, as of `Days`. A source is on one machine: what other nodes of a cluster have has no part."""
    numbers = queue_numbers(config)
    number = config.queue_number
    return (numbers.index(number) if number in numbers else number % len(numbers)), len(numbers)
