"""deliveries, outcomes and deliverability over so many attempts; with --incremental, one day more.

Spark's seconds are those of the update without the start of its session, DuckDB's those of its three queries. For the
day more, DuckDB makes all tables again, which has no incremental form of its own.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attempts", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--incremental", action="store_true", help="All days but the last are there already.")
    parser.add_argument("--memory", type=float, default=4, help="GB for each contender.")
    parser.add_argument(
        "--folder", type=Path, help="For the data; a temporary one otherwise. Bronze in it is used again."
    )


def run(given: argparse.Namespace) -> None:
    import columns

    from bench.contest import contest

    folder = given.folder or Path(tempfile.mkdtemp(prefix="zonemta-bench-"))
    lake, duck = folder / "lake", folder / "duck"
    try:
        if not (lake / "bronze").is_dir():
            columns.make_bronze(lake, given.attempts, given.days)
        jvm_gb = given.memory / 2  # the rest is its Python's
        spark = [sys.executable, "-m", "scripts.pipeline.bench.tables", str(lake), str(jvm_gb)]
        spark += ["--incremental"] if given.incremental else []
        other = [sys.executable, "-m", "scripts.pipeline.bench.duck", str(lake), str(duck), str(given.memory)]
        contest({"Spark": spark, "DuckDB": other}, given.runs, lambda name: _clear(lake, duck))
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def _clear(lake: Path, duck: Path) -> None:
    from zonemta_py.pipeline.lake import table

    for name in table.names(lake):
        shutil.rmtree(lake / name)
    shutil.rmtree(duck, ignore_errors=True)
    duck.mkdir()


def main(lake: Path, memory_gb: float, incremental: bool) -> None:
    """One update in Spark; says how long it took."""
    from zonemta_py.pipeline.lake import update
    from zonemta_py.pipeline.spark.session import session

    spark = session("local[2]", memory_gb)
    aside = _last_day_aside(lake) if incremental else None
    if aside:
        update.update(spark, lake)
        aside.rename(lake / "bronze" / aside.name.removeprefix("_"))
    begun = time.monotonic()
    for done in update.update(spark, lake):
        print(f"{done.name}: {'all' if done.days is None else len(done.days)} days")
    print(f"seconds {time.monotonic() - begun:.2f}", flush=True)
    spark.stop()


def _last_day_aside(lake: Path) -> Path:
    """The last day that is a full one, under a name that no update reads."""
    sizes = {day: sum(file.stat().st_size for file in day.iterdir()) for day in (lake / "bronze").glob("day=*")}
    last = max(day for day, size in sizes.items() if size > max(sizes.values()) / 2)
    return last.rename(last.with_name(f"_{last.name}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), "--incremental" in sys.argv)
