"""A settlement: the content of a delivery record, made from a lease and its result, or by recovery from the record.

From a result to rows, one for each recipient, and from these to the record. Rules: a temporary failure waits by the
zone's retry schedule until its lifetime is over, then it bounces (4.4.7 becomes 5.4.7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config, Retry
from zonemta_py.disk import keys, packing
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, POSTPONED, RELEASED
from zonemta_py.mail.dsn import Kind
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.notes import NoteChanges
from zonemta_py.mail.notices.wording import Failed
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.queue.api import Outcome, Result
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.core.state import COUNTED_BY_START
from zonemta_py.queue.hooks import attributed
from zonemta_py.queue.lifecycle.lease import DAMAGED, Lease
from zonemta_py.queue.lifecycle.notices import Notices
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.time import hours

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Classified

AWAY = frozenset(("connect", "banner", "ehlo"))
"""Stages at which a destination that is down has said nothing about the recipient, or about us."""


@dataclass(slots=True)
class Row:
    """One recipient of a settlement: where its key is, and its verdict. due_ms: of one that waits; until when one that
    has bounced is kept, 0: not at all. life_h: of one that is delayed, if known. kind, agreed, stage: of the reply, as
    in the record."""

    key: bytes
    address: str
    note: Note
    verdict: int
    reply: Reply
    due_ms: int = 0
    relayed: bool = False
    delayed: bool = False
    entry: Entry | None = None
    state: int = sizes.QUEUED
    blocked: bool = False
    life_h: float = 0.0
    kind: str = ""
    agreed: bool = False
    stage: str = ""


@dataclass(slots=True)
class Settlement:
    """A delivery record's content. seq: the record's number. pair: our source, and the provider or site, where it is
    known without a lease. notes: as in the record."""

    message: Message
    zone: str
    rows: list[Row]
    remote: str = ""
    ms: int = 0
    seq: int = 0
    lease: Lease | None = None
    notices: list[tuple[Kind, list[Failed]]] = field(default_factory=list)
    classifieds: list[Classified | None] = field(default_factory=list)
    pair: tuple[str, str] = ("", "")
    notes: list[Any] | None = None


def settlement_of(
    core: Core, notices: Notices, lease: Lease, result: Result, classifieds: list[Classified | None]
) -> Settlement:  # fmt: skip
    """classifieds: of each outcome."""
    now_ms, down, rows = core.clock.ms(), result.down_s is not None, list[Row]()
    entries, told = lease.batch.entries, False
    notes = _noted(lease, result.notes) if result.notes else None
    for outcome, classified in zip(result.outcomes, classifieds, strict=True):
        verdict, reply = outcome.verdict, outcome.reply
        ends = verdict == RELEASED or (verdict == DELIVERED and not outcome.relayed)
        for index in outcome.recipients:
            entry = entries[index]
            row = Row(
                entry.key, entry.address, entry.note, verdict, reply, 0, False, False, entry,
                COUNTED_BY_START.get(entry.key[:4], 0),
            )  # fmt: skip
            if not ends:  # else its note ends with its key, or stays
                told = True
                _judge(core, notices, lease, row, outcome, now_ms, down)
            if classified is not None:
                row.kind, row.agreed, row.stage = classified.kind, classified.agreed, outcome.stage
                row.blocked = row.kind in BLOCKED_CLASSES
            rows.append(row)
    zone = lease.batch.zone.zone.name
    settlement = Settlement(
        lease.message, zone, rows, result.remote, now_ms, lease=lease, classifieds=classifieds, notes=notes
    )
    if told:  # perhaps: nobody is, about what was simply delivered
        settlement.notices = due(core.config, settlement)
    return settlement


def _noted(lease: Lease, changes: NoteChanges) -> list[Any]:
    """Takes over what plugins have changed, of recipients that this queue still has in the lease's entries."""
    entries, people = lease.batch.entries, dict[str, Any]()
    for index, notes in changes.people.items():
        entry = entries[index]
        entry.note = entry.note._replace(notes=notes or None)
        people[entry.address] = notes
    if changes.message or changes.gone:  # notices are about to be made of it
        lease.message.metadata["notes"] = changes.merged(lease.message.metadata.get("notes") or {})
    return [changes.message, changes.gone, people]


