"""Brings the lake's tables up to date with its bronze, each from what is new since its last time.

A `Job` says which days of its table change when rows arrive, and makes these days again, whole, from the rows of the
lake. What it has read is noted in the same instant as its rows (`table.write`), so that an update that is killed at any
point and run again neither loses nor doubles a row, in whatever order and portions the segments come. Jobs run in order
in one session; one that reads another's table runs after it.

Failures: `table.Busy`, `NoBronze`, ValueError for a job's name that is none; Spark's own errors leave the tables as
they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from zonemta_py.pipeline import deliverability, deliveries, outcomes, schema, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRONZE = "bronze"

_BROADCAST_MAX = 500_000
_SETTINGS = {
    # Sketches and maps: a hash table falls back to sorting at 128 groups, far below what a day has.
    "spark.sql.execution.objectHashAggregate.sortBased.fallbackThreshold": "200000",
    # A task writes all its days at once, instead of sorting its rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Spreading by id serves joins and windows by id and more.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}


class NoBronze(Exception):
    """There is nothing to update from; says what to do in one sentence."""


@dataclass(frozen=True)
class View:
    """The lake as one update sees it: bronze files that come meanwhile belong to the next.

    files: of bronze, relative to its folder. new: those that the job's table has not seen. days: of the job's source
    table, those that have changed since.
    """

    spark: SparkSession
    lake: Path
    files: tuple[str, ...]
    new: tuple[str, ...] = ()
    days: tuple[date, ...] = ()

    @cached_property
    def bronze(self) -> DataFrame:
        return self._read(self.files)

    @cached_property
    def arrived(self) -> DataFrame:
        """The rows of `new`."""
        return self._read(self.new)

    def table(self, name: str, days: Sequence[date] | None = None) -> DataFrame:
        return table.read(self.spark, self.lake, name, days)

    def _read(self, files: Sequence[str]) -> DataFrame:
        from pyspark.sql.types import DateType

        columns = schema.rows().add("day", DateType())
        if not files:
            return self.spark.createDataFrame([], columns)
        folder = self.lake / BRONZE
        reader = self.spark.read.schema(columns).option("basePath", str(folder))
        return reader.parquet(*(str(folder / file) for file in files))


Days = Sequence[date]


@dataclass(frozen=True)
class Job:
    """How a table is made. source: "bronze", or the table whose changed days it follows.

    rows: the table's rows of these days (None: of all). touched: which days change by what is new in `View`; by default
    those that have changed in `source`. reads: tables that must be up to date before.
    """

    name: str
    source: str
    rows: Callable[[View, Days | None], DataFrame]
    touched: Callable[[View], Days] = field(default=lambda view: view.days)
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """What an update did to a table. days: made again; None for all of it, () for none."""

    name: str
    days: tuple[date, ...] | None


def _deliveries(view: View, days: Days | None) -> DataFrame:
    if days is None:
        return deliveries.deliveries(view.bronze)
    # Envelopes may stand on any day, and attempts of the same messages too; ids are times, so few files have them.
    day = F.col("day").isin(list(days))
    attempts = view.bronze.filter(deliveries.is_attempt() & day)
    near = _near(view.bronze, attempts)
    others = deliveries.keys(near.filter(~day)).join(attempts.select("id"), "id", "left_semi")
    rows = near.filter((F.col("type") == "ENVELOPE") | day)
    return deliveries.deliveries(rows, others)


def _near(bronze: DataFrame, rows: DataFrame) -> DataFrame:
    """The rows of bronze whose ids lie between the least and the greatest of `rows`."""
    ends = rows.agg(F.min("id"), F.max("id")).collect()[0]
    return bronze.filter(F.lit(False) if ends[0] is None else F.col("id").between(ends[0], ends[1]))


def _touched_deliveries(view: View) -> list[date]:
    near = _near(view.bronze, view.arrived.filter("id is not null"))
    return [row.day for row in deliveries.touched(near, view.arrived).collect()]


def _outcomes(view: View, days: Days | None) -> DataFrame:
    mine = F.col("id").isNotNull() if days is None else outcomes.within(days)
    tried, bronze = view.table("deliveries").filter(mine), view.bronze.filter(mine)
    # Known before the plan is made: where few messages are open, as is the rule, the large tables need no shuffle.
    open_ids = outcomes.unfinished(tried, bronze).localCheckpoint()
    few = open_ids.count() < _BROADCAST_MAX
    return outcomes.outcomes(tried, bronze, F.broadcast(open_ids) if few else open_ids)


def _touched_outcomes(view: View) -> list[date]:
    return [row.day for row in outcomes.touched(view.arrived.filter("id is not null")).collect()]


JOBS: tuple[Job, ...] = (
    Job("deliveries", BRONZE, _deliveries, _touched_deliveries),
    Job("outcomes", BRONZE, _outcomes, _touched_outcomes, ("deliveries",)),
    Job(
        "deliverability",
        "deliveries",
        lambda view, days: deliverability.deliverability(view.table("deliveries", days)),
        reads=("deliveries",),
    ),
)
"""The tables that need nothing but the journal."""


def update(
    spark: SparkSession,
    lake: Path,
    names: Sequence[str] = (),
    days: Days | None = None,
    full: bool = False,
    jobs: Sequence[Job] = JOBS,
    began: Callable[[str], object] = lambda _: None,
) -> list[Done]:
    """Updates these tables (all if none is named), and those that they read; returns what was done, in order.

    full: makes them again from all of bronze. days: makes these days again, besides what is new. began: told
    the name of each table before its work begins. Raises Busy, NoBronze, ValueError.
    """
    chosen = _chosen(names, jobs)
    with table.locked(lake), _settings(spark):
        files = bronze_files(lake)
        if not files:
            raise NoBronze(f"{lake}: there is no bronze yet; make it with `zonemta lake ingest`")
        done = []
        for job in chosen:
            began(job.name)
            done.append(_run(View(spark, lake, files), job, days, full))
        return done


def bronze_files(lake: Path) -> tuple[str, ...]:
    """The files of bronze that are whole (`day=…/….parquet`; what is being written has another name), sorted."""
    folder = lake / BRONZE
    return tuple(sorted(str(file.relative_to(folder)) for file in folder.glob("day=*/[!._]*.parquet")))


def _chosen(names: Sequence[str], jobs: Sequence[Job]) -> list[Job]:
    by_name = {job.name: job for job in jobs}
    if unknown := [name for name in names if name not in by_name]:
        raise ValueError(f"{unknown[0]} is no table that can be updated; there are {', '.join(by_name)}")
    wanted = set(names or by_name)
    while more := {read for name in wanted for read in by_name[name].reads} - wanted:
        wanted |= more
    return [job for job in jobs if job.name in wanted]


def _run(view: View, job: Job, days: Days | None, full: bool) -> Done:
    before = table.manifest(view.lake, job.name)
    now: dict[str, object] = _present(view, job)
    if full or not before.schema:
        table.write(view.lake, job.name, job.rows(view, None), None, {job.source: now})
        return Done(job.name, None)
    seen = before.seen.get(job.source, {})
    changed = sorted(key for key in now.keys() | seen.keys() if now.get(key) != seen.get(key))
    touched: set[date] = set(days or ())
    if changed:
        touched |= set(job.touched(_narrowed(view, job, changed)))
    if touched:
        again = tuple(sorted(touched))
        table.write(view.lake, job.name, job.rows(view, again), again, {job.source: now})
        return Done(job.name, again)
    if changed:
        table.note(view.lake, job.name, {job.source: now})
    return Done(job.name, ())


def _present(view: View, job: Job) -> dict[str, object]:
    """What the job's source consists of: files of bronze, or days of a table with their versions."""
    if job.source == BRONZE:
        return dict.fromkeys(view.files, 1)
    return dict(table.manifest(view.lake, job.source).days)


def _narrowed(view: View, job: Job, changed: list[str]) -> View:
    if job.source == BRONZE:  # files that have gone take no rows away: bronze may be kept for less time than the lake
        new = tuple(file for file in changed if file in set(view.files))
        return View(view.spark, view.lake, view.files, new)
    return View(view.spark, view.lake, view.files, days=tuple(map(date.fromisoformat, changed)))


@contextlib.contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Settings that serve these plans, for the time of an update."""
    before = {key: spark.conf.get(key, None) for key in _SETTINGS}
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, old) if old is not None else spark.conf.unset(key)
