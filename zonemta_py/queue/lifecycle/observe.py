"""Metrics and log lines of what happens to mail: accepted, leased, answered, removed, suppressed, in doubt.

Called once for each thing that happens, never in a replay. Promise: nothing here fails or waits, and what it costs is
measured (`scripts/bench --contenders`).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from zonemta_py.journal.records.mail import BOUNCED, DELIVERED, POSTPONED, RELEASED
from zonemta_py.logs import mail
from zonemta_py.logs.mail import VERDICTS, MailLog
from zonemta_py.metrics.table import OTHER, PROVIDERS_MAX, QUEUES
from zonemta_py.queue.core.core import Core
from zonemta_py.zones import pull

if TYPE_CHECKING:
    from zonemta_py.mail.envelope import Recipient
    from zonemta_py.queue.api import Result
    from zonemta_py.queue.core.messages import Message
    from zonemta_py.queue.lifecycle.lease import Lease
    from zonemta_py.queue.lifecycle.settlement import Row, Settlement

BY = {"ESMTP": "smtp", "SMTP": "smtp", "HTTP": "http", "HTTPS": "http", pull.PUSHED: "push", "LOCAL": "notice"}
"""Protocols of envelopes; those of RFC 3848 that are missing are SMTP too."""
REASONS = {
    "suppressed": "suppressed",
    "campaign": "canceled",
    "dropped": "dropped",
    "lost": "lost",
    "deleted": "deleted",
}
"""The first word of the reason in a REMOVED record, and its label."""

TEXT_MAX = 300
"""Of a reply, in a line."""


def zone_label(name: str) -> str:
    """Named queues without a table of their own are one zone: there may be any number of them."""
    return QUEUES if name.startswith(pull.PREFIX) else name


def accepted(core: Core, message: Message, zones: list[str], recipients: list[Recipient]) -> None:
    """zones: of the recipients."""
    meter, metadata = core.counters.meter, message.metadata
    meter.add("zonemta_messages_accepted_total", (BY.get(metadata.get("protocol", "ESMTP"), "smtp"),))
    meter.add("zonemta_message_bytes_accepted_total", (), metadata["size"])
    for zone in zones:
        meter.add("zonemta_recipients_accepted_total", (zone_label(zone),))
    if core.mail_log is not None:
        addresses = [recipient.address for recipient in recipients]
        core.mail_log.line(message.created_ms, "accepted", mail.accepted(message.id, zones, addresses, metadata))


def removed(core: Core, message_id: str, zone: str, addresses: list[str], reason: str) -> None:
    """Recipients that left the queue without an answer. reason: as in the REMOVED record."""
    word = reason.partition(" ")[0].rstrip(":")
    core.counters.meter.add(
        "zonemta_recipients_removed_total", (zone_label(zone), REASONS.get(word, OTHER)), len(addresses)
    )
    _several(core, "removed", message_id, zone, addresses, reason)


def suppressed(core: Core, message_id: str, zone: str, addresses: list[str], reason: str) -> None:
    """Recipients that were left out at acceptance."""
    core.counters.meter.add("zonemta_recipients_suppressed_total", (zone_label(zone),), len(addresses))
    _several(core, "suppressed", message_id, zone, addresses, reason)


def in_doubt(core: Core, message_id: str, zone: str, addresses: list[str]) -> None:
    """Recipients whose answer may have been lost."""
    if addresses:
        core.counters.meter.add("zonemta_in_doubt_recipients_total", (zone_label(zone),), len(addresses))
        _several(core, "in doubt", message_id, zone, addresses, "its answer may have been on its way")


def _several(core: Core, what: str, message_id: str, zone: str, addresses: list[str], reason: str) -> None:
    if core.mail_log is not None:
        core.mail_log.line(core.clock.ms(), what, mail.several(message_id, zone, addresses, reason=reason))


def leased(core: Core, lease: Lease) -> None:
    zone, entries = (zone_label(lease.batch.zone.zone.name),), lease.batch.entries
    core.counters.meter.add("zonemta_leases_total", zone)
    if not entries[0].note.attempts:
        delay_s = _waited_s(core, lease.message, lease.since_ms)
        core.counters.meter.observe("zonemta_first_attempt_delay_seconds", zone, delay_s, len(entries))


def answered(core: Core, settlement: Settlement, result: Result) -> None:
    """A result that is in the journal."""
    meter, lease, zone, log = core.counters.meter, settlement.lease, zone_label(settlement.zone), core.mail_log
    provider = _provider(core, lease.batch.path.provider) if lease is not None else OTHER
    delay_s = _waited_s(core, settlement.message, settlement.ms)
    rows = iter(settlement.rows)
    for outcome, classified in zip(result.outcomes, settlement.classifieds, strict=True):
        kind = classified.kind if classified is not None else ""
        for row in islice(rows, len(outcome.recipients)):
            verdict = VERDICTS[row.verdict]
            meter.add("zonemta_answers_total", (zone, verdict, kind, outcome.stage))
            meter.add("zonemta_provider_answers_total", (provider, verdict))
            core.counters.destinations.add(row.address, verdict)
            if row.verdict == DELIVERED:
                meter.observe("zonemta_delivery_delay_seconds", (zone,), delay_s)
            if log is not None and row.verdict == POSTPONED and not result.remote:
                _postponed(core, log, settlement, row)
            elif log is not None and row.verdict != RELEASED:
                log.line(
                    settlement.ms,
                    "answered",
                    _fields(core, settlement, result, row, verdict, kind, outcome.stage, delay_s),
                )
    if result.took_ms and not result.more:
        meter.observe("zonemta_attempt_duration_seconds", (zone,), result.took_ms / 1000)


def _postponed(core: Core, log: MailLog, settlement: Settlement, row: Row) -> None:
    """Of a whole campaign outside its hours there is one line now and then."""
    fields = {"zone": settlement.zone, "sender": settlement.message.metadata["sender"]}
    if "campaign" in settlement.message.metadata:
        fields["campaign"] = settlement.message.metadata["campaign"]
    fields["text"] = row.reply.text[:TEXT_MAX]
    again_s = max(0, row.due_ms - core.clock.steady_ms()) // 1000
    log.alike(settlement.ms, "postponed", fields, row.address, id=settlement.message.id, again_s=again_s)


def _waited_s(core: Core, message: Message, ms: int) -> float:
    """Since it was accepted; the clock may have been set meanwhile. ms: by the clock."""
    waited_ms, clock = ms - message.created_ms, core.clock
    if len(clock.steps) > 1:
        waited_ms += clock.apart_ms() - clock.apart_of(message.id)
    return waited_ms / 1000


def _fields(
    core: Core, settlement: Settlement, result: Result, row: Row, verdict: str, kind: str, stage: str, delay_s: float
) -> dict[str, Any]:
    """Of a line about an answer."""
    message, lease, reply = settlement.message, settlement.lease, row.reply
    attempts = row.note.attempts
    if row.verdict == DELIVERED and not row.relayed:  # its note ends with it
        attempts += 1
    fields: dict[str, Any] = {
        "id": message.id, "zone": settlement.zone, "recipient": row.address, "sender": message.metadata["sender"],
        "verdict": verdict, "code": reply.code, "enhanced": reply.enhanced, "stage": stage, "attempts": attempts,
        "delay_s": delay_s, "took_ms": result.took_ms,
        "size": message.metadata["size"],
    }  # fmt: skip
    if kind:
        fields["class"] = kind
    if lease is not None:
        path = lease.batch.path
        fields["site"] = path.site
        if path.source:
            fields["source"] = path.source
    if result.remote:
        fields["remote"] = result.remote
    if row.due_ms and row.verdict != BOUNCED:
        fields["again_s"] = max(0, row.due_ms - core.clock.steady_ms()) // 1000
    if "campaign" in message.metadata:
        fields["campaign"] = message.metadata["campaign"]
    fields["text"] = reply.text[:TEXT_MAX]
    return fields


def _provider(core: Core, name: str) -> str:
    known = core.counters.providers
    if not name or name in known:
        return name or OTHER
    if len(known) >= PROVIDERS_MAX:
        return OTHER
    known.add(name)
    return name
