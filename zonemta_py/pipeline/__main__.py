"""`spark-submit …/pipeline/__main__.py ingest|update|send …`, and `python -m zonemta_py.pipeline …`.

The same as `zonemta lake ingest`, `zonemta lake update` and `zonemta campaign send --resume` for a session that
`spark-submit` has made. Exit status: 0, or 1 where damage was met.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from zonemta_py.logs.causes import cause
from zonemta_py.pipeline.send import spark_submit


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status. An expected error is one sentence on stderr, status 2."""
    parser = argparse.ArgumentParser(prog="zonemta_py.pipeline")
    commands = parser.add_subparsers(dest="command", required=True)
    spark_submit.add(commands)
    command = commands.add_parser("ingest", help="ingest the archive into the lake's bronze table")
    command.add_argument("--archive", type=Path, required=True)
    command.add_argument("--lake", type=Path, required=True)
    command.add_argument("--damage", choices=("skip", "fail"), default="skip")
    command.add_argument(
        "--follow", type=float, metavar="SECONDS", help="keep running, and look for new segments this often"
    )
    command = commands.add_parser("update", help="update the lake's tables from bronze")
    command.add_argument("tables", nargs="*", metavar="TABLE")
    command.add_argument("--lake", type=Path, required=True)
    command.add_argument("--full", action="store_true")
    given = parser.parse_args(arguments)
    work = {"send": spark_submit.run, "ingest": _ingest, "update": _update}
    return work[given.command](given)


def _update(given: argparse.Namespace) -> int:
    from zonemta_py.pipeline.findings.tables import EVERY
    from zonemta_py.pipeline.lake.table import Busy
    from zonemta_py.pipeline.lake.update import NoBronze, update
    from zonemta_py.pipeline.spark.session import Unavailable, session

    try:
        for done in update(session(), given.lake, given.tables, full=given.full, jobs=EVERY):
            print(f"{done.name}: {'all' if done.days is None else len(done.days)} days", flush=True)
    except (Busy, NoBronze, Unavailable, OSError, ValueError) as error:
        print(f"zonemta: {cause(error)}", file=sys.stderr)
        return 2
    return 0


def _ingest(given: argparse.Namespace) -> int:
    from zonemta_py.pipeline.journal.reader import Damaged
    from zonemta_py.pipeline.lake import bronze
    from zonemta_py.pipeline.lake.ingested import Ingested
    from zonemta_py.pipeline.lake.table import Busy
    from zonemta_py.pipeline.spark.session import Unavailable, session

    damages = 0

    def told(entries: list[Ingested]) -> None:
        nonlocal damages
        damages += sum(entry.damages for entry in entries)
        print(f"{len(entries)} new segments, {sum(entry.rows for entry in entries):,} rows", flush=True)
        for entry in entries:
            print(*entry.faults, sep="\n", end="\n" if entry.faults else "", file=sys.stderr)

    try:
        spark = session()
        if given.follow:
            bronze.follow(spark, given.archive, given.lake, given.damage, given.follow, told)
        else:
            told(bronze.ingest(spark, given.archive, given.lake, given.damage))
    except (Busy, Damaged, bronze.Foreign, Unavailable, OSError) as error:
        print(f"zonemta: {cause(error)}", file=sys.stderr)
        return 2
    return 1 if damages else 0


if __name__ == "__main__":
    sys.exit(main())
