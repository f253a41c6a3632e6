"""Recipients that wait, for `explain`: what holds each, since when and until when, how many are before it, its life."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.keys import Place
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.mail.metadata import about, told
from zonemta_py.queue.admin.browse import by_id
from zonemta_py.queue.admin.browse.ranges import AT_ONCE
from zonemta_py.queue.core.lifetime import EVER_H, HOUR_MS
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.hooks import chosen
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.tasks.where import Where
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.reasons import WHOLE, reasons
from zonemta_py.schedule.time import hours
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.schedule.zone import ZoneSchedule

Row = dict[str, Any]
LEAST = 20
"""Rows that are made even if the time is over."""
COUNTED_MAX = 2_000
"""Keys that are read to count the recipients ahead of one."""
_STOPS = frozenset((*WHOLE, "suspended", "source", "resting", "hours"))
"""What will still hold a deferred recipient when it is due."""


class WaitingRows:
    """What a walk has found: `rows`, at most so many; `walk` says how far it came."""

    def __init__(self, queue: QueueContext, where: Where, after: str, pace: Pace) -> None:
        """where: who may be meant; after: the cursor of an earlier one. Raises ValueError if it is none."""
        self._queue, self._pace = queue, pace
        self.walk = by_id.walk(queue.core, where, after, pace)
        self.rows: list[Row] = []
        self.full = False

    @property
    def next(self) -> str | None:
        """The cursor, if there may be more."""
        return self.walk.after.decode() if self.full or self.walk.stopped else None

    async def find(self, chosen: Callable[[bytes, bytes], bool], most: int) -> list[Row]:
        """A row for each recipient that `chosen` selects by key and value."""
        leases: dict[bytes, Lease] | None = None
        async for key, value in self.walk.rows():
            if not chosen(key, value):
                continue
            if leases is None:
                leases = {entry.key: lease for lease in self._queue.leases.out.values() for entry in lease.open}
            self.rows.append(await _one(self._queue, key, value, leases.get(key), self._pace))
            if len(self.rows) >= most:
                self.full = True
                break
            if self._pace.over and len(self.rows) >= LEAST:
                self.walk.stopped = True
                break
            await self._pace.turn()
        return self.rows


def _pulled(queue: QueueContext, lease: Lease) -> Row:
    """Who has taken it, "" if unknown, and until when it is reserved; 0: as long as that connection lasts."""
    left_s = lease.until_s - queue.core.schedule.now()
    until_ms = queue.core.clock.ms() + round(left_s * 1000) if lease.until_s else 0
    return {"holder": lease.holder, "until_ms": until_ms}


async def _one(queue: QueueContext, key: bytes, value: bytes, lease: Lease | None, pace: Pace) -> Row:
    place, note = keys.place(key), Note.of(value)
    row: Row = {
        "id": place.id, "recipient": place.recipient, "zone": place.zone, "attempts": note.attempts, "last": note.last,
        "state": str(FAMILY[place.family]), "reasons": [], "before": 0, "counted": True,
    }  # fmt: skip
    if note.notes:
        row["notes"] = note.notes
    if note.meta is not None:
        row |= _told(queue, place, note)
    if note.routing:
        row["chosen"] = chosen(note.routing)
    if lease is not None:
        path = lease.batch.path
        row |= {"state": str(State.LEASED), "since_ms": lease.since_ms, "worker": lease.worker}
        row |= {"source": path.source, "site": path.site}
        return row | _pulled(queue, lease) if lease.zone.pulled else row
    if queue.core.tasks.active and (ordered := queue.core.tasks.ordered(key, value)) is not None:
        reason = {"kind": str(ordered.state), "cause": ordered.cause, "since_ms": 0, "until_ms": 0}
        return row | {"state": str(ordered.state), "reasons": [reason]}
    if place.family == "held":
        cause = f"held for an operator: {note.last}" if note.last else "held for an operator"
        return row | {"reasons": [{"kind": "held", "cause": cause, "since_ms": note.last_ms, "until_ms": 0}]}
    if place.family == "deleted":
        cause = f"task {place.task} has deleted it, which can be undone"
        return row | {"reasons": [{"kind": "deleted", "cause": cause, "since_ms": 0, "until_ms": 0}]}
    if place.family == "bounced":
        until_ms = place.until_ms - queue.core.clock.apart_ms()
        cause = f"it has bounced: {note.last}"
        return row | {"reasons": [{"kind": "bounced", "cause": cause, "since_ms": note.last_ms, "until_ms": until_ms}]}
    zone = queue.core.schedule.zones.get(place.zone)
    if zone is None:
        cause = f"there is no zone {place.zone!r} any more, give it back to the configuration"
        return row | {"reasons": [{"kind": "held", "cause": cause, "since_ms": 0, "until_ms": 0}]}
    try:
        terms = queue.core.campaigns.terms(queue.core.messages.peek(place.id), note.values, note.early)
    except StoreError:
        terms = {}
    flow_queue, known = _flow_queue(zone, place, note)
    row |= {"site": flow_queue.path.site, "source": flow_queue.path.source, "provider": flow_queue.path.provider}
    row |= {"tenant": flow_queue.flow_id.tenant, "campaign": flow_queue.flow_id.campaign}
    row["reasons"] = reasons(queue.core.schedule, flow_queue)
    if place.family == "deferred" and place.due_ms > queue.core.clock.steady_ms():
        own = _put_off(queue, zone, place, note, terms)
        said = {reason["kind"] for reason in own}
        row["reasons"] = own + [r for r in row["reasons"] if r["kind"] in _STOPS - said]
    else:
        row["state"] = str(State.QUEUED)  # a deferred one that is due waits like queued ones
        row["before"], row["counted"] = await _before(queue, flow_queue, key, place, pace)
    row["reasons"] += _deadline(queue, terms) if row["reasons"] else []
    row["life"] = _life(queue, flow_queue, place, note, terms)
    if not known:
        flow_queue.parked.exhausted = True  # a flow queue that did not exist has nothing parked
        zone.flow_queues.forget(flow_queue)
    return row


def _told(queue: QueueContext, place: Place, note: Note) -> Row:
    """Its metadata, and the header fields that come back with them. The message may be damaged."""
    try:
        metadata = queue.core.messages.peek(place.id)
    except StoreError:
        metadata = {}
    return told(about(metadata, [(place.recipient, note.meta)]), place.recipient)


def _flow_queue(zone: ZoneSchedule, place: Place, note: Note) -> tuple[FlowQueue, bool]:
    """The recipient's flow queue, and whether it existed before."""
    flow_queues = zone.flow_queues
    name = place.destination or flow_queues.where(place.id, place.recipient, note)[0]
    flow_queue = flow_queues.by_key.get(name)
    return (flow_queue, True) if flow_queue is not None else (flow_queues.of(place.id, place.recipient, note), False)


