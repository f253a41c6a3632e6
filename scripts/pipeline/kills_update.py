#!/usr/bin/env python3
"""Kills `zonemta lake update` with SIGKILL at random moments, runs it to its end, and compares with a calm run.

    scripts/pipeline/kills_update.py [--kills 20] [--messages 20000] [--seed 1]

Segments of a real archive arrive in random portions; each portion's update is killed once, at a moment drawn from the
time that an update takes. Exit status 1 if a row is lost, doubled or different.
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
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import synthetic  # noqa: E402

from zonemta_py.pipeline.lake import table  # noqa: E402

TABLES = {"deliveries": "*", "outcomes": "*", "deliverability": "* exclude (latency)"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zonemta-kills-") as folder:
        return _run(Path(folder), given.kills, given.messages, random.Random(given.seed))


def _run(folder: Path, kills: int, messages: int, die: random.Random) -> int:
    synthetic.make_archive(folder / "archive", messages, 3, die.randrange(1000), max(50, messages * 5 // (3 * kills)))
    calm, torn = folder / "calm", folder / "torn"
    _zonemta("ingest", "--archive", str(folder / "archive"), lake=calm)
    begun = time.monotonic()
    _zonemta("update", lake=calm)
    span_s = time.monotonic() - begun
    files = sorted((calm / "bronze").glob("day=*/*.parquet"))
    die.shuffle(files)
    for number in range(kills):
        for file in files[number::kills]:
            target = torn / "bronze" / file.parent.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        at_s = die.uniform(0.2, 1.1) * span_s
        ended = _killed(torn, at_s)
        print(f"{number + 1}: {'had ended' if ended else 'killed'} after {at_s:.1f} s", flush=True)
    _zonemta("update", lake=torn)
    wrong = [name for name, columns in TABLES.items() if not _same(calm, torn, name, columns)]
    print(f"{kills} kills: {'different: ' + ', '.join(wrong) if wrong else '0 rows lost, 0 doubled, 0 different'}")
    return 1 if wrong else 0


def _command(*arguments: str, lake: Path) -> list[str]:
    return [sys.executable, "-m", "zonemta_py", "lake", *arguments, "--lake", str(lake)]


def _zonemta(*arguments: str, lake: Path) -> None:
    subprocess.run(_command(*arguments, lake=lake), check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _killed(lake: Path, at_s: float) -> bool:
    """Whether it had ended by itself before."""
    running = subprocess.Popen(
        _command("update", lake=lake),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return running.wait(at_s) == 0
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return False


def _same(one: Path, other: Path, name: str, columns: str) -> bool:
    """Whether both hold the same rows equally often."""
    left, right = (f"select {columns} from {_scan(lake, name)}" for lake in (one, other))
    query = f"select count(*) from (({left} except all {right}) union all ({right} except all {left}))"
    return bool(duckdb.sql(query).fetchall() == [(0,)])


def _scan(lake: Path, name: str) -> str:
    files = [str(file) for file in table.files(lake, name)]
    return f"read_parquet({files!r}, hive_partitioning=false)"


if __name__ == "__main__":
    sys.exit(main())
