"""Metrics and log lines of what happens to mail: accepted, leased, removed, suppressed, in doubt (`observe_answers`:
answered).

Called once for each thing that happens, never in a replay. Promise: nothing here fails or waits, and what it costs is
measured (`scripts/bench --contenders`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from zonemta_py.logs import mail
from zonemta_py.mail.metadata import about
from zonemta_py.metrics.table import OTHER, QUEUES
from zonemta_py.queue.core.core import Core
from zonemta_py.zones import pull

if TYPE_CHECKING:
    from zonemta_py.mail.envelope import Recipient
    from zonemta_py.queue.core.messages import Message
    from zonemta_py.queue.lifecycle.lease import Lease

BY = {
    "ESMTP": "smtp", "SMTP": "smtp", "HTTP": "http", "HTTPS": "http", pull.PUSHED: "push", "LOCAL": "notice",
    "PLUGIN": "plugin",
}  # fmt: skip
"""Protocols of envelopes; those of RFC 3848 that are missing are SMTP too."""
REASONS = {
    "suppressed": "suppressed",
    "campaign": "canceled",
    "dropped": "dropped",
    "lost": "lost",
    "deleted": "deleted",
}
"""The first word of the reason in a REMOVED record, and its label."""


@lru_cache(1_000)
def zone_label(name: str) -> str:
    """Named queues without a table of their own are one zone: there may be any number of them."""
    return QUEUES if name.startswith(pull.PREFIX) else name


def accepted(core: Core, message: Message, zones: list[str], recipients: Iterable[Recipient]) -> None:
    """zones: of the recipients. These themselves are for the log alone."""
    meter, metadata = core.counters.meter, message.metadata
    meter.add_all(
        ("zonemta_messages_accepted_total", (BY.get(metadata.get("protocol", "ESMTP"), "smtp"),), 1),
        ("zonemta_message_bytes_accepted_total", (), metadata["size"]),
        *[("zonemta_recipients_accepted_total", (zone_label(zone),), zones.count(zone)) for zone in set(zones)],
    )
    if core.mail_log is not None:
        recipients = list(recipients)
        addresses = [recipient.address for recipient in recipients]
        fields = mail.accepted(message.id, zones, addresses, metadata)
        if core.mail_log.tells and "meta" in metadata:
            people = [(one.address, one.meta) for one in recipients]
            fields = mail.with_metadata(fields, about(metadata, people), addresses[0] if len(addresses) == 1 else "")
        core.mail_log.line(message.created_ms, "accepted", fields)


def removed(core: Core, message_id: str, zone: str, addresses: list[str], reason: str) -> None:
    """Recipients that left the queue without an answer. reason: as in the REMOVED record."""
    word = reason.partition(" ")[0].rstrip(":")
    labels = zone_label(zone), REASONS.get(word, OTHER)
    core.counters.meter.add("zonemta_recipients_removed_total", labels, len(addresses))
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
        delay_s = waited_s(core, lease.message, lease.since_ms)
        core.counters.meter.observe("zonemta_first_attempt_delay_seconds", zone, delay_s, len(entries))


def waited_s(core: Core, message: Message, ms: int) -> float:
    """Since it was accepted; the clock may have been set meanwhile. ms: by the clock."""
    waited_ms, clock = ms - message.created_ms, core.clock
    if len(clock.steps) > 1:
        waited_ms += clock.apart_ms() - clock.apart_of(message.id)
    return waited_ms / 1000
