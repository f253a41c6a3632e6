"""Takes what came back, once: a FEEDBACK record, stable before it is answered; then what follows from it.

The store follows the journal: the record's body and its names (`names`), by which it is known when it comes again, are
in one batch with what follows from it (`consequences`): the figures that count it, and the evidence by which the policy
decides. So a crash leaves all or nothing, and replay does what is missing. Rows and names are forgotten after
`return_path.days`.

Failures: while the disk has errors everything is refused (451; 452: it is full), and nothing of it is recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreError, StoreFenced
from zonemta_py.disk.leveldb.trouble import refusal
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import AGGREGATES, KINDS, FeedbackRecord
from zonemta_py.logs.causes import cause
from zonemta_py.logs.mail import came_back, with_metadata
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.metadata import told
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Feedback, QueueRefusal
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.feedback.accepted_by import Takers
from zonemta_py.queue.feedback.consequences import counted, figure, statement
from zonemta_py.queue.feedback.names import names
from zonemta_py.queue.feedback.ties import Ties
from zonemta_py.queue.feedback.unread import RAW_BYTES_MAX, UnreadFiles
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.suppression.entry import UNSUBSCRIBE
from zonemta_py.queue.suppression.policy import SuppressionPolicy

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Classified

log = logging.getLogger(__name__)

ERASED = packing.pack(None)
"""Instead of the row of somebody who was erased, so that it is not made again from the journal."""
AT_ONCE = 1_000
"""Rows that are taken, or deleted, before the event loop runs."""
FIELD_CHARACTERS_MAX = 320
REPORT_BYTES_MAX = 262_144
JUDGED = ("bounce", "delay")
"""Kinds that quote a reply."""
GENUINE = ("", "token", "dkim", "spf", "key")
VIAS = ("", "smtp", "http", "link", "mailto")
_DAY_MS = 86_400_000


class FeedbackRegister:
    """All feedback of the last `return_path.days` days."""

    def __init__(self, core: Core, judge: Callable[[Reply], Classified], policy: SuppressionPolicy) -> None:
        """judge: what a reply that a report quotes means, by our rules. policy: is told what is genuine."""
        self._core, self._judge, self._policy, self._ties = core, judge, policy, Ties(core)
        self.takers = Takers(core)
        self.unread = UnreadFiles(core.config.folder)
        self._under_way: dict[str, asyncio.Future[None]] = {}
        """By name, what the store does not have yet; done when the record is stable."""

    # -- what comes

    async def take(self, rows: list[Feedback]) -> list[bool]:
        """As `Reception.feedback`."""
        for row in rows:
            _check(row)
        answers: list[bool] = []
        for at in range(0, len(rows), AT_ONCE):
            answers += await self._portion(rows[at : at + AT_ONCE])
        return answers

    async def _portion(self, rows: list[Feedback]) -> list[bool]:
        core = self._core
        trouble = core.disk.lines.trouble or core.disk.journal.trouble
        if trouble is not None:
            raise QueueRefusal(trouble)
        try:
            if any(row.raw for row in rows):
                await asyncio.to_thread(self._keep, rows)
            await self.takers.look([row.recipient for row in rows if row.kind == "bounce" and row.genuine])
            taken = [self._one(row) for row in rows]
        except OSError as error:
            log.warning("what came back cannot be kept: %s", cause(error))
            raise QueueRefusal(refusal(error)) from None
        except StoreError as error:
            if not isinstance(error, StoreFenced):
                core.disk.read_failed(error)
            raise QueueRefusal(refusal(error)) from None
        waits = [stable for _, stable in taken if stable is not None and not stable.done()]
        if waits:
            await asyncio.wait(waits)
        return [new for new, _ in taken]

    def _keep(self, rows: list[Feedback]) -> None:
        """What nobody understood is on stable storage before its record is. Raises OSError."""
        most = self._core.config.return_path.unread
        for row in rows if most else ():
            if row.raw:
                row.name = row.name or hashlib.sha256(row.raw).hexdigest()
                self.unread.save(file_of(names(row)), row.raw, most)

    def _one(self, row: Feedback) -> tuple[bool, asyncio.Future[None] | None]:
        """Whether it is new, and what to wait for. Raises StoreError."""
        record = self._record(row)
        for name in record.names:
            if (stable := self._under_way.get(name)) is not None:
                return False, stable
            if self._core.disk.store.get(keys.feedback_of(*name.split())) is not None:
                return False, self._write(record._replace(again=True)) if self._undone(record) else None
        return True, self._write(record)

    def _record(self, row: Feedback) -> FeedbackRecord:
        tied = self._ties.tie(row)
        reply = Reply(row.code, row.enhanced, _cut(row.text, REPLY_TEXT_STORED_MAX))
        judged = self._judge(reply) if row.kind in JUDGED else None
        return FeedbackRecord(
            row.kind, row.recipient, row.message, row.message_id, row.campaign, row.tenant, row.zone, reply.code,
            reply.enhanced, reply.text, row.reporter, row.form, row.via, row.genuine, row.scope,
            judged.kind if judged else "", judged.rule if judged else "", bool(judged and judged.agreed and _sure(row)),
            tied, names(row), len(row.raw[:RAW_BYTES_MAX]),
            place=self.takers.of(row.recipient, row.zone) if row.kind == "bounce" and row.recipient else "",
            about=self._core.counters.sent.about(row.message, row.recipient) if row.message else None,
            report=row.report or None,
        )  # fmt: skip

    def _undone(self, record: FeedbackRecord) -> bool:
        """A person unsubscribes by a link that had done so before, and has been taken off the list since then."""
        said = statement(record, 0, 0) if record.kind == UNSUBSCRIBE else None
        return said is not None and not self._policy.knows(said)

    def _write(self, record: FeedbackRecord) -> asyncio.Future[None]:
        core, ms = self._core, self._core.clock.ms()
        stable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seq = core.disk.ledger.open(Type.FEEDBACK, record.pack(), ms)
        self._under_way |= dict.fromkeys(record.names, stable)
        apply = partial(core.disk.ledger.apply, seq, partial(self._stable, seq, ms, record))
        core.disk.journal.when_stable(apply, patient=True)
        return stable

    def _stable(self, seq: int, ms: int, record: FeedbackRecord) -> None:
        self._under_way[record.names[0]].set_result(None)
        self._submit(seq, ms, record)
        _observe(self._core, ms, record)

    def _submit(self, seq: int, ms: int, record: FeedbackRecord) -> None:
        """All that follows from it in one batch."""
        core, changes = self._core, operations(seq, ms, record)
        campaign = core.campaigns.by_name.get(record.campaign)
        if (name := figure(record)) and campaign is not None and campaign.is_of(record.tenant or campaign.tenant):
            core.campaigns.counters.add(record.campaign, name)
        said = statement(record, seq, ms + core.clock.apart_ms())
        if said is not None:
            changes += self._policy.heard(said)
        core.disk.lines.submit(changes, partial(self._written, record), sync=False, keep=True)

    def _written(self, record: FeedbackRecord, _: Reply | None) -> None:
        for name in record.names:
            self._under_way.pop(name, None)

    # -- recovery

    def foresee(self, record: FeedbackRecord) -> None:
        """It is known from now on: `again` will apply it."""
        stable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stable.set_result(None)
        self._under_way |= dict.fromkeys(record.names, stable)

    def again(self, seq: int, ms: int, record: FeedbackRecord) -> None:
        """Applies a record that a crash may have kept from the store."""
        if self._core.disk.store.get(keys.feedback(seq)) is None:
            self._submit(seq, ms, record)
        else:
            self._written(record, None)

    # -- what there is

    def tie(self, row: Feedback) -> tuple[str, bool]:
        """As `Ties.tie`; and whether its message is known. Raises StoreError, ValueError."""
        _check(row)
        return self._ties.tie(row), bool(row.message) and self._core.counters.sent.get(row.message) is not None

    def of(self, message_id: str) -> list[dict[str, Any]]:
        """All that came back about a message, in the order of time. Raises StoreError."""
        prefix = keys.FEEDBACK_OF + message_id.encode() + b" "
        found = sorted(
            {int(packing.unpack(value)) for _, value in self._core.disk.store.scan(prefix, keys.end(prefix))}
        )
        rows = ((seq, self._core.disk.store.get(keys.feedback(seq))) for seq in found)
        return [shown(seq, value) for seq, value in rows if value is not None and value != ERASED]

    def file(self, seq: int) -> list[str]:
        """The name of the file with that record's message; [] if there is none. Raises StoreError."""
        value = self._core.disk.store.get(keys.feedback(seq))
        if value is None or value == ERASED:
            return []
        record = FeedbackRecord.of(packing.unpack(value)[1])
        return [file_of(record.names)] if record.raw_bytes else []

    def raw(self, seq: int) -> bytes:
        """The message of that record; b"" if it is not kept. Raises StoreError."""
        return b"".join(map(self.unread.read, self.file(seq)))

    def erased(self, rows: list[tuple[bytes, bytes]], who: str) -> list[Operation]:
        """What forgets a person. rows: of the store. who: the canonical address."""
        changes: list[Operation] = []
        for key, value in rows:
            if value != ERASED and _names(FeedbackRecord.of(packing.unpack(value)[1]), who):
                changes += [*forgotten(key, value), (key, ERASED)]
        return changes

    def reports(self, kind: str, first: int, last: int, most: int) -> list[int]:
        """Numbers of the reports of a kind on these days (since 1970), the latest day first. Raises StoreError."""
        found = list[int]()
        for day in range(last, first - 1, -1):
            begins, ends = (keys.feedback_of(kind, f"{one:08x}") for one in (day, day + 1))
            rows = self._core.disk.store.scan(begins, ends)
            found += [int(packing.unpack(number)) for _, number in islice(rows, most - len(found))]
            if len(found) == most:
                break
        return found

    def record(self, seq: int) -> FeedbackRecord | None:
        """None: it is not there any more. Raises StoreError."""
        value = self._core.disk.store.get(keys.feedback(seq))
        return None if value is None or value == ERASED else FeedbackRecord.of(packing.unpack(value)[1])

    # -- expired rows

    def tidy(self) -> bool:
        """Forgets a portion of what is too old; True: there may be more. Raises StoreError."""
        core, gone, old = self._core, list[Operation](), list[FeedbackRecord]()
        over_ms = core.clock.ms() - core.config.return_path.days * _DAY_MS
        rows = list(islice(core.disk.store.scan(keys.FEEDBACK, keys.end(keys.FEEDBACK)), AT_ONCE))
        for key, value in rows:
            if value != ERASED and packing.unpack(value)[0] >= over_ms:
                break
            gone += forgotten(key, value)
            old += [] if value == ERASED else [FeedbackRecord.of(packing.unpack(value)[1])]
        self.unread.drop(file_of(record.names) for record in old if record.raw_bytes)
        if gone:
            core.disk.lines.submit(gone, lambda _: None, sync=False, keep=True)
        return bool(gone) and len(rows) == AT_ONCE


