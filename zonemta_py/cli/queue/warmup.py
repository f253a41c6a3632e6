"""`zonemta warmup`: where each new source address stands at each provider; `warmup set` puts one on another step."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import as_records, print_json, print_table, printable
from zonemta_py.queue import questions

BAR_CELLS = 10
app = typer.Typer()


@app.callback(invoke_without_command=True)
@tabled
def warmup(
    context: typer.Context,
    history: Annotated[bool, typer.Option("--history", help="Also show past days.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show the warm-up of each new source at each provider: today's cap, volume sent, and progress."""
    if context.invoked_subcommand is not None:
        context.obj = config, folder
        return None
    rows = answer(in_force(config, folder), questions.warmup)
    if json:
        return print_json(rows)
    columns = ("source", "provider", "schedule", "step", "sent today", "deferred ", "blocked ", "today", "next cap ")
    footer = "" if rows else "No source that is warming up has sent anything yet"
    if not (history and as_records()):  # records are one table
        print_table(f"Warm-up: {len(rows)}", columns, [_row(row) for row in rows], footer)
    if history:
        days = [(row["source"], row["provider"], day) for row in rows for day in row["history"]]
        print_table("Past days", ("source", "provider", "day"), days, "" if days else "None has ended yet")
    return None


@app.command("set")
def set_(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Address of a source that is warming up.")],
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="As `zonemta warmup` shows it: a provider, or a site without one.")
    ],
    step: Annotated[str, typer.Argument(metavar="STEP", help="A step of its schedule, from 1; or warm: no limit.")],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Move a source to another step of its warm-up at one provider. Today's volume still counts."""
    if step != "warm" and not re.fullmatch("[0-9]{1,6}", step):
        raise CommandError(
            Exit.USAGE, f"{step!a} is not a step; write its number as `zonemta warmup` shows it, or warm"
        )
    before = context.obj or (None, None)
    chosen = in_force(config or before[0], folder or before[1])
    number = None if step == "warm" else int(step)
    row = answer(chosen, questions.warm, source=source, provider=provider, step=number)
    print_json(row) if json else print(printable(f"{source} at {provider} is {_stands(row)} now"))


def _stands(row: questions.WarmupRow) -> str:
    return "warm, without a limit," if row["warm"] else f"at step {_step(row)}, {row['cap']:,} recipients per day,"


def _step(row: questions.WarmupRow) -> str:
    return "warm" if row["warm"] else f"{row['step'] + 1} of {row['steps']}"


def _row(row: questions.WarmupRow) -> tuple[object, ...]:
    return (
        row["source"], row["provider"], row["schedule"], _step(row), _sent(row), *_shares(row), row["today"],
        _next(row),
    )  # fmt: skip


def _sent(row: questions.WarmupRow) -> str:
    """ "██████     30 of 50": how much of the day's cap is used."""
    sent, cap = row["sent"], row["cap"]
    if cap is None:
        return f"{sent:,}, no limit"
    full = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    cells = min(BAR_CELLS, BAR_CELLS * sent // cap) or (1 if sent else 0)
    return f"{full * cells:<{BAR_CELLS}} {sent:,} of {cap:,}"


def _shares(row: questions.WarmupRow) -> tuple[str, str]:
    if not row["attempts"]:
        return "", ""
    return f"{row['deferred']:.1%}", f"{row['blocked']:.1%}"


def _next(row: questions.WarmupRow) -> str:
    if row["warm"]:
        return ""
    return "no limit" if row["next"] is None else f"{row['next']:,}"
