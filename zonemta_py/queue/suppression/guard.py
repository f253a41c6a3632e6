"""The guard: a provider that suddenly says "user unknown" of many people suppresses nobody.

Either the provider is broken, or it lies to one of our sources, or the list is bad: none of that can be told from the
replies. Counted are people of whom it is news, by source and provider (or site), within `guard_within_s`, and how many
others have got mail there meanwhile. While it is up, what that provider says to that source is held back.

It is a stop of the policy state (`schedule.policy`), kind "guard", so that it survives a restart, is told as an event,
and is shown where stops are; it stops no mail. What was counted is written with the evidence.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from typing import NamedTuple

from zonemta_py.config.people.suppression import SuppressionSection
from zonemta_py.disk import keys, records
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue.core.core import Core
from zonemta_py.schedule.policy.state import GUARD

log = logging.getLogger(__name__)

SLICES = 6
PAIRS_MAX = 5_000
PEOPLE_MAX = 20_000
"""Of one source and provider, within the time: the oldest are forgotten."""
Pair = tuple[str, str]
"""Source ("" if it is the only one) and provider, or site where there is none."""


class Refused(NamedTuple):
    """Somebody of whom it is news that they do not exist. ms: steady time."""

    ms: int
    who: str


def name_of(pair: Pair) -> str:
    return f"{pair[1]} {pair[0]}".strip()


def pair_of(name: str) -> Pair:
    provider, _, source = name.partition(" ")
    return source, provider


class Guard:
    """Of all sources and providers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._refused: OrderedDict[Pair, deque[Refused]] = OrderedDict()
        self._taken: deque[tuple[int, dict[Pair, int]]] = deque([(0, {})], maxlen=SLICES + 1)
        """By slice of the time: how many people got mail."""
        self._last_ms: dict[str, int] = {}
        """By guard that is up: when there was reason for it last."""

    @property
    def _terms(self) -> SuppressionSection:
        return self._core.config.suppression

    def took(self, pair: Pair, count: int) -> None:
        """So many people got mail there."""
        taken = self._taken[-1][1]
        taken[pair] = taken.get(pair, 0) + count

    def up(self, name: str) -> bool:
        return self._core.schedule.policy.stopped(GUARD, name)

    def names(self) -> list[str]:
        """Of those that are up."""
        policy = self._core.schedule.policy
        return [name for kind, name in list(policy.stops) if kind == GUARD and policy.stopped(kind, name)]

    def refused(self, pair: Pair, who: str, ms: int) -> list[str]:
        """It is news that this person does not exist. Returns all whose evidence is to be held back because of this,
        if it is the one too many. ms: steady time."""
        terms, name = self._terms, name_of(pair)
        if not terms.guard_people or not pair[1]:
            return []
        self._turn(ms)
        news, taken = self._remember(pair, who, ms), self._took(pair)
        share = len(news) / (len(news) + taken)
        if len(news) < terms.guard_people or share < terms.guard_share:
            return []
        self._last_ms[name] = ms
        if self.up(name):
            return []
        cause = (
            f"{len(news):,} people new to us do not exist there, it says, {share:.0%} of those it answered about within"
            f" {terms.guard_within_s:g} s: the provider or the list is bad; nobody is suppressed for that"
        )
        self._core.schedule.policy.stop(GUARD, name, math.inf, cause)
        self._core.meter.add("zonemta_suppression_guards_total")
        log.error("%s: %s; see `zonemta suppression guards`", name, cause)
        return [one.who for one in news]

    def _remember(self, pair: Pair, who: str, ms: int) -> deque[Refused]:
        """All of that time."""
        news = self._refused.setdefault(pair, deque(maxlen=PEOPLE_MAX))
        self._refused.move_to_end(pair)
        if len(self._refused) > PAIRS_MAX:
            self._refused.popitem(last=False)
        news.append(Refused(ms, who))
        while news[0].ms <= ms - self._terms.guard_within_s * 1000:
            news.popleft()
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

    # -- its end

    def tick(self, ms: int) -> None:
        """Now and then: ends those that have been calm. ms: steady time."""
        self._turn(ms)
        up = self.names()
        for name in self._last_ms.keys() - up:  # somebody has lifted it
            self._refused.pop(pair_of(name), None)
        self._last_ms = {name: self._last_ms.get(name, ms) for name in up}
        for name in up:
            if ms - self._last_ms[name] >= self._terms.guard_calm_s * 1000:
                self.lift(name, "it has been calm")

    def lift(self, name: str, cause: str) -> bool:
        """What was counted so far counts no more, so that it does not rise again at once."""
        self._last_ms.pop(name, None)
        self._refused.pop(pair_of(name), None)
        return self._core.schedule.policy.lift(GUARD, name, cause)

    # -- what survives

    def state(self, name: str) -> list[Operation]:
        """To be written with the evidence."""
        pair = pair_of(name)
        counts = [[number, taken[pair]] for number, taken in self._taken if pair in taken]
        return [(keys.guard(name), records.pack(counts))]

    def restore(self, recent: list[tuple[int, str, str]]) -> None:
        """After a start. recent: when, who, and the name of source and provider, of what may still count."""
        here = {pair: {one.who for one in news} for pair, news in self._refused.items()}
        for ms, who, name in recent:
            pair = pair_of(name)
            if who not in here.get(pair, ()):
                self._refused.setdefault(pair, deque(maxlen=PEOPLE_MAX)).append(Refused(ms, who))
        for pair, news in self._refused.items():
            self._refused[pair] = deque(sorted(news), maxlen=PEOPLE_MAX)
        self._restore_taken(self._core.clock.steady_ms())

    def _restore_taken(self, ms: int) -> None:
        """Raises StoreError."""
        self._turn(ms)
        slices, last = dict(self._taken), self._taken[-1][0]
        old: list[Operation] = []
        for key, value in self._core.store.scan(keys.GUARDS, keys.end(keys.GUARDS)):
            counts = [(number, count) for number, count in records.unpack(value) if number >= last - SLICES]
            pair = pair_of(key.removeprefix(keys.GUARDS).decode())
            for number, count in counts:
                taken = slices.setdefault(number, {})
                taken[pair] = taken.get(pair, 0) + count
            if not counts:
                old.append((key, None))
        self._taken = deque(sorted(slices.items()), maxlen=SLICES + 1)
        if old:
            self._core.lines.submit(old, lambda _: None, sync=False, keep=True)
