"""Bronze: every closed segment of the archive once as Parquet, `<lake>/bronze/day=…/<segment>.parquet`.

Spark hands out the segments; each task writes its segment's rows straight from Arrow under a temporary name,
syncs and renames the files (one for each day the segment touches), and then notes the segment in the ledger
(`<lake>/bronze/_ledger/<segment>.json`). Names come from the segment, so a run that was killed at any point and is
repeated replaces what it had placed, and no row is lost or doubled. A file's row groups hold one record type each.

The lake is a folder that driver and workers all see under the same path. One ingest at a time: `Busy`. Other failures:
`Damaged` (damage="fail"), `Foreign` (another MTA's segment), OSError of the disk. A segment that is in the lake and was
damaged since is skipped with a warning.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zonemta_py.disk.files import replace_file, sync
from zonemta_py.journal.segments import Fault
from zonemta_py.pipeline.journal import reader
from zonemta_py.pipeline.journal.reader import Archive, Damaged, Segment, Split
from zonemta_py.pipeline.journal.schema import NAMES, ROWS
from zonemta_py.pipeline.lake.ingested import FOLDER, LEDGER, Ingested, Warned, news, warn
from zonemta_py.pipeline.lake.ingested import Foreign as Foreign
from zonemta_py.pipeline.lake.ingested import ledger as ledger
from zonemta_py.pipeline.lake.table import Busy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAULTS_MAX = 100
"""Named in a ledger entry; all are counted."""
_WAVE = 8
_GROUP_ROWS = 262_144
_ALONE = ("ENVELOPE", "START", "DELIVERY", "FINISH")
_UNIQUE = (
    "seq",
    "at",
    "id",
    "recipient",
    "sender",
    "size",
    "lease",
    "reply",
    "due_at",
    "started_at",
    "took_ms",
    "value",
    "metadata",
)
_PACKED = dict.fromkeys(("seq", "at", "lease", "received_at", "due_at", "started_at"), "DELTA_BINARY_PACKED")


Archives = Path | Archive | Sequence[Archive]
Moved = Callable[[int, int], object]
"""Called with how many segments are done, and of how many."""


@contextlib.contextmanager
def locked(lake: Path) -> Iterator[None]:
    """Keeps a second ingest from this lake, and removes what a killed one left half-written. Raises Busy."""
    folder = lake / FOLDER / LEDGER
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (lake / FOLDER).glob("*/*.tmp"):
            path.unlink(missing_ok=True)
        yield
    except BlockingIOError:
        raise Busy(f"{lake}: another ingest is writing to this lake; wait until it has finished") from None
    finally:
        os.close(lock)


# -- with Spark


def ingest(
    spark: SparkSession, archive: Archives, lake: Path, damage: str = "skip", moved: Moved = lambda done, total: None,
    warned: Warned = warn, since: int = 0, since_ms: int = 0,
) -> list[Ingested]:  # fmt: skip
    """Brings in the archive's segments that are not in bronze yet; returns their ledger entries, oldest first.

    archive: one, or those of a cluster's nodes.
    damage: "skip" notes what cannot be read in the entry, "fail" raises Damaged and leaves that segment out.
    warned: told of segments that changed since they were ingested. since: segments that end before that record are left
    out; since_ms: or before that time, of whichever queue. Raises Busy, Foreign, OSError.
    """
    with locked(lake):
        there = [
            segment
            for segment in reader.segments(*_each(archive))
            if segment.last_seq >= since and not segment.outside(since_ms, reader.EVER_MS)
        ]
        return _bring(spark, news(there, lake, warned), lake, damage, moved)


def follow(
    spark: SparkSession, archive: Archives, lake: Path, damage: str = "skip", every_s: float | None = None,
    told: Callable[[list[Ingested]], object] = lambda entries: None, warned: Warned = warn,
) -> None:  # fmt: skip
    """The same as a stream, with its checkpoint in the ledger's folder, until it is stopped; looks every so often.

    every_s None: takes what is there now, in bounded batches, and returns. told: each batch's entries. Raises as
    `ingest`.
    """
    from pyspark.errors import StreamingQueryException

    from zonemta_py.pipeline.journal import source

    failures: list[Exception] = []
    archives = _each(archive)

    def batch(rows: DataFrame, number: int) -> None:
        paths = {Path(row.path) for row in rows.collect()}
        try:
            new = news(reader.segments(*archives), lake, warned, paths)
            told(_bring(spark, new, lake, damage, lambda done, total: None))
        except (Damaged, Foreign, OSError) as error:
            failures.append(error)  # Spark would give back its text only
            raise

    source.register(spark)
    with locked(lake):
        places = json.dumps([(str(folder), node) for folder, node in archives])
        found = spark.readStream.format("zonemta_segments").option("archives", places).load()
        stream = found.writeStream.foreachBatch(batch)
        stream = stream.option("checkpointLocation", str(lake / FOLDER / LEDGER / "checkpoint"))
        timed = (
            stream.trigger(availableNow=True)
            if every_s is None
            else stream.trigger(processingTime=f"{every_s} seconds")
        )
        query = timed.start()
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if failures:
                raise failures[0] from None
            raise
        finally:
            query.stop()


def _each(archive: Archives) -> list[Archive]:
    if isinstance(archive, Path):
        return [Archive(archive)]
    return [archive] if isinstance(archive, Archive) else list(archive)


def _bring(spark: SparkSession, segments: list[Segment], lake: Path, damage: str, moved: Moved) -> list[Ingested]:
    """Places the segments, a wave at a time, so that progress shows; each is one task."""
    context = spark.sparkContext
    wave, done = _WAVE * context.defaultParallelism, list[Ingested]()
    for start in range(0, len(segments), wave):
        moved(start, len(segments))
        part = segments[start : start + wave]
        answers = context.parallelize(part, len(part)).map(partial(_try, lake, damage)).collect()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            done.append(answer)
    moved(len(segments), len(segments))
    return done


def _try(lake: Path, damage: str, segment: Segment) -> Ingested | Exception:
    """`place` in a worker: expected errors come back as they are, not wrapped in Spark's chain of causes."""
    try:
        return place(segment, lake, damage)
    except (Damaged, OSError) as error:
        return error