def _put_off(queue: QueueContext, zone: ZoneSchedule, place: Place, note: Note, terms: dict[str, Any]) -> list[Row]:
    """Why it is not due yet. It may be due at its deadline although the reason lasts longer."""
    now_ms, window = queue.core.clock.ms(), terms.get("window", "")
    due_ms = place.due_ms - queue.core.clock.apart_ms()
    opens_ms = hours.opens(queue.core.config, zone.zone, window, terms.get("time_zone", ""), now_ms)
    since_ms = note.last_ms or keys.id_ms(place.id)
    reason = {"kind": "deferred", "since_ms": since_ms, "until_ms": due_ms}
    theirs = f" in {terms['time_zone']}" if terms.get("time_zone") else ""
    cause = f"outside the hours {window or zone.zone.window!r}{theirs}"
    until_ms = opens_ms if hours.too_late(terms, place.due_ms) else due_ms  # due then, but only to be returned
    out_of_hours = reason | {"kind": "hours", "cause": cause, "until_ms": until_ms}
    closed = [out_of_hours] if opens_ms > now_ms else []
    if note.attempts:
        cause = f"tried {_times(note.attempts)}, the last answer was: {note.last}"
        cause += "; it is sent at once if its destination answers earlier" if note.away else ""
        return [reason | {"cause": cause}, *closed]
    apart_ms = queue.core.clock.apart_ms()
    if (hold_ms := hours.hold_ms(terms, apart_ms) - apart_ms) > now_ms:
        theirs = f" (its campaign's time, in {terms['time_zone']})" if terms.get("timed") else ""
        return [reason | {"cause": f"held until then, as its sender asked{theirs}", "until_ms": hold_ms}]
    return closed or [reason | {"cause": f"postponed until then {note.last and 'after: '}{note.last}"}]


