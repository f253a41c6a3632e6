"""Tells of feedback that came: counted, and logged as a line. Once for each, never in a replay."""

from __future__ import annotations

from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.logs.mail import came_back
from zonemta_py.queue.core.core import Core


def told(core: Core, ms: int, record: FeedbackRecord) -> None:
    """ms: UNIX time."""
    core.counters.meter.add("zonemta_feedback_total", (record.kind, record.genuine or "none"))
    if core.mail_log is not None:
        core.mail_log.line(ms, "came back", came_back(record))
