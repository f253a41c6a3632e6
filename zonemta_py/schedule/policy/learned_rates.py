"""Learned: the rate at which each provider takes mail from a source (`zones/rates.py`), of a bounded number of both."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from zonemta_py.config import Config
from zonemta_py.schedule.policy.saved import Packed, Saved
from zonemta_py.schedule.policy.standing import LEARNED, Portions, Row, portions
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.zones.rates import Learned

RATES_MAX = 10_000
RATES_SEEN = 20
"""So many of them are looked at for one to be dropped."""

_Key = tuple[str, str]


class LearnedRates:
    """By source and provider (or the site, of one that is no provider's)."""

    def __init__(self, config: Config) -> None:
        self._learning = config.learning
        self._all: OrderedDict[_Key, Learned] = OrderedDict()
        self._sources = Counter[str]()
        """At how many providers each."""
        self._bounded: dict[_Key, None] = {}
        """All that bound what is sent, and some that did."""
        self._saved = Saved(self._state_of)

    def configure(self, config: Config) -> None:
        """Other settings from now on; what was learned stays."""
        self._learning = config.learning
        for rate in self._all.values():
            rate.configure(config.learning)

    def __len__(self) -> int:
        return len(self._all)

    def of(self, source: str, provider: str) -> Learned:
        """Made if there is none."""
        key = (source, provider)
        found = self._all.get(key)
        if found is None:
            if len(self._all) >= RATES_MAX:
                self._forget()
            found = self._all[key] = Learned(self._learning)
            self._sources[source] += 1
        return found

    def known(self, source: str, provider: str) -> Learned | None:
        """That bounds what is sent; None: nothing does."""
        found = self._all.get((source, provider))
        return found if found is not None and found.bucket is not None else None

    def slowed(self, source: str, provider: str, now: float, cause: str, sent: float) -> Learned | None:
        """It asks for less; None: that changes nothing. sent: when that was sent which it has answered."""
        found = self.of(source, provider)
        if not found.slowed(now, cause, sent):
            return None
        self._bounded[source, provider] = None
        self._saved.changed((source, provider))
        return found

    def restore(self, source: str, provider: str, state: dict[str, Any], now: float) -> None:
        self.of(source, provider).restore(state, now)
        self._bounded[source, provider] = None
        self._saved.changed((source, provider))

    def forget(self, source: str, provider: str) -> None:
        self._drop((source, provider))

    def _forget(self) -> None:
        """Drops the oldest, or one almost as old that holds nothing back: its counts are seconds old."""
        for _ in range(RATES_SEEN):
            key, rate = next(iter(self._all.items()))
            if rate.bucket is None:
                break
            self._all.move_to_end(key)
        self._drop(next(iter(self._all)))

    def _drop(self, key: _Key) -> None:
        if self._all.pop(key, None) is not None:
            self._bounded.pop(key, None)
            self._saved.changed(key)
            self._sources[key[0]] -= 1
            if not self._sources[key[0]]:
                del self._sources[key[0]]

    async def gather(self, pace: Pace) -> None:
        """Prepares `state`, in portions."""
        await self._saved.gather(self._bounded, pace)

    def state(self) -> list[list[Any]] | Packed:
        """For position records: [source, provider, its state] of those that bound something."""
        return self._saved.rows(self._bounded)

    def _state_of(self, key: _Key) -> list[Any] | None:
        found = self._all.get(key)
        return None if found is None or found.bucket is None else [*key, found.state()]

    def accepted(self, source: str, provider: str, now: float) -> Learned | None:
        """A message was; None: that changes nothing."""
        found = self.of(source, provider)
        if not found.accepted(now, 1):
            return None
        self._saved.changed((source, provider))
        return found

    def rows(self, now: float, what: str = "") -> Portions:
        """Those that bound something, for people. what: only those of that source, provider, or whole name."""

        def row(key: _Key) -> Row | None:
            found = self._all.get(key)
            if found is None or (rate := found.rate(now)) is None:
                self._bounded.pop(key, None)
                return None
            row = {
                "kind": "rate",
                "name": " ".join(key).strip(),
                "rate": round(rate, 3),
                "cause": found.cause,
                "group": LEARNED,
            }
            return row | {"since_ms": max(0, int(found.lowered * 1000)), "until_ms": 0}

        return portions(self._about(what) if what else list(self._bounded), row, what)

    def _about(self, what: str) -> list[_Key]:
        if what in self._sources:
            return list(self._bounded)
        words = what.split()
        return [key for source in self._sources for word in words if (key := (source, word)) in self._bounded]
