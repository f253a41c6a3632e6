"""What has happened, of several queues: the story of a message or an address, and what came back.

Each queue has its own journal, in which it looks back from a place of its own; so a cursor names a place for each queue
that has more. Their rows are merged by time, and those that another queue may still have something newer than wait for
the next page.

The number of what came back is that of its journal record and its queue's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.admin.browse.reading import ROWS_MAX
from zonemta_py.queue.feedback.report_sums import merged
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queues.joined.asked import NUMBERS, AskedQueues

Row = dict[str, Any]
_LOOKS_MAX = 10
"""How often it is asked for a page that has any rows."""


# -- stories


async def trace(queues: AskedQueues, what: str, before: str = "") -> Row:
    """The cursor: the time down to which rows were told, then "NUMBER:FILE" for each queue that has more, with a "*"
    before the file where what is behind it has rows from before that time, which were not told."""
    since_ms, at = _story_places(queues, before) if before else (0, dict.fromkeys(queues.asks, ("", False)))
    asked = {number: {"what": what, "before": file} for number, (file, _) in at.items()}
    found = await queues.each_its(questions.trace, asked)
    rows = {
        number: [row for row in page["rows"] if not (at[number][1] and row["ms"] >= since_ms)]
        for number, page in found.items()
    }
    backs = {number: page["back_to_ms"] or 1 << 62 for number, page in found.items() if page["next"]}
    last = max(backs, key=lambda number: backs[number], default=-1)
    until_ms = backs.get(last, 0)
    told = sorted((row for its in rows.values() for row in its if row["ms"] >= until_ms), key=lambda row: row["ms"])
    if len(told) > ROWS_MAX:
        until_ms, last = told[-ROWS_MAX]["ms"], -1
        told = [row for row in told if row["ms"] >= until_ms]
    elif last >= 0:  # it goes on whatever the clock said
        told = [row for row in rows[last] if row["ms"] < until_ms] + told
    left = dict[int, str]()
    for number, page in found.items():
        if number != last and any(row["ms"] < until_ms for row in rows[number]):
            left[number] = f"*{at[number][0]}"
        elif page["next"]:
            left[number] = page["next"]
    looked = [page["back_to_ms"] for page in found.values()]
    following = " ".join([str(until_ms), *(f"{number}:{file}" for number, file in left.items())]) if left else None
    first: Row = next(iter(found.values()))
    return first | {
        "rows": told, "next": following, "ids": list(dict.fromkeys(row["id"] for row in told if row["id"])),
        "back_to_ms": until_ms if 0 < until_ms < 1 << 62 else min(filter(None, looked), default=0),
        "files": sum(page["files"] for page in found.values()),
    }  # fmt: skip


def _story_places(queues: AskedQueues, before: str) -> tuple[int, dict[int, tuple[str, bool]]]:
    """Files, and whether what is behind them was told in part."""
    since, *places = before.split(" ")
    found = dict[int, tuple[str, bool]]()
    for number, colon, file in (one.partition(":") for one in places):
        if colon and number.isdecimal():
            found[int(number)] = file.removeprefix("*"), file.startswith("*")
    if not since.isdecimal() or len(found) != len(places) or not found or not found.keys() <= queues.asks.keys():
        raise Refused(f"{before[:80]!a} is not a cursor; use the one that the previous page ended with, or omit it")
    return int(since), found


# -- what came back


async def feedback(queues: AskedQueues, after: int | str = 0, limit: int = 100, **where: Any) -> Row:
    at = _feedback_places(queues, after)
    rows = list[Row]()
    for _ in range(_LOOKS_MAX):
        asked = {number: where | {"after": seq, "limit": limit} for number, seq in at.items()}
        pages = await queues.each_its(questions.feedback, asked)
        at = _merge(pages, {number: at[number] for number in pages}, rows, limit)
        if rows or not at:
            break
    following = " ".join(f"{number}:{seq}" for number, seq in at.items()) if at and not where.get("message") else None
    return {"rows": rows, "next": following}


def _merge(pages: Mapping[int, Row], at: dict[int, int], rows: list[Row], limit: int) -> dict[int, int]:
    """Moves the newest to `rows`, until there are as many or a queue may have newer ones. Where each goes on."""
    waiting = {number: page["rows"] for number, page in pages.items()}
    taken = dict.fromkeys(pages, 0)
    while len(rows) < limit:
        heads = {number: its[taken[number]] for number, its in waiting.items() if taken[number] < len(its)}
        if not heads or any(number not in heads and pages[number]["next"] is not None for number in pages):
            break
        number = max(heads, key=lambda one: (heads[one]["ms"], -one))
        taken[number] += 1
        rows.append(heads[number] | {"seq": heads[number]["seq"] * NUMBERS + number})
    left = dict[int, int]()
    for number, page in pages.items():
        if taken[number] == len(waiting[number]):
            if page["next"] is not None:
                left[number] = page["next"]
        else:
            left[number] = waiting[number][taken[number] - 1]["seq"] if taken[number] else at[number]
    return left


def _feedback_places(queues: AskedQueues, after: int | str) -> dict[int, int]:
    if after in (0, "", "0"):
        return dict.fromkeys(queues.asks, 0)
    try:
        found = {int(one): int(seq) for one, _, seq in (part.partition(":") for part in str(after).split(" "))}
    except ValueError:
        found = {}
    if not found or not found.keys() <= queues.asks.keys():
        raise Refused(f"{str(after)[:80]!a} is not a cursor; use the one that the previous page ended with, or omit it")
    return found


async def feedback_one(queues: AskedQueues, seq: int) -> Row | None:
    number = seq % NUMBERS
    if number not in queues.asks:
        return None
    row = (await queues.each(questions.feedback_one, {"seq": seq // NUMBERS}, [number]))[number]
    return None if row is None else row | {"seq": seq}


async def feedback_forget(queues: AskedQueues, numbers: list[int], all: bool = False) -> int:
    if all:
        return sum((await queues.each(questions.feedback_forget, {"numbers": [], "all": True})).values())
    return sum((await queues.each_its(questions.feedback_forget, _of_queues(queues, numbers))).values())


async def feedback_leave(queues: AskedQueues, numbers: list[int]) -> int:
    return sum((await queues.each_its(questions.feedback_leave, _of_queues(queues, numbers))).values())


def _of_queues(queues: AskedQueues, numbers: list[int]) -> dict[int, dict[str, Any]]:
    found = dict[int, list[int]]()
    for number in numbers:
        found.setdefault(number % NUMBERS, []).append(number // NUMBERS)
    return {number: {"numbers": its} for number, its in sorted(found.items()) if number in queues.asks}


async def feedback_ties(queues: AskedQueues, rows: list[list[Any]]) -> list[list[Any]]:
    """Of each what the queue says that knows its message; else that which says most."""
    found = list((await queues.each(questions.feedback_ties, {"rows": rows})).values())
    return [max(several, key=lambda row: (row[3], sum(map(bool, row)))) for several in zip(*found, strict=True)]


async def feedback_reports(queues: AskedQueues, **asked: Any) -> Row:
    parts = list((await queues.each(questions.feedback_reports, asked)).values())
    return {"days": parts[0]["days"], "whole": all(part["whole"] for part in parts), **merged(parts)}
