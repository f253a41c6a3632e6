"""Why something waits, and until when: read from the scheduler's own state.

The answer: about, kind (message, recipient, zone, ip, campaign, tenant, destination), rows, and how many rows `more`
there are; for a destination also `counts`, and what was `learned` about it; for a recipient also its entries on the
suppression list (`suppressed`). A row is a recipient, a flow queue (`reasons.rows_of`) or a stop ("stopped"), and has
`reasons`, the first being what holds it now (`reasons.py`; for recipients also deferred, held, and finally deadline:
what ends the wait at the latest). No reason: it goes when its turn comes; a recipient's `before` is the number of
recipients ahead of it in its flow queue (`counted` False: at least that many), its `life` the time when it is given up.

Walks over the store take long if the queue is long: other work continues meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from zonemta_py.disk import keys
from zonemta_py.disk.keys import Place
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.lifetime import EVER_H, HOUR_MS
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.flow import FlowId
from zonemta_py.schedule.policy.manners import KINDS as MANNERS
from zonemta_py.schedule.policy.state import NO_TLS
from zonemta_py.schedule.reasons import reasons, rows_of
from zonemta_py.schedule.time import hours
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones import queues

Row = dict[str, Any]
T = TypeVar("T")
COUNTED_MAX = 10_000
"""Keys that are read to count the recipients ahead of one."""
ROWS_MAX = 200
WALKED_AT_ONCE = 500
SETTLED_S = 1.0
"""How long to wait for a store that lags behind."""
_ID = re.compile(r"[0-9a-f]{16}")
_STOPS = frozenset(("suspended", "source", "resting", "hours"))
"""What will still hold a deferred recipient when it is due."""


async def explain(queue: QueueContext, what: str) -> dict[str, Any]:
    """About a message id, a recipient, an IP address, a zone, a campaign or tenant, or a domain, site or provider.

    A message or recipient that is not in the queue has no rows. Raises ValueError for any other name of which nothing
    waits, is stopped or is configured.
    """
    what = what.strip()
    if not what:
        raise ValueError(
            "there is no name to explain; give a message id, recipient, domain, campaign, tenant, IP address or zone"
        )
    with contextlib.suppress(TimeoutError):  # recently settled recipients should be out of the store
        await asyncio.wait_for(queue.core.lines.stable(), SETTLED_S)
    if _ID.fullmatch(what):
        middle = f" {what} ".encode()
        return _answer(what, "message", await _recipients(queue, lambda key, _: middle in key))
    if "@" in what:
        local, _, domain = what.rpartition("@")
        last = f" {local}@{domain.lower()}".encode()
        rows = await _recipients(queue, lambda key, _: key.endswith(last))
        listed = [entry.shown() for entry in queue.suppression.every(person(what))]
        return _answer(what, "recipient", rows, suppressed=listed)
    schedule = queue.core.schedule
    if zone := schedule.zones.get(what):
        return _answer(what, "zone", rows_of(schedule, zone.flow_queues.by_key.values()) or _stops(queue, what))
    answer = _ip(queue, what) or _flow_queues(queue, what) or _stopped(queue, what) or await _waiting(queue, what)
    if answer is None and (zone := schedule.zones.get(queues.zone_of(queue.core.config, what))) is not None:
        answer = _answer(what, "queue", rows_of(schedule, zone.flow_queues.by_key.values()))
    if answer is None:
        raise ValueError(
            f"nothing called {what!r} is waiting or suspended; give a message id, recipient, domain, campaign, tenant, "
            "IP address or zone, or see what was delivered with `zonemta journal dump`"
        )
    return answer


def _answer(what: str, kind: str, rows: list[Row], **more: Any) -> dict[str, Any]:
    return {"about": what, "kind": kind, "rows": rows[:ROWS_MAX], "more": max(0, len(rows) - ROWS_MAX)} | more


# -- kinds of names


def _ip(queue: QueueContext, what: str) -> dict[str, Any] | None:
    """A source address; None if it is not one."""
    try:
        ipaddress.ip_address(what)
    except ValueError:
        return None
    schedule = queue.core.schedule
    rows = rows_of(schedule, (flow_queue for flow_queue in schedule.flow_queues() if flow_queue.path.source == what))
    rows += _stops(queue, what)
    known = any(source.address == what for pool in queue.core.config.pools for source in pool.sources)
    return _answer(what, "ip", rows) if rows or known else None


def _flow_queues(queue: QueueContext, what: str) -> dict[str, Any] | None:
    """A campaign, tenant, domain, site or provider with recipients in memory."""
    schedule, domain = queue.core.schedule, what.lower().rstrip(".")
    sites = {domain, getattr(schedule.sites.known(domain), "key", domain)}
    found: dict[str, list[FlowQueue]] = {"campaign": [], "tenant": [], "destination": []}
    for flow_queue in schedule.flow_queues():
        path, flow_id = flow_queue.path, flow_queue.flow_id
        here = path.site in sites or path.site.rpartition(":")[0] == domain or path.provider == domain
        for kind, matches in (
            ("campaign", flow_id.campaign == what), ("tenant", flow_id.tenant == what), ("destination", here),
        ):  # fmt: skip
            if matches:
                found[kind].append(flow_queue)
    for kind, flow_queues in found.items():
        if rows := rows_of(schedule, flow_queues):
            there = {flow_queue.path.site for flow_queue in flow_queues} if kind == "destination" else set()
            learned = [row for row in schedule.policy.manners.rows() if row["name"] in there]
            counts = _counts(queue, domain) if kind == "destination" else {}
            return _answer(what, kind, rows, counts=counts, learned=learned)
    return None


def _counts(queue: QueueContext, domain: str) -> dict[str, int]:
    """Recipients at the domain, by state."""
    total = dict.fromkeys(sizes.NAMES, 0)
    for (_, name), counts in queue.core.sizes.domains.items():
        if name.lower() == domain:
            for state, count in zip(sizes.NAMES, counts, strict=True):
                total[state] += count
    return total


def _stopped(queue: QueueContext, what: str) -> dict[str, Any] | None:
    rows = _stops(queue, what)
    learned = [row for row in queue.core.schedule.policy.manners.rows() if row["name"] == what]
    if not rows and not learned:
        return None
    return _answer(what, rows[0]["stopped"] if rows else "destination", rows, learned=learned)


def _stops(queue: QueueContext, what: str) -> list[Row]:
    """The stops against it, even if none of its mail is in memory."""
    return [
        {"stopped": row["kind"], "name": row["name"], "reasons": [
            {"kind": row["kind"], "cause": row["cause"], "since_ms": row["since_ms"], "until_ms": row["until_ms"]}
        ]}
        for row in queue.core.schedule.policy.rows()
        if row["kind"] not in (NO_TLS, *MANNERS) and (what == row["name"] or what in row["name"].split())
    ]  # fmt: skip


async def _waiting(queue: QueueContext, what: str) -> dict[str, Any] | None:
    """A domain, campaign or tenant with nothing in memory: its mail waits for its time, or for room."""
    domain = what.lower().rstrip(".")
    if any(_counts(queue, domain).values()):
        last = f"@{domain}".encode()
        return _answer(what, "destination", await _recipients(queue, lambda key, _: key.lower().endswith(last)))

    def flow(_: bytes, value: bytes) -> bool:
        return bool(value) and what in FlowId.of(Note.of(value).flow)[1:]

    rows = await _recipients(queue, flow)
    return _answer(what, "campaign" if rows[0].get("campaign") == what else "tenant", rows) if rows else None


# -- recipients


async def _recipients(queue: QueueContext, chosen: Callable[[bytes, bytes], bool]) -> list[Row]:
    """A row for each recipient that `chosen` selects by key and value."""
    store, rows = queue.core.store, list[Row]()
    leases = {entry.key: lease for lease in queue.leases.out.values() for entry in lease.open}
    for family in sorted(FAMILY):
        prefix = f"{family} ".encode()
        async for key, value in _slowly(store.scan(prefix, keys.end(prefix))):
            if chosen(key, value):
                full = len(rows) >= ROWS_MAX  # the rest is only counted
                rows.append({} if full else await _one(queue, key, value, leases.get(key)))
    return rows


def _pulled(queue: QueueContext, lease: Lease) -> Row:
    """Who has taken it, "" if unknown, and until when it is reserved; 0: as long as that connection lasts."""
    left_s = lease.until_s - queue.core.schedule.now()
    until_ms = queue.core.clock.ms() + round(left_s * 1000) if lease.until_s else 0
    return {"holder": lease.holder, "until_ms": until_ms}


async def _slowly(walk: Iterable[T]) -> AsyncIterator[T]:
    for number, item in enumerate(walk, 1):
        if number % WALKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        yield item


async def _one(queue: QueueContext, key: bytes, value: bytes, lease: Lease | None) -> Row:
    place, note = keys.place(key), Note.of(value)
    row: Row = {
        "id": place.id, "recipient": place.recipient, "zone": place.zone, "attempts": note.attempts, "last": note.last,
        "state": str(FAMILY[place.family]), "reasons": [], "before": 0, "counted": True,
    }  # fmt: skip
    if lease is not None:
        path = lease.batch.path
        row |= {"state": str(State.LEASED), "since_ms": lease.since_ms, "worker": lease.worker}
        row |= {"source": path.source, "site": path.site}
        return row | _pulled(queue, lease) if lease.zone.pulled else row
    if place.family == "held":
        cause = f"held for an operator: {note.last}" if note.last else "held for an operator"
        return row | {"reasons": [{"kind": "held", "cause": cause, "since_ms": note.last_ms, "until_ms": 0}]}
    zone = queue.core.schedule.zones.get(place.zone)
    if zone is None:
        cause = f"there is no zone {place.zone!r} any more, give it back to the configuration"
        return row | {"reasons": [{"kind": "held", "cause": cause, "since_ms": 0, "until_ms": 0}]}
    try:
        terms = queue.core.messages.peek(place.id)
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
        row["before"], row["counted"] = await _before(queue, flow_queue, key, place)
    row["reasons"] += _deadline(queue, terms) if row["reasons"] else []
    row["life"] = _life(queue, flow_queue, place.id, note)
    if not known:
        flow_queue.parked.exhausted = True  # a flow queue that did not exist has nothing parked
        zone.flow_queues.forget(flow_queue)
    return row


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
    cause = f"outside the hours {window or zone.zone.window!r}"
    until_ms = opens_ms if hours.too_late(terms, place.due_ms) else due_ms  # due then, but only to be returned
    out_of_hours = reason | {"kind": "hours", "cause": cause, "until_ms": until_ms}
    closed = [out_of_hours] if opens_ms > now_ms else []
    if note.attempts:
        cause = f"tried {_times(note.attempts)}, the last answer was: {note.last}"
        cause += "; it is sent at once if its destination answers earlier" if note.away else ""
        return [reason | {"cause": cause}, *closed]
    apart_ms = queue.core.clock.apart_ms()
    if (hold_ms := hours.hold_ms(terms, apart_ms) - apart_ms) > now_ms:
        return [reason | {"cause": "held until then, as its sender asked", "until_ms": hold_ms}]
    return closed or [reason | {"cause": f"postponed until then {note.last and 'after: '}{note.last}"}]


def _deadline(queue: QueueContext, terms: dict[str, Any]) -> list[Row]:
    """What ends its wait at the latest."""
    if terms.get("deadline_mode") != "R":
        return []
    cause = "it is returned to its sender if not delivered by then, as its sender asked"
    until_ms = hours.deadline_ms(terms) - queue.core.clock.apart_ms()
    return [{"kind": "deadline", "cause": cause, "since_ms": 0, "until_ms": until_ms}]


def _life(queue: QueueContext, flow_queue: FlowQueue, message_id: str, note: Note) -> Row:
    """Until when it is tried (UNIX ms, 0: unknown, or for ever), and how long it has waited that does not count towards
    its `lifetime`."""
    core = queue.core
    try:
        message = core.messages.look(message_id)
    except StoreError:
        return {"until_ms": 0, "chosen_ms": 0}
    now_ms = core.clock.steady_ms()
    ends_ms = core.lifetime.ends_ms(flow_queue, message, note, now_ms)
    chosen_ms = core.lifetime.chosen_ms(flow_queue, message, note, now_ms)
    ever = ends_ms - now_ms > EVER_H * HOUR_MS // 2
    return {"until_ms": 0 if ever else ends_ms - core.clock.apart_ms(), "chosen_ms": chosen_ms}


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


async def _before(queue: QueueContext, flow_queue: FlowQueue, key: bytes, place: Place) -> tuple[int, bool]:
    """How many recipients of its flow queue come first, and whether the count is complete: the window, parked, then
    unread."""
    for number, entry in enumerate(flow_queue.entries):
        if entry.key == key:
            return number, True
    busy, store, flow_queues = queue.core.schedule.busy, queue.core.store, flow_queue.zone.flow_queues
    parked, looked = keys.parked_range(place.zone, flow_queue.key), 0
    count = len(flow_queue.entries)
    async for other in _slowly(store.keys(parked, key if place.family == "parked" else keys.end(parked))):
        count, looked = count + (other not in busy), looked + 1
        if looked >= COUNTED_MAX:
            return count, False
    if place.family == "parked":
        return count, True
    cursor = flow_queue.zone.fresh if place.family == "delivery-zone" else flow_queue.zone.due
    async for other, value in _slowly(store.scan(cursor.mark(), key)):
        if other not in busy:
            there = keys.place(other)
            count += flow_queues.where(there.id, there.recipient, Note.of(value))[0] == flow_queue.key
        looked += 1
        if looked >= COUNTED_MAX:
            return count, False
    return count, True
