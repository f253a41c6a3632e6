"""The guard: a provider that suddenly says "user unknown" of many people suppresses nobody.

Either the provider is broken, or it lies to one of our sources, or the list is bad: none of that can be told from the
replies. Counted are people of whom it is news, by source and provider (or site), within `guard_within_s`, and how many
others have got mail there meanwhile. While it is up, what that provider says to that source is held back.

Who bounces mail later says so of people whose mail it had taken, from any source, hours ago perhaps. So where some of
the news came later, that of all sources counts, and the share is of those whom the provider has answered about within a
day (`answered`); a guard that goes up for that is of the provider as a whole.

With several queues it is of what all have heard: each learns of whom it is news anywhere, and, where a guard may go up,
how many people got mail from the others. So it is decided a little later (`DECIDE_MS`), by one queue; if that is not
there, by the next.

It is a stop of the policy state (`schedule.policy`), kind "guard", so that it survives a restart, is told as an event,
and is shown where stops are; it stops no mail. What was counted is written with the evidence.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from secrets import token_hex
from typing import Any, NamedTuple

from zonemta_py.config.suppression import SuppressionSection
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.suppression.provider_answers import STEP_MS, ProviderAnswers
from zonemta_py.queue.suppression.shared_counts import CountShare, SharedCounts
from zonemta_py.schedule.policy.state import GUARD

log = logging.getLogger(__name__)

SLICES = 6
SAVED_MS = 60_000
_ORPHAN_MS = 86_400_000
"""After so long without reason here, a guard is ended that another of several queues has put up: it may be no more."""
DECIDE_MS, NEXT_MS, TURNS = 2_000, 1_500, 6
"""Of several queues: how long what others have delivered is waited for, and the next queue for this one's guard."""
FIGURES_MAX = 1_000
LATER = "later"
"""In the place of a source: it came back later, whichever source had sent the mail."""
PLACES_MAX = 5_000
PEOPLE_MAX = 20_000
"""Of one source and provider, within the time: the oldest are forgotten."""
Pair = tuple[str, str]
"""Source ("" if it is the only one) and provider, or site where there is none."""


class Refused(NamedTuple):
    """Somebody of whom it is news that they do not exist. ms: steady time. here: this queue has heard it, not another
    one."""

    ms: int
    who: str
    here: bool = True


