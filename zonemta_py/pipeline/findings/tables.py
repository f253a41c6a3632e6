"""What the lake says about people, source addresses and rules, as tables made by `update`'s jobs.

`suppressions`, `blocks`, `rates`, `unknown` and `engagement` are whole tables, rebuilt each time from `deliveries` of
the last days (HISTORY_DAYS; suppressions and engagement from all) and, for people, from `events`: all their rows are of
the one day WHOLE. `events` is what `feed` was given; the same event twice is one.
Each is committed atomically (`table.write`): a run that is killed leaves what was there.
Failures: those of `table`; `feed` as `engagement.events`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from zonemta_py.pipeline.findings.blocks import blocks
from zonemta_py.pipeline.findings.engagement import EVENTS, engagement, events, told, unusable
from zonemta_py.pipeline.findings.rates import rates
from zonemta_py.pipeline.findings.suppressions import suppressions
from zonemta_py.pipeline.findings.unknown import unknown
from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.lake.update import BRONZE, JOBS, Days, Job, LakeView, bronze_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE = datetime.date(1970, 1, 1)
HISTORY_DAYS = {"blocks": 14, "rates": 30, "unknown": 30}
_SOURCE = "deliveries"


def feed(spark: SparkSession, lake: Path, file: Path) -> tuple[int, int]:
    """Puts a file's events into the lake, and rebuilds `engagement`; (events of the file, unusable ones among them).

    Raises ValueError, table.Busy.
    """
    found = events(spark, file).cache()
    try:
        with table.locked(lake):
            days = [row.day for row in _dated(found).select("day").distinct().collect()]
            if days:
                known = _events(LakeView(spark, lake, ())).where(F.to_date("at").isin(days))
                table.write(lake, "events", _dated(found.unionByName(known)).distinct(), days)
        counted = found.count(), unusable(found).count()
    finally:
        found.unpersist()
    make(spark, lake, "engagement")
    return counted


def make(spark: SparkSession, lake: Path, name: str) -> DataFrame:
    """Rebuilds one of the tables and returns its rows. Raises table.Busy, table.Missing."""
    with table.locked(lake):
        table.write(lake, name, _ROWS[name](LakeView(spark, lake, bronze_files(lake)), None))
    return table.read(spark, lake, name).drop("day")


def _dated(found: DataFrame) -> DataFrame:
    return found.where("at is not null").withColumn("day", F.to_date("at"))


def _suppressions(view: LakeView, days: Days | None) -> DataFrame:
    lifted = view.bronze.filter("type = 'UNSUPPRESS'").select(F.col("recipient").alias("address"), "at")
    return _whole(suppressions(view.table(_SOURCE), _events(view), lifted))


def _engagement(view: LakeView, days: Days | None) -> DataFrame:
    now = datetime.datetime.now(datetime.UTC)
    return _whole(engagement(_events(view).unionByName(_told(view)), _deliveries(view), now))


def _blocks(view: LakeView, days: Days | None) -> DataFrame:
    return _whole(blocks(_recent(view, "blocks")))


def _rates(view: LakeView, days: Days | None) -> DataFrame:
    return _whole(rates(_recent(view, "rates")))


def _unknown(view: LakeView, days: Days | None) -> DataFrame:
    return _whole(unknown(_recent(view, "unknown")))


def _recent(view: LakeView, name: str) -> DataFrame:
    latest = sorted(table.manifest(view.lake, _SOURCE).days)[-HISTORY_DAYS[name] :]
    return view.table(_SOURCE, [datetime.date.fromisoformat(day) for day in latest])


def _events(view: LakeView) -> DataFrame:
    try:
        return view.table("events").drop("day")
    except table.Missing:
        return view.spark.createDataFrame([], EVENTS)


def _told(view: LakeView) -> DataFrame:
    """What came back to the MTA itself."""
    try:
        return told(view.table("feedback"))
    except table.Missing:
        return view.spark.createDataFrame([], EVENTS)


def _deliveries(view: LakeView) -> DataFrame:
    """Engagement may be known before any archive is."""
    try:
        return view.table(_SOURCE)
    except table.Missing:
        return view.spark.createDataFrame([], "recipient string, verdict string, campaign string, at timestamp")


def _whole(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.lit(WHOLE))


_ROWS: dict[str, Callable[[LakeView, Days | None], DataFrame]] = {
    "engagement": _engagement,
    "suppressions": _suppressions,
    "blocks": _blocks,
    "rates": _rates,
    "unknown": _unknown,
}

_READS = {"engagement": (_SOURCE, "feedback")}
_SOURCES = {"engagement": BRONZE}
"""Of those that do not follow `deliveries` alone."""

FINDINGS: tuple[Job, ...] = tuple(
    Job(name, _SOURCES.get(name, _SOURCE), rows, touched=lambda view: [WHOLE], reads=_READS.get(name, (_SOURCE,)))
    for name, rows in _ROWS.items()
)
"""For `update`, after its own JOBS."""
EVERY: tuple[Job, ...] = (*JOBS, *FINDINGS)
