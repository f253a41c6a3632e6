"""What follows from feedback: the campaign's figures, and what the policy that suppresses people is told.

Only from what is genuine, and from the record alone, so that a replay gives the same. Nothing else is believed: it is
recorded, and shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.queue.suppression.entry import UNSUBSCRIBE
from zonemta_py.queue.suppression.policy import Statement

FIGURES = {
    "bounce": "bounced_later", "complaint": "complaints", UNSUBSCRIBE: "unsubscribes", "auto-reply": "auto_replies",
    "open": "opens", "click": "clicks",
}  # fmt: skip
"""The figure of a campaign that counts each kind."""
_SAID_BY_PEOPLE = ("complaint", UNSUBSCRIBE)


def figure(record: FeedbackRecord) -> str:
    """Which figure of its campaign counts it; "": none does."""
    counts = record.genuine and record.campaign and not record.again
    return FIGURES.get(record.kind, "") if counts else ""


def counted(record: FeedbackRecord) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """What metrics count of a report on our mail as a whole: name, labels, how many."""
    said = record.report or {}
    if not record.genuine or record.again:
        return
    if record.kind == "dmarc-report":
        ours, passed = said.get("ours", 0), said.get("ours_passed", 0)
        others, others_passed = said.get("messages", 0) - ours, said.get("passed", 0) - passed
        yield "zonemta_dmarc_reported_total", ("ours", "pass"), passed
        yield "zonemta_dmarc_reported_total", ("ours", "fail"), ours - passed
        yield "zonemta_dmarc_reported_total", ("others", "pass"), others_passed
        yield "zonemta_dmarc_reported_total", ("others", "fail"), others - others_passed
    elif record.kind == "tls-report":
        failed = said.get("failed", 0)
        yield "zonemta_tls_reported_total", ("succeeded",), said.get("sessions", 0) - failed
        yield "zonemta_tls_reported_total", ("failed",), failed


def statement(record: FeedbackRecord, seq: int, ms: int) -> Statement | None:
    """What it says of its recipient. ms: steady time. None: nothing that could ever suppress."""
    what = record.reply_class if record.kind == "bounce" else record.kind if record.kind in _SAID_BY_PEOPLE else ""
    if not (record.genuine and record.recipient and what):
        return None
    reply = " ".join(part for part in (str(record.code or ""), record.enhanced, record.text) if part)
    return Statement(
        record.recipient, what, record.message or f"journal:{seq}", ms, record.agreed, record.tenant, record.campaign,
        ("", record.place), said=f"journal:{seq} {reply}".strip(), scope=record.scope,
    )  # fmt: skip