def _judge(
    core: Core, notices: Notices, lease: Lease, row: Row, outcome: Outcome, now_ms: int, down: bool
) -> None:  # fmt: skip
    """Completes the row of a recipient that is not simply delivered. down: the destination as a whole could not be
    reached."""
    note, reply, verdict, due_ms, delayed = row.note, outcome.reply, outcome.verdict, 0, False
    message, flow_queue, clock = lease.message, lease.batch.flow_queue, core.clock
    terms, steady_ms, apart_ms = core.terms(message, note), clock.steady_ms(), clock.apart_ms()
    wait_s, latest_ms = outcome.delay_s or 0.0, 0
    last = attributed(reply, *outcome.by[:2]) if outcome.by else str(reply)
    note = note._replace(put_off_ms=now_ms) if verdict == POSTPONED else note.tried(now_ms, last)
    if verdict == DEFERRED:
        ends_ms = core.lifetime.ends_ms(flow_queue, message, row.address, note, steady_ms)
        if steady_ms >= ends_ms:
            verdict = BOUNCED
        elif hours.too_late(terms, steady_ms):
            verdict, row.reply = BOUNCED, Reply(554, "5.4.7", f"its delivery deadline has passed ({reply})")
        else:
            retry = flow_queue.zone.flow_queues.terms_of(flow_queue.path, row.address).retry
            if outcome.delay_s is None:
                wait_s = delay_s(note.attempts, retry, clock.random())
            latest_ms = max(ends_ms, steady_ms + 1000)
            delayed = notices.late(message, note, steady_ms, retry.delay_notice_h)
            away = down and outcome.stage in AWAY and outcome.delay_s is None
            note = note._replace(noticed=note.noticed or delayed, away=away)
    if verdict == BOUNCED:
        due_ms = kept_until(core.config, outcome, steady_ms)
    elif verdict in (DEFERRED, POSTPONED):
        due_ms = steady_ms + int(wait_s * 1000)
        due_ms = hours.again_ms(core.config, flow_queue.zone.zone, terms, due_ms, apart_ms)
        due_ms = min(due_ms, latest_ms) if latest_ms else due_ms
    row.note, row.verdict, row.due_ms, row.relayed, row.delayed = note, verdict, due_ms, outcome.relayed, delayed
    if delayed:
        row.life_h = core.lifetime.life_h(flow_queue, message, row.address, note)


def again(core: Core, lease: Lease, row: Row, wait_s: float) -> None:
    """A recipient that is put off is tried again in so many seconds, as far as its hours and its lifetime allow."""
    flow_queue, clock = lease.batch.flow_queue, core.clock
    steady_ms, terms = clock.steady_ms(), core.terms(lease.message, row.note)
    due_ms = steady_ms + int(wait_s * 1000)
    due_ms = hours.again_ms(core.config, flow_queue.zone.zone, terms, due_ms, clock.apart_ms())
    ends_ms = core.lifetime.ends_ms(flow_queue, lease.message, row.address, row.note, steady_ms)
    row.due_ms = min(due_ms, max(ends_ms, steady_ms + 1000))


def delay_s(attempts: int, retry: Retry, random: float) -> float:
    """Seconds until the next try after `attempts` (≥ 1) failed ones (RFC 5321 4.5.4.1); the schedule's last entry
    repeats.

    random: in [0, 1); 0.5 means no jitter. Jitter keeps mail that failed together from coming back together.
    """
    minutes = retry.schedule_min[min(max(attempts, 1), len(retry.schedule_min)) - 1]
    return minutes * 60 * (1 + retry.jitter * (2 * random - 1))


def kept_until(config: Config, outcome: Outcome, now_ms: int) -> int:
    """Until when what bounces with that is kept, to be queued again; 0: it is not. What is damaged cannot be sent.
    now_ms: steady time."""
    kept_s = config.queue.keep_bounced_s
    return now_ms + int(kept_s * 1000) if kept_s and outcome.reply != DAMAGED else 0


