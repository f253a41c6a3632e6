"""What has bounced and is kept, so that a task can queue it again (queue.keep_bounced_s): ended when its time is over.

It is ended at once, what has bounced first coming first, when free space is short or when nothing is to be kept any
more. A REMOVED record says so, with `kept`; that it has bounced has been told already, so nothing is told or counted.
Failures: on a disk error nothing ends; the next call finds it again. What is damaged stays for `fsck`.
"""

from __future__ import annotations

from itertools import islice

from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.removal import remove_walked
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.zone import ZoneSchedule

AT_ONCE = 500
"""Recipients that are ended in one call: about 10 ms of work."""
REASON = "bounced, and kept no longer"


class KeptBounces:
    """Of one queue."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def end(self) -> bool:
        """True: there may be more. Raises StoreError."""
        core = self._core
        if not core.counters.sizes.total[sizes.BOUNCED] or core.disk.store.fenced:
            return False
        all_of_it = not core.config.queue.keep_bounced_s or core.disk.space.short(core.clock.monotonic())
        counts = core.counters.sizes.zones
        zones = [zone for name, zone in core.schedule.zones.items() if name in counts and counts[name][sizes.BOUNCED]]
        left = AT_ONCE
        for zone in zones:
            left -= self._end(zone, all_of_it, left)
            if left <= 0:
                return True
        return False

    def _end(self, zone: ZoneSchedule, all_of_it: bool, most: int) -> int:
        core, prefix = self._core, keys.bounced_range(zone.zone.name)
        stop = keys.end(prefix) if all_of_it else b"%s%012x " % (prefix, core.clock.steady_ms() + 1)
        found = []
        for key, value in islice(core.disk.store.scan(prefix, stop), most):
            if key not in core.schedule.busy:
                place = keys.place(key)
                found.append(Entry(key, place.id, place.recipient, Note.of(value)))
        return len(found) - len(remove_walked(core, zone, found, lambda _: REASON))
