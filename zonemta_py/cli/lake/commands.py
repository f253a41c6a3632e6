"""`zonemta lake …`: the journal's archive as tables for analysis. Needs no running MTA, and never disturbs one."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.lake import proposals, tables
from zonemta_py.cli.lake.close_segment import of_nodes
from zonemta_py.cli.lake.spark import Master, Memory, spark, told
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson
from zonemta_py.cli.terminal.output import Telling, bar

if TYPE_CHECKING:
    from zonemta_py.pipeline.lake.ingested import Ingested

app = typer.Typer(help="Analyse the journal's archive as tables (Spark).", no_args_is_help=True)
app.command("update")(tables.update)
app.command("show")(tables.show)
app.command("tables")(tables.list_tables)

Lake = Annotated[Path, typer.Option(metavar="DIR", help="The lake: a folder for its tables.")]
_NAMED_MAX = 20


@app.command()
def ingest(
    archive: Annotated[
        list[str],
        typer.Option(
            metavar="[NODE=]DIR",
            help="An MTA's archive/ of closed journal segments; of a cluster, once for each node.",
        ),
    ],
    lake: Lake,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep running, and ingest new segments as they appear.")
    ] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="With --follow: how often to check.")] = 10,
    damage: Annotated[
        str, typer.Option(metavar="skip|fail", help="What to do when a segment cannot be read.")
    ] = "skip",
    as_json: AsJson = False,
    master: Master = None,
    memory: Memory = 2,
) -> None:
    """Ingest closed journal segments into the lake as Parquet, each once; a running MTA first closes its current one.

    Damage is reported, with exit status 1.
    """
    if damage not in ("skip", "fail"):
        raise CommandError(Exit.USAGE, f"--damage: {damage!r} is neither skip nor fail")
    archives = of_nodes(archive)
    with spark(master, memory) as session, told():
        from zonemta_py.pipeline.lake import bronze

        if follow:
            bronze.follow(session, archives, lake, damage, every, partial(_report, as_json=as_json))
            return
        with bar("segments") as moved:
            entries = bronze.ingest(session, archives, lake, damage, moved)
    _report(entries, as_json)
    if any(entry.damages for entry in entries):
        raise CommandError(Exit.PROBLEMS)


def _report(entries: list[Ingested], as_json: bool) -> None:
    rows = sum(entry.rows for entry in entries)
    words = f"{len(entries)} new segments, {rows:,} rows" if entries else "no new segments"
    with Telling(as_json) as tell:
        tell(words, segments=len(entries), rows=rows, damages=sum(entry.damages for entry in entries))
    for entry in entries:
        for fault in entry.faults[:_NAMED_MAX]:
            print(f"zonemta: {fault}", file=sys.stderr)
        if entry.damages > _NAMED_MAX:
            more = f"{entry.damages} places in all could not be read"
            print(f"zonemta: {entry.segment}: {more}; run `zonemta fsck`", file=sys.stderr)


proposals.register(app)
