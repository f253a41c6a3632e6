"""The command line that the trials share: how much of what, a seed, a folder, JSON; a bar, a table, an exit status."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from survival.report import bar, table

Progress = Callable[[int, str], None]
"""How many blows have fallen, and a remark."""


def command(
    name: str, about: str | None, title: str, trial: Callable[..., Awaitable[dict[str, Any]]], **counts: tuple[int, str]
) -> int:
    """Runs the trial of scripts/trials/`name`; returns the exit status, 1 if anything was broken.

    counts: its numbers, each with its default and what is counted; the first is of letters, the others of blows, but
    for the number of queues."""
    options = _options(name, about, counts)
    amounts = {what: getattr(options, what) for what in counts}
    folder = options.folder or Path(tempfile.mkdtemp(prefix=f"zonemta-{name.replace(' ', '-')}-"))
    console = Console(stderr=options.json)
    console.print(f"seed {options.seed}, queue and log in {folder}")
    with bar(
        console, "struck", sum(list(amounts.values())[1:]) - amounts.get("queues", 0) - amounts.get("moves", 0)
    ) as advance:
        figures = asyncio.run(trial(folder, seed=options.seed, progress=advance, **amounts))
    if options.json:
        print(json.dumps({"seed": options.seed, **figures}, indent=1))
    else:
        table(console, title, figures)
    return 1 if figures["broken"] else 0


def _options(name: str, about: str | None, counts: dict[str, tuple[int, str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"scripts/trials/{name}", description=(about or "").partition("\n\n")[0])
    for what, (default, counted) in counts.items():
        option = f"--{what.replace('_', '-')}"
        parser.add_argument(option, type=int, default=default, help=f"{counted} (default {default:,})")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run's moments")
    parser.add_argument("--folder", type=Path, help="where the queue lives; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    return parser.parse_args()