def due(config: Config, settlement: Settlement) -> list[tuple[Kind, list[Failed]]]:
    """The notifications that a settlement causes, by kind."""
    rows = [row for row in settlement.rows if row.verdict == BOUNCED or row.relayed or row.delayed]
    if not rows:
        return []
    kinds: dict[tuple[Kind, str], list[Failed]] = {}
    life_h = settlement.message.metadata.get("life_h") or config.retry.life_h
    zone = config.zone(settlement.zone)
    lmtp = zone is not None and zone.protocol == "lmtp"  # LMTP delivers to the mail store itself
    for row in rows:
        if row.verdict == BOUNCED:
            kind: Kind = "failed"
        elif row.verdict == DELIVERED and row.relayed:
            kind = "delivered" if ((row.note.routing or {}).get("protocol") == "lmtp" or lmtp) else "relayed"
        elif row.delayed:
            kind = "delayed"
        else:
            continue
        until_ms = settlement.message.created_ms + int((row.life_h or life_h) * 3_600_000)
        recipient = Recipient(row.address, row.note.notify, row.note.orcpt, None, row.note.notes, row.note.meta)
        remote = settlement.remote if row.stage != "queue" else ""  # there the words are ours, whoever was asked
        to = str((row.note.routing or {}).get("returns", ""))
        kinds.setdefault((kind, to), []).append(
            Failed(recipient, row.reply, remote, row.note.attempts, row.note.last_ms, until_ms, row.kind, to=to)
        )
    return [(kind, failures) for (kind, _), failures in kinds.items()]


def record_of(settlement: Settlement, result: Result) -> bytes:
    """A `DeliveryRecord`, by hand: the class would double the cost of packing, for every result."""
    trace = [result.remote, result.local, result.tls, result.started_ms, result.took_ms]
    lease = settlement.lease
    number, target = (lease.number, lease.batch.flow_queue.key) if lease else (0, "")
    if lease is not None:
        path = lease.batch.path
        trace += [path.source, path.site, path.provider, result.security]
    rows = _record_rows(settlement.rows, result.outcomes, settlement.classifieds)
    if "meta" in settlement.message.metadata:
        about = settlement.message.about(settlement.rows)
        return packing.pack(
            [number, settlement.message.id, settlement.zone, target, rows, trace, settlement.notes, about]
        )
    if settlement.notes:
        return packing.pack([number, settlement.message.id, settlement.zone, target, rows, trace, settlement.notes])
    return packing.pack([number, settlement.message.id, settlement.zone, target, rows, trace])


_UNJUDGED: tuple[Any, ...] = ("", "")


def _record_rows(rows: list[Row], outcomes: list[Outcome], classifieds: list[Classified | None]) -> list[list[Any]]:
    """The fields of an `OutcomeRow` for each group of recipients with equal fields; by hand, as it runs for every
    result.

    rows: those of the first outcome's recipients, then of the second's …
    """
    grouped: dict[tuple[Any, ...], list[Any]] = {}
    following = iter(rows)
    for outcome, classified in zip(outcomes, classifieds, strict=True):
        known = _UNJUDGED
        if classified is not None:
            known = (classified.kind, classified.rule, True)[: 3 if classified.agreed else 2]
        if outcome.by:
            known = (*(*known, False)[:3], tuple(outcome.by))
        last: Row | None = None
        for row in islice(following, len(outcome.recipients)):
            reply = row.reply
            if last is None or reply is not last.reply or (row.verdict, row.relayed) != (last.verdict, last.relayed):
                text = reply.text[:REPLY_TEXT_STORED_MAX]
                key = (row.verdict, reply.code, reply.enhanced, text, outcome.stage, row.relayed, *known)
                alike = grouped.setdefault(key, [])
                last = row
            before = keys.place(row.key).due_ms if row.state == sizes.DEFERRED else 0
            attempts = row.note.attempts + (row.verdict == DELIVERED and not row.relayed)  # its note is not written
            who = [row.address, before, row.due_ms, attempts] if before or row.due_ms else row.address
            alike.append(who)
    return [[*key[:5], recipients, *key[5:]] for key, recipients in grouped.items()]