def operations(seq: int, ms: int, record: FeedbackRecord) -> list[Operation]:
    """What a record puts into the store."""
    number = packing.pack(seq)
    found: list[Operation] = [(keys.feedback(seq), packing.pack([ms, record.row()]))]
    return found + [(keys.feedback_of(*name.split()), number) for name in record.names]


def forgotten(key: bytes, value: bytes) -> list[Operation]:
    """What deletes a row and its names."""
    named = [] if value == ERASED else FeedbackRecord.of(packing.unpack(value)[1]).names
    return [(key, None), *((keys.feedback_of(*name.split()), None) for name in named)]


def _sure(row: Feedback) -> bool:
    """Whether one such report may be enough: it quotes a reply, which names nobody but the recipient. A mailbox that
    forwards is not gone because one of those who get its mail is."""
    from zonemta_py.mail.rules.rules import names_another

    return row.quoted and not names_another(row.text, (row.recipient,))


def _names(record: FeedbackRecord, who: str) -> bool:
    """Whether a person is its recipient, or is named in its text."""
    return person(record.recipient) == who or who in record.text.lower()


def shown(seq: int, value: bytes) -> dict[str, Any]:
    """As shown in answers, but for what a report says. value: of the store."""
    ms, fields = packing.unpack(value)
    record = FeedbackRecord.of(fields)
    row = record._asdict()
    del row["names"], row["about"], row["report"]
    return {"seq": seq, "ms": ms} | row | told(record.about, record.recipient)


