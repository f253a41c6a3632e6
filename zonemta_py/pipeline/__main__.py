"""`spark-submit …/pipeline/__main__.py ingest|update|send …`, and `python -m zonemta_py.pipeline …`.

The same as `zonemta lake ingest`, `zonemta lake update` and `zonemta campaign send --resume` for a session that
`spark-submit` has made. Exit status: 0, or 1 where damage was met. A plan that is sent (`zonemta campaign send
--plan-only` wrote it) must be in a folder that driver and workers all see; the key is read from ZONEMTA_API_KEY or a
file. It needs neither the template's tools nor the MTA's configuration: all of that is in the plan.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.logs.causes import cause

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status. An expected error is one sentence on stderr, status 2."""
    parser = argparse.ArgumentParser(prog="zonemta_py.pipeline")
    commands = parser.add_subparsers(dest="command", required=True)
    add(commands)
    command = commands.add_parser("ingest", help="ingest the archive into the lake's bronze table")
    command.add_argument("--archive", metavar="[NODE=]DIR", action="append", required=True)
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
    work = {"send": run, "ingest": _ingest, "update": _update}
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
    from zonemta_py.pipeline.journal.reader import Archive, Damaged
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
        spark, archives = session(), list(map(Archive.read, given.archive))
        if given.follow:
            bronze.follow(spark, archives, given.lake, given.damage, given.follow, told)
        else:
            told(bronze.ingest(spark, archives, given.lake, given.damage))
    except (Busy, Damaged, bronze.Foreign, Unavailable, OSError) as error:
        print(f"zonemta: {cause(error)}", file=sys.stderr)
        return 2
    return 1 if damages else 0


if __name__ == "__main__":
    sys.exit(main())


def add(commands: Commands) -> None:
    command = commands.add_parser("send", help="send a campaign's plan to its nodes")
    command.add_argument("plan", type=Path, metavar="PLAN", help="the plan, a folder NAME.plan")
    command.add_argument("--nodes", required=True, metavar="URL,…")
    command.add_argument(
        "--key-file", type=Path, metavar="FILE", help="file with the API key; default: the key in ZONEMTA_API_KEY"
    )
    command.add_argument("--day", type=int, default=0, help="last day of the plan to send now")
    command.add_argument("--patience", type=float, default=600, metavar="S")


def run(given: argparse.Namespace) -> int:
    """Exit status: 0, or 2 with one sentence on stderr."""
    from zonemta_py.pipeline.nodes.client import NodeAccess, NodeGone, NodeRefused
    from zonemta_py.pipeline.nodes.nodes import OtherNodes, bind, stored
    from zonemta_py.pipeline.prepare.plan import rows
    from zonemta_py.pipeline.send.campaign import CampaignStopped, send
    from zonemta_py.pipeline.send.errors import InjectionFailed
    from zonemta_py.pipeline.spark.session import Unavailable, session

    try:
        key = given.key_file.read_text("utf-8") if given.key_file else os.environ.get("ZONEMTA_API_KEY", "")
        nodes = tuple(url.strip() for url in given.nodes.split(",") if url.strip())
        campaign = stored(given.plan)
        target = NodeAccess(nodes, key.strip(), given.patience)
        bind(given.plan, target, campaign.name)
        outcome = send(rows(session(), given.plan), campaign, target, given.day)
    except (CampaignStopped, InjectionFailed, NodeGone, NodeRefused, OtherNodes) as error:
        print(f"zonemta: {error}", file=sys.stderr)
        return 2
    except (Unavailable, ValueError, OSError) as error:
        print(f"zonemta: {cause(error)}", file=sys.stderr)
        return 2
    counts = f"{outcome.accepted:,} accepted, {outcome.suppressed:,} suppressed, {outcome.repeated:,} repeated"
    print(f"{campaign.name}: {counts}")
    return 0
