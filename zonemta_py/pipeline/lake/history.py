"""Tables `deliveries` and `outcomes` out of bronze, in one pass over it: both need all records of a message.

A worker has all rows of a range of ids, numbers their attempts once, and writes both tables' rows of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from zonemta_py.pipeline.journal import ids
from zonemta_py.pipeline.lake import dayfiles, deliveries, outcomes, shuffle
from zonemta_py.pipeline.lake.scan import Between, Scan, Tables
from zonemta_py.pipeline.lake.shuffle import ScanSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCANS = {
    name: Scan(scan.types, tuple(dict.fromkeys((*scan.columns, *deliveries.SCANS.get(name, scan).columns))))
    for name, scan in outcomes.SCANS.items()
}


class Wanted(NamedTuple):
    """Rows of a table that are to be made: of these days (None: of all), into this folder."""

    folder: Path
    days: Sequence[date] | None


def fill(spark: SparkSession, files: Sequence[Path], wanted: Mapping[str, Wanted]) -> None:
    """Writes the rows of "deliveries" and "outcomes", or of one of them."""

    def work(number: int, tables: Tables) -> Iterator[tuple[str, dayfiles.DayFile]]:
        return _written(wanted, number, **tables)

    written = shuffle.spread(spark, [ScanSource(files, SCANS)], _near(spark, files, wanted), work)
    for name, one in wanted.items():
        dayfiles.place(one.folder, [file for of, file in written if of == name])


def touched_deliveries(spark: SparkSession, files: Sequence[Path], new: Sequence[Path]) -> Iterable[date]:
    """Days of `deliveries` that change by these new files, which are among the files."""
    arrived = ScanSource(new, deliveries.ARRIVED)
    sources = [arrived, ScanSource(files, deliveries.KNOWN)]
    near = shuffle.ends(spark, arrived)
    return shuffle.spread(spark, sources, near, lambda _, tables: deliveries.touched(**tables))


def touched_outcomes(spark: SparkSession, new: Sequence[Path]) -> Iterable[date]:
    """The same of `outcomes`."""
    return shuffle.each(spark, ScanSource(new, outcomes.ARRIVED), None, lambda tables: outcomes.touched(**tables))


def _near(spark: SparkSession, files: Sequence[Path], wanted: Mapping[str, Wanted]) -> Between:
    """Ids are times: those of some days are in few files, though envelopes and attempts may stand on any day."""
    found: list[tuple[str, str]] = []
    for name, (_, days) in wanted.items():
        near: Between = None
        if days is not None and name == "outcomes":
            near = ids.within(days)
        elif days is not None:
            folders = {f"day={day}" for day in days}
            mine = [file for file in files if file.parent.name in folders]
            near = shuffle.ends(spark, ScanSource(mine, {"results": deliveries.SCANS["results"]}))
        if near is None:
            return None
        found += near
    return found


def _written(
    wanted: Mapping[str, Wanted], number: int, results: pa.Table, envelopes: pa.Table, events: pa.Table
) -> Iterator[tuple[str, dayfiles.DayFile]]:
    tried = deliveries.numbered(results)
    for name, (folder, days) in wanted.items():
        if name == "deliveries":
            rows = deliveries.deliveries(tried, envelopes, days)
        else:
            rows = outcomes.outcomes(tried, results, envelopes, events, days)
        for file in dayfiles.write(folder, number, rows):
            yield name, file
