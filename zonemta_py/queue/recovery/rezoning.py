"""Re-zoning: recipients of a zone that was removed from the configuration continue in the default zone; what was
pushed, in the pull zone that its queue is now.

They become deferred there, due at once (held ones stay held), so that the schedule finds them; nothing else about them
changes. Done once at the start, after recovery, and logged.
"""

from __future__ import annotations

from collections import Counter

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY, counted_as
from zonemta_py.zones import queues

BATCH = 1_000


async def adopt(core: Core) -> dict[str, Counter[str]]:
    """Moves them; returns, by zone, how many continue where. Mail that comes meanwhile goes to zones that exist."""
    orphaned = [zone for zone, counts in core.sizes.zones.items() if zone not in core.schedule.zones and any(counts)]
    return {zone: await _adopt_zone(core, zone) for zone in orphaned}


async def _adopt_zone(core: Core, zone: str) -> Counter[str]:
    now_ms, moved = core.clock.steady_ms(), Counter[str]()
    for family in FAMILY:
        prefix = f"{family} {zone} ".encode()
        operations: list[Operation] = []
        for key, value in core.store.scan(prefix, keys.end(prefix)):
            place = keys.place(key)
            domain, home = place.recipient.rpartition("@")[2], _home(core, place)
            if family == "held":
                before = after = sizes.HELD
                new = keys.held(home, place.id, place.recipient)
            else:
                before = counted_as(key)
                after = sizes.DEFERRED
                new = keys.deferred(home, place.due_ms or now_ms, place.id, place.recipient)
            core.sizes.rezone(zone, home, domain, before, after)
            operations += [(key, None), (new, value)]
            moved[home] += 1
            if len(operations) >= BATCH:
                core.lines.submit(operations, immediately, sync=False, keep=True)
                operations = []
                await core.lines.stable()
        core.lines.submit(operations, immediately, sync=False, keep=True)
    return moved


def _home(core: Core, place: keys.Place) -> str:
    """The zone in which a recipient continues."""
    queue, _, domain = place.recipient.rpartition("@")
    if domain == queues.DOMAIN and core.messages.peek(place.id).get("protocol") == queues.PUSHED:
        zone = queues.zone_of(core.config, queue)
        if core.schedule.pull_zone(zone) or queues.is_made(zone):
            return core.schedule.make(zone).zone.name
    return core.config.default_zone.name
