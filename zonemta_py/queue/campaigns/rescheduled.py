"""A campaign that is to go at other hours than before: who waits for the earlier ones is looked at again, in portions.

They are read before they are due, as mail whose destination is there again (`schedule.away`): who may go now goes, the
others are put off anew, each to their own time. Until all have been read the campaign is `moving`; after a restart it
is begun again. Failures: StoreError; the next tick goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.campaigns import Campaign
from zonemta_py.queue.core.core import Core
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.zone import ZoneSchedule

READ_AT_ONCE = 1_000
WAITING_MOST = 2_000
"""Keys that are to be read in a zone; beyond, the walk waits."""


class Moved:
    """One walk over what is deferred, for one campaign."""

    def __init__(self, core: Core, campaign: Campaign) -> None:
        self._core, self._campaign = core, campaign
        self._zones: Iterator[ZoneSchedule] = iter(list(core.schedule.zones.values()))
        self._zone = next(self._zones, None)
        self._start = b""

    def go_on(self) -> bool:
        """One portion; True: there is more. Raises StoreError."""
        zone = self._zone
        if zone is None:
            return False
        if len(zone.away.back) >= WAITING_MOST:
            return True
        start = self._start or b"%s%012x " % (keys.deferred_range(zone.zone.name), self._core.clock.steady_ms() + 1)
        stop = keys.end(keys.deferred_range(zone.zone.name))
        rows = list(islice(self._core.disk.store.scan(start, stop), READ_AT_ONCE))
        zone.away.back.extend(key for key, value in rows if self._meant(Note.of(value)))
        if len(rows) < READ_AT_ONCE:
            self._zone, self._start = next(self._zones, None), b""
        else:
            self._start = rows[-1][0] + b"\0"
        self._core.changed()
        return self._zone is not None

    def _meant(self, note: Note) -> bool:
        return not note.attempts and note.values is not None and FlowId.of(note.flow).campaign == self._campaign.name
