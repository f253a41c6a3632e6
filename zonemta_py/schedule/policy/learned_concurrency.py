"""Earned: how many connections each destination bears, as its replies taught; kept when an egress path is forgotten.

A decrease, and a death, is a record in the journal with its cause; growth is in position records only, since that is
slow, and losing some of it harms nobody. What was learned is seen by operators (`rows`) and forgotten at their order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from zonemta_py.config import Config, Zone
from zonemta_py.schedule.policy.by_word import ByWord, meant
from zonemta_py.zones.feedback import Concurrency

LEARNED_MAX = 10_000


class LearnedConcurrency:
    """By zone, site and source. record: writes a change to the journal."""

    def __init__(self, config: Config, now_ms: Callable[[], int], record: Callable[[list[Any]], None]) -> None:
        self._config, self._now_ms, self._record = config, now_ms, record
        self._all: OrderedDict[tuple[str, str, str], Concurrency] = OrderedDict()
        self._since_ms: dict[tuple[str, str, str], int] = {}
        self._named = ByWord[tuple[str, str, str]]()

    def configure(self, config: Config) -> None:
        """Other settings from now on; what was learned stays."""
        self._config = config
        for (name, _, _), found in self._all.items():
            zone = config.zone(name)
            found.configure(config.learning, zone.connections_per_destination if zone else found.most)

    def of(self, zone: Zone, site: str, source: str) -> Concurrency:
        """What an egress path has earned; the initial window where nothing is known."""
        key = (zone.name, site, source)
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = Concurrency(self._config.learning, zone.connections_per_destination)
            self._named.add(key, _name(key))
            if len(self._all) > LEARNED_MAX:
                self._forget()
        self._all.move_to_end(key)
        return found

    def _forget(self) -> None:
        """The one that was used longest ago."""
        key, _ = self._all.popitem(last=False)
        self._named.discard(key, _name(key))
        self._since_ms.pop(key, None)

    def failed(self, zone: Zone, site: str, source: str, cause: str) -> bool:
        """A connection or session failed there; True if the destination is dead now."""
        found = self.of(zone, site, source)
        before = found.window, found.dead
        dead = found.failed(cause)
        if (found.window, found.dead) != before:
            key = (zone.name, site, source)
            self._since_ms[key] = self._now_ms()
            name = _name(key)
            self._record(["concurrency", ["concurrency", name], [found.state(), self._since_ms[key]], found.cause])
        return dead

    def knows(self, name: str) -> bool:
        """Whether anything was learned under that name ("zone site source", as in `rows`)."""
        found = self._all.get(_key(name))
        return found is not None and found.learnt

    def apply(self, name: str, value: list[Any] | None, cause: str) -> None:
        """Makes a record true. value: [state, since_ms]; None: it is forgotten."""
        key = _key(name)
        zone = self._config.zone(key[0])
        if zone is None:
            return
        if value is None:
            self.of(zone, *key[1:]).clear(cause)
            self._since_ms.pop(key, None)
        else:
            self.of(zone, *key[1:]).restore(value[0])
            self._since_ms[key] = value[1]

    def state(self) -> list[list[Any]]:
        """For position records: [zone, site, source, its state, since_ms] of what is anything but new."""
        return [[*key, c.state(), self._since_ms.get(key, 0)] for key, c in self._all.items() if c.learnt]

    def restore(self, state: list[list[Any]]) -> None:
        for zone_name, site, source, learnt, *since in state:
            zone = self._config.zone(zone_name)
            if zone is not None:
                self.of(zone, site, source).restore(learnt)
                self._since_ms[zone_name, site, source] = since[0] if since else 0

    def rows(self, what: str = "") -> Iterator[dict[str, Any]]:
        """Those that failures have made smaller than new ones are, for people. what: only those of that zone, site,
        source, or whole name."""
        initial = self._config.learning.initial
        for key in self._named.of(what) if what else list(self._all):
            found = self._all.get(key)
            if found and (found.dead or found.window < min(initial, found.most)):
                name = _name(key)
                if not what or meant(what, name):
                    yield {
                        "kind": "concurrency", "name": name, "window": found.window, "dead": found.dead,
                        "since_ms": self._since_ms.get(key, 0), "until_ms": 0, "cause": found.cause,
                    }  # fmt: skip


def _name(key: tuple[str, str, str]) -> str:
    return " ".join(key).strip()


def _key(name: str) -> tuple[str, str, str]:
    zone, site, source = [*name.split(" "), "", ""][:3]
    return zone, site, source
