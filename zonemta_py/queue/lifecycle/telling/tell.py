"""Telling what happened to mail: counted, at once and for nobody in particular.

Called once for each thing that happens, never in a replay. Promise: nothing here fails or waits, and what it costs is
measured (`scripts/bench --contenders`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from zonemta_py.disk.records import BOUNCED, DEFERRED, DELIVERED, HELD, POSTPONED, RELEASED
from zonemta_py.metrics.table import OTHER, PROVIDERS_MAX, QUEUES
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.settlement import Settlement
from zonemta_py.zones import queues

if TYPE_CHECKING:
    from zonemta_py.queue.api import Result
    from zonemta_py.queue.core.messages import Message
    from zonemta_py.queue.lifecycle.lease import Lease

VERDICTS = {
    DELIVERED: "delivered", DEFERRED: "deferred", BOUNCED: "bounced", HELD: "held", RELEASED: "released",
    POSTPONED: "postponed",
}  # fmt: skip
BY = {"ESMTP": "smtp", "SMTP": "smtp", "HTTP": "http", "HTTPS": "http", queues.PUSHED: "push", "LOCAL": "notice"}
"""Protocols of envelopes; those of RFC 3848 that are missing are SMTP too."""
REASONS = {"suppressed": "suppressed", "campaign": "canceled", "dropped": "dropped", "lost": "lost"}
"""The first word of the reason in a REMOVED record, and its label."""


def zone_label(name: str) -> str:
    """Named queues without a table of their own are one zone: there may be any number of them."""
    return QUEUES if name.startswith(queues.PREFIX) else name


def accepted(core: Core, message: Message, zones: Sequence[str]) -> None:
    """zones: of its recipients."""
    meter = core.meter
    meter.add("zonemta_messages_accepted_total", (BY.get(message.metadata.get("protocol", "ESMTP"), "smtp"),))
    meter.add("zonemta_message_bytes_accepted_total", (), message.metadata["size"])
    for zone in zones:
        meter.add("zonemta_recipients_accepted_total", (zone_label(zone),))


def leased(core: Core, lease: Lease) -> None:
    zone, entries = (zone_label(lease.batch.zone.zone.name),), lease.batch.entries
    core.meter.add("zonemta_leases_total", zone)
    if not entries[0].note.attempts:
        delay_s = (lease.since_ms - lease.message.created_ms) / 1000
        core.meter.observe("zonemta_first_attempt_delay_seconds", zone, delay_s, len(entries))


def answered(core: Core, settlement: Settlement, result: Result) -> None:
    meter, lease, zone = core.meter, settlement.lease, zone_label(settlement.zone)
    provider = _provider(core, lease.batch.path.provider) if lease is not None else OTHER
    delay_s = (settlement.ms - settlement.message.created_ms) / 1000
    rows = iter(settlement.rows)
    for outcome, classified in zip(result.outcomes, settlement.classifieds, strict=True):
        kind = classified.kind if classified is not None else ""
        for row in islice(rows, len(outcome.recipients)):
            verdict = VERDICTS[row.verdict]
            meter.add("zonemta_answers_total", (zone, verdict, kind, outcome.stage))
            meter.add("zonemta_provider_answers_total", (provider, verdict))
            if row.verdict == DELIVERED:
                meter.observe("zonemta_delivery_delay_seconds", (zone,), delay_s)
    if result.took_ms and not result.more:
        meter.observe("zonemta_attempt_duration_seconds", (zone,), result.took_ms / 1000)


def _provider(core: Core, name: str) -> str:
    known = core.providers
    if not name or name in known:
        return name or OTHER
    if len(known) >= PROVIDERS_MAX:
        return OTHER
    known.add(name)
    return name


def removed(core: Core, zone: str, count: int, reason: str) -> None:
    """Recipients that left the queue without an answer. reason: as in the REMOVED record."""
    word = reason.partition(" ")[0].rstrip(":")
    core.meter.add("zonemta_recipients_removed_total", (zone_label(zone), REASONS.get(word, OTHER)), count)


def suppressed(core: Core, zone: str, count: int) -> None:
    """Recipients that were left out at acceptance."""
    core.meter.add("zonemta_recipients_suppressed_total", (zone_label(zone),), count)


def in_doubt(core: Core, zone: str, count: int) -> None:
    if count:
        core.meter.add("zonemta_in_doubt_recipients_total", (zone_label(zone),), count)
