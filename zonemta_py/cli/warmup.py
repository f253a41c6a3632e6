"""`zonemta warmup`: where each new source address stands at each provider."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from zonemta_py.cli.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.output import print_json, print_table
from zonemta_py.cli.queue import answer

BAR_CELLS = 10


def warmup(
    history: Annotated[bool, typer.Option("--history", help="Show the days that were, too.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """How far each new source has come at each provider: its cap of today, what it sent, and how that goes."""
    rows = answer(configuration(config, folder), "warmup")
    if json:
        return print_json(rows)
    columns = ("source", "provider", "schedule", "step", "sent today", "deferred ", "blocked ", "today", "next cap ")
    footer = "" if rows else "No source that is being warmed up has sent anything yet"
    print_table(f"Warm-up: {len(rows)}", columns, [_row(row) for row in rows], footer)
    if history:
        days = [(row["source"], row["provider"], day) for row in rows for day in row["history"]]
        print_table("Days that were", ("source", "provider", "day"), days, "" if days else "None has ended yet")
    return None


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    step = "warm" if row["warm"] else f"{row['step'] + 1} of {row['steps']}"
    return (
        row["source"], row["provider"], row["schedule"], step, _sent(row), *_shares(row), row["today"],
        _next(row),
    )  # fmt: skip


def _sent(row: dict[str, Any]) -> str:
    """ "██████     30 of 50": how much of the day's cap is used."""
    sent, cap = row["sent"], row["cap"]
    if cap is None:
        return f"{sent:,}, no limit"
    full = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    cells = min(BAR_CELLS, BAR_CELLS * sent // cap) or (1 if sent else 0)
    return f"{full * cells:<{BAR_CELLS}} {sent:,} of {cap:,}"


def _shares(row: dict[str, Any]) -> tuple[str, str]:
    if not row["attempts"]:
        return "", ""
    return f"{row['deferred']:.1%}", f"{row['blocked']:.1%}"


def _next(row: dict[str, Any]) -> str:
    if row["warm"]:
        return ""
    return "no limit" if row["next"] is None else f"{row['next']:,}"
