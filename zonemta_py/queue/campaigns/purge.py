"""Purge: takes all waiting recipients of canceled campaigns out of the queue, in portions.

Recipients that are out of reach now (leased, or moving between key ranges) are removed when they are leased again, or
by the next pass. Failures: StoreError on a disk error; the next pass finds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core.campaigns import Campaign, canceled
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.lifecycle.removal import remove_in_memory, remove_walked
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.zone import ZoneSchedule

AT_ONCE = 500
WALKED_AT_ONCE = 5_000
"""Recipients of one range that are read before the event loop runs."""


class _Range(NamedTuple):
    """Keys of one family in a zone that remain to be walked."""

    zone: ZoneSchedule
    family: str
    start: bytes
    stop: bytes


class Sweep:
    """One pass over all waiting recipients, for the campaigns that were canceled when it began."""

    def __init__(self, core: Core, campaigns: dict[str, Campaign]) -> None:
        self._core, self._campaigns = core, campaigns
        self._ranges = self._all_ranges()
        self._range = next(self._ranges, None)

    def go_on(self) -> bool:
        """One portion; True: there is more. Raises StoreError."""
        if self._window():
            return True
        if self._range is None:
            return False
        rest = self._walk(self._range)
        self._range = self._range._replace(start=rest) if rest else next(self._ranges, None)
        return self._range is not None

    def _all_ranges(self) -> Iterator[_Range]:
        for zone in self._core.schedule.zones.values():
            for family in FAMILY:
                prefix = f"{family} {zone.zone.name} ".encode()
                start = max(prefix, zone.fresh.mark()) if family == "delivery-zone" else prefix
                yield _Range(zone, family, start, keys.end(prefix))

    def _window(self) -> bool:
        """Removes those of one flow queue in memory; True: there were any."""
        for zone in self._core.schedule.zones.values():
            for flow_queue in zone.flow_queues.by_key.values():
                if flow_queue.flow_id.campaign not in self._campaigns:
                    continue
                if remove_in_memory(self._core, flow_queue, self._is_own, self._reason):
                    return True
        return False

    def _walk(self, walk: _Range) -> bytes:
        """Ends the recipients found there. Returns where to continue, b"" at the end."""
        found, busy, rest = list[Entry](), self._core.schedule.busy, b""
        for count, (key, value) in enumerate(self._core.disk.store.scan(walk.start, walk.stop)):
            if count >= WALKED_AT_ONCE or len(found) >= AT_ONCE:
                rest = key
                break
            if key not in busy and self._is_canceled(note := Note.of(value)):
                place = keys.place(key)
                entry = Entry(key, place.id, place.recipient, note)
                if self._is_own(entry):
                    found.append(entry)
        remove_walked(self._core, walk.zone, found, self._reason)
        return rest

    def _is_own(self, entry: Entry) -> bool:
        return entry.note.tallied and self._core.campaigns.owns(FlowId.of(entry.note.flow).campaign, entry.id)

    def _is_canceled(self, note: Note) -> bool:
        return note.tallied and FlowId.of(note.flow).campaign in self._campaigns

    def _reason(self, entry: Entry) -> str:
        return canceled(self._campaigns[FlowId.of(entry.note.flow).campaign])
