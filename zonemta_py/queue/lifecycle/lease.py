"""A lease: which batch a sender has, since when, how much of it has been answered; and what its sender is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from zonemta_py.config import Zone
from zonemta_py.disk import keys
from zonemta_py.mail.envelope import Notify, Recipient
from zonemta_py.mail.list_id import list_of, title_of
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.reroute import HOST, POOL, SKIP
from zonemta_py.queue.api import Delivery, Result, about
from zonemta_py.queue.core.campaigns import REMOTE
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.schedule.batch import Batch, Entry
from zonemta_py.schedule.policy.state import NO_TLS
from zonemta_py.schedule.time import hours
from zonemta_py.zones.site import order

DAMAGED = Reply(554, "5.3.0", "the stored message was damaged and could not be sent")
_NOBODY: set[int] = set()
_CHANCE = random.Random()


class Lease:
    """A leased batch, its message, the sender that has it, and since when.

    answered: recipients (their index) whose result has arrived before the last part; recorded: those whose result is in
    the journal. asking: the pending call to plugins about the notifications of the latest answer that caused any.
    tried: a server has replied about one of them. holder: the client that has pulled it, if known; until_s: how long it
    is reserved, in steady seconds, 0: as long as its connection lasts.
    """

    __slots__ = (
        "answered", "asking", "batch", "holder", "message", "number", "recorded", "sent", "settling", "since_ms",
        "tried", "until_s", "worker",
    )  # fmt: skip

    def __init__(self, number: int, batch: Batch, message: Message, worker: str, since_ms: int) -> None:
        self.number, self.batch, self.message = number, batch, message
        self.worker, self.since_ms = worker, since_ms
        self.sent = False  # its sender has received it
        self.settling = False  # its result has arrived
        self.answered: set[int] = _NOBODY
        self.recorded: set[int] = _NOBODY
        self.asking: asyncio.Future[None] | None = None
        self.tried = False
        self.holder, self.until_s = "", 0.0

    @property
    def zone(self) -> Zone:
        return self.batch.zone.zone

    @property
    def open(self) -> list[Entry]:
        """Recipients whose result is not in the journal yet."""
        return _but(self.batch.entries, self.recorded)

    def check(self, result: Result) -> None:
        """Drops outcomes of recipients that were answered before: an answer stays, even if the sender fails afterwards.
        Every other recipient must have one outcome; one without would wait for ever. Raises ValueError."""
        whole = list(range(len(self.batch.entries)))
        if len(result.outcomes) == 1 and result.outcomes[0].recipients == whole and not self.answered:
            return
        if self.answered:
            for outcome in result.outcomes:
                outcome.recipients = [index for index in outcome.recipients if index not in self.answered]
            result.outcomes = [outcome for outcome in result.outcomes if outcome.recipients]
        indices = sorted([*self.answered, *[index for outcome in result.outcomes for index in outcome.recipients]])
        part = result.more and len(set(indices)) == len(indices) and set(indices) <= set(whole)
        if not part and indices != whole:
            raise ValueError(f"lease {self.number}: {len(whole)} recipients, but outcomes for {indices}")

    def row(self) -> list[Any]:
        """The fields of its `StartRecord`, for the journal and for position records. By hand: made once per lease."""
        entries = self.open if self.recorded else self.batch.entries
        recipients = [entry.address if entry.key[:4] != b"defe" else _deferred(entry) for entry in entries]
        zone, place = self.batch.zone.zone.name, self.batch.flow_queue.key
        metadata = self.message.metadata
        provider, size = self.batch.path.provider, metadata["size"]
        row = [self.number, self.message.id, zone, place, recipients, self.since_ms, provider, size]
        if "meta" in metadata:
            row.append(self.message.about(entries))
        return row


class Taker:
    """A waiting sender: how many leases it can take, and the callback to deliver them."""

    __slots__ = ("deliver", "deliveries", "gone", "leases", "most", "worker")

    def __init__(self, worker: str, most: int, deliver: Callable[[list[Delivery]], None]) -> None:
        self.worker, self.most, self.deliver = worker, most, deliver
        self.deliveries: list[Delivery] = []
        self.leases: list[Lease] = []
        self.gone = False


def wait_s(core: Core, lease: Lease) -> float | None:
    """Seconds until the first of its recipients may be sent (sending hours, hold time); None: all may now.

    0: some may now, and others may not; when they are put off, each gets its own time.
    """
    terms, zone = lease.message.metadata, lease.batch.zone.zone
    timed = bool(core.campaigns.timed) and lease.batch.flow_queue.flow_id.campaign in core.campaigns.timed
    if not (timed or terms.get("window") or zone.window or terms.get("hold_until_ms")):
        return None
    now_ms = core.clock.ms()  # it was deferred in steady time, and the clock may have been set since
    apart_ms = core.clock.apart_ms()
    now_ms += apart_ms
    waits = {
        hours.first_ms(core.config, zone, core.terms(lease.message, entry.note), now_ms, apart_ms) - now_ms
        for entry in lease.batch.entries
    }
    return min(waits) / 1000 if max(waits) > 0 else None


def _but(entries: list[Entry], indices: set[int]) -> list[Entry]:
    return [entry for index, entry in enumerate(entries) if index not in indices] if indices else entries


def _deferred(entry: Entry) -> list[Any]:
    return [entry.address, keys.place(entry.key).due_ms]


def delivery_of(core: Core, lease: Lease, body: bytes | None) -> Delivery:
    """body: as it is stored, if it is short."""
    batch, message = lease.batch, lease.message
    first, path, flow_id, site = batch.entries[0].note, batch.path, batch.flow_queue.turn.flow_id, batch.site
    routing, metadata, merged = first.routing or {}, message.metadata, first.values is not None
    headers = metadata.get("headers")
    policy, admission = core.schedule.policy, core.schedule.admission
    if policy.stops and policy.stopped(NO_TLS, path.site):
        routing = routing | {"no_tls": True}
    routing, skip = _rerouted(batch, routing)
    most, manners = admission.most(batch.flow_queue), policy.manners
    return Delivery(
        lease=lease.number,
        id=message.id,
        zone=batch.zone.zone.name,
        destination=_domain(batch) if site or path.terms.zone.last_mx else path.target.key,
        sender=metadata["sender"],
        recipients=[_merged(core, batch, entry) for entry in batch.entries]
        if merged
        else [_recipient(entry) for entry in batch.entries],
        size=metadata["size"],
        chunks=metadata["chunks"],
        body=body,
        host=path.target.host,
        port=path.target.port,
        source=path.source,
        ret=metadata.get("ret"),
        envid=metadata.get("envid"),
        smtputf8=metadata.get("smtputf8", False),
        eightbit=metadata.get("body") == "8BITMIME",
        attempts=[entry.note.attempts for entry in batch.entries],
        routing=routing,
        hosts=order(site, _CHANCE) if site else [],
        secure=site.secure if site else False,
        site=path.site,
        provider=path.provider,
        tenant=flow_id.tenant,
        campaign=flow_id.campaign,
        priority=flow_id.priority,
        may_connect=batch.connect,
        require_tls=metadata.get("require_tls", False),
        tls_optional=metadata.get("tls_optional", False),
        messages_per_connection=most.messages_per_connection,
        idle_s=admission.idle_s(batch, most.idle_s),
        hashes=metadata.get("hashes") or {},
        unsubscribe=metadata.get("unsubscribe", False),
        unsubscribe_scope=metadata.get("unsubscribe_scope", ""),
        track=metadata.get("track", ""),
        columns=metadata.get("columns") or [],
        values=[entry.note.values or [] for entry in batch.entries] if merged else None,
        template=_template(core, flow_id.campaign, metadata) if merged else "",
        received_ms=metadata.get("received_ms", 0),
        stepwise=bool(manners.known) and manners.stepwise(path.site),
        counted=batch.charge is not None,
        tables=list(path.terms.names),
        unsigned=metadata.get("unsigned", False),
        connection=admission.connection(batch) if batch.limits or batch.idle_connection else None,
        list_name=list_of(headers) if headers else "",
        lines=metadata.get("lines", 0),
        list_title=title_of(headers) if headers else "",
        about=about(metadata) if core.hooks.sends else {},
        edits=metadata.get("edits"),
        skip=skip,
    )


def _rerouted(batch: Batch, routing: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """With what a reroute has chosen, and the MX host that is passed over, "" none."""
    first = batch.entries[0]
    found = batch.zone.flow_queues.bypass(first.address, first.note)
    if found is None:
        return routing, ""
    to = found.to
    if to.kind == HOST and batch.path.target.host == to.name:
        return routing | {"host": to.name, "port": to.port}, ""
    if to.kind == POOL:
        return routing | {"pool": to.name}, ""
    return routing, to.name if to.kind == SKIP else ""


def _recipient(entry: Entry) -> Recipient:
    note = entry.note
    return Recipient(entry.address, note.notify, note.orcpt, None, note.notes, note.meta)


def _template(core: Core, campaign: str, metadata: dict[str, Any]) -> str:
    """The present template of its campaign, if it came for that one or one that the campaign had before; otherwise the
    one it came for, which the campaign does not have (any more), so that nothing is made from another's text."""
    of, came_for = core.campaigns.by_name.get(campaign), str(metadata.get("template", ""))
    return of.template if of is not None and of.has_had(came_for) else came_for


def _merged(core: Core, batch: Batch, entry: Entry) -> Recipient:
    """The NOTIFY value to pass on: NEVER only if the campaign wants no notifications from remote servers either."""
    campaign = core.campaigns.by_name.get(batch.flow_queue.flow_id.campaign)
    note = entry.note
    quiet = note.notify == Notify.NEVER and campaign is not None and campaign.notify == REMOTE
    return Recipient(entry.address, 0 if quiet else note.notify, note.orcpt, None, note.notes, note.meta)


def _domain(batch: Batch) -> str:
    """The domain that was looked up in DNS; policies and reports are about it."""
    return batch.entries[0].address.rpartition("@")[2].lower().rstrip(".")
