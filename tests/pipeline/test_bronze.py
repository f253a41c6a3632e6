"""Bronze: every closed segment once as Parquet, whatever happens to whoever brings it in."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from zonemta_py.cli.app import main
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.pipeline.journal import reader, schema
from zonemta_py.pipeline.journal.schema import ROWS
from zonemta_py.pipeline.lake import bronze, table
from zonemta_py.pipeline.lake.ingested import Ingested

PATIENCE_S = 120


def in_lake(lake: Path) -> Counter[tuple[Any, ...]]:
    """All rows of bronze as any reader of Parquet finds them, with the day of the folder."""
    found: Counter[tuple[Any, ...]] = Counter()
    for path in lake.glob("bronze/day=*/[!._]*.parquet"):
        day = path.parent.name.removeprefix("day=")
        for row in pq.ParquetFile(path).read().to_pylist():
            assert row["at"].date().isoformat() == day
            found[tuple(row.values())] += 1
    return found


def in_archive(folder: Path) -> Counter[tuple[Any, ...]]:
    batches = [b for one in reader.segments(folder) for split in reader.splits(one) for b in reader.read(split, [])]
    return Counter(tuple(row.values()) for row in pa.Table.from_batches(batches, ROWS).to_pylist())


def test_bronze_holds_what_the_archive_holds(spark: SparkSession, real_archive: Path, tmp_path: Path) -> None:
    """Each row once, below the day of its time; and the ledger says what came from where."""
    entries = bronze.ingest(spark, real_archive, tmp_path)
    expected = in_archive(real_archive)
    assert in_lake(tmp_path) == expected
    assert sum(entry.rows for entry in entries) == expected.total()
    assert bronze.ledger(tmp_path) == {entry.segment: entry for entry in entries}
    assert [entry.segment for entry in entries] == [path.name for path in segments.files(real_archive)]
    frame = spark.read.schema(schema.rows().add("day", "date")).parquet(str(tmp_path / "bronze"))
    assert frame.count() == expected.total()
    assert len({row.day for row in frame.select("day").distinct().collect()}) == len(
        list(tmp_path.glob("bronze/day=*"))
    )


def test_only_what_is_new_is_brought_in(spark: SparkSession, real_archive: Path, tmp_path: Path) -> None:
    """However late a segment comes; files that are there already are not touched."""
    files = segments.files(real_archive)
    growing, lake = tmp_path / "archive", tmp_path / "lake"
    growing.mkdir()
    for path in files[1:]:
        shutil.copy(path, growing)
    assert len(bronze.ingest(spark, growing, lake)) == len(files) - 1
    before = {path: path.stat().st_mtime_ns for path in lake.glob("bronze/day=*/*")}
    shutil.copy(files[0], growing)
    assert [entry.segment for entry in bronze.ingest(spark, growing, lake)] == [files[0].name]
    assert bronze.ingest(spark, growing, lake) == []
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert in_lake(lake) == in_archive(real_archive)


def test_a_stream_and_a_batch_may_take_turns(spark: SparkSession, real_archive: Path, tmp_path: Path) -> None:
    """Both go by the ledger: neither brings in what the other has."""
    files = segments.files(real_archive)[:4]
    growing, lake = tmp_path / "archive", tmp_path / "lake"
    growing.mkdir()
    told: list[list[Ingested]] = []
    for number, path in enumerate((files[-1], *files[:-1])):
        shutil.copy(path, growing)
        if number % 2:
            bronze.ingest(spark, growing, lake)
        else:
            bronze.follow(spark, growing, lake, told=told.append)
    assert in_lake(lake) == in_archive(growing)
    assert sum(len(entries) for entries in told) == 2


def test_a_stream_goes_on_until_it_is_stopped(spark: SparkSession, real_archive: Path, tmp_path: Path) -> None:
    """A segment that comes while it runs is brought in without another command."""
    files = segments.files(real_archive)
    growing, lake = tmp_path / "archive", tmp_path / "lake"
    growing.mkdir()
    shutil.copy(files[1], growing)
    runner = threading.Thread(target=bronze.follow, args=(spark, growing, lake, "skip", 0.2))
    runner.start()
    wait_for(lambda: len(bronze.ledger(lake)) == 1)
    with pytest.raises(table.Busy, match="another ingest is writing to this lake"):
        bronze.ingest(spark, growing, lake)
    shutil.copy(files[0], growing)
    wait_for(lambda: len(bronze.ledger(lake)) == 2)
    for query in spark.streams.active:
        query.stop()
    runner.join(PATIENCE_S)
    assert {row[0] for row in in_lake(lake)} == {r.seq for path in files[:2] for r in segments.read_file(path, [])}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# -- damage and mistakes


def test_damage_is_noted_and_the_rest_is_kept(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    """The entry counts it and says where; with damage=fail that segment stays out and everything else is in."""
    path = segments.files(archive)[1]
    content = bytearray(path.read_bytes())
    content[10] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(reader.Damaged, match=f"{path}: at byte 0: checksum does not match"):
        bronze.ingest(spark, archive, tmp_path / "lake", damage="fail")
    assert path.name not in bronze.ledger(tmp_path / "lake")
    assert not list((tmp_path / "lake").glob("bronze/day=*/.*"))
    bronze.ingest(spark, archive, tmp_path / "lake")
    entry = bronze.ledger(tmp_path / "lake")[path.name]
    assert entry.damages == 1
    assert entry.faults == (f"{path.name}: at byte 0: checksum does not match",)
    assert in_lake(tmp_path / "lake") == in_archive(archive)


def test_a_segment_damaged_later_is_passed_over(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    """Its rows are in the lake: it is warned of, whatever is left of it, and segments that are new come in."""
    lake, (first, second, *_, last) = tmp_path / "lake", segments.files(archive)
    later = tmp_path / last.name
    last.rename(later)
    bronze.ingest(spark, archive, lake)
    expected, whole = in_archive(archive), first.read_bytes()
    later.rename(last)
    first.write_bytes(whole[:-40])
    second.write_bytes(bytes(len(second.read_bytes())))
    warned: list[str] = []
    assert [entry.segment for entry in bronze.ingest(spark, archive, lake, "fail", warned=warned.append)] == [last.name]
    assert [sentence.partition(": ")[0] for sentence in warned] == [str(first), str(second)]
    assert "it has changed since it was ingested: it had records 1-" in warned[0]
    assert "readable now: none; its " in warned[1]
    assert in_lake(lake) == expected + in_archive_of(last)
    first.write_bytes(b"\xff" * 40 + whole[40:])  # its beginning
    bronze.follow(spark, archive, lake, warned=warned.append)
    assert warned[2].startswith(f"{first}: ")


def in_archive_of(path: Path) -> Counter[tuple[Any, ...]]:
    split = reader.Split(path, 0, path.stat().st_size, 0)
    return Counter(tuple(row.values()) for row in pa.Table.from_batches(reader.read(split, []), ROWS).to_pylist())


def test_what_a_damaged_segment_had_is_not_brought_in_again(spark: SparkSession, tmp_path: Path) -> None:
    """Records that its MTA wrote again into the next file, as the disk had refused a sync, are those in the lake."""
    archive, records = (
        tmp_path / "archive",
        [Record(n, 1_000_000 + n, Type.FINISH, pack([f"m{n}"])) for n in range(1, 13)],
    )
    archive.mkdir()
    (archive / f"{1:016d}.journal").write_bytes(frame(records[:7], 0))
    bronze.ingest(spark, archive, tmp_path / "lake")
    (archive / f"{1:016d}.journal").write_bytes(frame(records[:5], 0))
    (archive / f"{5:016d}.journal").write_bytes(frame(records[4:], 0))
    (entry,) = bronze.ingest(spark, archive, tmp_path / "lake")
    assert entry.rows == 5
    assert {row[0]: n for row, n in in_lake(tmp_path / "lake").items()} == dict.fromkeys(range(1, 13), 1)


@pytest.mark.parametrize(("first", "last"), [(1, 500), (1, 400), (1, 600), (300, 900)])
def test_a_lake_is_of_one_mta(first: int, last: int, spark: SparkSession, tmp_path: Path) -> None:
    """Another MTA's segment is not taken for one that is there, or for a part of it that was written again."""
    ours, theirs, lake = tmp_path / "ours", tmp_path / "theirs", tmp_path / "lake"
    for folder, start, numbers in ((ours, 1_000_000, range(1, 501)), (theirs, 1_000_007, range(first, last + 1))):
        folder.mkdir()
        records = [Record(n, start + n * 10, Type.FINISH, pack([f"m{n}"])) for n in numbers]
        (folder / f"{numbers[0]:016d}.journal").write_bytes(frame(records, 0))
    bronze.ingest(spark, ours, lake)
    with pytest.raises(
        bronze.Foreign,
        match=r"the lake already has different records .* belongs to one MTA, or cluster, so ingest this",
    ):
        bronze.ingest(spark, theirs, lake)
    assert len(bronze.ledger(lake)) == 1


