#!/usr/bin/env python3
"""The same jobs with local[2] and on a standalone cluster of one master and two workers on loopback: the same results?

    scripts/pipeline/on_cluster.py [--messages 2000] [--rows 20000] [--folder DIR] [--short]

A synthetic archive is ingested, all tables are made, and a list is planned, in a process of its own for each; then the
rows of every table and plan are compared. Exit status 1 names what differs. --short: both at once, and fewer tables.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from cluster import Cluster  # noqa: E402
from synthetic import make_archive  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For some hundred rows it takes Spark longer to write and compile Java for them than to do without."""


def work(master: str, archive: Path, list_: Path, lake: Path, short: bool) -> None:
    """All jobs in a session of their own."""
    from zonemta_py.pipeline.spark.session import session

    settings = {"spark.executor.memory": "1g", "spark.executor.cores": "1"} | (INTERPRETED if short else {})
    spark = session(master, memory_gb=1, settings=settings)
    jobs(spark, archive, list_, lake, short)
    print(spark.sparkContext.master)
    spark.stop()


def jobs(spark: SparkSession, archive: Path, list_: Path, lake: Path, short: bool) -> None:
    from zonemta_py.pipeline.findings.tables import EVERY
    from zonemta_py.pipeline.lake import bronze
    from zonemta_py.pipeline.lake.update import JOBS, update
    from zonemta_py.pipeline.prepare.plan import plan
    from zonemta_py.pipeline.prepare.settings import Settings

    bronze.ingest(spark, archive, lake)
    update(spark, lake, jobs=JOBS if short else EVERY)
    plan(spark, Settings("spring", fields={"first_name": "first_name"}), str(list_), lake / "spring.plan")


def digest(lake: Path) -> dict[str, tuple[int, str]]:
    """Rows of each table and of the plan, and a hash of them whatever their order.

    Sketches are drawn: their bytes differ from run to run, what they say hardly. They are left out.
    """
    import pyarrow.parquet as parquet

    found: dict[str, list[str]] = {}
    for path in sorted(lake.rglob("*.parquet")):
        name = path.relative_to(lake).parts[0]
        table = parquet.read_table(path, partitioning=None)
        kept = [column.name for column in table.schema if "binary" not in str(column.type)]
        found.setdefault(name, []).extend(json.dumps(row, default=str) for row in table.select(kept).to_pylist())
    return {
        name: (len(rows), hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()) for name, rows in found.items()
    }


def _list(path: Path, rows: int) -> None:
    with path.open("w") as file:
        file.write("email,first_name\n")
        for number in range(rows):
            file.write(
                f"user{number % (rows - rows // 10)}@{('gmail.com', 'gmx.net', 'firm.info')[number % 3]},U{number}\n"
            )


def run(name: str, master: str, folder: Path, short: bool) -> str:
    """`work` in a process of its own; the end of what it complained of if it failed."""
    begun = time.monotonic()
    command = [sys.executable, __file__, "--work", master, *map(str, paths(folder, name)), *(["--short"] * short)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if said.returncode:
        return f"{name}: {said.stderr[-3000:]}"
    print(f"{name}: {said.stdout.strip()}, {time.monotonic() - begun:.0f} s")
    return ""


def paths(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Archive, list, and the lake to make."""
    return folder / "archive", folder / "list.csv", folder / name


def clustered(folder: Path, short: bool) -> str:
    with Cluster(folder / "cluster") as master:
        return run("cluster", master, folder, short)


def main(arguments: list[str] | None = None, spark: SparkSession | None = None) -> int:
    """spark: a session with local[2] that is there; else one is started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--short", action="store_true", help="only the tables that need nothing but the journal")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        master, *named = given.work
        archive, list_, lake = map(Path, named)
        work(master, archive, list_, lake, given.short)
        return 0
    with tempfile.TemporaryDirectory(prefix="zonemta-cluster-", dir=given.folder) as temporary:
        folder = Path(temporary)
        make_archive(folder / "archive", messages=given.messages, days=2, seed=7)
        _list(folder / "list.csv", given.rows)
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(clustered, folder, True) if given.short else None
            if spark is not None:
                jobs(spark, *paths(folder, "local"), given.short)
                local = ""
            else:
                local = run("local", "local[2]", folder, given.short)
            cluster = clustered(folder, False) if beside is None else beside.result()
            failures = [failure for failure in (local, cluster) if failure]
        if failures:
            print("\n".join(failures), file=sys.stderr)
            return 1
        one, other = digest(folder / "local"), digest(folder / "cluster")
    for name in sorted(one.keys() | other.keys()):
        same = one.get(name) == other.get(name)
        print(f"{name}: {one.get(name, (0,))[0]:,} rows, {'the same' if same else f'NOT the same: {other.get(name)}'}")
    return 0 if one == other else 1


if __name__ == "__main__":
    sys.exit(main())
