"""Lines about mail, made from journal records: the same as those on standard error, but for what a record does not say.

Sender and size of an answer are known while the message's acceptance is among the last KEPT_MAX that were read; so are
its user, tenant and campaign, and the provider of the attempt, which lines do not say (`facts`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.frame import Record
from zonemta_py.journal.facts import Accepted, Answered, Attempted, CameBack, Doubted, Fact, Removed, facts_of
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DELIVERED, RELEASED, Who
from zonemta_py.logs.mail import accepted, came_back, several

KEPT_MAX = 50_000
Line = tuple[str, dict[str, Any]]
"""Message and fields."""
_TOLD = (Type.ENVELOPE, Type.START, Type.DELIVERY, Type.REMOVED, Type.IN_DOUBT, Type.FEEDBACK)


class RecordedLines:
    """Of the records of a journal in their order, or of those of several queues."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._told: dict[str, dict[str, str]] = {}
        self._same: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        """What is told of messages: of many the same."""
        self._providers: dict[tuple[int, int], str] = {}
        """By queue and lease."""
        self._provider, self._queue = "", 0

    def of(self, record: Record, queue: int = 0) -> list[Line]:
        """queue: whose record it is."""
        self._provider, self._queue = "", queue
        if record.type not in _TOLD:
            return []
        facts = facts_of(record)
        if record.type == Type.IN_DOUBT:
            return list(_in_doubt(facts))
        return [line for fact in facts for line in self._lines(record.ms, fact)]

    def facts(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Those of a line of the latest record, and what it does not say."""
        provider = {"provider": self._provider} if self._provider else {}
        return self._told.get(fields.get("id", ""), {}) | provider | fields

    def _lines(self, ms: int, fact: Fact) -> Iterator[Line]:
        match fact:
            case Accepted():
                yield "accepted", self._accepted(fact)
            case Attempted():
                self._providers[self._queue, fact.lease] = fact.provider
            case Answered():
                self._provider = self._providers.pop((self._queue, fact.lease), self._provider)
                for who in fact.who if fact.number != RELEASED else ():
                    yield "answered", self._answered(ms, fact, who)
            case Removed():
                yield "removed", several(fact.id, fact.zone, fact.recipients, reason=fact.reason)
            case CameBack():
                yield "came back", came_back(fact)

    def _accepted(self, fact: Accepted) -> dict[str, Any]:
        fields = accepted(fact.id, [row[0] for row in fact.recipients], fact.people, fact.metadata)
        self._known[fact.id] = {name: fields[name] for name in ("sender", "size")}
        said = {name: fields[name] for name in ("user", "tenant", "campaign") if fields.get(name)}
        self._told[fact.id] = self._same.setdefault(tuple(said.items()), said)
        if len(self._known) > self._kept_max:
            del self._told[self._known.popitem(last=False)[0]]
        return fields

    def _answered(self, ms: int, fact: Answered, who: Who) -> dict[str, Any]:
        trace = fact.trace
        fields: dict[str, Any] = {
            "id": fact.id, "zone": fact.zone, "recipient": who.address, **self._known.get(fact.id, {}),
            "verdict": fact.verdict, "code": fact.code, "enhanced": fact.enhanced, "stage": fact.stage,
            "delay_s": max(0, ms - keys.id_ms(fact.id)) / 1000, "took_ms": trace.took_ms,
        }  # fmt: skip
        more = {"class": fact.kind, "site": trace.site, "source": trace.source, "remote": trace.remote}
        fields |= {name: value for name, value in more.items() if value}
        if who.due_ms and fact.number not in (DELIVERED, BOUNCED):
            fields["again_s"] = max(0, who.due_ms - ms) // 1000
        return fields | {"text": fact.text}


def _in_doubt(facts: list[Any]) -> Iterator[Line]:
    doubted = [fact for fact in facts if isinstance(fact, Doubted)]
    for (message_id, zone), rows in groupby(doubted, lambda fact: (fact.id, fact.zone)):
        yield "in doubt", several(message_id, zone, [row.address for row in rows])
