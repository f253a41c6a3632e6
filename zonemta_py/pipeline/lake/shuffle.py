"""Bronze shuffled by message: all rows of an id come together, as Arrow tables, one range of ids at a time.

Ids begin with their time, so ranges of them are spans of time: each takes its rows from few files and gives its rows
to few days. Spark schedules it, and its shuffle moves the rows: a task reads some files with Arrow, cuts what it wants
of them by range, and hands on each piece as one compressed block; a task of the next stage has one range whole. Rows
never become the JVM's, which took most of the time when they did.

Workers see the lake under the same path as the driver. Failures: OSError and Arrow's for a file that is damaged.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonemta_py.pipeline.journal.ids import octets
from zonemta_py.pipeline.lake.scan import Between, Scan, Tables, joined, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_ROWS = 500_000
"""Of all scans, in a range: some 200 MB for a task."""
_TASK_BYTES = 16 << 20
_SAMPLED = 100
Made = TypeVar("Made")


class ScanSource(NamedTuple):
    """Files with the scans that are made of them, by name."""

    files: Sequence[Path]
    scans: Mapping[str, Scan]


def spread(
    spark: SparkSession, sources: Sequence[ScanSource], between: Between, work: Callable[[int, Tables], Iterable[Made]]
) -> list[Made]:
    """What `work` makes of the number of a range and its rows, of all ranges. It runs in the workers."""
    tasks = [ScanSource(files, source.scans) for source in sources for files in _portions(source.files)]
    if not tasks:
        return []
    rows = spark.sparkContext.parallelize(tasks, len(tasks))
    cuts = _cuts(rows.flatMap(partial(_sample, between)).collect())
    pieces = rows.flatMap(partial(_cut, cuts, between)).partitionBy(len(cuts) + 1, int)
    blanks = {name: scan.blank() for source in reversed(sources) for name, scan in source.scans.items()}
    return list(pieces.mapPartitionsWithIndex(partial(_gather, blanks, work)).collect())


def each(
    spark: SparkSession, source: ScanSource, between: Between, work: Callable[[Tables], Iterable[Made]]
) -> list[Made]:
    """What `work` makes of some files' rows at a time, of all files, in the workers."""
    tasks = [ScanSource(files, source.scans) for files in _portions(source.files)]
    rows = spark.sparkContext.parallelize(tasks, max(1, len(tasks)))
    return list(rows.flatMap(partial(_each, between, work)).collect())


def ends(spark: SparkSession, source: ScanSource) -> Between:
    """The least range that holds the ids of all rows of the scans; an empty one where there is no row."""
    found = each(spark, source, None, _ends)
    return [(min(first for first, _ in found), max(last for _, last in found))] if found else []


def _portions(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Neighbours, about _TASK_BYTES in each."""
    portion: list[Path] = []
    size = 0
    for file in files:
        portion.append(file)
        size += file.stat().st_size
        if size >= _TASK_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


# -- in the workers


def _sample(between: Between, task: ScanSource) -> Iterator[np.ndarray]:
    """Some ids out of every fourth file, as `_places`."""
    some = task.files[::4]
    scans = {name: scan._replace(columns=("id",)) for name, scan in task.scans.items()}
    for rows in read(some, scans, between).values():
        yield _places(rows["id"])[:: _SAMPLED * len(some) // len(task.files)]


def _each(between: Between, work: Callable[[Tables], Iterable[Made]], task: ScanSource) -> Iterable[Made]:
    return work(read(task.files, task.scans, between))


def _ends(tables: Tables) -> Iterator[tuple[str, str]]:
    for rows in tables.values():
        found = pc.min_max(rows["id"]).as_py()
        if found["min"] is not None:
            yield found["min"], found["max"]


def _cuts(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Where the ranges after the first begin."""
    places = np.sort(np.concatenate(samples))
    ranges = max(1, -(-len(places) * _SAMPLED // RANGE_ROWS))
    return np.unique(places[[len(places) * one // ranges for one in range(1, ranges)]])


def _cut(cuts: np.ndarray, between: Between, task: ScanSource) -> Iterator[tuple[int, tuple[str, bytes]]]:
    gc.freeze()  # Spark collects garbage after each task: what has been imported need not be gone through
    for name, rows in read(task.files, task.scans, between).items():
        ranges = np.searchsorted(cuts, _places(rows["id"]), "right")
        order = np.argsort(ranges, kind="stable")
        rows, ranges = rows.take(pa.array(order)), ranges[order]
        bounds = np.flatnonzero(np.diff(ranges, prepend=-1, append=-1))
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield int(ranges[start]), (name, _packed(rows.slice(start, end - start)))


def _gather(
    blanks: Tables,
    work: Callable[[int, Tables], Iterable[Made]],
    number: int,
    pieces: Iterable[tuple[int, tuple[str, bytes]]],
) -> Iterator[Made]:
    gc.freeze()
    found = {name: [blank] for name, blank in blanks.items()}
    for _, (name, block) in pieces:
        found[name].append(pa.ipc.open_stream(block).read_all())
    if any(len(tables) > 1 for tables in found.values()):
        yield from work(number, {name: joined(tables) for name, tables in found.items()})


def _places(ids: pa.ChunkedArray) -> np.ndarray:
    """Where ids stand among all, as numbers: their first eight digits, which are 4 seconds."""
    return octets(ids)[:, :8].copy().view(">u8").reshape(-1).astype(np.uint64)


def _packed(rows: pa.Table) -> bytes:
    """As a block of Arrow's, without dictionaries that are larger than the rows."""
    for index, field in enumerate(rows.schema):
        column = rows.column(index)
        if pa.types.is_dictionary(field.type) and any(len(one.dictionary) > len(one) for one in column.chunks):
            rows = rows.set_column(index, field, column.cast(pa.string()).dictionary_encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
