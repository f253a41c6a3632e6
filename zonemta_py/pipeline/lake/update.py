"""Brings the lake's tables up to date with its bronze, each from what is new since its last update.

A `Job` says which days of its table change when rows arrive, and makes these days again, whole, from the rows of the
lake. What it has read is noted in the same instant as its rows (`table.Draft`), so that an update that is killed at any
point and run again neither loses nor doubles a row, in whatever order and portions the segments come. Jobs run in order
in one session; one that reads another's table runs after it.

Failures: `table.Busy`, `NoBronze`, ValueError for an unknown job name; Spark's own errors leave the tables as
they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.pandas.types import from_arrow_schema

from zonemta_py.pipeline.journal import schema
from zonemta_py.pipeline.lake import dayfiles, deliverability, deliveries, feedback, history, outcomes, reports, table
from zonemta_py.pipeline.lake.history import Wanted
from zonemta_py.pipeline.lake.partitions import Share, shares
from zonemta_py.pipeline.spark.little_data import tuned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BRONZE = "bronze"

_SETTINGS = {
    # Lists and sketches: a hash table falls back to sorting at 128 groups, far below what a day has.
    "spark.sql.execution.objectHashAggregate.sortBased.fallbackThreshold": "200000",
    # A task writes all its days at once, instead of sorting its rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}


Days = Sequence[date]


class NoBronze(Exception):
    """There is nothing to update from; one sentence with the remedy."""


@dataclass(frozen=True)
class LakeView:
    """The lake as one update sees it: bronze files that come meanwhile belong to the next.

    files: of bronze, relative to its folder. new: those that the job's table has not seen. days: of the job's source
    table, those that have changed since.
    """

    spark: SparkSession
    lake: Path
    files: tuple[str, ...]
    new: tuple[str, ...] = ()
    days: tuple[date, ...] = ()

    def paths(self, files: Sequence[str] | None = None) -> list[Path]:
        """Where these files of bronze are; all by default."""
        return [self.lake / BRONZE / file for file in (self.files if files is None else files)]

    @cached_property
    def bronze(self) -> DataFrame:
        return self._read(self.files)

    def read_new(self) -> DataFrame:
        """The files of bronze that the job's table has not seen."""
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


class Filling(NamedTuple):
    """How workers write a table themselves. columns: with `day`, last. fill: puts rows where `Wanted` says.

    Jobs that follow each other with the same `fill` are done by one call of it.
    """

    columns: pa.Schema
    fill: Callable[[LakeView, Mapping[str, Wanted]], None]


@dataclass(frozen=True)
class Job:
    """How a table is made. source: "bronze", or the table whose changed days it follows.

    rows: the table's rows of these days (None: of all). touched: which days change by what is new in the view; by
    default those that have changed in `source`. reads: tables that must be up to date before.
    """

    name: str
    source: str
    rows: Callable[[LakeView, Days | None], DataFrame] | Filling
    touched: Callable[[LakeView], Iterable[date]] = field(default=lambda view: view.days)
    reads: tuple[str, ...] = ()

    def beside(self, other: Job) -> bool:
        """Whether both are done by one call."""
        return isinstance(self.rows, Filling) and isinstance(other.rows, Filling) and self.rows.fill is other.rows.fill


@dataclass(frozen=True)
class Done:
    """What an update did to a table. days: made again; None for all of it, () for none."""

    name: str
    days: tuple[date, ...] | None


def _touched_deliveries(view: LakeView) -> Iterable[date]:
    return history.touched_deliveries(view.spark, view.paths(), view.paths(view.new))


def _touched_outcomes(view: LakeView) -> Iterable[date]:
    return history.touched_outcomes(view.spark, view.paths(view.new))


def _history(view: LakeView, wanted: Mapping[str, history.Wanted]) -> None:
    history.fill(view.spark, view.paths(), wanted)


def _deliverability(view: LakeView, wanted: Mapping[str, Wanted]) -> None:
    for folder, days in wanted.values():
        live = table.manifest(view.lake, "deliveries").days
        chosen = sorted(live if days is None else live.keys() & {str(day) for day in days})
        day_files = [table.files(view.lake, "deliveries", [day]) for day in chosen]
        portions = list(enumerate(share for files in day_files for share in shares(files, deliverability.KEYS)))
        tasks = view.spark.sparkContext.parallelize(portions, max(1, len(portions)))
        dayfiles.place(folder, tasks.flatMap(partial(_counted, folder)).collect())


def _feedback(view: LakeView, days: Days | None) -> DataFrame:
    deliveries = view.table("deliveries", None if days is None else feedback.attempts_of(days))
    return feedback.rows(view.bronze, deliveries, days)


def _touched_feedback(view: LakeView) -> Iterable[date]:
    return feedback.touched(view.bronze, view.read_new())


