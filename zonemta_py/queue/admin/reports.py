"""Questions about reports on our mail as a whole (`queue.feedback.report_sums`), and those that an operator imports."""

from __future__ import annotations

from typing import Any

from zonemta_py.journal.records.people import AGGREGATES
from zonemta_py.queue import questions
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.feedback.report_sums import ReportSums
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused
from zonemta_py.schedule.time.pace import Pace

ANSWERS = AnswerTable[QueueContext]()
DAYS_MAX = 400
LOOK_MAX = 5_000
"""Reports of each kind that are added up for one answer."""
IMPORT_MAX = 1_000
_DAY_MS = 86_400_000


@ANSWERS.to(questions.feedback_reports)
async def reports(queue: QueueContext, days: int = 7, domain: str = "") -> dict[str, Any]:
    if not 1 <= days <= DAYS_MAX:
        raise Refused(f"days is {days}; give 1 to {DAYS_MAX}")
    await queue.core.disk.settled()
    register, sums, pace, whole = queue.feedback_register, ReportSums(), Pace(), True
    today = queue.core.clock.ms() // _DAY_MS
    for kind in AGGREGATES:
        numbers = register.reports(kind, today - days, today + 1, LOOK_MAX + 1)
        whole = whole and len(numbers) <= LOOK_MAX
        for seq in sorted(numbers[:LOOK_MAX]):
            record = register.record(seq)
            if record is not None and domain in ("", (record.report or {}).get("domain", domain)):
                sums.add(record)
            await pace.turn()
    return {"days": days, "whole": whole, **sums.shown()}


@ANSWERS.to(questions.feedback_import)
async def import_(queue: QueueContext, rows: list[list[Any]]) -> list[bool]:
    if len(rows) > IMPORT_MAX:
        raise Refused(f"there are {len(rows):,} rows; give at most {IMPORT_MAX:,} at once")
    try:
        found = [Feedback(*row) for row in rows]
    except TypeError:
        raise Refused("a row has too many values; give those of `queue.api.Feedback`") from None
    if any(row.kind not in AGGREGATES or not isinstance(row.report, dict) for row in found):
        raise Refused(f"only {', '.join(AGGREGATES)} are imported so")
    return await queue.feedback_register.take(found)
