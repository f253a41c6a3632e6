"""Closed segments into Parquet: `lake ingest` of an archive, beside DuckDB writing what the same reader reads.

Spark's seconds are those of the ingest without the start of its session; `zonemta lake ingest` as a command takes those
of the start more. DuckDB has no reader of segments: it gets the reader's batches, in as many processes as cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=500_000, help="About four records each.")
    parser.add_argument("--folder", type=Path, help="For the data, temporary otherwise. An archive is used again.")


def run(given: argparse.Namespace) -> None:
    import synthetic

    from bench.contest import contest
    from zonemta_py.pipeline.journal import reader

    folder = given.folder or Path(tempfile.mkdtemp(prefix="zonemta-bench-"))
    archive, lake = folder / "archive", folder / "ingested"
    try:
        if not archive.is_dir():
            synthetic.make_archive(archive, given.messages, days=2, segment_records=100_000)
        records = sum(one.last_seq - one.first_seq + 1 for one in reader.segments(archive))
        print(f"{records:,} records", flush=True)
        command = [sys.executable, "-m", "scripts.pipeline.bench.ingest"]
        commands = {name: [*command, name, str(archive), str(lake)] for name in ("Spark", "DuckDB")}
        contest(commands, given.runs, lambda name: shutil.rmtree(lake, ignore_errors=True))
    finally:
        shutil.rmtree(lake if given.folder else folder, ignore_errors=True)


def spark(archive: Path, lake: Path) -> float:
    """Seconds."""
    from zonemta_py.pipeline.lake import bronze
    from zonemta_py.pipeline.spark.session import session

    one = session()
    begun = time.monotonic()
    bronze.ingest(one, archive, lake)
    took = time.monotonic() - begun
    one.stop()
    return took


def duckdb(archive: Path, lake: Path) -> float:
    """Seconds."""
    from zonemta_py.pipeline.journal import reader

    lake.mkdir(parents=True)
    segments = reader.segments(archive)
    begun = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_placed, segments, [lake] * len(segments)))
    return time.monotonic() - begun


def _placed(segment: object, lake: Path) -> None:
    import duckdb
    import pyarrow as pa

    from zonemta_py.pipeline.journal import reader
    from zonemta_py.pipeline.journal.schema import ROWS

    split = reader.Split(segment.path, 0, segment.size, segment.from_seq)  # type: ignore[attr-defined]
    rows = pa.RecordBatchReader.from_batches(ROWS, reader.read(split, []))
    connection = duckdb.connect()
    connection.execute("set threads = 1; set TimeZone = 'UTC'")
    connection.register("rows", rows)
    folder = lake / segment.path.stem  # type: ignore[attr-defined]
    choice = "format parquet, compression zstd, compression_level 1, partition_by (day)"
    connection.execute(f'copy (select *, cast("at" as date) as day from "rows") to \'{folder}\' ({choice})')


if __name__ == "__main__":
    print(f"seconds {(spark if sys.argv[1] == 'Spark' else duckdb)(Path(sys.argv[2]), Path(sys.argv[3])):.2f}")
