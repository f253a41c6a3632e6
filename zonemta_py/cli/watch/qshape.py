"""`zonemta qshape`: how old what waits is, by destination, with the words of Postfix's program of that name."""

from __future__ import annotations

import os
import time
from typing import Annotated, Literal

import typer

from zonemta_py.cli.queue.commands import ZoneName, known_zone, whole
from zonemta_py.cli.send.compatibility import states_of
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import moment, print_aside, print_json, print_table
from zonemta_py.queue import questions

_SUBDOMAINS = 5
_AGES = 10
_NEW_S = 2.0


@tabled
def qshape(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE",
            help="Only incoming (queued), active (leased), deferred or hold (held); default: all of them.",
        ),
    ] = None,
    by: Annotated[
        Literal["domain", "site", "provider", "sender"] | None,
        typer.Option(help="What each row counts; default: domain."),
    ] = None,
    senders: Annotated[
        bool,
        typer.Option("-s", "--senders", help="Count recipients by sender domain (same as --by sender)."),
    ] = False,
    parents: Annotated[
        bool, typer.Option("-p", "--parents", help="Add rows for parent domains, shown with a leading dot.")
    ] = False,
    subdomains: Annotated[
        int,
        typer.Option("-m", metavar="N", min=1, help="With -p: only parents with at least this many direct subdomains."),
    ] = _SUBDOMAINS,
    ages: Annotated[int, typer.Option("-b", metavar="N", min=2, max=40, help="Number of age columns.")] = _AGES,
    minutes: Annotated[
        int, typer.Option("-t", metavar="MINUTES", min=1, max=1_000_000, help="Upper limit of the first age column.")
    ] = 5,
    linear: Annotated[
        bool, typer.Option("-l", help="Age columns of equal width; by default each upper limit doubles.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=1_000, help="Rows to show.")] = 20,
    width: Annotated[
        int | None, typer.Option("-w", metavar="COLUMNS", min=1, help="Output width; default: the terminal's.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("-N", metavar="N", help="Ignored, for compatibility: the result is always complete.")
    ] = None,
    zone: ZoneName = None,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show the age distribution of waiting mail by destination, in minutes since acceptance.

    Accepts the queue names and options of Postfix's qshape. Leased recipients are being delivered.
    """
    states = states_of(queues or [])
    if senders and by not in (None, "sender"):
        raise CommandError(Exit.USAGE, f"-s is --by sender, and --by {by} is something else; leave one")
    what = "sender" if senders else by or "domain"
    if parents and what in ("site", "provider"):
        raise CommandError(Exit.USAGE, f"-p is for domains, and a row is a {what} here; leave -p or --by {what}")
    chosen = in_force(config, folder)
    ends = [minutes * (number if linear else 1 << number - 1) for number in range(1, ages)]
    found = whole(
        chosen, questions.qshape, by=what, zone=known_zone(chosen, zone), limit=limit, states=states, minutes=ends,
        subdomains=subdomains if parents else 0,
    )  # fmt: skip
    if json:
        return print_json(found)
    if width is not None:
        os.environ["COLUMNS"] = str(max(width, 80))
    names = [*(f"{end} " for end in found["minutes"]), f"{found['minutes'][-1]}+ "]
    rows = [(row["name"], row["total"], *row["ages"]) for row in (found["all"] | {"name": "TOTAL"}, *found["rows"])]
    print_table("", (what, "T ", *names), rows)
    if found.get("lacks"):
        print_aside(f"Each row may lack up to {found['lacks']:,}: there are more names in each queue than it lists")
    if not found["complete"]:
        print_aside(f"{found['walked']:,} of {found['of']:,} recipients were counted so far; ask again for the others")
    elif time.time() - found["at_ms"] / 1000 >= _NEW_S:
        print_aside(f"counted {moment(found['at_ms'])}; what came, went and was ordered since is not in it")
    return None
