"""Place: what is stored of a message's envelope, and for each recipient the key, note and state that it begins with.

Nothing is changed here but the campaign that the message begins to count for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from zonemta_py.disk import keys
from zonemta_py.disk.notes import PLAIN, Note
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.bodies import Stored
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.lifecycle.campaign_names import room
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.flow import flow_text
from zonemta_py.schedule.time import hours
from zonemta_py.schedule.time.steady import STEP_MS
from zonemta_py.schedule.zone import ZoneSchedule


class Placed(NamedTuple):
    """A recipient that is to be stored. flow_queue: None if it is deferred."""

    zone: ZoneSchedule
    flow_queue: FlowQueue | None
    key: bytes
    recipient: Recipient
    note: Note
    state: int
    domain: str


_placed: Callable[[tuple[object, ...]], Placed] = partial(tuple.__new__, Placed)
"""(fields) → Placed, in one call of C: it is made for each recipient."""


def place(
    core: Core, message_id: str, routed: list[Routed], envelope: Envelope, now_ms: int, apart_ms: int, counted: bool
) -> list[Placed]:  # fmt: skip
    """Where each recipient begins. counted: for a campaign. now_ms: by the clock; apart_ms: as `Steady.apart_ms`.

    What decides the way of one decides that of all others of its domain, where neither plugins nor columns make them
    different: they share a flow queue and a note.
    """
    found, ways = list[Placed](), dict[tuple[str, str], tuple[Placed, bytes]]()
    timed = envelope.campaign in core.campaigns.timed
    for one in routed:
        recipient = one.recipient
        address = recipient.address
        domain = address[address.rfind("@") + 1 :]
        way = one.zone, domain
        alike = not (timed or one.routing or one.delay_s or recipient.notify or recipient.orcpt or recipient.values)
        alike = alike and not recipient.noted and not recipient.meta and one.held is None
        like = ways.get(way) if alike else None
        if like is None:
            row = _place(core, message_id, one, envelope, now_ms, apart_ms, counted, domain)
            if alike and len(routed) > 1 and row.key.startswith(keys.FRESH):
                ways[way] = row, keys.fresh_of(one.zone, message_id)
        else:
            (zone, flow_queue, _, _, note, state, _), begin = like
            row = _placed((zone, flow_queue, begin + address.encode(), recipient, note, state, domain))
        found.append(row)
    return found


def _place(
    core: Core, message_id: str, routed: Routed, envelope: Envelope, now_ms: int, apart_ms: int, counted: bool,
    domain: str,
) -> Placed:  # fmt: skip
    """As `place`, for one."""
    recipient, zone = routed.recipient, core.schedule.zones[routed.zone]
    priority = zone.zone.priority if envelope.priority is None else envelope.priority
    priority = (routed.routing or {}).get("priority", priority)  # set by a plugin
    flow = ""
    if priority or envelope.tenant or envelope.campaign:
        flow = flow_text(priority, envelope.tenant or "", envelope.campaign or "")
    note, deadline_ms = PLAIN, envelope.deadline_ms and envelope.deadline_ms + apart_ms
    told = recipient.meta or envelope.meta or envelope.chosen
    if recipient.notify or recipient.orcpt is not None or routed.routing or flow or deadline_ms or counted or (
        recipient.values is not None or recipient.noted or told or routed.said
    ):  # fmt: skip
        note = Note(
            recipient.notify, recipient.orcpt, routing=routed.routing, flow=flow, deadline_ms=deadline_ms,
            values=recipient.values, counted=counted, notes=recipient.noted or None, last=routed.said,
            meta=recipient.meta or {} if told else None,
        )  # fmt: skip
    if routed.held is not None:
        key = keys.held(routed.zone, message_id, recipient.address)
        return Placed(zone, None, key, recipient, note.held(now_ms + apart_ms), sizes.HELD, domain)
    wait_s = routed.delay_s
    timed = recipient.values is not None and envelope.campaign in core.campaigns.timed
    if timed or envelope.hold_until_ms or envelope.window or zone.zone.window:
        terms: dict[str, Any] = {"window": envelope.window, "hold_until_ms": envelope.hold_until_ms}
        if timed:
            terms |= {"campaign": envelope.campaign, "columns": envelope.columns}
            terms = core.campaigns.terms(terms, recipient.values)
        else:
            terms["time_zone"] = envelope.time_zone
        first_s = (hours.first_ms(core.config, zone.zone, terms, now_ms, 0) - now_ms) / 1000
        wait_s = max(first_s, min(wait_s, first_s + _life_s(core, zone, envelope, domain))) if wait_s else first_s
    elif wait_s:
        wait_s = min(wait_s, _life_s(core, zone, envelope, domain))
    if wait_s > 0 and envelope.deadline_mode == "R":
        wait_s = min(wait_s, (envelope.deadline_ms - now_ms) / 1000)
    if wait_s > 0:
        due_ms = now_ms + apart_ms + int(wait_s * 1000)
        key = keys.deferred(routed.zone, due_ms, message_id, recipient.address)
        return Placed(zone, None, key, recipient, note, sizes.DEFERRED, domain)
    flow_queue = zone.flow_queues.of(message_id, recipient.address, note)
    if zone.takes(flow_queue):
        key = keys.fresh(routed.zone, message_id, recipient.address)
    else:
        key = keys.parked(routed.zone, flow_queue.key, message_id, recipient.address)
    return Placed(zone, flow_queue, key, recipient, note, sizes.QUEUED, domain)


def _life_s(core: Core, zone: ZoneSchedule, envelope: Envelope, domain: str) -> float:
    """How long a recipient lives that has not been tried; no plugin puts it off for longer."""
    return 3600 * (envelope.life_h or core.lifetime.first_h(zone.zone, domain))


def metadata_of(
    core: Core, message_id: str, envelope: Envelope, chunks: int, stored: Stored | None, now_ms: int, apart_ms: int
) -> dict[str, Any]:
    """What is stored of its envelope, of its body, and of the campaign it counts for."""
    metadata = envelope_fields(envelope, apart_ms)
    metadata["chunks"] = chunks
    if "columns" in metadata:  # it is merged
        metadata["template"], metadata["chunks"] = core.campaigns.get(envelope.campaign or "").template, 0
    if stored:
        metadata["chunks"], metadata["file"] = stored.chunks, stored.bytes
    if envelope.campaign and _counts(core, message_id, envelope, now_ms):
        metadata["counted"] = True
    return metadata


def envelope_fields(envelope: Envelope, apart_ms: int = 0) -> dict[str, Any]:
    """The envelope fields that store and journal keep; not the request key, which is the client's own data.

    apart_ms: how far steady time is ahead of the machine's clock, which its deadline is by.
    """
    metadata = envelope.metadata()
    if envelope.request:
        metadata = {name: value for name, value in metadata.items() if name not in ("request", "digest")}
    if apart_ms and (envelope.deadline_ms or envelope.hold_for):
        metadata["apart_ms"] = apart_ms
    return metadata


def follow_clock(core: Core, envelope: Envelope) -> None:
    """The clock may have been set since the message came in; this moves its deadline and hold by as much."""
    moved_ms = core.clock.ahead_ms() - envelope.clock_ahead_ms
    envelope.clock_ahead_ms = 0
    if abs(moved_ms) <= STEP_MS:
        return
    if envelope.deadline_ms:
        envelope.deadline_ms += moved_ms
    if envelope.hold_for:
        envelope.hold_until_ms += moved_ms


def _counts(core: Core, message_id: str, envelope: Envelope, now_ms: int) -> bool:
    """Whether a message that is not merged counts for a campaign in progress."""
    if envelope.merged or envelope.protocol == "LOCAL":  # a notification about campaign mail is not part of it
        return False
    name, tenant, first = envelope.campaign or "", envelope.tenant or "", ""
    if name not in core.campaigns.by_name:
        waits = any(core.counters.sizes.flows.campaigns.of(name))
        if waits and message_id != core.disk.ids.last:  # its body came before mail that counts no more
            return False
        if not room(core, tenant):
            return False
        first = message_id if waits else ""
    return core.campaigns.counts(name, tenant, now_ms, message_id, first)