def _deadline(queue: QueueContext, terms: dict[str, Any]) -> list[Row]:
    """What ends its wait at the latest."""
    if terms.get("until_ms"):
        cause = f"its campaign is sent until then (in {terms['time_zone']}), and removed after it"
        return [{"kind": "deadline", "cause": cause, "since_ms": 0, "until_ms": terms["until_ms"]}]
    if terms.get("deadline_mode") != "R":
        return []
    cause = "it is returned to its sender if not delivered by then, as its sender asked"
    until_ms = hours.deadline_ms(terms) - queue.core.clock.apart_ms()
    return [{"kind": "deadline", "cause": cause, "since_ms": 0, "until_ms": until_ms}]


def _life(queue: QueueContext, flow_queue: FlowQueue, place: Place, note: Note, terms: dict[str, Any]) -> Row:
    """Until when it is tried (UNIX ms, 0: unknown, for ever, or its campaign ends before), for how many hours of that
    (0: unknown), and how long it has waited that does not count towards its `lifetime`."""
    core = queue.core
    try:
        message = core.messages.look(place.id)
    except StoreError:
        return {"until_ms": 0, "chosen_ms": 0, "life_h": 0}
    now_ms = core.clock.steady_ms()
    ends_ms = core.lifetime.ends_ms(flow_queue, message, place.recipient, note, now_ms)
    chosen_ms = core.lifetime.chosen_ms(flow_queue, message, place.recipient, note, now_ms)
    life_h, until_ms = core.lifetime.life_h(flow_queue, message, place.recipient, note), ends_ms - core.clock.apart_ms()
    if ends_ms - now_ms > EVER_H * HOUR_MS // 2 or 0 < terms.get("until_ms", 0) <= until_ms:
        until_ms = 0
    return {"until_ms": until_ms, "chosen_ms": chosen_ms, "life_h": life_h}


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


async def _before(queue: QueueContext, flow_queue: FlowQueue, key: bytes, place: Place, pace: Pace) -> tuple[int, bool]:
    """How many recipients of its flow queue come first, and whether the count is complete: the window, parked, then
    unread."""
    for number, entry in enumerate(flow_queue.entries):
        if entry.key == key:
            return number, True
    busy, store, flow_queues = queue.core.schedule.busy, queue.core.disk.store, flow_queue.zone.flow_queues
    parked, looked = keys.parked_range(place.zone, flow_queue.key), 0
    count = len(flow_queue.entries)
    start, stop = parked, key if place.family == "parked" else keys.end(parked)
    while not (late := looked >= COUNTED_MAX or pace.over):
        rows = list(islice(store.keys(start, stop), 4 * AT_ONCE))
        if not rows:
            break
        count += len([one for one in rows if one not in busy])
        looked, start = looked + len(rows), rows[-1] + b"\0"
        await pace.turn()
    if late or place.family == "parked":
        return count, not late
    start = (flow_queue.zone.fresh if place.family == "delivery-zone" else flow_queue.zone.due).mark()
    while not (late := looked >= COUNTED_MAX or pace.over):
        found = list(islice(store.scan(start, key), AT_ONCE))
        if not found:
            break
        for other, value in found:
            if other not in busy:
                there = keys.place(other)
                count += flow_queues.where(there.id, there.recipient, Note.of(value))[0] == flow_queue.key
        looked, start = looked + len(found), found[-1][0] + b"\0"
        await pace.turn()
    return count, not late
