"""The journal as a Spark data source, read at once and as a stream."""

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.packing import pack, unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.pipeline.journal import reader, source
from zonemta_py.pipeline.journal.ranges import Ranges
from zonemta_py.pipeline.journal.schema import ROWS

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    source.register(spark)


def load(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    return spark.read.format("zonemta_journal").options(**options).load(str(folder))


def rows_of(frame: DataFrame) -> Counter[Row]:
    return Counter(tuple(row) for row in frame.collect())


def plain(folder: Path) -> Counter[Row]:
    """The same without Spark."""
    batches = [b for one in reader.segments(folder) for split in reader.splits(one) for b in reader.read(split, [])]
    table = pa.Table.from_batches(batches, ROWS).to_pylist()
    return Counter(tuple(naive(value) for value in row.values()) for row in table)


def naive(value: Any) -> Any:
    """As Spark gives times back: without a zone, in this machine's."""
    return value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) else value


def test_spark_reads_what_the_journal_holds(spark: SparkSession, real_archive: Path) -> None:
    """Every record of the queue's own archive, each of its recipients once, with every column."""
    frame = load(spark, real_archive)
    found = rows_of(frame)
    assert frame.columns == ROWS.names
    assert found == plain(real_archive)
    assert max(found.values()) == 1
    records = list(segments.read(real_archive))
    assert {row[0] for row in found} == {record.seq for record in records}
    told = Counter(
        (body[1], who if isinstance(who, str) else who[0], said[0])
        for body in (unpack(record.body) for record in records if record.type == Type.DELIVERY)
        for said in body[4]
        for who in said[5]
    )
    verdicts = {1: "delivered", 2: "deferred", 3: "bounced"}
    attempts = frame.where("type = 'DELIVERY'").select("id", "recipient", "verdict").collect()
    assert Counter(tuple(row) for row in attempts) == {(a, b, verdicts[c]): n for (a, b, c), n in told.items()}


def test_one_large_segment_is_read_in_pieces(
    spark: SparkSession, tmp_path: Path, make_archive: Callable[..., Any]
) -> None:
    """More than one task, and the same rows."""
    made = make_archive(tmp_path / "a", messages=9000, segment_records=10**9)
    frame = load(spark, tmp_path / "a")
    assert len(made.files) == 1
    assert frame.rdd.getNumPartitions() == 2
    assert frame.count() == made.rows
    assert frame.select("seq", "part").distinct().count() == made.rows


# -- time


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def make_days(folder: Path) -> Path:
    """Four segments, one a day, with a record every hour."""
    folder.mkdir()
    for day in range(4):
        records = [
            Record(
                day * 24 + hour + 1, at("2026-03-01") + (day * 24 + hour) * 3_600_000, Type.FINISH, pack([f"{hour}"])
            )
            for hour in range(24)
        ]
        (folder / f"{day * 24 + 1:016d}.journal").write_bytes(frame(records, 0))
    return folder


def test_since_and_until_bound_the_records(spark: SparkSession, tmp_path: Path) -> None:
    """since ≤ at < until, to the millisecond, and segments wholly outside are not even opened."""
    folder = make_days(tmp_path / "a")
    broken = folder / f"{1:016d}.journal"
    found = load(spark, folder, since="2026-03-03T04:00:00", until="2026-03-04T00:00:00+00:00")
    assert sorted(row.seq for row in found.collect()) == list(range(53, 73))
    assert found.rdd.getNumPartitions() == 2  # the last day's begins within the hour that clocks may be wrong by
    assert broken.exists()


def test_a_filter_on_the_time_leaves_segments_out(spark: SparkSession, tmp_path: Path) -> None:
    """A person who says `where at >= …` need not know of the option."""
    folder = make_days(tmp_path / "a")
    late = load(spark, folder).where("at >= timestamp'2026-03-04 10:00:00'")
    assert late.rdd.getNumPartitions() == 1
    assert sorted(row.seq for row in late.collect()) == list(range(83, 97))
    early = load(spark, folder).where("at <= timestamp'2026-03-01 02:00:00' and type = 'FINISH'")
    assert early.rdd.getNumPartitions() == 1
    assert early.count() == 3
    exact = load(spark, folder).where("at = timestamp'2026-03-02 12:00:00'")
    assert (exact.rdd.getNumPartitions(), exact.count()) == (1, 1)


# -- damage and mistakes


