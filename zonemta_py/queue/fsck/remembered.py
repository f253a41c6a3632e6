"""What the journal and its archive still know of what a lost store had besides mail: who is in doubt, campaigns with
their figures and ends, keys of requests, tasks. Read only after damage to the store (`compare`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    DeliveryRecord,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    InDoubtRow,
    RemovedRecord,
    Who,
)
from zonemta_py.journal.records.orders import StandingRecord, TaskRecord
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.journal.records.taken import (
    CAMPAIGN,
    DOUBTS,
    FAMILIES,
    MESSAGE,
    REQUESTS,
    TASK,
    TakenMessage,
    TakenRecord,
)
from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.queue.core.campaign_counters import SUPPRESSED, CampaignCounts, campaign_of
from zonemta_py.queue.core.campaigns import BEGIN, COMPLETE, Campaign, campaign_from
from zonemta_py.queue.core.tasks import DID, UNDID, WORK, Task, Tasks
from zonemta_py.queue.feedback.consequences import figure
from zonemta_py.queue.fsck.campaigns import Finding, Restored
from zonemta_py.queue.lifecycle.requests import RequestRecord
from zonemta_py.zones import pull

_DAY_MS = 86_400_000


class _Nothing(Store):
    """A store without a key, for a table of tasks that is made from records alone."""

    def __init__(self) -> None:
        """It has no folder."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