# -- without


def place(segment: Segment, lake: Path, damage: str = "skip") -> Ingested:
    """Reads one segment, puts its rows into bronze, then notes it. Can be repeated. Raises Damaged, OSError."""
    files, faults = Files(lake / FOLDER, segment.name.removesuffix(".journal")), list[Fault]()
    try:
        whole = Split(segment.path, 0, segment.size, segment.from_seq, segment.source, segment.node, segment.to_seq)
        for batch in reader.read(whole, faults):
            if faults and damage == "fail":
                raise Damaged(faults[0])
            files.add(batch)
        if faults and damage == "fail":
            raise Damaged(faults[0])
        days = files.finish()
    except BaseException:
        files.abandon()
        raise
    named = tuple(f"{fault.path.name}: at byte {fault.offset}: {fault.what}" for fault in faults[:FAULTS_MAX])
    count = sum(days.values())
    first, last = segment.first_seq, segment.last_seq
    entry = Ingested(segment.name, first, last, count, days, len(faults), named, segment.first_ms, segment.node)
    _note(lake / FOLDER / LEDGER, entry)
    return entry


def _note(folder: Path, entry: Ingested) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{entry.segment.removesuffix('.journal')}.json"
    replace_file(folder / name, json.dumps(asdict(entry)).encode(), suffix=f".{uuid.uuid4().hex}.tmp")


class Files:
    """The Parquet files of one segment, one for each day. stem: its name, without a suffix."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._days: dict[str, _File] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of one record type."""
        if not batch.num_rows:
            return
        days = pc.strftime(batch.column("at"), "%Y-%m-%d") if _spans(batch) else None
        if days is None:
            self._day(batch.column("at")[0].as_py().strftime("%Y-%m-%d")).add(batch)
            return
        for day in pc.unique(days).to_pylist():
            self._day(day).add(batch.filter(pc.equal(days, day)))

    def _day(self, day: str) -> _File:
        if day not in self._days:
            self._days[day] = _File(self._folder / f"day={day}", self._stem)
        return self._days[day]

    def finish(self) -> dict[str, int]:
        """Everything is on stable storage and has its name afterwards; rows by day."""
        for file in self._days.values():
            file.close()
        for file in self._days.values():
            file.name()
        return {day: file.rows for day, file in sorted(self._days.items())}

    def abandon(self) -> None:
        for file in self._days.values():
            file.path.unlink(missing_ok=True)


def _spans(batch: pa.RecordBatch) -> bool:
    """Whether its rows are of more than one day."""
    bounds = pc.min_max(batch.column("at")).as_py()
    return bool(bounds["min"].date() != bounds["max"].date())


class _File:
    """One Parquet file in the making; rows wait until there are enough for a row group of each type."""

    def __init__(self, folder: Path, stem: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._target = folder / f"{stem}.parquet"
        self.path = folder / f".{stem}.{uuid.uuid4().hex}.tmp"
        self.rows = self._waiting = 0
        self._groups: dict[str, list[pa.RecordBatch]] = {}
        self._writer = pq.ParquetWriter(
            self.path, ROWS, compression="zstd", write_page_index=True, column_encoding=_PACKED,
            use_dictionary=[name for name in NAMES if name not in _UNIQUE and name not in _PACKED],
        )  # fmt: skip

    def add(self, batch: pa.RecordBatch) -> None:
        kind = batch.column("type")[0].as_py()
        self._groups.setdefault(kind if kind in _ALONE else "", []).append(batch)
        self.rows += batch.num_rows
        self._waiting += batch.num_rows
        if self._waiting >= _GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        for _, batches in sorted(self._groups.items()):
            self._writer.write_table(pa.Table.from_batches(batches), row_group_size=_GROUP_ROWS)
        self._groups, self._waiting = {}, 0

    def close(self) -> None:
        self._write()
        self._writer.close()
        sync(self.path)

    def name(self) -> None:
        self.path.replace(self._target)
        sync(self._target.parent)
