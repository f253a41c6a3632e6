"""Earned: how many connections each destination bears, as its replies taught; kept when an egress path is forgotten.

A decrease, and a death, is a record in the journal with its cause; growth is in position records only, since that is
slow, and losing some of it harms nobody. What was learned is seen by operators (`rows`) and forgotten at their order.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from zonemta_py.config import Config, Zone
from zonemta_py.schedule.policy.saved import Packed, Saved
from zonemta_py.schedule.policy.standing import LEARNED, Portions, Row, portions
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.zones.feedback import Concurrency

LEARNED_MAX = 10_000

_Key = tuple[str, str, str]


class LearnedConcurrency:
    """By zone, site and source. record: writes a change to the journal."""

    def __init__(self, config: Config, now_ms: Callable[[], int], record: Callable[[list[Any]], None]) -> None:
        self._config, self._now_ms, self._record = config, now_ms, record
        self._all: OrderedDict[_Key, Concurrency] = OrderedDict()
        self._since_ms: dict[_Key, int] = {}
        self._ways = Counter[tuple[str, str]]()
        """Zones and sources: of how many sites each."""
        self._lowered: dict[_Key, None] = {}
        """All that failures have made smaller, and some that have recovered since."""
        self._saved = Saved(self._state_of)

    def configure(self, config: Config) -> None:
        """Other settings from now on; what was learned stays."""
        self._config = config
        for (name, _, _), found in self._all.items():
            zone = config.zone(name)
            found.configure(config.learning, zone.connections_per_destination if zone else found.most)
        self._lowered = {key: None for key, found in self._all.items() if self._is_lowered(found)}

    def _is_lowered(self, found: Concurrency) -> bool:
        return found.dead or found.window < min(self._config.learning.initial, found.most)

    def of(self, zone: Zone, site: str, source: str) -> Concurrency:
        """What an egress path has earned; the initial window where nothing is known."""
        key = (zone.name, site, source)
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = Concurrency(self._config.learning, zone.connections_per_destination)
            self._ways[zone.name, source] += 1
            if len(self._all) > LEARNED_MAX:
                self._forget()
        self._all.move_to_end(key)
        return found

    def _forget(self) -> None:
        """The one that was used longest ago."""
        key, _ = self._all.popitem(last=False)
        way = key[0], key[2]
        self._ways[way] -= 1
        if not self._ways[way]:
            del self._ways[way]
        self._since_ms.pop(key, None)
        self._lowered.pop(key, None)
        self._saved.changed(key)

    def failed(self, zone: Zone, site: str, source: str, cause: str) -> bool:
        """A connection or session failed there; True if the destination is dead now."""
        found = self.of(zone, site, source)
        before = found.window, found.dead
        dead = found.failed(cause)
        key = (zone.name, site, source)
        if (found.window, found.dead) != before:
            self._since_ms[key] = self._now_ms()
            self._lowered[key] = None
            name = _name(key)
            self._record(["concurrency", ["concurrency", name], [found.state(), self._since_ms[key]], found.cause])
        self._saved.changed(key)
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
            self._restore(zone, key, value[0], value[1])
        self._saved.changed(key)

    async def gather(self, pace: Pace) -> None:
        """Prepares `state`, in portions."""
        await self._saved.gather(self._all, pace)

    def state(self) -> list[list[Any]] | Packed:
        """For position records: [zone, site, source, its state, since_ms] of what is anything but new."""
        return self._saved.rows(self._all)

    def _state_of(self, key: _Key) -> list[Any] | None:
        found = self._all.get(key)
        return None if found is None or not found.learnt else [*key, found.state(), self._since_ms.get(key, 0)]

    def restore(self, state: list[list[Any]]) -> None:
        for zone_name, site, source, learnt, *since in state:
            zone = self._config.zone(zone_name)
            if zone is not None:
                self._restore(zone, (zone_name, site, source), learnt, since[0] if since else 0)

    def _restore(self, zone: Zone, key: _Key, learnt: list[Any], since_ms: int) -> None:
        found = self.of(zone, *key[1:])
        found.restore(learnt)
        self._since_ms[key] = since_ms
        if self._is_lowered(found):
            self._lowered[key] = None

    def rows(self, what: str = "") -> Portions:
        """Those that failures have made smaller than new ones are, for people. what: only those of that zone, site,
        source, or whole name."""
        return portions(self._about(what) if what else list(self._lowered), self._row, what)

    def _about(self, what: str) -> list[_Key]:
        if any(what in way for way in self._ways):
            return list(self._lowered)
        words = what.split()
        return [key for zone, source in self._ways for word in words if (key := (zone, word, source)) in self._lowered]

    def _row(self, key: _Key) -> Row | None:
        found = self._all.get(key)
        if found is None or not self._is_lowered(found):
            self._lowered.pop(key, None)
            return None
        return {
            "kind": "concurrency", "name": _name(key), "window": found.window, "dead": found.dead,
            "since_ms": self._since_ms.get(key, 0), "until_ms": 0, "cause": found.cause, "group": LEARNED,
        }  # fmt: skip


def _name(key: _Key) -> str:
    return " ".join(key).strip()


def _key(name: str) -> _Key:
    zone, site, source = [*name.split(" "), "", ""][:3]
    return zone, site, source