class Remembered:
    """Takes all records, in their order."""

    def __init__(self) -> None:
        self.lossy = False
        """Records are missing among those that were taken."""
        self._doubts: dict[tuple[str, str], InDoubtRow] = {}
        self._requests: dict[bytes, RequestRecord] = {}
        self._tasks = Tasks(_Nothing())
        self._campaigns: dict[str, Campaign] = {}
        self._counts: dict[str, CampaignCounts] = {}
        self._of: dict[str, tuple[str, set[str]]] = {}
        """By message that counts for a campaign: which, and its recipients that have not ended."""
        self._oldest: dict[str, str] = {}
        """By campaign the lowest id of a message that counted for it."""
        self._taken_over: set[tuple[int, int, str]] = set()
        """Figures that another queue had: its number, when it was, and of what."""
        self._next = self._now_ms = 0

    def take(self, record: Record) -> None:
        self.lossy |= record.type == Type.LOST or 0 < self._next < record.seq
        self._next, self._now_ms = record.seq + 1, max(self._now_ms, record.ms)
        taker = _TAKERS.get(Type(record.type)) if record.type in list(Type) else None
        if taker is not None:
            taker(self, record, packing.unpack(record.body))

    # -- records

    def _envelope(self, record: Record, fields: list[Any]) -> None:
        envelope = EnvelopeRecord.of(fields)
        self._asked(envelope.id, envelope.request, len(envelope.recipients))
        name = campaign_of(envelope.metadata)
        if name and envelope.id not in self._of:
            self._of[envelope.id] = name, {row.address for row in envelope.rows()}
            self._counts.setdefault(name, CampaignCounts()).accepted += len(envelope.recipients)
            self._oldest[name] = min(self._oldest.get(name, envelope.id), envelope.id)

    def _asked(self, message_id: str, request: list[Any] | None, accepted: int) -> None:
        if request:
            key, ms, suppressed, digest, until_ms = request[:5]
            self._requests[key.encode()] = RequestRecord(ms, message_id, accepted, suppressed, digest, until_ms)

    def _delivery(self, record: Record, fields: list[Any]) -> None:
        delivery = DeliveryRecord.of(fields)
        name, living = self._of.get(delivery.id, ("", set()))
        if not name:
            return
        counts = self._counts[name]
        for outcome in delivery.outcomes:
            people = [Who.of(who) for who in outcome.recipients]
            figure_of = {DELIVERED: "delivered", BOUNCED: "bounced", DEFERRED: "deferred"}.get(outcome.verdict)
            if figure_of is None:
                continue
            setattr(counts, figure_of, getattr(counts, figure_of) + len(people))
            counts.blocked += len(people) * (outcome.kind in BLOCKED_CLASSES)
            counts.first_ms, counts.last_ms = counts.first_ms or record.ms, record.ms
            if outcome.verdict != DEFERRED:
                living.difference_update(who.address for who in people)

    def _finish(self, record: Record, fields: list[Any]) -> None:
        finish = FinishRecord.of(fields)
        message_id = finish.id
        if finish.moved and message_id in self._of:
            counts, (_, waiting, bounced) = self._counts[self._of.pop(message_id)[0]], finish.moved
            counts.accepted -= waiting + bounced
            counts.bounced -= bounced
        elif message_id in self._of and not self._of[message_id][1]:
            del self._of[message_id]

    def _taken(self, record: Record, fields: list[Any]) -> None:
        taken = TakenRecord.of(fields)
        value = taken.value
        if taken.what == MESSAGE:
            self._message(TakenMessage.of(value))
        elif taken.what == REQUESTS:
            self._requests |= {key.encode(): RequestRecord(*row) for key, *row in value}
        elif taken.what == DOUBTS:
            self._doubts |= {(row[0], row[2]): InDoubtRow.of(row) for row in value}
        elif taken.what in (TASK, CAMPAIGN) and self._once(taken):
            if taken.what == TASK:
                self._tasks.take_over(Task.of(value | {"seq": record.seq}))
                return
            name = value["name"]
            if value["record"] is not None:
                self._campaigns.setdefault(name, campaign_from(name, value["record"]))
            self._counts.setdefault(name, CampaignCounts()).join(CampaignCounts(*value["counts"]))

    def _once(self, taken: TakenRecord) -> bool:
        """A crash may have made the other queue's figures be recorded twice; what has none (0) counts each time."""
        if not taken.value["at"]:
            return True
        said = taken.queue, taken.value["at"], f"{taken.what} {taken.value.get('name') or taken.value.get('number')}"
        known, self._taken_over = said in self._taken_over, self._taken_over | {said}
        return not known

    def _message(self, message: TakenMessage) -> None:
        for address, zone, since_ms, action, *why in message.doubts:
            self._doubts[message.id, address] = InDoubtRow(message.id, zone, address, since_ms, action, "", *why)
        if name := campaign_of(message.metadata):
            waiting = {row.address for row in message.rows() if FAMILIES[row.family] != "bounced"}
            counts, bounced = self._counts.setdefault(name, CampaignCounts()), len(message.recipients) - len(waiting)
            counts.accepted += len(message.recipients)
            counts.bounced += bounced
            self._of[message.id] = name, waiting
            self._oldest[name] = min(self._oldest.get(name, message.id), message.id)

    def _removed(self, record: Record, fields: list[Any]) -> None:
        removed = RemovedRecord.of(fields)
        where = removed.where or {}
        if removed.envelope is not None:
            self._asked(removed.id, where.get("request"), 0)
        if where.get("kept"):
            return
        name, living = self._of.get(removed.id, (campaign_of(removed.envelope or {}), set()))
        if not name:
            return
        counts, ended = self._counts.setdefault(name, CampaignCounts()), living.intersection(removed.recipients)
        counts.removed += len(ended)
        if ended:
            counts.first_ms, counts.last_ms = counts.first_ms or record.ms, record.ms
        if removed.reason.startswith(SUPPRESSED):
            counts.suppressed += len(removed.recipients)
        living.difference_update(ended)

    def _in_doubt(self, record: Record, fields: list[Any]) -> None:
        for row in InDoubtRecord.of(fields).recipients:
            self._doubts[row.id, row.address] = row

    def _standing(self, record: Record, fields: list[Any]) -> None:
        change = StandingRecord.of(fields)
        kind, name = change.subject
        if kind != "campaign":
            return
        if change.what == BEGIN:
            if name in self._campaigns:  # another one of that name
                self._counts[name] = CampaignCounts()
            self._counts.setdefault(name, CampaignCounts())
            self._campaigns[name] = _begun(name, record, change.value)
            self._without_earlier(name, self._campaigns[name].first)
            return
        campaign = self._campaigns.get(name)
        if campaign is None or change.what not in ("cancel", COMPLETE) or change.value[0] != campaign.created_ms:
            return
        if change.what == COMPLETE:
            campaign.complete_ms = change.value[1]
        else:
            campaign.canceled_ms, campaign.cause = change.value[1], change.cause

    def _without_earlier(self, name: str, first: str) -> None:
        """Messages with a lower id counted for another campaign of that name, forgotten or only known from its mail."""
        if self._oldest.get(name, first) >= first:
            return
        own = {}
        for message_id in [one for one, (of, _) in self._of.items() if of == name]:
            if message_id < first:
                del self._of[message_id]
            else:
                own[message_id] = len(self._of[message_id][1])
        self._counts[name], self._oldest[name] = CampaignCounts(accepted=sum(own.values())), min(own, default=first)

    def _task(self, record: Record, fields: list[Any]) -> None:
        change = TaskRecord.of(fields)
        if change.what not in (DID, UNDID):
            self._tasks.take(record.seq, record.ms, change)
            return
        zone, rows, _, verb = change.value[:4]
        task = self._tasks.by_number.get(change.number)
        if task is not None:
            task.seq = record.seq
            if change.what == DID:
                task.done += len(rows)
                task.zones[zone] = task.zones.get(zone, 0) + len(rows)
            else:
                task.undone += len(rows)
        for message_id, address, *_ in rows if verb == "requeue" else ():
            name, living = self._of.get(message_id, ("", set()))
            if name:
                self._counts[name].bounced += 1 if change.what == UNDID else -1
                (living.discard if change.what == UNDID else living.add)(address)

    def _feedback(self, record: Record, fields: list[Any]) -> None:
        said = FeedbackRecord.of(fields)
        campaign, counts = self._campaigns.get(said.campaign or ""), self._counts.get(said.campaign or "")
        if campaign is not None and not campaign.is_of(said.tenant or campaign.tenant):
            return
        if counts is not None and (name := figure(said)):
            setattr(counts, name, getattr(counts, name) + 1)

    # -- what comes back

    def firsts(self, store: Store) -> dict[str, str]:
        """Of the campaigns that the store has lost: as `campaigns.firsts`."""
        lost = [one for one in self._campaigns.values() if store.get(keys.campaign(one.name)) is None]
        return {campaign.name: campaign.first for campaign in lost}

    def campaigns(self, days: float) -> dict[str, Restored]:
        """By name, also those that only mail names; without those that somebody has put, if they ended so many days
        ago."""
        over_ms, found = self._now_ms - days * _DAY_MS, dict[str, Restored]()
        for name, counts in self._counts.items():
            campaign = self._campaigns.get(name)
            ended_ms = counts.last_ms if campaign is None else campaign.canceled_ms or campaign.complete_ms
            if not 0 < ended_ms < over_ms:
                found[name] = Restored(campaign, counts)
        return found

    def findings(self, store: Store, config: Config, ended: set[str], steady_ms: int) -> Iterator[Finding]:
        """What the store lacks, besides campaigns. ended: messages that have ended."""
        yield from _told(
            "recipients in doubt are", "in doubt", "they are listed again", self._unlisted(store, config, ended)
        )
        yield from _told("keys of requests are", "requests", "they are made again", self._unasked(store, steady_ms))
        missing = [task for number, task in self._tasks.by_number.items() if store.get(keys.task(number)) is None]
        for task in missing:
            yield Finding("repairable", f"task {task.number} is missing", "tasks", *self._again(task))

    def _unlisted(self, store: Store, config: Config, ended: set[str]) -> Iterator[Operation]:
        days = config.queue.archive_days
        oldest = keys.id_at(self._now_ms - int(days * _DAY_MS)) if days else ""
        for row in self._doubts.values():
            key, settings = keys.in_doubt(row.id, row.address), config.zone(row.zone)
            pulled = settings.pulled if settings else row.zone.startswith(pull.PREFIX)
            if row.id >= oldest and not (pulled and row.id in ended) and store.get(key) is None:
                why = [row.why] if row.why else []
                yield key, packing.pack([row.zone, row.since_ms, row.action, *why])

    def _unasked(self, store: Store, steady_ms: int) -> Iterator[Operation]:
        for key, kept in self._requests.items():
            if store.get(key) is None and (not kept.until_ms or kept.until_ms > steady_ms):
                yield key, packing.pack(kept)
                if kept.until_ms:
                    yield keys.request_end(kept.until_ms, key), b""

    def _again(self, task: Task) -> tuple[str, list[Operation]]:
        remedy = "its row is made again"
        if self.lossy and task.state in WORK:  # its end may be among what is lost
            task.stopped = True
            remedy += "; it does nothing more, order it again if it had not ended"
        return remedy, [(keys.task(task.number), task.row())]


def _begun(name: str, record: Record, value: dict[str, Any]) -> Campaign:
    """value: of a BEGIN record; those of older versions do not have all settings."""
    if "record" in value:
        return campaign_from(name, value["record"])
    return Campaign(
        name, value.get("sender", ""), value.get("tenant", ""), value.get("zone", ""), 0, value.get("planned", 0), {},
        math.inf, value.get("created_ms", record.ms), value.get("template", ""), 0, 0, seq=record.seq,
    )  # fmt: skip


def _told(what: str, ident: str, remedy: str, operations: Iterator[Operation]) -> Iterator[Finding]:
    found = list(operations)
    if found:
        yield Finding("repairable", f"{what} missing: {len(found)} keys that the journal has", ident, remedy, found)


_TAKERS = {
    Type.ENVELOPE: Remembered._envelope, Type.DELIVERY: Remembered._delivery, Type.FINISH: Remembered._finish,
    Type.REMOVED: Remembered._removed, Type.IN_DOUBT: Remembered._in_doubt, Type.STANDING: Remembered._standing,
    Type.TASK: Remembered._task, Type.FEEDBACK: Remembered._feedback, Type.TAKEN: Remembered._taken,
}  # fmt: skip
