"""A message with reports about our mail, read: DMARC aggregate reports and TLS reports among its parts.

Makers name and declare them as they like, so that each part is looked at, whatever it is called. Nothing here proves
who has made one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from zonemta_py.mail.feedback.parts import attachments
from zonemta_py.mail.reports import dmarc, tls
from zonemta_py.mail.reports.unpacking import ReportRefused, unpack

REPORTS_MAX = 10
"""In one message."""


class AggregateReport(NamedTuple):
    """kind: of feedback (`journal.records.people.KINDS`). said: as it is recorded."""

    kind: Literal["dmarc-report", "tls-report"]
    said: dict[str, Any]

    @property
    def name(self) -> str:
        """What makes it the same when it comes twice: who, which number, about which domain."""
        return "\n".join(str(self.said.get(name, "")).lower() for name in ("org", "id", "domain", "begin_s"))


def read_report(content: bytes, ours: Callable[[str], bool]) -> AggregateReport | None:
    """Of a file. None: it is none. ours: whether mail of that IP address is sent by us. Raises ReportRefused."""
    unpacked = unpack(content)
    if unpacked is None:
        return None
    if unpacked.form == "json":
        return AggregateReport("tls-report", tls.told(tls.read_tls(unpacked.pieces)))
    return AggregateReport("dmarc-report", dmarc.told(dmarc.read_dmarc(unpacked.pieces), ours))


def read_reports(message: bytes, ours: Callable[[str], bool]) -> tuple[list[AggregateReport], str]:
    """Of a message; and why one of them is not read, "" if all are."""
    found, refused = list[AggregateReport](), ""
    for content in attachments(message):
        try:
            report = read_report(content, ours)
        except ReportRefused as error:
            refused = refused or str(error)
            continue
        if report is not None:
            found.append(report)
        if len(found) == REPORTS_MAX:
            break
    return found, refused
