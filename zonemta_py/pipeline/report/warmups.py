"""Warm-up curves: what each new source sent to each provider, day by day, and how much it might have.

Caps are told by the journal's STANDING records ("2026-05-03 was good; now 100 a day") and hold from that day on until
the next; before the first of them, and behind "now no limit" or an order, the cap is not known or there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.report import queries
from zonemta_py.pipeline.report.rows import NO_PROVIDER, WarmDay
from zonemta_py.pipeline.report.scope import DAY_S, Kind, ReportScope

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS_MAX = 30
"""Before the end of the scope."""
_CAP = re.compile(r"; now (\d{1,12}) a day$", re.ASCII)


class Step(NamedTuple):
    """A cap that holds from that day on (its midnight, UNIX seconds); None: no limit, or not known."""

    source: str
    provider: str
    day: int
    cap: int | None


def gather(spark: SparkSession, lake: Path, scope: ReportScope) -> list[WarmDay]:
    """Of the pairs of the scope that the journal knows to be warmed up; without any, of one source all its providers
    (if there is more than one day). Nothing for campaigns."""
    if scope.kind is Kind.CAMPAIGN:
        return []
    first = (scope.end - 1) // DAY_S * DAY_S - (DAYS_MAX - 1) * DAY_S
    days = [_date(at) for at in range(first, scope.end, DAY_S)]
    steps = caps(standing(_bronze(spark, lake, days)), first) if days else []
    if not steps and scope.kind is not Kind.IP:
        return []
    rows = sent(table.read(spark, lake, "deliverability", days), scope).collect()
    return curves([(row.source, row.provider, row.at, row.n) for row in rows], steps)


def standing(bronze: DataFrame) -> Iterable[tuple[str, str, int, str]]:
    """Source, provider, UNIX seconds and cause of each change of a warm-up, in the journal's order."""
    rows = bronze.filter("type = 'STANDING' and what = 'warmup'")
    found = rows.select("kind", "name", F.unix_seconds("at").alias("at"), "reason", "seq").collect()
    return [(row.kind, row["name"] or "", row.at, row.reason or "") for row in sorted(found, key=lambda row: row.seq)]


def sent(deliverability: DataFrame, scope: ReportScope) -> DataFrame:
    """source, provider, at (midnight, UNIX seconds), n: attempts of each day."""
    day = F.unix_seconds(F.col("day").cast("timestamp")).alias("at")
    names = [
        queries.named("source", "").alias("source"),
        queries.named("provider", NO_PROVIDER).alias("provider"),
    ]
    rows = deliverability.filter("grain = 'day'").filter(queries.mine(scope)).groupBy(*names, day)
    return rows.agg(F.sum("attempts").alias("n")).filter("source != ''")


def caps(changes: Iterable[tuple[str, str, int, str]], first: int) -> list[Step]:
    """Changes as `standing` tells them, those before the day `first` as one at it."""
    found: dict[tuple[str, str, int], Step] = {}
    for source, provider, at, cause in changes:
        cap = _CAP.search(cause)
        day = max(first, at // DAY_S * DAY_S)
        step = Step(source, provider or NO_PROVIDER, day, int(cap[1]) if cap else None)
        found[step[:3]] = step
    return sorted(found.values(), key=lambda step: step[:3])


def curves(rows: Sequence[tuple[str, str, int, int]], steps: Sequence[Step]) -> list[WarmDay]:
    """(source, provider, day, sent) with the caps of the days; without any cap all rows, if of several days."""
    if not steps:
        several = len({row[2] for row in rows}) > 1
        return [WarmDay(*row, None) for row in sorted(rows)] if several else []
    pairs = {(step.source, step.provider) for step in steps}
    return [WarmDay(*row, _cap(steps, row)) for row in sorted(rows) if row[:2] in pairs]


def _cap(steps: Sequence[Step], row: tuple[str, str, int, int]) -> int | None:
    """The latest of the pair that began on that day or before."""
    known = [step.cap for step in steps if (step.source, step.provider) == row[:2] and step.day <= row[2]]
    return known[-1] if known else None


def _bronze(spark: SparkSession, lake: Path, days: Sequence[str]) -> DataFrame:
    """The journal's rows of these days; none where the lake holds tables only."""
    from zonemta_py.pipeline.journal import schema

    folders = [str(folder) for day in days if (folder := lake / "bronze" / f"day={day}").is_dir()]
    return spark.read.schema(schema.rows()).parquet(*folders) if folders else spark.createDataFrame([], schema.rows())


def _date(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
