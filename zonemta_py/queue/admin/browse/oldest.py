"""How old the oldest mail of each zone is, without what is held, deleted or has bounced.

Fresh mail of a zone is in the order of its age, and so is the index, which has what is deferred or parked, of all
zones. So the oldest is the first fresh one, or one that the index has before that: it is looked for behind the answer
(`pace.behind`), and where the search has ended the next one begins, since no older mail comes. Only an order that moves
or releases mail brings older mail to a zone; so every AGAIN_S all is looked for again, from the oldest that there was.
A zone of which it is not known yet has the age of its oldest fresh mail, or is left out.

Failures: none; what cannot be read is asked for again the next time.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sizes import DEFERRED, HELD, QUEUED
from zonemta_py.queue.lifecycle.observe import zone_label
from zonemta_py.schedule.time.pace import PAGE_S, Pace, behind
from zonemta_py.zones import pull

BEHIND = 59.0
"""A search rests so long for each second of its work, while mail is sent."""
AGAIN_S = 900.0
AT_ONCE = 500
_WAITS = (b"deferred", b"parked")
_NONE, _END = b"", b"g"
"""Before and behind all ids."""


class _Oldest:
    """Of one queue, by the zones' labels: ids."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._begun: dict[str, bytes] = {}
        """What is older is not in the index."""
        self._found: dict[str, bytes] = {}
        """Keys of the index."""
        self._floor, self._looked_s = _NONE, -math.inf
        self._searching: asyncio.Future[None] | None = None

    async def rows(self) -> list[list[Any]]:
        core, waiting = self._core, _waiting(self._core)
        fresh = {label: _fresh(core, label) for label in waiting}
        self._begin_again()
        later = core.disk.ids.following().encode()
        wanted = {label: min(first, later) for label, first in fresh.items() if not self._known(label, first)}
        if wanted and self._searching is None and core.disk.places.complete:
            self._searching = asyncio.ensure_future(behind(lambda: self._search(wanted), BEHIND))
            core.keep(self._searching)
        if self._searching is not None:
            await asyncio.wait([self._searching], timeout=PAGE_S)
        zones = {zone.name for zone in core.config.zones} | waiting
        found = {label: self._oldest(label, fresh.get(label, _END)) for label in zones}
        return [[[label], self._age(first)] for label, first in found.items() if first != _END or label not in waiting]

    def _known(self, label: str, fresh: bytes) -> bool:
        """Whether nothing has to be looked for: what was found is there still, or there is nothing before `fresh`."""
        if (key := self._found.get(label)) is not None and self._core.disk.store.get(key) is None:
            del self._found[label]
        return label in self._found or self._begun.get(label, _NONE) >= fresh

    def _oldest(self, label: str, fresh: bytes) -> bytes:
        key = self._found.get(label)
        return fresh if key is None else min(fresh, _id(key))

    def _age(self, first: bytes) -> float:
        clock = self._core.clock
        return 0.0 if first == _END else max(0, clock.steady_ms() - clock.born_ms(first.decode())) / 1000

    def _begin_again(self) -> None:
        if self._searching is None and (now_s := self._core.clock.monotonic()) >= self._looked_s + AGAIN_S:
            self._floor = min(_first_of_all(self._core, self._floor), self._core.disk.ids.following().encode())
            self._begun, self._found, self._looked_s = {}, {}, now_s

    async def _search(self, wanted: dict[str, bytes]) -> None:
        """In the index, for what is older than the fresh mail of these zones."""
        left, pace = dict(wanted), Pace(math.inf)
        at = keys.INDEX + min(self._begun.get(label, self._floor) for label in left)
        try:
            store = self._core.disk.store
            while left and (rows := list(islice(store.keys(at, keys.INDEX + max(left.values())), AT_ONCE))):
                for key in rows:
                    self._see(key, left)
                at = rows[-1] + b"\0"
                await pace.turn()
            self._begun |= left
        except StoreError:
            pass  # the next answer begins again
        finally:
            self._searching = None

    def _see(self, key: bytes, left: dict[str, bytes]) -> None:
        _, first, family, zone, _ = key.split(b" ", 4)
        label = zone_label(zone.decode())
        if family in _WAITS and label in left and first < left[label]:
            self._found[label], self._begun[label] = key, first
            del left[label]


def _waiting(core: Core) -> set[str]:
    """Labels of zones of which something waits."""
    zones = core.counters.sizes.zones
    return {zone_label(name) for name, counts in zones.items() if counts[QUEUED] or counts[DEFERRED]}


def _fresh(core: Core, zone: str) -> bytes:
    """The id of its first fresh mail. What is pushed is never fresh."""
    there = core.schedule.zones.get(zone)
    if there is None:
        return _END
    prefix = keys.fresh_range(zone)
    with suppress(StoreError):
        if (key := core.disk.store.first(max(prefix, there.fresh.mark()), keys.end(prefix))) is not None:
            return key.split(b" ", 3)[2]
    return _END


def _first_of_all(core: Core, floor: bytes) -> bytes:
    """The oldest id of all, whatever its state: what comes to a zone by an order is not older."""
    firsts = [_fresh(core, name) for name in core.schedule.zones if not name.startswith(pull.PREFIX)]
    with suppress(StoreError):
        if (key := core.disk.store.first(keys.INDEX + floor, keys.INDEX + _END)) is not None:
            firsts.append(_id(key))
        for name in [name for name, counts in core.counters.sizes.zones.items() if counts[HELD]]:
            prefix = keys.held_range(name)
            if (key := core.disk.store.first(prefix + floor, keys.end(prefix))) is not None:
                firsts.append(key.split(b" ", 3)[2])
    return min(firsts, default=_END)


def _id(key: bytes) -> bytes:
    """Of a key of the index."""
    return key.split(b" ", 2)[1]


_known: WeakKeyDictionary[Core, _Oldest] = WeakKeyDictionary()


async def ages(core: Core) -> list[list[Any]]:
    """[[zone], seconds]; 0 where nothing waits."""
    found = _known.get(core)
    if found is None:
        found = _known[core] = _Oldest(core)
    return await found.rows()
