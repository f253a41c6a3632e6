"""`zonemta log`: the lines about mail that the server writes to standard error, made from its journal."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal

import typer

from zonemta_py.cli.events.follow import checked, records, stable
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import moment
from zonemta_py.events.tail import seq_at
from zonemta_py.logs import setup
from zonemta_py.logs.mail import LOGGER
from zonemta_py.logs.recorded import RecordedLines
from zonemta_py.logs.shape import SHAPES
from zonemta_py.mail.rules.classes import CLASSES

BEFORE = 100
"""Records whose lines are shown of what was before."""
PEOPLE = ("sender", "recipient", "to")
Verdict = Literal["delivered", "deferred", "bounced", "held", "postponed"]


def log(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Begin then: 10m (ago), 14:30, 2026-12-01; else with the last 100 records."),
    ] = None,
    message: Annotated[str | None, typer.Option(metavar="ID", help="Only this message.")] = None,
    address: Annotated[
        str | None, typer.Option(metavar="PART", help="Only senders or recipients with that in it.")
    ] = None,
    zone: Annotated[str | None, typer.Option(metavar="NAME", help="Only this zone.")] = None,
    verdict: Annotated[
        Verdict | None, typer.Option(help="Only answers: delivered, deferred, bounced, held, postponed.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="Only answers of this class; undefined: what no rule knew."),
    ] = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show a line for each message that was accepted and for each answer, as in the server's log."""
    if kind and kind not in CLASSES:
        raise CommandError(Exit.USAGE, f"there is no class {kind!r}; use one of {', '.join(CLASSES)}")
    settings = configuration(config, folder)
    place = checked(settings.folder)
    since_ms = when.past(since, "--since", time.time_ns() // 1_000_000) if since else 0
    until = stable(place, 0, 0, written=True)
    first = seq_at(place, since_ms) if since else max(1, until - BEFORE + 1)
    lines, people = RecordedLines(), setup.people(settings)
    shape = SHAPES["json" if json else settings.log.format]
    wanted = {"id": message, "zone": zone, "verdict": verdict, "class": kind}
    exact = {name: value for name, value in wanted.items() if value}
    shown = False
    for record in records(place, first, until, follow):
        for what, fields in lines.of(record):
            if record.ms < since_ms or not exact.items() <= fields.items() or not _names(fields, address):
                continue
            if people is not None:
                people.fields(fields)
            shown = True
            sys.stdout.write(shape(record.ms, "info", LOGGER, what, fields).decode())
        if follow:
            sys.stdout.flush()
    if not shown and exact | ({"address": address} if address else {}):
        back = f"since {moment(since_ms)}" if since else f"in the last {BEFORE} records; --since 1d looks further back"
        print(f"zonemta: nothing of that {back}", file=sys.stderr)


def _names(fields: dict[str, Any], part: str | None) -> bool:
    return part is None or any(part.lower() in fields.get(name, "").lower() for name in PEOPLE)
