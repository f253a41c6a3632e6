#!/usr/bin/env python3
"""Kills `zonemta lake ingest` with SIGKILL at random moments, then lets it end: is every row there once?

    scripts/pipeline/kills.py [--kills 20] [--messages 60000] [--seed 1]

Each run is killed with its JVM, between its first and its last segment or before. Between kills, segments go on
arriving, older ones after younger ones. Exit status 0 if bronze then equals the archive, row for row.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import pyarrow.parquet as pq  # noqa: E402
import synthetic  # noqa: E402

from zonemta_py.journal import segments  # noqa: E402
from zonemta_py.pipeline.journal import reader  # noqa: E402
from zonemta_py.pipeline.lake import bronze  # noqa: E402

PATIENCE_S = 600


def ingest(archive: Path, lake: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "zonemta_py", "lake", "ingest", "--archive", str(archive), "--lake", str(lake)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )


def killed(archive: Path, lake: Path, die: random.Random) -> str:
    """One run, killed a random time after it has begun to place segments (or, now and then, before)."""
    process, before = ingest(archive, lake), done(lake)
    end = time.monotonic() + PATIENCE_S
    early = die.random() < 0.2
    while process.poll() is None and done(lake) == before and time.monotonic() < end:
        time.sleep(0.002)
        if early and die.random() < 0.001:
            break
    time.sleep(die.expovariate(1 / 0.15))
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    torn = len(list(lake.glob("bronze/*/.*.tmp")))
    return f"{'killed' if alive else 'ended'}: {before} to {done(lake)} segments, {torn} files half-written"


def done(lake: Path) -> int:
    return len(list(lake.glob("bronze/_ledger/*.json")))


def in_lake(lake: Path) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for path in lake.glob("bronze/day=*/[!._]*.parquet"):
        for batch in pq.ParquetFile(path).iter_batches():
            found.update(map(hash, zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    return found


def in_archive(folder: Path) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for segment in reader.segments(folder):
        for split in reader.splits(segment):
            for batch in reader.read(split, []):
                found.update(map(hash, zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    die = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="zonemta-kills-") as folder:
        whole, archive, lake = (Path(folder, name) for name in ("whole", "archive", "lake"))
        made = synthetic.make_archive(whole, given.messages, segment_records=500, seed=given.seed)
        archive.mkdir()
        waiting = segments.files(whole)
        die.shuffle(waiting)
        print(f"{made.rows:,} rows in {len(made.files)} segments", flush=True)
        share = len(waiting) // given.kills + 1
        for number in range(given.kills):
            for path in waiting[number * share : (number + 1) * share]:
                shutil.copy(path, archive / f"{path.name}.coming")
                (archive / f"{path.name}.coming").rename(archive / path.name)
            print(f"{number + 1:3} {killed(archive, lake, die)}", flush=True)
        code = ingest(archive, lake).wait(PATIENCE_S)
        expected, found = in_archive(whole), in_lake(lake)
        lost, more = (expected - found).total(), (found - expected).total()
        print(
            f"status {code}; {found.total():,} rows, {lost} lost, {more} too many; {len(bronze.ledger(lake))} segments"
        )
    return 0 if not code and not lost and not more else 1


if __name__ == "__main__":
    sys.exit(main())
