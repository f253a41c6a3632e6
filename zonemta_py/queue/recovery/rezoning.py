"""Re-zoning: recipients of a zone that was removed from the configuration continue in the default zone; what was
pushed, in the pull zone that its queue is now. That holds also for what was pushed to a zone that is sent from now:
nothing that was pushed is ever sent.

They become deferred there, due at once (what is held, deleted or has bounced stays so), so that the schedule finds
them; nothing else about them changes. Done at each start that finds any, after recovery, and logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.disk.notes import Note
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.state import FAMILY, counted_as
from zonemta_py.zones import pull

BATCH = 1_000


async def adopt(core: Core) -> list[str]:
    """Moves them; returns a sentence about each zone left. Mail that comes meanwhile goes to zones that exist."""
    told, zones = list[str](), core.schedule.zones
    for zone in [zone for zone, counts in core.counters.sizes.zones.items() if zone not in zones and any(counts)]:
        for home, count in (await _adopt_zone(core, zone, _home)).items():
            told.append(_sentence(zone, home, count))
    for zone in [name for name, one in zones.items() if not one.zone.pulled]:
        if any(core.counters.sizes.domains.get((zone, pull.DOMAIN), ())):
            for home, count in (await _adopt_zone(core, zone, _queue_of)).items():
                told.append(
                    f"zone {zone!r} is a pull zone no longer: {count} messages that were pushed to it continue in"
                    f" {home!r}, and are not sent"
                )
    return told


def _sentence(zone: str, home: str, count: int) -> str:
    if zone.startswith(pull.PREFIX):
        return f"{zone!r} is {home!r} now: {count} messages continue there"
    return f"zone {zone!r} is gone from the configuration: {count} of its recipients continue in {home!r}"


async def adopt_foreign(core: Core, zone: str) -> list[str]:
    """The same of one that was waited for, while mail is sent; what is about to leave stays in it."""
    place = core.schedule.zones[zone]
    for flow_queue in list(place.flow_queues.by_key.values()):
        for entry in place.withdraw(flow_queue, lambda _: True):
            core.schedule.busy.discard(entry.key)
            if entry.pinned:
                core.messages.unpin(core.messages.get(entry.id))
        place.tidy(flow_queue)
    return [_sentence(zone, home, count) for home, count in (await _adopt_zone(core, zone, _home)).items()]


async def _adopt_zone(core: Core, zone: str, home_of: Callable[[Core, keys.Place], str | None]) -> Counter[str]:
    """How many continue where. home_of: the zone in which a recipient continues; None: it stays."""
    now_ms, moved = core.clock.steady_ms(), Counter[str]()
    for family in FAMILY:
        prefix = f"{family} {zone} ".encode()
        operations, due = list[Operation](), list[bytes]()
        for key, value in core.disk.store.scan(prefix, keys.end(prefix)):
            place = keys.place(key)
            home = home_of(core, place) if key not in core.schedule.busy else None
            if home is None:
                continue
            domain = place.recipient.rpartition("@")[2]
            if family == "held":
                before = after = sizes.HELD
                new = keys.held(home, place.id, place.recipient)
            elif family == "deleted":
                before = after = sizes.DELETED
                new = keys.deleted(home, place.task, place.id, place.recipient)
            elif family == "bounced":
                before = after = sizes.BOUNCED
                new = keys.bounced(home, place.until_ms, place.id, place.recipient)
            else:
                before = counted_as(key)
                after = sizes.DEFERRED
                new = keys.deferred(home, max(place.due_ms, now_ms), place.id, place.recipient)
                core.schedule.zones[home].promise([new])
                due.append(new)
            core.counters.sizes.rezone(zone, home, domain, before, after, Note.of(value).flow)
            operations += [(key, None), (new, value)]
            moved[home] += 1
            if len(operations) >= BATCH:
                core.disk.lines.submit(operations, partial(_written, core, due), sync=False, keep=True)
                operations, due = [], []
                await core.disk.lines.stable()
        core.disk.lines.submit(operations, partial(_written, core, due), sync=False, keep=True)
    return moved


def _written(core: Core, due: list[bytes], _: Reply | None) -> None:
    """The new keys are in the store."""
    core.schedule.busy.difference_update(due)
    for key in due:
        place = keys.place(key)
        core.schedule.zones[place.zone].due_at(place.due_ms)


def _home(core: Core, place: keys.Place) -> str:
    """The zone in which a recipient of a zone that is gone continues."""
    return _queue_of(core, place) or core.config.default_zone.name


def _queue_of(core: Core, place: keys.Place) -> str | None:
    """The pull zone of the queue that it was pushed to; None: it came as mail."""
    queue, _, domain = place.recipient.rpartition("@")
    if domain == pull.DOMAIN and core.messages.peek(place.id).get("protocol") == pull.PUSHED:
        zone = pull.zone_of(core.config, queue)
        if core.schedule.pull_zone(zone) or pull.is_made(zone):
            return core.schedule.make(zone).zone.name
    return None
