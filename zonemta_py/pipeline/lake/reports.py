"""Table `reports`: what receivers and senders report about our mail, and reputation; from FEEDBACK records of the kinds
`journal.records.people.AGGREGATES`.

A DMARC report has a row for each source as it was judged, a TLS report one for each policy's successful sessions and
one for each kind of failure, a provider's table one for each of its rows. So `passed` and `failed` can be added up. The
day is that on which the report came; begin_at and end_at are what it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from zonemta_py.journal.records.people import AGGREGATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOLD = (
    "again boolean, report struct<org: string, id: string, domain: string, begin_s: bigint, end_s: bigint,"
    " provider: string, what: string, name: string, reputation: string, complaint_rate: double, messages: bigint,"
    " rows: array<struct<ip: string, count: bigint, ours: boolean, passed: boolean, disposition: string, dkim: string,"
    " spf: string, envelope: string>>,"
    " policies: array<struct<kind: string, domain: string, succeeded: bigint>>,"
    " failures: array<struct<kind: string, policy: string, domain: string, mx: string, source: string, count: bigint>>>"
)
_ABOUT = (
    "at", "kind", "r.org", "r.id as report",
    "timestamp_seconds(r.begin_s) as begin_at", "timestamp_seconds(r.end_s) as end_at", "remote as reporter",
    "what as via", "name as genuine",
)  # fmt: skip
_COLUMNS = [
    *("domain", "source", "ours", "passed", "failed"),
    *("disposition", "dkim", "spf", "envelope"),
    *("policy", "mx", "failure"),
    *("provider", "name", "reputation", "complaint_rate"),
]
_KINDS = {"ours": "boolean", "passed": "bigint", "failed": "bigint", "complaint_rate": "double"}
"""Of columns that are no text."""
_LAST = ("seq", "coalesce(node, '') as node", "day")
_DMARC = {
    "domain": "r.domain", "source": "x.ip", "ours": "x.ours", "passed": "if(x.passed, x.count, 0L)",
    "failed": "if(x.passed, 0L, x.count)", "disposition": "x.disposition", "dkim": "x.dkim", "spf": "x.spf",
    "envelope": "x.envelope",
}  # fmt: skip
_TLS = {"domain": "coalesce(x.domain, r.domain)", "passed": "x.succeeded", "failed": "0L", "policy": "x.kind"}
_FAILURES = {
    "domain": "coalesce(x.domain, r.domain)", "source": "x.source", "passed": "0L", "failed": "x.count",
    "policy": "x.policy", "mx": "x.mx", "failure": "x.kind",
}  # fmt: skip
_REPUTATION = {
    "domain": "if(x = 'domain', r.name, null)", "provider": "r.provider", "name": "r.name",
    "reputation": "r.reputation", "complaint_rate": "r.complaint_rate",
}  # fmt: skip
_PARTS = (
    ("dmarc-report", "explode(r.rows)", _DMARC),
    ("tls-report", "explode(r.policies)", _TLS),
    ("tls-report", "explode(r.failures)", _FAILURES),
    ("reputation", "r.what", _REPUTATION),
)
"""Kind, what each row is made of, and its columns."""


def rows(bronze: DataFrame, days: Sequence[date] | None) -> DataFrame:
    """The table's rows of these days (None: of all)."""
    from functools import reduce

    from pyspark.sql import functions as f

    told = bronze.where("type = 'FEEDBACK'").where(f.col("kind").isin(*AGGREGATES))
    if days is not None:
        told = told.where(f.col("day").isin(list(days)))
    told = told.dropDuplicates(["seq"]).withColumn("told", f.from_json("value", _TOLD)).where("not told.again")
    told = told.withColumn("r", f.col("told.report"))
    parts = [_part(told.where(f.col("kind") == kind), made, values) for kind, made, values in _PARTS]
    return reduce(lambda one, other: one.unionByName(other), parts)


def _part(told: DataFrame, made: str, values: dict[str, str]) -> DataFrame:
    own = [f"cast({values.get(name, 'null')} as {_KINDS.get(name, 'string')}) as {name}" for name in _COLUMNS]
    return told.selectExpr("*", f"{made} as x").selectExpr(*_ABOUT, *own, *_LAST)


def touched(new: DataFrame) -> list[date]:
    """Days of new records. new: what has come of the journal."""
    from pyspark.sql import functions as f

    mine = new.where("type = 'FEEDBACK'").where(f.col("kind").isin(*AGGREGATES))
    return [row.day for row in mine.select("day").distinct().collect()]