class Reason(NamedTuple):
    """Why a guard is to go up, or stay up."""

    up: Raised
    cause: str


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
        self._process = token_hex(4)
        """This one's, since its start: what it has counted is kept, and told to other queues, under that name."""
        self._answered = ProviderAnswers(self._process)
        self._saved_ms = 0
        self._old: list[Operation] = []
        """Of the store, and to be deleted."""
        self._taken: deque[tuple[int, dict[Pair, int]]] = deque([(0, {})], maxlen=SLICES + 1)
        """By slice of the time: how many people got mail."""
        self._shares: SharedCounts[Pair] = SharedCounts()
        """Likewise, before this start, and from other queues."""
        self._asked: dict[str, int] = {}
        """By place where a guard may go up, of several queues: since when."""
        self._due: dict[str, tuple[int, Raised]] = {}
        """By guard that is to go up: when, unless another queue is first."""
        self._told: dict[tuple[str | Pair, str, int], int] = {}
        """By what was counted, by which process, and when: how many all queues know of."""
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
        self._answered.took(pair[1], count, self._core.membership is not None)

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
        if not self._terms.guard_people or not pair[1]:
            return None
        self._turn(ms)
        return self._heard(pair, Refused(ms, who), later)

    def taught(self, pair: Pair, who: str, ms: int, later: bool = False) -> None:
        """Likewise, but another of several queues has heard it."""
        now_ms, (source, place) = self._core.clock.steady_ms(), pair
        old_ms = max(now_ms - self._terms.guard_within_s * 1000, self._answered.believed_ms(place, source))
        if self._terms.guard_people and place and ms > old_ms:
            self._turn(now_ms)
            self._heard(pair, Refused(ms, who, here=False), later)

    def _heard(self, pair: Pair, news: Refused, later: bool) -> Raised | None:
        source, place = pair
        self._answered.refused(place, later)
        known = self._remember(place, LATER if later else source, news)
        if self._core.membership is not None:
            self._ask(place)
        reason = self._reason(pair, news.ms, later, known)
        return None if reason is None else self._seen(reason, news.here)

    def _reason(self, pair: Pair, ms: int, later: bool, news: dict[str, deque[Refused]]) -> Reason | None:
        """later: the last of it came back by mail."""
        terms, place = self._terms, pair[1]
        told = news.get(pair[0], ())
        if len(told) >= terms.guard_people and not later:
            share = len(told) / (len(told) + self._took(pair))
            if share >= terms.guard_share:
                within = f"within {terms.guard_within_s:g} s"
                return Reason(Raised(name_of(pair), ms, later=False), _cause(len(told), share, within))
        count = sum(map(len, news.values()))
        if LATER in news and count >= terms.guard_people:
            share = self._answered.share(place)
            if share >= terms.guard_share:
                return Reason(Raised(place, ms, later=True), _cause(count, share, "within a day, some by mail"))
        return None

    def _seen(self, reason: Reason, here: bool) -> Raised | None:
        """There is reason for a guard. here: this queue has heard what makes it one."""
        up = reason.up
        if self._core.membership is None:
            return self._raise(reason)
        if self.up(up.name):
            self._last_ms[up.name] = up.ms
            return None
        now_ms = self._core.clock.steady_ms()
        asked_ms = self._asked.get(pair_of(up.name)[1], now_ms)
        if here and now_ms - asked_ms >= DECIDE_MS:
            return self._raise(reason)
        turn = self._core.config.queue_number % TURNS
        self._due.setdefault(up.name, (max(now_ms, asked_ms + DECIDE_MS) + turn * NEXT_MS, up))
        return None

    def recent(self, up: Raised) -> dict[str, bool]:
        """For whom that guard has gone up, as far as this queue knows: of whom it was news then, or shortly before; and
        whether it was news to this queue."""
        (source, place), since_ms = pair_of(up.name), up.ms - self._terms.guard_within_s * 1000
        found: dict[str, bool] = {}
        for of, some in self._refused.get(place, {}).items():
            if up.later or of == source:
                for one in some:
                    if one.ms > since_ms:
                        found[one.who] = one.here or found.get(one.who, False)
        return found

    def _raise(self, reason: Reason) -> Raised | None:
        up, cause = reason
        name = up.name
        self._last_ms[name] = up.ms
        self._own.add(name)
        self._due.pop(name, None)
        if self.up(name):
            return None
        self._core.schedule.policy.stop(GUARD, name, math.inf, cause)
        self._core.counters.meter.add("zonemta_suppression_guards_total")
        log.error("%s: %s; see `zonemta suppression guards`", name, cause)
        return up

    def _remember(self, place: str, source: str, one: Refused) -> dict[str, deque[Refused]]:
        """All of that time at that place."""
        known = self._refused
        news = known.setdefault(place, {})
        known.move_to_end(place)
        if len(known) > PLACES_MAX:
            known.popitem(last=False)
        news.setdefault(source, deque(maxlen=PEOPLE_MAX)).append(one)
        for name, some in list(news.items()):
            while some and some[0].ms <= one.ms - self._terms.guard_within_s * 1000:
                some.popleft()
            if not some:
                del news[name]
        return news

    def _took(self, pair: Pair) -> int:
        own = sum(taken.get(pair, 0) for _, taken in self._taken)
        return own + self._shares.total(pair, self._taken[-1][0] - SLICES)

    def _turn(self, ms: int) -> None:
        """A new slice of the time may begin."""
        now = self._slice(ms)
        if now > self._taken[-1][0]:
            self._taken.append((now, {}))
            self._shares.turn(now - SLICES)
        while self._taken[0][0] < now - SLICES:
            self._taken.popleft()
        self._answered.turn(ms)

    def _slice(self, ms: int) -> int:
        return int(ms // (self._terms.guard_within_s * 1000 / SLICES))

    # -- of several queues

    def _ask(self, place: str) -> None:
        """Where half of a guard's people are news, all queues tell how many others have got mail."""
        if place not in self._asked:
            news = sum(map(len, self._refused[place].values()))
            if 2 * news >= self._terms.guard_people:
                self._asked[place] = self._core.clock.steady_ms()

    def decide(self, ms: int) -> list[Raised]:
        """Now and then: guards that go up now, since all have told what they know. ms: steady time."""
        since_ms = ms - self._terms.guard_within_s * 1000
        for place in list(self._asked):
            news = self._refused.get(place, {}).values()
            if 2 * sum(one.ms > since_ms for some in news for one in some) < self._terms.guard_people:
                del self._asked[place]
        due = [(name, up) for name, (at_ms, up) in self._due.items() if at_ms <= ms]
        raised = list[Raised | None]()
        for name, up in due:
            del self._due[name]
            pair = pair_of(name)
            reason = self._reason(pair, up.ms, up.later, self._refused.get(pair[1], {}))
            if reason is not None:
                raised.append(self._raise(reason))
        return [up for up in raised if up is not None]

    def figures(self, ms: int) -> list[Any]:
        """What this queue has to tell of how many people got mail, where it may matter; []: nothing new."""
        if not self._asked:
            self._told.clear()
            return []
        here = {(what, share.process, share.of): share for what, share in self._known() if share.process}
        news = ((key, share) for key, share in here.items() if share.people != self._told.get(key))
        rows = dict(islice(news, FIGURES_MAX))
        self._told = {key: people for key, people in self._told.items() if key in here}
        self._told |= {key: share.people for key, share in rows.items()}
        if not rows:
            return []
        return [ms, self._slice(ms), int(ms // STEP_MS), [[what, *share] for (what, _, _), share in rows.items()]]

    def _known(self) -> Iterator[tuple[str | Pair, CountShare]]:
        """What is counted where a guard may go up: of this process, of those before it, and what others have told."""
        pairs = {pair for _, taken in self._taken for pair in taken}.union(self._shares.known())
        for pair in pairs:
            if pair[1] in self._asked:
                yield from ((pair, share) for share in self._counted(pair))
        for place in self._asked:
            yield from ((place, share) for share in self._answered.shares(place))

    def _counted(self, pair: Pair) -> list[CountShare]:
        own = [CountShare(number, taken[pair], self._process, number) for number, taken in self._taken if pair in taken]
        return [*own, *self._shares.shares(pair)]

    def learn(self, figures: list[Any]) -> list[Operation]:
        """Another queue's. Returns what is to be written."""
        ms, now_slice, now_step, rows = figures
        names = dict[str, None]()
        for what, span, *rest in rows:
            if isinstance(what, str):
                share = CountShare(int(ms // STEP_MS) - now_step + span, *rest)
                self._answered.learn(what, share)
                self._told[what, share.process, share.of] = share.people
                names[what] = None
            else:
                pair, share = (what[0], what[1]), CountShare(self._slice(ms) - now_slice + span, *rest)
                if share.process != self._process:
                    self._shares.learn(pair, share)
                self._told[pair, share.process, share.of] = share.people
                names[name_of(pair)] = None
        return self.states(names)

    def told(self, figures: list[Any]) -> list[Operation]:
        """To be written with what is told: so this queue does not know less of itself than others, after a crash."""
        return self.states({what if isinstance(what, str) else name_of(what) for what, *_ in figures[-1]})

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
        self._due.pop(name, None)
        self._asked.pop(place, None)
        self._answered.believe(place, source, self._core.clock.steady_ms())
        self._write(self._answered.state(place))
        if not source:
            self._refused.pop(place, None)
        elif place in self._refused:
            self._refused[place].pop(source, None)

    def _least(self) -> float:
        """About how many people a place must have answered for that to keep a guard down."""
        terms = self._terms
        return terms.guard_people / terms.guard_share if terms.guard_people and terms.guard_share else math.inf

    # -- what survives

    def state(self, name: str) -> list[Operation]:
        """To be written with the evidence."""
        pair = pair_of(name)
        counts = [share.row for share in self._counted(pair)]
        return [(keys.guard(name), packing.pack(counts)), *self._answered.state(pair[1])]

    def states(self, names: Iterable[str]) -> list[Operation]:
        return [row for name in names for row in self.state(name)]

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
            if self._core.membership is not None:
                self._ask(place)
                if (reason := self._reason((source, place), ms, later, news)) is not None:
                    self._seen(reason, here=False)

    def _load(self, ms: int) -> None:
        """Before anything is applied again. Raises StoreError."""
        self._turn(ms)
        last = self._taken[-1][0]
        old: list[Operation] = []
        for key, value in self._core.disk.store.scan(keys.GUARDS, keys.end(keys.GUARDS)):
            shares = [share for share in map(CountShare.read, packing.unpack(value)) if share.span >= last - SLICES]
            pair = pair_of(name := key.removeprefix(keys.GUARDS).decode())
            self._own.add(name)
            for share in shares:
                self._shares.learn(pair, share)
            if not shares:
                old.append((key, None))
        self._answered.load(self._core.disk.store)
        self._old = old

    def _write(self, changes: list[Operation]) -> None:
        if changes:
            self._core.disk.lines.submit(changes, lambda _: None, sync=False, keep=True)


def _cause(people: int, share: float, within: str) -> str:
    return (
        f"{people:,} people new to us do not exist there, it says, {share:.0%} of those it answered about"
        f" {within}: the provider or the list is bad; nobody is suppressed for that"
    )
