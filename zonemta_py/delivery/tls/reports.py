"""TLS results for the daily reports (RFC 8460): one row for each connection and policy domain.

Rows go into `Result.security`, from there into the journal's DELIVERY record, and are read back from journal and
archive by `seen_on`. They are made only if `tls.reports` is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from zonemta_py.delivery.tls.plan import Demands, Trial
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import folders, segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import DeliveryRecord
from zonemta_py.mail.tls.reports import Seen

ROWS_MAX = 200
"""Per delivery: a hundred domains with six failing addresses each must not fill the journal."""
_DETAIL_MAX = 200
_UNVALIDATED = "the certificate was not valid when it was last looked at"


def rows(demands: Demands, trials: Sequence[Trial]) -> list[list[Any]]:
    """The fields of `mail.tlsrpt.Seen`, as plain lists."""
    seen: list[Seen] = [
        Seen(domain, "sts", result, detail=detail[:_DETAIL_MAX]) for domain, result, detail in demands.troubles
    ]
    for place, trial in enumerate(trials):
        again = any(before.trouble for before in trials[:place])
        seen += (one for domain in demands.domains for one in _seen(demands, domain, trial, again))
    return [list(one) for one in seen[:ROWS_MAX]]


def _seen(demands: Demands, domain: str, trial: Trial, again: bool) -> Iterator[Seen]:
    """again: this connection replaces one that failed and has been counted."""
    result = trial.trouble.result if trial.trouble else ""
    detail = trial.trouble.detail if trial.trouble else ""
    plan = trial.plan
    kind, strings, mx = "no-policy-found", [], []  # type: tuple[str, list[str], list[str]]
    policy = next((one for one in demands.sts if one.domain == domain), None)
    if plan.source == "tlsa":
        kind, strings, mx = "tlsa", [str(record) for record in plan.tlsa], [trial.host]
    elif policy is not None:
        kind, strings, mx = "sts", policy.lines(), list(policy.mx)
        if not result and plan.soft and trial.verified == "none":
            if again:
                return
            result, detail = "validation-failure", _UNVALIDATED
    yield Seen(domain, kind, result, trial.host, trial.local, trial.address, detail[:_DETAIL_MAX], strings, mx)


def seen_on(folder: Path, day: date) -> Iterator[Seen]:
    """All results of that day (UTC) in the journals and archives of all queues. folder: the MTA's."""
    return (seen for place in folders.every(folder).values() for seen in _seen_on(place, day))


def _seen_on(folder: Path, day: date) -> Iterator[Seen]:
    start_ms = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    end_ms = start_ms + 86_400_000
    last = -1
    every = {path.name: path for name in ("archive", "journal") for path in segments.files(folder / name)}
    for path in sorted(every.values(), key=lambda path: segments.first_seq(path)):
        for record in _records(path, start_ms):
            if record.seq > last and record.type == Type.DELIVERY and start_ms <= record.ms < end_ms:
                yield from _in_record(record.body)
            last = max(last, record.seq)


def _records(path: Path, start_ms: int) -> Iterator[Record]:
    """The records of a segment that may fall into the day; one that is archived meanwhile is read there."""
    try:
        if path.stat().st_mtime * 1000 < start_ms:
            return iter(())
        return segments.read_file(path, [])
    except FileNotFoundError:
        moved = path.parent.parent / "archive" / path.name
        return segments.read_file(moved, []) if moved.exists() else iter(())


def _in_record(body: bytes) -> Iterator[Seen]:
    for row in DeliveryRecord.of(unpack(body)).trace.security:
        yield Seen(*row)
