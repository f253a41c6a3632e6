"""Questions about what came back (`queue.feedback`): in pages, the newest first, by a filter; all about one message."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.journal.records.people import KINDS
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.feedback.report import WISH
from zonemta_py.queue import questions
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.feedback.register import ERASED, shown
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused, number

ANSWERS = AnswerTable[QueueContext]()
Within = tuple[Collection[str], Collection[str]]
ROWS_MAX = 1_000
_ID = re.compile("[0-9a-f]{16}")
LOOK_MAX = 2_000
"""Rows that are looked at for one page: it may end before it is full."""


@ANSWERS.to(questions.feedback)
async def came_back(
    queue: QueueContext, kind: str = "", recipient: str = "", campaign: str = "", message: str = "",
    since_ms: int = 0, after: int | str = 0, limit: int = 100, unread: bool = False, wishes: bool = False,
    within: Within = ((), ()),
) -> dict[str, Any]:  # fmt: skip
    if kind and kind not in KINDS:
        raise Refused(f"there is no kind of feedback {kind!r}; there are {', '.join(KINDS)}")
    after = number(after)
    await queue.core.disk.settled()
    if not 1 <= limit <= ROWS_MAX:
        raise Refused(f"limit is {limit}; give 1 to {ROWS_MAX:,}")
    who = _whom(recipient) if recipient else ""
    if message and not _ID.fullmatch(message):
        raise Refused(f"{message[:80]!a} is not a message's id: 16 hexadecimal digits")
    wanted = {name: value for name, value in (("kind", kind), ("campaign", campaign), ("message", message)) if value}

    def fits(row: dict[str, Any]) -> bool:
        if not all(not own or row[name] in own for name, own in zip(("tenant", "campaign"), within, strict=True)):
            return False
        return all(row[name] == value for name, value in wanted.items()) and (
            (not who or person(row["recipient"]) == who)
            and (not wishes or row["form"] == WISH)
            and (not (unread or wishes) or bool(row["raw_bytes"] and queue.feedback_register.raw(row["seq"])))
        )

    if message:
        found = [row for row in reversed(queue.feedback_register.of(message)) if fits(row) and row["ms"] >= since_ms]
        return {"rows": [row for row in found if not after or row["seq"] < after][:limit], "next": None}
    return _page(queue, fits, since_ms, after, limit)


def _whom(recipient: str) -> str:
    """Raises ValueError: nobody can have that address."""
    from zonemta_py.mail.address import AddressRefused, parse_mailbox  # a start accepts mail before it needs a parser

    try:
        return person(parse_mailbox(recipient))
    except AddressRefused:
        raise Refused(f"{recipient[:80]!a} is not an address; write it like ann@example.com") from None


def _page(
    queue: QueueContext, fits: Callable[[dict[str, Any]], bool], since_ms: int, after: int, limit: int
) -> dict[str, Any]:
    store, rows = queue.core.disk.store, list[dict[str, Any]]()
    stop = keys.feedback(after) if after else keys.end(keys.FEEDBACK)
    for _ in range(LOOK_MAX):
        key = store.last(keys.FEEDBACK, stop)
        value = store.get(key) if key is not None else None
        if key is None or value is None:
            return {"rows": rows, "next": None}
        stop, seq = key, int(key.split()[1])
        if value == ERASED:
            continue
        row = shown(seq, value)
        if row["ms"] < since_ms:
            return {"rows": rows, "next": None}
        if fits(row):
            rows.append(row)
            if len(rows) == limit:
                break
    return {"rows": rows, "next": int(stop.split()[1])}


@ANSWERS.to(questions.feedback_ties)
async def ties(queue: QueueContext, rows: list[list[Any]]) -> list[list[Any]]:
    await queue.core.disk.settled()
    found = list[list[Any]]()
    for row in rows:
        try:
            told = Feedback(*row)
        except TypeError:
            raise Refused(f"a row has {len(row)} values; give those of `queue.api.Feedback`") from None
        _, known = queue.feedback_register.tie(told)
        found.append([told.message, told.campaign, told.tenant, known])
    return found


@ANSWERS.to(questions.feedback_one)
async def one(queue: QueueContext, seq: int) -> dict[str, Any] | None:
    await queue.core.disk.settled()
    value = queue.core.disk.store.get(keys.feedback(seq))
    if value is None or value == ERASED:
        return None
    raw, record = queue.feedback_register.raw(seq), queue.feedback_register.record(seq)
    report = {"report": record.report} if record is not None and record.report else {}
    return shown(seq, value) | {"raw": raw.decode("utf-8", "replace")} | report


@ANSWERS.to(questions.feedback_forget)
async def forget(queue: QueueContext, numbers: list[int], all: bool = False) -> int:
    if all:
        return queue.feedback_register.unread.drop_all()
    return queue.feedback_register.unread.drop(name for seq in numbers for name in queue.feedback_register.file(seq))


@ANSWERS.to(questions.feedback_leave)
async def leave(queue: QueueContext, numbers: list[int]) -> int:
    """Once that is stable, their messages are deleted."""
    await queue.core.disk.settled()
    found = {seq: row for seq in numbers if (row := _wish(queue, seq)) is not None}
    await queue.feedback_register.take([*found.values()])
    queue.feedback_register.unread.drop(name for seq in found for name in queue.feedback_register.file(seq))
    return len(found)


def _wish(queue: QueueContext, seq: int) -> Feedback | None:
    """The unsubscribe that a kept wish is; None: it is none, is not there any more, or nobody knows whose."""
    value = queue.core.disk.store.get(keys.feedback(seq))
    if value is None or value == ERASED or not queue.feedback_register.raw(seq):
        return None
    row = shown(seq, value)
    if row["form"] != WISH or not row["recipient"]:
        return None
    same = {name: row[name] for name in ("recipient", "message", "campaign", "tenant", "zone", "scope", "text")}
    return Feedback("unsubscribe", genuine="key", form=WISH, name=f"wish {seq}", **same)
