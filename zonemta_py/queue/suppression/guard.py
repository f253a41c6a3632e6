"""The guard: a provider that suddenly says "user unknown" of many people suppresses nobody.

Either the provider is broken, or it lies to one of our sources, or the list is bad: none of that can be told from the
replies. Counted are people of whom it is news, by source and provider (or site), within `guard_within_s`, and how many
others have got mail there meanwhile. While it is up, what that provider says to that source is held back.

Who bounces mail later says so of people whose mail it had taken, from any source, hours ago perhaps. So where some of
the news came later, that of all sources counts, and the share is of those whom the provider has answered about within a
day (`answered`); a guard that goes up for that is of the provider as a whole.

It is a stop of the policy state (`schedule.policy`), kind "guard", so that it survives a restart, is told as an event,
and is shown where stops are; it stops no mail. What was counted is written with the evidence.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from zonemta_py.config.suppression import SuppressionSection
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.suppression.provider_answers import ProviderAnswers
from zonemta_py.schedule.policy.state import GUARD

log = logging.getLogger(__name__)

SLICES = 6
SAVED_MS = 60_000
_ORPHAN_MS = 86_400_000
"""After so long without reason here, a guard is ended that another of several queues has put up: it may be no more."""
LATER = "later"
"""In the place of a source: it came back later, whichever source had sent the mail."""
PLACES_MAX = 5_000
PEOPLE_MAX = 20_000
"""Of one source and provider, within the time: the oldest are forgotten."""
Pair = tuple[str, str]
"""Source ("" if it is the only one) and provider, or site where there is none."""


class Refused(NamedTuple):
    """Somebody of whom it is news that they do not exist. ms: steady time."""

    ms: int
    who: str


class Raised(NamedTuple):
    """A guard has gone up. ms: steady time. later: for what came back by mail, too; else only for what was said to that
    source in the dialogue."""

    name: str
    ms: int
    later: bool


def name_of(pair: Pair) -> str:
    return f"{pair[1]} {pair[0]}".strip()


def pair_of(name: str) -> Pair:
    provider, _, source = name.partition(" ")
    return source, provider


class News(NamedTuple):
    """What is remembered at a start. name: of source and provider."""

    ms: int
    who: str
    name: str
    later: bool = False


def covers(guard: str, name: str) -> bool:
    """Whether what is said under that name is said where that guard is up: that of a provider is for all sources."""
    return guard == name or name.startswith(f"{guard} ")


class Guard:
    """Of all sources and providers."""

    def __init__(self, core: Core) -> None:
        """Raises StoreError."""
        self._core = core
        self._refused: OrderedDict[str, dict[str, deque[Refused]]] = OrderedDict()
        """By place, then by source, or LATER."""
        self._taught: OrderedDict[str, dict[str, deque[Refused]]] = OrderedDict()
        """Likewise, what other queues have heard: it counts there, and is held back here too."""
        self._answered = ProviderAnswers()
        self._saved_ms = 0
        self._old: list[Operation] = []
        """Of the store, and to be deleted."""
        self._taken: deque[tuple[int, dict[Pair, int]]] = deque([(0, {})], maxlen=SLICES + 1)
        """By slice of the time: how many people got mail."""
        self._last_ms: dict[str, int] = {}
        """By guard that is up: when there was reason for it last."""
        self._own = set[str]()
        """Guards that this queue has put up, or may have: of several queues, it is those that end them."""
        self._load(core.clock.steady_ms())

    @property
    def _terms(self) -> SuppressionSection:
        return self._core.config.suppression

    def took(self, pair: Pair, count: int) -> None:
        """So many people got mail there."""
        taken = self._taken[-1][1]
        taken[pair] = taken.get(pair, 0) + count
        self._answered.took(pair[1], count)

    def up(self, name: str) -> bool:
        return self._core.schedule.policy.stopped(GUARD, name)

    def names(self) -> list[str]:
        """Of those that are up."""
        policy = self._core.schedule.policy
        return [name for kind, name in list(policy.stops) if kind == GUARD and policy.stopped(kind, name)]

    def holder(self, pair: Pair, later: bool = False) -> str:
        """Which guard holds back what is said there now; "": none. later: it came back, and nobody knows which source
        had sent the mail; so any of the provider's does."""
        if not self._core.schedule.policy.stops or not pair[1]:
            return ""
        names = [pair[1], name_of(pair)]
        if later:
            names += [name_of((source, pair[1])) for source in self._sources()]
        return next((name for name in names if self.up(name)), "")

    def _sources(self) -> Iterable[str]:
        config = self._core.config
        return (source.address for zone in config.zones for source in config.sources(zone))

    def refused(self, pair: Pair, who: str, ms: int, later: bool = False) -> Raised | None:
        """It is news that this person does not exist. Returns the guard that has gone up, if it is the one too many:
        the evidence of all who are `recent` is to be held back. ms: steady time. later: a bounce that came back says
        so."""
        terms, (source, place) = self._terms, pair
        if not terms.guard_people or not place:
            return None
        self._turn(ms)
        self._answered.refused(place, later)
        news = self._remember(self._refused, place, LATER if later else source, who, ms)
        told = news.get(source, ())
        if len(told) >= terms.guard_people and not later:
            share = len(told) / (len(told) + self._took(pair))
            if share >= terms.guard_share:
                up = Raised(name_of(pair), ms, later=False)
                return self._raise(up, len(told), f"{share:.0%}", f"within {terms.guard_within_s:g} s")
        count = sum(map(len, news.values()))
        if LATER in news and count >= terms.guard_people:
            share = self._answered.share(place)
            if share >= terms.guard_share:
                return self._raise(Raised(place, ms, later=True), count, f"{share:.0%}", "within a day, some by mail")
        return None

    def taught(self, pair: Pair, who: str, ms: int, later: bool = False) -> None:
        """Likewise, but another of several queues has heard it, whose guard counts it."""
        if self._terms.guard_people and pair[1]:
            self._remember(self._taught, pair[1], LATER if later else pair[0], who, ms)

    def recent(self, up: Raised) -> dict[str, bool]:
        """For whom that guard has gone up, as far as this queue knows: of whom it was news then, or shortly before; and
        whether it was news to this queue."""
        (source, place), since_ms = pair_of(up.name), up.ms - self._terms.guard_within_s * 1000
        return {
            one.who: here
            for here, known in ((False, self._taught), (True, self._refused))
            for of, some in known.get(place, {}).items()
            if up.later or of == source
            for one in some
            if one.ms > since_ms
        }

    def _raise(self, up: Raised, people: int, share: str, within: str) -> Raised | None:
        name = up.name
        self._last_ms[name] = up.ms
        self._own.add(name)
        if self.up(name):
            return None
        cause = (
            f"{people:,} people new to us do not exist there, it says, {share} of those it answered about"
            f" {within}: the provider or the list is bad; nobody is suppressed for that"
        )
        self._core.schedule.policy.stop(GUARD, name, math.inf, cause)
        self._core.counters.meter.add("zonemta_suppression_guards_total")
        log.error("%s: %s; see `zonemta suppression guards`", name, cause)
        return up

    def _remember(
        self, known: OrderedDict[str, dict[str, deque[Refused]]], place: str, source: str, who: str, ms: int
    ) -> dict[str, deque[Refused]]:
        """All of that time at that place."""
        news = known.setdefault(place, {})
        known.move_to_end(place)
        if len(known) > PLACES_MAX:
            known.popitem(last=False)
        news.setdefault(source, deque(maxlen=PEOPLE_MAX)).append(Refused(ms, who))
        for name, some in list(news.items()):
            while some and some[0].ms <= ms - self._terms.guard_within_s * 1000:
                some.popleft()
            if not some:
                del news[name]
        return news

    def _took(self, pair: Pair) -> int:
        return sum(taken.get(pair, 0) for _, taken in self._taken)

    def _turn(self, ms: int) -> None:
        """A new slice of the time may begin."""
        now = int(ms // (self._terms.guard_within_s * 1000 / SLICES))
        if now > self._taken[-1][0]:
            self._taken.append((now, {}))
        while self._taken[0][0] < now - SLICES:
            self._taken.popleft()
        self._answered.turn(ms)

    # -- its end

    def tick(self, ms: int) -> None:
        """Now and then: ends those that have been calm. ms: steady time."""
        self._turn(ms)
        up = self.names()
        for name in self._last_ms.keys() - up:  # somebody has lifted it
            self._forget(name)
        self._last_ms = {name: self._last_ms.get(name, ms) for name in up}
        self._own.intersection_update(up)
        for name in up:
            if ms - self._last_ms[name] >= self._calm_ms(name):
                self.lift(name, "it has been calm")
        if ms - self._saved_ms >= SAVED_MS:
            self._saved_ms = ms
            self._write(self._old + self._answered.changes(self._least()))
            self._old = []

    def _calm_ms(self, name: str) -> float:
        """How long there must be no reason for it here before this queue ends it."""
        calm_ms = self._terms.guard_calm_s * 1000
        return calm_ms if self._core.membership is None or name in self._own else max(_ORPHAN_MS, 2 * calm_ms)

    def lift(self, name: str, cause: str) -> bool:
        """What was counted so far counts no more, so that it does not rise again at once."""
        self._last_ms.pop(name, None)
        self._forget(name)
        return self._core.schedule.policy.lift(GUARD, name, cause)

    def _forget(self, name: str) -> None:
        source, place = pair_of(name)
        self._answered.believe(place, source, self._core.clock.steady_ms())
        self._write(self._answered.state(place))
        for known in (self._refused, self._taught):
            if not source:
                known.pop(place, None)
            elif place in known:
                known[place].pop(source, None)

    def _least(self) -> float:
        """About how many people a place must have answered for that to keep a guard down."""
        terms = self._terms
        return terms.guard_people / terms.guard_share if terms.guard_people and terms.guard_share else math.inf

    # -- what survives

    def state(self, name: str) -> list[Operation]:
        """To be written with the evidence."""
        pair = pair_of(name)
        counts = [[number, taken[pair]] for number, taken in self._taken if pair in taken]
        return [(keys.guard(name), packing.pack(counts)), *self._answered.state(pair[1])]

    def restore(self, recent: list[News]) -> None:
        """After a start, once the evidence has been read. recent: what may still count."""
        here = [
            News(one.ms, one.who, name_of((source, place)) if source != LATER else place, source == LATER)
            for place, some in self._refused.items()
            for source, news in some.items()
            for one in news
        ]
        self._refused.clear()
        for ms, who, name, later in sorted({one.who: one for one in [*recent, *here]}.values()):
            source, place = pair_of(name)
            if ms <= self._answered.believed_ms(place, source):
                continue
            news = self._refused.setdefault(place, {})
            news.setdefault(LATER if later else source, deque(maxlen=PEOPLE_MAX)).append(Refused(ms, who))

    def _load(self, ms: int) -> None:
        """Before anything is applied again. Raises StoreError."""
        self._turn(ms)
        slices, last = dict(self._taken), self._taken[-1][0]
        old: list[Operation] = []
        for key, value in self._core.disk.store.scan(keys.GUARDS, keys.end(keys.GUARDS)):
            counts = [(number, count) for number, count in packing.unpack(value) if number >= last - SLICES]
            pair = pair_of(name := key.removeprefix(keys.GUARDS).decode())
            self._own.add(name)
            for number, count in counts:
                slices.setdefault(number, {})[pair] = count
            if not counts:
                old.append((key, None))
        self._taken = deque(sorted(slices.items()), maxlen=SLICES + 1)
        self._answered.load(self._core.disk.store)
        self._old = old

    def _write(self, changes: list[Operation]) -> None:
        if changes:
            self._core.disk.lines.submit(changes, lambda _: None, sync=False, keep=True)
