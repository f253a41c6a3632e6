"""Metrics and log lines of answers: as `observe`, for each result that is in the journal."""

from __future__ import annotations

from itertools import islice
from typing import Any

from zonemta_py.journal.records.mail import BOUNCED, DELIVERED, POSTPONED, RELEASED, VERDICTS
from zonemta_py.logs.mail import MailLog, with_metadata
from zonemta_py.metrics.table import OTHER, PROVIDERS_MAX
from zonemta_py.queue.api import Result
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.lifecycle.observe import waited_s, zone_label
from zonemta_py.queue.lifecycle.settlement import Row, Settlement

TEXT_MAX = 300
"""Of a reply, in a line."""


def answered(core: Core, settlement: Settlement, result: Result) -> None:
    """A result that is in the journal."""
    meter, lease, zone, log = core.counters.meter, settlement.lease, zone_label(settlement.zone), core.mail_log
    provider = _provider(core, lease.batch.path.provider) if lease is not None else OTHER
    delay_s = waited_s(core, settlement.message, settlement.ms)
    rows = iter(settlement.rows)
    for outcome, classified in zip(result.outcomes, settlement.classifieds, strict=True):
        kind = classified.kind if classified is not None else ""
        alike: dict[int, list[str]] = {}
        for row in islice(rows, len(outcome.recipients)):
            try:
                alike[row.verdict].append(row.address)
            except KeyError:
                alike[row.verdict] = [row.address]
            if log is None:
                continue
            if row.verdict == POSTPONED and not result.remote:
                _postponed(core, log, settlement, row)
            elif row.verdict != RELEASED:
                fields = _fields(core, settlement, result, row, VERDICTS[row.verdict], kind, outcome.stage, delay_s)
                if outcome.by:
                    fields |= {"plugin": outcome.by[0], "hook": outcome.by[1], "said": outcome.by[2][:TEXT_MAX]}
                if log.tells and "meta" in settlement.message.metadata:
                    fields = with_metadata(fields, settlement.message.about([row]), row.address)
                log.line(settlement.ms, "answered", fields)
        for number, addresses in alike.items():
            verdict, count = VERDICTS[number], len(addresses)
            meter.add_all(
                ("zonemta_answers_total", (zone, verdict, kind, outcome.stage), count),
                ("zonemta_provider_answers_total", (provider, verdict), count),
            )
            core.counters.destinations.add(addresses, verdict)
            if number == DELIVERED:
                meter.observe("zonemta_delivery_delay_seconds", (zone,), delay_s, count)
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
