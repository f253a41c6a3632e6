"""Learned: the rate at which each provider takes mail from a source (`zones/rates.py`), of a bounded number of both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from zonemta_py.config import Config
from zonemta_py.schedule.policy.by_word import ByWord, meant
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
        self._named = ByWord[_Key]()

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
            self._named.add(key, " ".join(key))
        return found

    def known(self, source: str, provider: str) -> Learned | None:
        """That bounds what is sent; None: nothing does."""
        found = self._all.get((source, provider))
        return found if found is not None and found.bucket is not None else None

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
            self._named.discard(key, " ".join(key))

    def state(self, now: float) -> list[list[Any]]:
        """For position records: [source, provider, its state] of those that bound something."""
        return [[*key, rate.state()] for key, rate in self._all.items() if rate.rate(now) is not None]

    def rows(self, now: float, what: str = "") -> Iterator[dict[str, Any]]:
        """Those that bound something, for people. what: only those of that source, provider, or whole name."""
        for key in self._named.of(what) if what else list(self._all):
            found = self._all.get(key)
            if found and (rate := found.rate(now)) is not None:
                name = " ".join(key).strip()
                if not what or meant(what, name):
                    row = {"kind": "rate", "name": name, "rate": round(rate, 3), "cause": found.cause}
                    yield row | {"since_ms": max(0, int(found.lowered * 1000)), "until_ms": 0}
