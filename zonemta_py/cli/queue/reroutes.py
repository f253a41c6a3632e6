"""`zonemta reroute`: mail that goes by another pool, zone or smart host, or past one MX host, for a time."""

from __future__ import annotations

import shlex
import time
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.running import me
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, print_json, print_table, printable, sentence
from zonemta_py.queue import questions

app = typer.Typer(help="Send mail another way for a time: what waits, and what comes.", no_args_is_help=True)

Destination = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="Mail for this domain, site or provider; default: all of --zone.")
]
OfZone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="Mail of this zone; default: of any.")]


@app.command()
def add(
    destination: Destination = "",
    zone: OfZone = "",
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="By the sources of this pool.")] = "",
    to_zone: Annotated[
        str, typer.Option("--to-zone", metavar="ZONE", help="Through this zone, with its settings and limits.")
    ] = "",
    host: Annotated[str, typer.Option("--host", metavar="HOST:PORT", help="To this smart host.")] = "",
    skip_mx: Annotated[str, typer.Option("--skip-mx", metavar="HOST", help="By the other MX hosts.")] = "",
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="SPAN", help="For how long: 90s, 15min, 2h, 1d12h; default: until removed."),
    ] = None,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Reason, shown by explain.")] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Send mail of a zone, or for a destination, another way; what waits goes so at its next try.

    The reroute survives restarts, ends by itself, and replaces an earlier one for the same mail. Mail goes back to its
    own way when it has ended."""
    given = {"pool": pool, "zone": to_zone, "host": host, "skip": skip_mx}
    targets = [f"{kind} {name}" for kind, name in given.items() if name]
    if len(targets) != 1:
        raise CommandError(Exit.USAGE, "say where to: one of --pool, --to-zone, --host and --skip-mx")
    seconds = when.span(for_, "--for") if for_ is not None else None
    row = answer(
        in_force(config, folder), questions.reroute, to=targets[0], zone=zone, destination=destination,
        seconds=seconds, cause=because, by=me(),
    )  # fmt: skip
    if json:
        return print_json({**row, "undo": _undo(row)})
    end = when.until(row["until_ms"], int(time.time() * 1000), "it is removed")
    return print(printable(f"{_whose(row)} goes to {row['to']} until {end}; undo: {_undo(row)}"))


@app.command("list")
@tabled
def list_(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List what is rerouted: where to, why, since when, until when."""
    rows = answer(in_force(config, folder), questions.reroutes)
    if json:
        return print_json([{**row, "undo": _undo(row)} for row in rows])
    now_ms = int(time.time() * 1000)
    cells = [
        (
            row["destination"] or "any", row["zone"] or "any", row["to"], _why(row),
            when.since(row["since_ms"], now_ms), when.until(row["until_ms"], now_ms, "removed"), _undo(row),
        )
        for row in rows
    ]  # fmt: skip
    if not rows and not as_records():
        return print("No mail is rerouted.")
    columns = ("mail for", "zone", "goes to", "why", "since", "until", "undo")
    return print_table("Rerouted mail", columns, cells, "", ("mail for", "goes to", "until", "why", "zone"))


@app.command()
def remove(
    destination: Destination = "",
    zone: OfZone = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """End a reroute: that mail goes its own way again, and what waits, too."""
    if not answer(in_force(config, folder), questions.reroute_remove, zone=zone, destination=destination):
        raise CommandError(Exit.DATA, "there is no such reroute; `zonemta reroute list` lists them all")
    whose = _whose({"zone": zone, "destination": destination})
    print_json({"zone": zone, "destination": destination}) if json else print(printable(f"{whose} goes its own way"))


def _whose(row: Any) -> str:
    parts = [f"for {row['destination']}"] if row["destination"] else []
    return " ".join(["mail", *([f"of zone {row['zone']}"] if row["zone"] else []), *parts])


def _why(row: questions.RerouteRow) -> str:
    return sentence(f"no effect: there is no {row['lacks']}" if row["lacks"] else row["cause"])


def _undo(row: Any) -> str:
    options = [*([row["destination"]] if row["destination"] else []), *(["--zone", row["zone"]] if row["zone"] else [])]
    return shlex.join(["zonemta", "reroute", "remove", *options])
