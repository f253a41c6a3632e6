"""Recipients left out at acceptance because they are on the suppression list: recorded in the journal.

If no other recipient is left, the message is accepted and dropped: its client did nothing wrong, and gets 250. The
record then holds the envelope too, as no other record does. It is on stable storage before the client gets its answer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import RemovedRecord
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Done, Receipt
from zonemta_py.queue.core.campaign_counters import SUPPRESSED, campaign_of
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.hooks import Routed
from zonemta_py.queue.lifecycle import observe
from zonemta_py.queue.lifecycle.requests import Requests, recorded
from zonemta_py.queue.suppression.register import because


def accept_none(
    core: Core, requests: Requests, envelope: Envelope, routed: list[Routed], suppressed_by: dict[str, str], done: Done
) -> None:
    """Accepts a message with no recipients left, and drops it; calls `done` once the journal has it."""
    now_ms = core.clock.ms()
    message_id = core.disk.ids.next(now_ms)
    metadata = stored_metadata(envelope)
    operations: list[Operation] = []
    receipt = Receipt(message_id, 0, len(suppressed_by))
    if envelope.request:
        operations = requests.operations(envelope, receipt)
    campaign = campaign_of(metadata)
    if campaign:
        core.campaigns.counters.add(campaign, SUPPRESSED, len(suppressed_by))

    def finish(reply: Reply | None) -> None:
        if reply is None:
            asked = {"request": recorded(operations)} if operations else {}
            name(core, message_id, routed, suppressed_by, {"envelope": metadata, **asked})
            core.disk.journal.when_stable(partial(done, receipt))
            return
        if campaign:
            core.campaigns.counters.add(campaign, SUPPRESSED, -len(suppressed_by))
        forgotten = requests.undo(envelope) if envelope.request else immediately
        core.disk.lines.submit([(key, None) for key, _ in operations], lambda _: forgotten(), sync=False, keep=True)
        done(reply)

    core.disk.lines.submit(operations, finish, sync=True, keep=False)


def name(
    core: Core,
    message_id: str,
    routed: list[Routed],
    suppressed_by: dict[str, str],
    more: dict[str, Any],
) -> None:
    """Records who was left out, by zone and reason. more: of the message, for `RemovedRecord.where`."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in routed:
        address = row.recipient.address
        if address in suppressed_by:
            found.setdefault((row.zone, because(suppressed_by[address])), []).append(address)
    where: dict[str, Any] = {"destination": "", "due": []} | more
    for (zone, reason), addresses in found.items():
        observe.suppressed(core, message_id, zone, addresses, reason)
        core.disk.ledger.append(Type.REMOVED, RemovedRecord(message_id, zone, addresses, reason, where).pack())


def whose(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a REMOVED record says of its message, for readers of the journal alone."""
    return {name: metadata[name] for name in ("campaign", "tenant") if metadata.get(name)}


def stored_metadata(envelope: Envelope, apart_ms: int = 0) -> dict[str, Any]:
    """The envelope fields that store and journal keep; not the request key, which is the client's own data.

    apart_ms: how far steady time is ahead of the machine's clock, which its deadline is by.
    """
    metadata = envelope.metadata()
    if envelope.request:
        del metadata["request"]
        metadata.pop("digest", None)
    if apart_ms and (envelope.deadline_ms or envelope.hold_for):
        metadata["apart_ms"] = apart_ms
    return metadata
