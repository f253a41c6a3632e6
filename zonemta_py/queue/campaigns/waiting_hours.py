"""Who of a campaign waits for their hour: how many in each time zone, and when the next of them is due.

Found by a walk over what is deferred, in portions; when they go is reckoned anew, since the campaign's hours may just
have been changed. After LOOKED_MAX of them it says that there are more. Failures: StoreError.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.sizes import DEFERRED
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.time import hours
from zonemta_py.schedule.time.pace import Pace

AT_ONCE, LOOKED_MAX = 100, 200_000
_TERMS_MAX = 1_000


async def waiting(core: Core, campaign: Campaign) -> dict[str, Any]:
    """{"zones": [{"time_zone", "waiting", "next_ms"} …], the next first, "last_ms": when the last is due, UNIX ms, 0 if
    nobody waits; "counted": False: there are more}."""
    found = _Found(core, campaign)
    if campaign.times is not None and core.counters.sizes.flows.campaigns.of(campaign.name)[DEFERRED]:
        pace = Pace(math.inf)
        for schedule in list(core.schedule.zones.values()):
            await found.walk(schedule.zone, pace)
    rows = [{"time_zone": zone, "waiting": n, "next_ms": next_ms} for zone, (n, next_ms) in found.zones.items()]
    rows.sort(key=lambda row: (row["next_ms"], row["time_zone"]))
    return {"zones": rows, "last_ms": found.last_ms, "counted": not found.stopped}


class _Found:
    def __init__(self, core: Core, campaign: Campaign) -> None:
        self._core, self._campaign = core, campaign
        self.zones: dict[str, tuple[int, int]] = {}
        self.last_ms, self.stopped, self._looked = 0, False, 0
        self._metadata: dict[str, dict[str, Any]] = {}

    async def walk(self, zone: Zone, pace: Pace) -> None:
        core = self._core
        start = b"%s%012x " % (keys.deferred_range(zone.name), core.clock.steady_ms() + 1)
        stop = keys.end(keys.deferred_range(zone.name))
        while not self.stopped:
            rows = list(islice(core.disk.store.scan(start, stop), AT_ONCE))
            for key, value in rows:
                self._look(zone, key, Note.of(value))
            if len(rows) < AT_ONCE:
                return
            start = rows[-1][0] + b"\0"
            self._looked += AT_ONCE
            self.stopped = self._looked >= LOOKED_MAX
            await pace.turn()

    def _look(self, zone: Zone, key: bytes, note: Note) -> None:
        core, campaign = self._core, self._campaign
        if note.attempts or note.values is None or FlowId.of(note.flow).campaign != campaign.name:
            return
        terms = core.campaigns.terms(self._metadata_of(keys.place(key).id), note.values, note.early)
        due_ms = hours.first_ms(core.config, zone, terms, now_ms := core.clock.ms(), 0)
        if due_ms <= now_ms:
            return
        time_zone = terms.get("time_zone", "")
        count, next_ms = self.zones.get(time_zone, (0, due_ms))
        self.zones[time_zone] = count + 1, min(next_ms, due_ms)
        self.last_ms = max(self.last_ms, due_ms)

    def _metadata_of(self, message_id: str) -> dict[str, Any]:
        found = self._metadata.get(message_id)
        if found is None:
            if len(self._metadata) >= _TERMS_MAX:
                self._metadata.clear()
            try:
                found = self._core.messages.peek(message_id)
            except StoreError:
                found = {"campaign": self._campaign.name}
            self._metadata[message_id] = found
        return found