def file_of(made: Sequence[str]) -> str:
    """Which of a record's names its file has: the one that does not depend on what it was tied to."""
    return made[-1] if made else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _check(row: Feedback) -> None:
    """Cuts what is too long. Raises ValueError."""
    if row.kind not in KINDS:
        raise Refused(f"there is no kind of feedback {row.kind!r}; use {', '.join(KINDS)}")
    if row.genuine not in GENUINE or row.via not in VIAS:
        raise Refused(f"feedback cannot be genuine by {row.genuine!r}, or come via {row.via!r}")
    if (row.kind in AGGREGATES) != bool(row.report):
        raise Refused(f"feedback of kind {row.kind!r} {'needs' if row.kind in AGGREGATES else 'has no'} report")
    if row.report and len(packing.pack(row.report)) > REPORT_BYTES_MAX:
        raise Refused(f"a report has more than {REPORT_BYTES_MAX:,} bytes; give its rows in sums")
    if row.message:
        row.message = row.message.lower()
        if len(row.message) != 16 or not set(row.message) <= set("0123456789abcdef"):
            raise Refused(f"{row.message!r} is not a message's id: 16 hexadecimal digits")
    for name in ("recipient", "message_id", "campaign", "tenant", "zone", "enhanced", "reporter", "form", "scope"):
        value = getattr(row, name)
        if not isinstance(value, str):
            raise Refused(f"{name} of feedback is {value!r}; give a text")
        if not value.isascii() or len(value) > FIELD_CHARACTERS_MAX:
            setattr(row, name, _cut(value.encode("utf-8", "replace").decode(), FIELD_CHARACTERS_MAX))


def _observe(core: Core, ms: int, record: FeedbackRecord) -> None:
    """Counted, and logged as a line: once for each, never in a replay. ms: UNIX time."""
    core.counters.meter.add("zonemta_feedback_total", (record.kind, record.genuine or "none"))
    for name, labels, number in counted(record):
        core.counters.meter.add(name, labels, number)
    if core.mail_log is not None:
        fields = came_back(record)
        if core.mail_log.tells and record.about:
            fields = with_metadata(fields, record.about, record.recipient)
        core.mail_log.line(ms, "came back", fields)
