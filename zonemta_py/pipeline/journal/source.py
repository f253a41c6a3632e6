"""Spark reads the journal: `spark.read.format("zonemta_journal").load("archive/")`, and the same with `readStream`.

Options: `path` (the folder, as load() gives it), `node` (whose it is, of a cluster), or `archives` for those of several
nodes (JSON: [[folder, node] …]); `since`, `until` (ISO 8601, UTC if they name no zone): only records
since ≤ at < until, whole segments left out unread; a filter on `at` does that too; `damage`: "skip" (the default: each
is said on stderr, the rest is read) or "fail"; `maxFiles` (32): segments in one batch of a stream.

Promise: every record in one row set, once, however the work is split and wherever it is interrupted. A stream remembers
sequence numbers, not names: a segment that reaches the archive after younger ones is read when it comes, and once.
`zonemta_segments` is the same with one row per segment file, for callers that read the files themselves (`bronze`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)  # fmt: skip
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from zonemta_py.journal import folders
from zonemta_py.journal.segments import Fault
from zonemta_py.pipeline.journal import reader, schema
from zonemta_py.pipeline.journal.ranges import Ranges
from zonemta_py.pipeline.journal.reader import Archive, Damaged, Segment

DAMAGE = ("skip", "fail")
_MAX_FILES = 32
_EVER_MS = 1 << 62
_SEGMENT_TYPES = (pa.string(), pa.int64(), pa.int64())
SEGMENTS = "path string, size bigint, from_seq bigint"


def register(spark: SparkSession) -> None:
    """Makes both formats known to a session. May be called again."""
    spark.dataSource.register(JournalSource)
    spark.dataSource.register(SegmentSource)


class Options:
    """What the caller asked for. Raises ValueError with one sentence for what cannot be."""

    def __init__(self, given: dict[str, str]) -> None:
        lower = {name.lower(): value for name, value in given.items()}
        if not lower.get("path") and not lower.get("archives"):
            raise ValueError("zonemta_journal needs a folder: load('…/archive')")
        several = json.loads(lower.get("archives") or "[]") or [(lower["path"], lower.get("node", ""))]
        self.archives = [Archive(Path(folder.removeprefix("file://")), node) for folder, node in several]
        for folder, _ in self.archives:
            if not folders.beside(folder):
                raise ValueError(f"{folder}: there is no such folder; name the MTA's archive/")
        self.since_ms, self.until_ms = _ms(lower.get("since"), 0), _ms(lower.get("until"), _EVER_MS)
        self.damage = lower.get("damage", DAMAGE[0])
        if self.damage not in DAMAGE:
            raise ValueError(f"damage: {self.damage!r} is not a way to treat damage; use {' or '.join(DAMAGE)}")
        self.max_files = int(lower.get("maxfiles", _MAX_FILES))
        if self.max_files < 1:
            raise ValueError("maxFiles must be at least 1")


def _ms(text: str | None, otherwise: int) -> int:
    if not text:
        return otherwise
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class Piece(InputPartition):
    """A split of a segment file, for one task."""

    def __init__(self, split: reader.Split) -> None:
        super().__init__(split)
        self.split = split


class JournalSource(DataSource):
    """`zonemta_journal`: one row per record and recipient (SCHEMA.md)."""

    size: ClassVar[int] = reader.SPLIT_BYTES

    @classmethod
    def name(cls) -> str:
        return "zonemta_journal"

    def schema(self) -> StructType | str:
        return schema.rows()

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(Options(dict(self.options)), self)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(Options(dict(self.options)), self)

    def splits(self, segments: Iterable[Segment]) -> list[InputPartition]:
        return [Piece(split) for segment in segments for split in reader.splits(segment, self.size)]

    def read(self, options: Options, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of one split. Raises Damaged if that is asked for."""
        faults: list[Fault] = []
        timed = options.since_ms > 0 or options.until_ms < _EVER_MS
        for batch in reader.read(piece.split, faults):
            _speak(faults, options.damage)
            yield _between(batch, options.since_ms, options.until_ms) if timed else batch
        _speak(faults, options.damage)


class SegmentSource(JournalSource):
    """`zonemta_segments`: one row per segment file (SEGMENTS)."""

    size: ClassVar[int] = 1 << 62

    @classmethod
    def name(cls) -> str:
        return "zonemta_segments"

    def schema(self) -> StructType | str:
        return SEGMENTS

    def read(self, options: Options, piece: Piece) -> Iterator[pa.RecordBatch]:
        split = piece.split
        columns = [[str(split.path)], [split.end], [split.from_seq]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, _SEGMENT_TYPES, strict=True)],
            names=["path", "size", "from_seq"],
        )  # fmt: skip


def _speak(faults: list[Fault], damage: str) -> None:
    """Reports what could not be read, or stops there."""
    for fault in faults:
        if damage == "fail":
            raise Damaged(fault)
        print(f"zonemta: {fault}", file=sys.stderr)
    faults.clear()


def _between(batch: pa.RecordBatch, since_ms: int, until_ms: int) -> pa.RecordBatch:
    at = pc.cast(pc.cast(batch.column("at"), pa.timestamp("ms", tz="UTC")), pa.int64())
    return batch.filter(pc.and_(pc.greater_equal(at, since_ms), pc.less(at, until_ms)))


class BatchReader(DataSourceReader):
    """Everything in the archive now, but for segments that time leaves out."""

    def __init__(self, options: Options, source: JournalSource) -> None:
        self._options, self._source = options, source
        self._since_ms, self._until_ms = options.since_ms, options.until_ms

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Bounds on `at` are noted; Spark applies all filters itself again, so none is taken from it."""
        for one in filters:
            ms = _moment_ms(one)
            if ms is not None and isinstance(one, (GreaterThan, GreaterThanOrEqual, EqualTo)):
                self._since_ms = max(self._since_ms, ms)
            if ms is not None and isinstance(one, (LessThan, LessThanOrEqual, EqualTo)):
                self._until_ms = min(self._until_ms, ms + 1)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        found = [
            segment
            for segment in reader.segments(*self._options.archives)
            if segment.own and not segment.outside(self._since_ms, self._until_ms)
        ]
        return self._source.splits(found)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Piece)
        return self._source.read(self._options, partition)


def _moment_ms(one: Filter) -> int | None:
    """The moment a filter on `at` compares with, ms."""
    value = getattr(one, "value", None)
    if getattr(one, "attribute", None) != ("at",) or not isinstance(value, datetime):
        return None
    return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A growing archive. Offset: {"read": ranges of sequence numbers that lie in segments already read}."""

    def __init__(self, options: Options, source: JournalSource) -> None:
        self._options, self._source = options, source
        self._target: list[Segment] | None = None

    def initialOffset(self) -> dict[str, str]:
        return {"read": ""}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._options.max_files)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = reader.segments(*self._options.archives)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        known = Ranges.parse(start["read"])
        there = self._target if self._target is not None else reader.segments(*self._options.archives)
        new = [segment.own for segment in there if segment.own and segment.own[0] not in known]
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else len(new)
        return {"read": known.plus(new[:most]).text()}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        before, after = Ranges.parse(start["read"]), Ranges.parse(end["read"])
        there = reader.segments(*self._options.archives)
        return self._source.splits(
            segment for segment in there if segment.own and segment.own[0] in after and segment.own[0] not in before
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Piece)
        return self._source.read(self._options, partition)