def test_row_groups_hold_one_type(spark: SparkSession, real_archive: Path, tmp_path: Path) -> None:
    """So that a reader who wants deliveries reads nothing else: statistics are there, and tell."""
    bronze.place(reader.segments(real_archive)[0], tmp_path)
    (path,) = tmp_path.glob("bronze/day=*/*.parquet")
    meta = pq.ParquetFile(path).metadata
    place = ROWS.names.index("type")
    bounds = [meta.row_group(n).column(place).statistics for n in range(meta.num_row_groups)]
    assert {(one.min, one.max) for one in bounds} >= {
        (name, name) for name in ("DELIVERY", "ENVELOPE", "FINISH", "START")
    }
    assert meta.row_group(0).column(place).compression == "ZSTD"


# -- the command


def test_the_command_brings_in_and_says_how_much(
    real_archive: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`zonemta lake ingest`: status 0 and one line; what it cannot do is one sentence."""
    lake = ["--lake", str(tmp_path / "lake")]
    assert main(["lake", "ingest", "--archive", str(tmp_path / "none"), *lake]) == Exit.NO_INPUT
    assert main(["lake", "ingest", "--archive", str(real_archive), *lake, "--damage", "mend"]) == Exit.USAGE
    said = capfd.readouterr().err.splitlines()
    assert said[0].endswith("none: there is no such folder; name the MTA's archive/")
    assert said[1] == "zonemta: --damage: 'mend' is neither skip nor fail"


# -- kills


def ingest_command(archive: Path, lake: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "zonemta_py", "lake", "ingest", "--archive", str(archive), "--lake", str(lake)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def test_a_killed_ingest_is_simply_run_again(
    spark: SparkSession, tmp_path: Path, make_archive: Callable[..., Any]
) -> None:
    """kill -9 of the command with its JVM and workers, in the midst of it: the second run makes it exactly whole."""
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    made = make_archive(archive, messages=2500, segment_records=250)
    process = ingest_command(archive, lake)
    wait_for(lambda: len(list(lake.glob("bronze/_ledger/*.json"))) >= 5 or process.poll() is not None)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    there = len(bronze.ledger(lake))
    assert 5 <= there < len(made.files)
    wait_for(lambda: free(lake))
    assert len(bronze.ingest(spark, archive, lake)) <= len(made.files) - there
    assert len(bronze.ledger(lake)) == len(made.files)
    assert in_lake(lake) == in_archive(archive)
    bronze.ingest(spark, archive, lake)  # what a worker without its master left lying goes with the next run
    assert not list(lake.glob("bronze/*/*.tmp"))


def free(lake: Path) -> bool:
    try:
        with bronze.locked(lake):
            return True
    except table.Busy:
        return False


@pytest.mark.parametrize("step", range(12))
def test_whatever_was_done_before_the_end_does_no_harm(
    step: int, real_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placing a segment stopped before each of its syncs in turn, then done again: the same rows."""
    one = reader.segments(real_archive)[0]
    calls = iter(range(100))

    def dying(handle: int) -> None:
        if next(calls) == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", dying)
    with contextlib.suppress(KeyboardInterrupt):
        bronze.place(one, tmp_path)
    monkeypatch.undo()
    bronze.place(one, tmp_path)
    rows = in_lake(tmp_path)
    assert {row[0] for row in rows} == set(range(one.first_seq, one.last_seq + 1))
    assert max(rows.values()) == 1
