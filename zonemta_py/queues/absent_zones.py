"""Mail of zones that this node cannot send: its configuration lacks them, or none of their source addresses is on this
machine. It waits for a node that can, which gets it as long as that lives (`cluster/moves.py`). Once none has lived for
`cluster.zone_wait_s`, it goes on in the default zone, where the zone is lacking; else as well as it can.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import Any

from zonemta_py.config import Config, Zone
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue import questions
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.rezoning import adopt_foreign

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""How often it is looked which source addresses this machine has."""
NOWHERE = "no node of the cluster has zone {0!r}"


def servable(config: Config) -> list[str]:
    """Zones whose mail this machine can send."""
    return [zone.name for zone in config.zones if not zone.pulled and _has_source(config, zone)]


def _has_source(config: Config, zone: Zone) -> bool:
    sources = config.sources(zone)
    return not sources or any(source.proxy or _is_here(source.address) for source in sources)


def _is_here(address: str) -> bool:
    """Whether a socket can be bound to it."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class AbsentZones:
    """Of the queue in this process."""

    def __init__(self, queue: LocalQueue) -> None:
        self._core = queue.core
        rows = self._core.disk.store.scan(keys.MOVING_AWAY, keys.end(keys.MOVING_AWAY))
        self._since = {key.removeprefix(keys.MOVING_AWAY).decode(): int(packing.unpack(value)) for key, value in rows}
        """UNIX ms since when nobody who lives can send it."""
        self._looked = self._core.config, float("-inf")
        self._serves: list[str] = []

    def _servable(self) -> list[str]:
        config, now = self._core.config, time.monotonic()
        if config is not self._looked[0] or now > self._looked[1] + LOOK_S:
            self._looked, self._serves = (config, now), servable(config)
        return self._serves

    async def tell(self, where: dict[str, list[Any]]) -> questions.AwayZones:
        """As of `questions.away`. Raises StoreError."""
        core, schedule, found, why = self._core, self._core.schedule, dict[str, int](), dict[str, str]()
        serves = self._servable()
        lacking = {zone.name for zone in core.config.zones if not zone.pulled} - {*serves}
        for name in sorted(lacking | schedule.foreign):
            counts = core.counters.sizes.zones.get(name, (0, 0, 0, 0, 0))
            sentence, lives = where.get(name) or [NOWHERE.format(name), False]
            found[name] = counts[0] + counts[1]
            since = self._noted(name, bool(any(counts)) and not lives)
            if name in schedule.foreign and not any(counts):
                schedule.drop_foreign(name)
            elif since is None or core.clock.ms() - since < core.config.cluster.zone_wait_s * 1000:
                why[name] = sentence
            elif name in schedule.foreign:
                for line in await adopt_foreign(core, name):
                    log.warning("%s; %s", line, sentence)
                why[name] = sentence
        schedule.set_away(why)
        return {"serves": serves, "waiting": found}

    def _noted(self, zone: str, waits: bool) -> int | None:
        """Since when it waits, with nobody to come."""
        before = self._since.get(zone)
        if waits == (before is not None):
            return before
        if waits:
            self._since[zone] = self._core.clock.ms()
        else:
            del self._since[zone]
        now = self._since.get(zone)
        change: list[Operation] = [(keys.moving_away(zone), packing.pack(now) if now is not None else None)]
        self._core.disk.lines.submit(change, immediately, sync=False, keep=True)
        return now
