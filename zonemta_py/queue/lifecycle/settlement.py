"""A settlement: the content of a delivery record, made from a lease's result or from the record itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config
from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, HELD, POSTPONED
from zonemta_py.mail.dsn import Kind
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.notices.wording import Failed
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.queue.api import Outcome, Result
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.lifecycle.lease import DAMAGED, Lease
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.time.steady import Steady

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Classified


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
    known without a lease."""

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


def mark_kinds(rows: list[Row], outcomes: list[Outcome], classifieds: list[Classified | None]) -> None:
    """rows: those of the first outcome's recipients, then of the second's …"""
    if not any(classifieds):
        return
    following = iter(rows)
    for outcome, classified in zip(outcomes, classifieds, strict=True):
        for row in islice(following, len(outcome.recipients)):
            if classified is not None:
                row.kind, row.agreed, row.stage = classified.kind, classified.agreed, outcome.stage
                row.blocked = row.kind in BLOCKED_CLASSES


def deferred_key(settlement: Settlement, row: Row) -> bytes:
    return keys.deferred(settlement.zone, row.due_ms, settlement.message.id, row.address)


def kept_until(config: Config, outcome: Outcome, now_ms: int) -> int:
    """Until when what bounces with that is kept, to be queued again; 0: it is not. What is damaged cannot be sent.
    now_ms: steady time."""
    kept_s = config.queue.keep_bounced_s
    return now_ms + int(kept_s * 1000) if kept_s and outcome.reply != DAMAGED else 0


def after(settlement: Settlement, row: Row, clock: Steady) -> tuple[bytes, Note] | None:
    """Key and note, from now on, of a recipient that was not delivered; None: it has ended."""
    if row.verdict == BOUNCED and not row.due_ms:
        return None
    zone, message_id, note = settlement.zone, settlement.message.id, row.note._replace(seq=settlement.seq)
    if row.verdict in (DEFERRED, POSTPONED):
        return deferred_key(settlement, row), note
    if row.verdict == HELD:
        return keys.held(zone, message_id, row.address), note.held(clock.steady_ms())
    return keys.bounced(zone, row.due_ms, message_id, row.address), note


def leave_out(lease: Lease, result: Result) -> None:
    """Drops outcomes of recipients that were answered before: an answer stays, even if the sender fails afterwards."""
    for outcome in result.outcomes:
        outcome.recipients = [index for index in outcome.recipients if index not in lease.answered]
    result.outcomes = [outcome for outcome in result.outcomes if outcome.recipients]


def check(lease: Lease, result: Result) -> None:
    """Checks that every recipient has one outcome; one without would wait for ever. Raises ValueError."""
    indices = sorted([*lease.answered, *(index for outcome in result.outcomes for index in outcome.recipients)])
    count = len(lease.batch.entries)
    part = result.more and len(set(indices)) == len(indices) and set(indices) <= set(range(count))
    if not part and indices != list(range(count)):
        raise ValueError(f"lease {lease.number}: {count} recipients, but outcomes for {indices}")


_UNJUDGED: tuple[str | bool, ...] = ("", "")


def record_rows(rows: list[Row], outcomes: list[Outcome], classifieds: list[Classified | None]) -> list[list[Any]]:
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
        for row in islice(following, len(outcome.recipients)):
            reply = row.reply
            text = reply.text[:REPLY_TEXT_STORED_MAX]
            key = (row.verdict, reply.code, reply.enhanced, text, outcome.stage, row.relayed, *known)
            before = keys.place(row.key).due_ms if row.state == sizes.DEFERRED else 0
            attempts = row.note.attempts + (row.verdict == DELIVERED and not row.relayed)  # its note is not written
            who = [row.address, before, row.due_ms, attempts] if before or row.due_ms else row.address
            grouped.setdefault(key, []).append(who)
    return [[*key[:5], recipients, *key[5:]] for key, recipients in grouped.items()]
