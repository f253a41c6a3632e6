"""Lines about mail, made from journal records: the same as those on standard error, but for what a record does not say.

Sender and size of an answer are known while the message's acceptance is among the last KEPT_MAX that were read; so are
its user, tenant and campaign, and the provider of the attempt, which lines do not say (`facts`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import (
    BOUNCED,
    DELIVERED,
    RELEASED,
    DeliveryRecord,
    EnvelopeRecord,
    InDoubtRecord,
    OutcomeRow,
    RemovedRecord,
    StartRecord,
    Who,
)
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.logs.mail import VERDICTS, accepted, came_back, several

KEPT_MAX = 50_000
Line = tuple[str, dict[str, Any]]
"""Message and fields."""


class RecordedLines:
    """Of the records of one journal, in their order."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._told: dict[str, dict[str, str]] = {}
        self._same: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        """What is told of messages: of many the same."""
        self._providers: dict[int, str] = {}
        self._provider = ""
        self._of: dict[int, Callable[[Record, Any], Iterator[Line]]] = {
            Type.ENVELOPE: self._accepted, Type.DELIVERY: self._answered, Type.REMOVED: self._removed,
            Type.IN_DOUBT: self._in_doubt, Type.FEEDBACK: self._came_back,
        }  # fmt: skip

    def of(self, record: Record) -> list[Line]:
        self._provider = ""
        if record.type == Type.START:
            start = StartRecord.of(unpack(record.body))
            self._providers[start.lease] = start.provider
        make = self._of.get(record.type)
        return list(make(record, unpack(record.body))) if make is not None else []

    def facts(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Those of a line of the latest record, and what it does not say."""
        provider = {"provider": self._provider} if self._provider else {}
        return self._told.get(fields.get("id", ""), {}) | provider | fields

    def _accepted(self, _: Record, body: Any) -> Iterator[Line]:
        envelope = EnvelopeRecord.of(body)
        rows = envelope.rows()
        fields = accepted(envelope.id, [row.zone for row in rows], [row.address for row in rows], envelope.metadata)
        self._known[envelope.id] = {name: fields[name] for name in ("sender", "size")}
        said = {name: fields[name] for name in ("user", "tenant", "campaign") if fields.get(name)}
        self._told[envelope.id] = self._same.setdefault(tuple(said.items()), said)
        if len(self._known) > self._kept_max:
            del self._told[self._known.popitem(last=False)[0]]
        yield "accepted", fields

    def _answered(self, record: Record, body: Any) -> Iterator[Line]:
        delivery = DeliveryRecord.of(body)
        self._provider = self._providers.pop(delivery.lease, "")
        for outcome in delivery.outcomes:
            for who in map(Who.of, outcome.recipients) if outcome.verdict != RELEASED else ():
                yield "answered", self._fields(record, delivery, outcome, who)

    def _fields(self, record: Record, delivery: DeliveryRecord, outcome: OutcomeRow, who: Who) -> dict[str, Any]:
        trace = delivery.trace
        fields: dict[str, Any] = {
            "id": delivery.id, "zone": delivery.zone, "recipient": who.address, **self._known.get(delivery.id, {}),
            "verdict": VERDICTS[outcome.verdict], "code": outcome.code, "enhanced": outcome.enhanced,
            "stage": outcome.stage, "delay_s": max(0, record.ms - keys.id_ms(delivery.id)) / 1000,
            "took_ms": trace.took_ms,
        }  # fmt: skip
        more = {"class": outcome.kind, "site": trace.site, "source": trace.source, "remote": trace.remote}
        fields |= {name: value for name, value in more.items() if value}
        if who.due_ms and outcome.verdict not in (DELIVERED, BOUNCED):
            fields["again_s"] = max(0, who.due_ms - record.ms) // 1000
        return fields | {"text": outcome.text}

    def _came_back(self, _: Record, body: Any) -> Iterator[Line]:
        yield "came back", came_back(FeedbackRecord.of(body))

    def _removed(self, _: Record, body: Any) -> Iterator[Line]:
        removed = RemovedRecord.of(body)
        yield "removed", several(removed.id, removed.zone, removed.recipients, reason=removed.reason)

    def _in_doubt(self, _: Record, body: Any) -> Iterator[Line]:
        for (message_id, zone), rows in groupby(InDoubtRecord.of(body).recipients, lambda row: (row.id, row.zone)):
            yield "in doubt", several(message_id, zone, [row.address for row in rows])