def _reports(view: LakeView, days: Days | None) -> DataFrame:
    return reports.rows(view.bronze, days)


def _touched_reports(view: LakeView) -> Iterable[date]:
    return reports.touched(view.read_new())


def _counted(folder: Path, portion: tuple[int, Share]) -> Iterable[dayfiles.DayFile]:
    number, share = portion
    return dayfiles.write(folder, number, deliverability.deliverability(share.read(deliverability.READ)))


JOBS: tuple[Job, ...] = (
    Job("deliveries", BRONZE, Filling(deliveries.SCHEMA, _history), _touched_deliveries),
    Job("outcomes", BRONZE, Filling(outcomes.SCHEMA, _history), _touched_outcomes),
    Job("deliverability", "deliveries", Filling(deliverability.SCHEMA, _deliverability), reads=("deliveries",)),
    Job("feedback", BRONZE, _feedback, _touched_feedback, reads=("deliveries",)),
    Job("reports", BRONZE, _reports, _touched_reports),
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
    with table.locked(lake), tuned(spark, _SETTINGS):
        files = bronze_files(lake)
        if not files:
            raise NoBronze(f"{lake}: there is no bronze table yet; create it with `zonemta lake ingest`")
        view, done = LakeView(spark, lake, files), list[Done]()
        for group in _groups(chosen):
            for job in group:
                began(job.name)
            done += _run(view, [_due(view, job, days, full) for job in group])
        return done


def bronze_files(lake: Path) -> tuple[str, ...]:
    """The files of bronze that are whole (`day=…/….parquet`; what is being written has another name), sorted."""
    folder = lake / BRONZE
    return tuple(sorted(str(file.relative_to(folder)) for file in folder.glob("day=*/[!._]*.parquet")))


def _chosen(names: Sequence[str], jobs: Sequence[Job]) -> list[Job]:
    by_name = {job.name: job for job in jobs}
    if unknown := [name for name in names if name not in by_name]:
        raise ValueError(f"{unknown[0]} is not a table that can be updated; use {', '.join(by_name)}")
    wanted = set(names or by_name)
    while more := {read for name in wanted for read in by_name[name].reads} - wanted:
        wanted |= more
    return [job for job in jobs if job.name in wanted]


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Neighbours that are done by one call together."""
    groups: list[list[Job]] = []
    for job in jobs:
        if groups and groups[-1][-1].beside(job):
            groups[-1].append(job)
        else:
            groups.append([job])
    return groups


class _Due(NamedTuple):
    """What a job has to do. days: None for all. seen: what its source consists of now. news: whether that is new."""

    job: Job
    days: tuple[date, ...] | None
    seen: dict[str, object]
    news: bool


def _due(view: LakeView, job: Job, days: Days | None, full: bool) -> _Due:
    before, now = table.manifest(view.lake, job.name), _present(view, job)
    if full or not before.schema:
        return _Due(job, None, now, True)
    seen = before.seen.get(job.source, {})
    changed = sorted(key for key in now.keys() | seen.keys() if now.get(key) != seen.get(key))
    touched: set[date] = set(days or ())
    if changed:
        touched |= set(job.touched(_narrowed(view, job, changed)))
    return _Due(job, tuple(sorted(touched)), now, bool(changed))


def _run(view: LakeView, dues: list[_Due]) -> list[Done]:
    """Makes what is due, by one call where it is more than one job's, and commits it."""
    busy = [due for due in dues if due.days != ()]
    drafts = {due.job.name: table.draft(view.lake, due.job.name) for due in busy if isinstance(due.job.rows, Filling)}
    if drafts and isinstance(busy[0].job.rows, Filling):
        wanted = {due.job.name: Wanted(drafts[due.job.name].folder, due.days) for due in busy}
        busy[0].job.rows.fill(view, wanted)
    for job, days, now, news in dues:
        seen = {job.source: now}
        if days == ():
            if news:
                table.note(view.lake, job.name, seen)
        elif isinstance(job.rows, Filling):
            drafts[job.name].commit(from_arrow_schema(job.rows.columns), days, seen)
        else:
            table.write(view.lake, job.name, job.rows(view, days), days, seen)
    return [Done(due.job.name, due.days) for due in dues]


def _present(view: LakeView, job: Job) -> dict[str, object]:
    """What the job's source consists of: files of bronze, or days of a table with their versions."""
    if job.source == BRONZE:
        return dict.fromkeys(view.files, 1)
    return dict(table.manifest(view.lake, job.source).days)


def _narrowed(view: LakeView, job: Job, changed: list[str]) -> LakeView:
    if job.source == BRONZE:  # files that have gone take no rows away: bronze may be kept for less time than the lake
        new = tuple(file for file in changed if file in set(view.files))
        return LakeView(view.spark, view.lake, view.files, new)
    return LakeView(view.spark, view.lake, view.files, days=tuple(map(date.fromisoformat, changed)))