def test_damage_is_skipped_or_ends_the_reading(spark: SparkSession, archive: Path) -> None:
    """The rest of the block is lost and nothing else; with damage=fail the file and the offset are named."""
    path = segments.files(archive)[1]
    content = bytearray(path.read_bytes())
    content[40_000] ^= 0xFF
    path.write_bytes(content)
    faults: list[segments.Fault] = []
    left = {record.seq for record in segments.read(archive, 0, faults)}
    assert faults
    assert {row.seq for row in load(spark, archive).select("seq").distinct().collect()} == left
    with pytest.raises(Exception, match=f"{path}: at byte [0-9]+: checksum does not match; run `zonemta fsck`"):
        load(spark, archive, damage="fail").count()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": "/nowhere"}, "/nowhere: there is no such folder; name the MTA's archive/"),
        ({}, "needs a folder"),
        ({"path": "/", "damage": "ignore"}, "damage: 'ignore' is not a way to treat damage; use skip or fail"),
        ({"path": "/", "maxfiles": "0"}, "maxFiles must be at least 1"),
        ({"path": "/", "since": "yesterday"}, "yesterday"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, str], sentence: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match=sentence):
        source.Options(options)


# -- streams


class Stream:
    """A query over a growing archive whose rows are kept in a folder; `run` is one availableNow run of it."""

    def __init__(self, spark: SparkSession, archive: Path, folder: Path, most: int) -> None:
        self.spark, self.archive, self.folder, self.most = spark, archive, folder, most
        self.batches: list[int] = []

    def run(self) -> None:
        def keep(rows: DataFrame, number: int) -> None:
            rows.write.mode("overwrite").parquet(str(self.folder / "rows" / f"batch={number}"))
            self.batches.append(number)

        stream = self.spark.readStream.format("zonemta_journal").option("maxFiles", self.most).load(str(self.archive))
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def seqs(self) -> list[int]:
        return sorted(row.seq for row in self.spark.read.parquet(str(self.folder / "rows")).collect())


def test_a_stream_reads_segments_however_late_they_come(
    spark: SparkSession, real_archive: Path, tmp_path: Path
) -> None:
    """A segment is archived when its own mail has ended, maybe long after younger ones: it is read then, once."""
    files = segments.files(real_archive)[:3]
    growing = tmp_path / "archive"
    growing.mkdir()
    stream = Stream(spark, growing, tmp_path, 1)
    for path in (files[1], files[2], files[0]):
        shutil.copy(path, growing)
        stream.run()
    assert stream.seqs() == sorted(row[0] for row in plain(growing))
    stream.run()
    assert len(stream.batches) == len(files), "each came alone, and the last run found nothing new"


def test_a_batch_has_so_many_files_at_most(spark: SparkSession, real_archive: Path, tmp_path: Path) -> None:
    """What has piled up is worked off in bounded batches, oldest first."""
    some = tmp_path / "archive"
    some.mkdir()
    files = segments.files(real_archive)[:5]
    for path in files:
        shutil.copy(path, some)
    stream = Stream(spark, some, tmp_path, 2)
    stream.run()
    assert len(files) > 2
    assert len(stream.batches) == (len(files) + 1) // 2
    assert stream.seqs() == sorted(row[0] for row in plain(some))


def test_an_offset_stays_small(real_archive: Path) -> None:
    """It holds ranges of sequence numbers: one, if nothing is missing between."""
    options = source.Options({"path": str(real_archive)})
    one = source.StreamReader(options, source.JournalSource({}))
    last = max(segment.last_seq for segment in reader.segments(real_archive))
    assert one.latestOffset(one.initialOffset(), one.getDefaultReadLimit()) == {"read": f"1-{last}"}


def test_available_now_means_what_was_there_when_it_began(real_archive: Path, tmp_path: Path) -> None:
    """What comes meanwhile belongs to the next run, or the run would never end."""
    files = segments.files(real_archive)
    growing = tmp_path / "archive"
    growing.mkdir()
    shutil.copy(files[0], growing)
    one = source.StreamReader(source.Options({"path": str(growing)}), source.JournalSource({}))
    one.prepareForTriggerAvailableNow()
    shutil.copy(files[1], growing)
    end = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert end == one.latestOffset(end, one.getDefaultReadLimit())
    second = reader.segments(growing)[1]
    assert second.first_seq not in Ranges.parse(end["read"])
    assert len(one.partitions(one.initialOffset(), end)) == 1


def test_segments_can_be_listed(spark: SparkSession, real_archive: Path) -> None:
    """`zonemta_segments` gives the files, for whoever reads them himself."""
    rows = spark.read.format("zonemta_segments").load(str(real_archive)).collect()
    assert sorted((row.path, row.size) for row in rows) == [
        (str(path), path.stat().st_size) for path in segments.files(real_archive)
    ]
