"""What a mailbox provider shows its senders as a table, read from the CSV file that an operator has downloaded: a row
for each domain or address and day.

Microsoft's SNDS has no head: its columns are known by their place. Google's Postmaster Tools, tables made from its API,
and others are known by the names of their columns, in any order, as people and programs write them ("Spam rate",
"userReportedSpamRatio"). A rate is per hundred, unless its column is called a ratio or it has no percent sign and the
column comes from the API.

Failures: ReportRefused, one sentence that names the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from io import StringIO
from typing import Any, NamedTuple, cast

from zonemta_py.mail.reports.unpacking import ReportRefused
from zonemta_py.mail.reports.values import address, count, domain, line

FILE_BYTES_MAX = 20_000_000
ROWS_MAX = 100_000
SNDS, POSTMASTER = "microsoft", "google"
_SNDS_COLUMNS = (
    "ip", "begin", "end", "rcpt", "data", "messages", "reputation", "complaints", "trap begin", "trap end", "traps",
    "helo", "sender", "comment",
)  # fmt: skip
_SNDS_LEAST = 8
_NAMES = {
    "day": ("date", "day", "activity date", "stats date"),
    "begin": ("activity start", "activity period start", "activity period", "start"),
    "domain": ("domain", "domain name", "sending domain", "domain id"),
    "ip": ("ip", "ip address", "sending ip", "ip addresses", "sample ips", "sample ip"),
    "reputation": ("reputation", "domain reputation", "ip reputation", "filter result", "reputation category"),
    "complaints": (
        "spam rate", "user reported spam rate", "user reported spam ratio", "complaint rate", "complaints",
        "spam complaint rate", "user report spam percent", "user reported spam",
    ),
    "spf": ("spf success rate", "spf success ratio", "spf", "auth use spf percent", "spf authenticated"),
    "dkim": ("dkim success rate", "dkim success ratio", "dkim", "auth use dkim percent", "dkim authenticated"),
    "dmarc": ("dmarc success rate", "dmarc success ratio", "dmarc", "auth use dmarc percent", "dmarc authenticated"),
    "tls": ("tls inbound", "inbound encryption ratio", "tls inbound percent", "encryption rate", "tls rate"),
    "errors": ("delivery error rate", "delivery error ratio", "error rate", "error ratio", "delivery errors"),
    "traps": ("trap hits", "trap message hits", "spam trap hits", "traps"),
    "messages": ("message recipients", "messages", "recipients", "volume"),
    "comment": ("comments", "comment"),
}  # fmt: skip
_RATES = ("spf", "dkim", "dmarc", "tls", "errors")
_BAD = ("bad", "red")
_DATES = ("%Y-%m-%d", "%Y%m%d", "%m/%d/%Y", "%d.%m.%Y", "%b %d, %Y", "%d %b %Y", "%Y/%m/%d")
_BETWEEN = re.compile(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")
Cells = dict[str, str]


class Reputation(NamedTuple):
    """said: as it is recorded."""

    said: dict[str, Any]

    @property
    def name(self) -> str:
        """What makes it the same when it is imported twice: all that it says, so that a correction is new."""
        return "\n".join(f"{key}={value}" for key, value in sorted(self.said.items()))


def read_table(content: bytes, about: str = "", provider: str = "") -> list[Reputation]:
    """about: the domain of a table that has no column for one. provider: whose it is, "" to be told from its columns.
    Raises ReportRefused."""
    if len(content) > FILE_BYTES_MAX:
        raise ReportRefused(f"the table has more than {FILE_BYTES_MAX // 1_000_000} MB")
    text = content.decode("utf-8-sig", "replace").replace("\0", "")
    lines = csv.reader(StringIO(text), delimiter=_delimiter(text))
    try:
        first = next((row for row in lines if any(row)), [])
        if address(first[0] if first else "") and len(first) >= _SNDS_LEAST:
            name, by_name = provider or SNDS, cast("Callable[[list[str]], Cells]", _by_place)
            rows = _chained(first, lines)
        else:
            columns = _columns(first)
            name = provider or (SNDS if {"ip", "traps"} <= columns.keys() else POSTMASTER)
            by_name = _named(columns, first)
            rows = lines
        return list(_rows(rows, by_name, name, about))
    except csv.Error as error:
        raise ReportRefused(f"line {lines.line_num} is not CSV: {error}") from None


def _delimiter(text: str) -> str:
    head = text[:2_000].lstrip().partition("\n")[0]
    return max(",;\t", key=head.count)


def _chained(first: list[str], rows: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rows


def _by_place(row: list[str]) -> Cells:
    return dict(zip(_SNDS_COLUMNS, row, strict=False))


def _columns(head: list[str]) -> dict[str, int]:
    """Where each column is that is known. Raises ReportRefused."""
    found = dict[str, int]()
    for at, title in enumerate(head):
        said = " ".join(_BETWEEN.split(title.strip("\"' ()%"))).lower().strip()
        for name, titles in _NAMES.items():
            if said in titles or said.removesuffix(" utc") in titles:
                found.setdefault(name, at)
    if not {"day", "begin"} & found.keys() or not set(found) - {"day", "begin", "domain", "ip", "comment"}:
        raise ReportRefused(
            "this is neither SNDS's table nor one with a head that names a date and a reputation or rate, such as"
            " date,domain,domain reputation,spam rate"
        )
    return found


def _named(columns: dict[str, int], head: list[str]) -> Callable[[list[str]], Cells]:
    ratios = {name for name, at in columns.items() if "ratio" in head[at].lower()}

    def cells(row: list[str]) -> Cells:
        found = {name: row[at] for name, at in columns.items() if at < len(row)}
        return found | {name: f"{found[name]} ratio" for name in ratios & found.keys()}

    return cells


def _rows(
    rows: Iterator[list[str]], cells: Callable[[list[str]], Cells], provider: str, about: str
) -> Iterator[Reputation]:
    for number, row in enumerate(rows, 2):
        if number > ROWS_MAX:
            raise ReportRefused(f"the table has more than {ROWS_MAX:,} rows")
        if any(one.strip() for one in row):
            yield _row(cells(row), provider, about, number)


def _row(cells: Cells, provider: str, about: str, number: int) -> Reputation:
    day = _day(cells.get("day") or cells.get("begin", ""))
    if day is None:
        raise ReportRefused(f"row {number} has no date that is understood; write it like 2026-11-30")
    ip = address(cells.get("ip", "").partition(";")[0].strip("[]\"' "))
    name = ip or domain(cells.get("domain", "").removeprefix("domains/")) or about
    if not name:
        raise ReportRefused(f"row {number} says neither a domain nor an address; name it with --domain")
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    said: dict[str, Any] = {
        "provider": provider, "what": "ip" if ip else "domain", "name": name, "day": day.isoformat(),
        "begin_s": int(begin.timestamp()), "reputation": line(cells.get("reputation", ""), 40).upper(),
        "comment": line(cells.get("comment", ""), 200),
    }  # fmt: skip
    rates = {"complaint_rate": _rate(cells.get("complaints", ""))}
    rates |= {name: _rate(cells.get(name, "")) for name in _RATES}
    said |= {name: rate for name, rate in rates.items() if rate is not None}
    said |= {name: count(cells[name]) for name in ("traps", "messages") if cells.get(name, "").strip()}
    said["bad"] = said["reputation"].rpartition("_")[2].lower() in _BAD
    return Reputation({name: value for name, value in said.items() if value != ""})


def _day(said: str) -> date | None:
    said = said.strip()
    for form in _DATES:
        for part in (said, said.partition(" ")[0], said.partition("T")[0]):
            try:
                return datetime.strptime(part, form).replace(tzinfo=UTC).date()
            except ValueError:
                continue
    return None


def _rate(said: str) -> float | None:
    """As a part of one; of "< 0.1%" the upper end."""
    is_ratio = said.endswith(" ratio")
    said = said.removesuffix(" ratio").strip().lstrip("<>≤= ").replace(",", ".")
    percent = said.endswith("%")
    try:
        value = float(said.rstrip("% "))
    except ValueError:
        return None
    if not 0 <= value <= 100:
        return None
    return round(value if is_ratio and not percent else value / 100, 6)
