"""Sums of the reports on our mail as a whole: who saw how much of each domain, which sources were not aligned, why TLS
failed, and the latest reputation of each domain and address.

A report proves nothing by itself: what a mail with a valid signature of its author's domain has said ("dkim"), or what
an operator has given ("key"), is counted in all figures; anything else only in lines of its own, without a proof. Both
change nothing of what is sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from zonemta_py.journal.records.people import FeedbackRecord

ROWS_MAX = 200
"""Of each table; those with the most messages that failed are first."""
Row = dict[str, Any]
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dmarc": (("domain", "org", "proof"), ("reports", "messages", "passed", "ours", "ours_passed")),
    "sources": (("domain", "ip", "ours"), ("messages", "failed", "dkim_failed", "spf_failed")),
    "tls": (("domain", "org", "proof"), ("reports", "sessions", "failed")),
    "tls_failures": (("domain", "kind", "mx", "policy"), ("sessions",)),
}
"""By name: what its rows are told apart by, and what is added up."""
_WORST = {"dmarc": "messages", "sources": "failed", "tls": "failed", "tls_failures": "sessions"}


class ReportSums:
    """Of a period."""

    def __init__(self) -> None:
        self._sums = {name: defaultdict[tuple[Any, ...], list[int]](lambda: [0] * 5) for name in TABLES}
        self._latest: dict[tuple[str, str, str], Row] = {}

    def add(self, record: FeedbackRecord) -> None:
        """One report."""
        said = record.report or {}
        get = said.get
        if record.kind == "reputation":
            self._reputation(said)
            return
        proof = f"{record.genuine} {record.reporter}".strip() if record.genuine == "dkim" else record.genuine
        which = get("domain", ""), get("org", ""), proof
        if record.kind == "tls-report":
            self._count("tls", which, 1, get("sessions", 0), get("failed", 0))
            for one in get("failures", ()) if proof else ():
                failure = one.get("domain", ""), one.get("kind", ""), one.get("mx", ""), one.get("policy", "")
                self._count("tls_failures", failure, one.get("count", 0))
            return
        sums = [get(name, 0) for name in ("messages", "passed", "ours", "ours_passed")]
        self._count("dmarc", which, 1, *sums)
        for one in get("rows", ()) if proof else ():
            number, passed = one["count"], one["passed"]
            dkim, spf = (number if one.get(name) != "pass" else 0 for name in ("dkim", "spf"))
            place = get("domain", ""), one.get("ip", ""), one["ours"]
            self._count("sources", place, number, 0 if passed else number, dkim, spf)

    def _count(self, table: str, which: tuple[Any, ...], *numbers: int) -> None:
        sums = self._sums[table][which]
        for at, number in enumerate(numbers):
            sums[at] += number

    def _reputation(self, said: Mapping[str, Any]) -> None:
        which = said.get("provider", ""), said.get("what", ""), said.get("name", "")
        known = self._latest.get(which)
        if known is None or said.get("day", "") >= known.get("day", ""):  # of two imports the later one
            self._latest[which] = dict(said)

    def shown(self) -> dict[str, list[Row]]:
        """Each table as rows."""
        found = {}
        for name, (keys, values) in TABLES.items():
            sums = self._sums[name].items()
            found[name] = [dict(zip(keys, which, strict=True)) | dict(zip(values, row, strict=False))
                           for which, row in sums]  # fmt: skip
        return first(found | {"reputation": list(self._latest.values())})


def merged(parts: Iterable[Mapping[str, list[Row]]]) -> dict[str, list[Row]]:
    """Of several queues."""
    told, latest = list(parts), dict[tuple[Any, ...], Row]()
    found = {}
    for name, (keys, values) in TABLES.items():
        sums = dict[tuple[Any, ...], Row]()
        for row in (row for part in told for row in part[name]):
            known = sums.setdefault(tuple(row[key] for key in keys), {**row, **dict.fromkeys(values, 0)})
            for value in values:
                known[value] += row[value]
        found[name] = list(sums.values())
    for row in (row for part in told for row in part["reputation"]):
        which = row.get("provider"), row.get("what"), row.get("name")
        if which not in latest or row.get("day", "") >= latest[which].get("day", ""):
            latest[which] = row
    return first(found | {"reputation": list(latest.values())})


def first(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows that an operator has to see, bounded."""
    for name, rows in tables.items():
        if name == "sources":
            rows.sort(key=lambda row: (not (row["ours"] and row["failed"]), not row["ours"], -row["failed"], row["ip"]))
        elif name == "reputation":
            rows.sort(key=lambda row: (row.get("provider", ""), row.get("what", ""), row.get("name", "")))
        else:
            rows.sort(key=lambda row: (-row[_WORST[name]], *map(str, row.values())))
        del rows[ROWS_MAX:]
    return tables
