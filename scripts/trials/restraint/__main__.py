"""trials/limits: limits of every kind, fairness, and a provider that slows down and relents, one after the other."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from survival.report import bar, table

from restraint import fairness, provider, rates, variety
from restraint.limits import DIMENSIONS, KINDS, Limit, chosen, parse

Progress = Callable[[int, str], None]


def _rates(dimension: str) -> Callable[[Path, argparse.Namespace, Progress], dict[str, Any]]:
    def run(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
        limits: list[Limit] = chosen([dimension], options.kinds)
        return _tried(folder, limits, options, progress)

    return run


def _tried(folder: Path, limits: list[Limit], options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    terms = {"seconds": options.seconds, "least": options.least, "queues": options.queues}
    return asyncio.run(rates.trial(folder, limits, **terms, progress=progress))


def _together(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    limits = list(parse(options.limits))
    return _tried(folder, limits, options, progress)


def _priority(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    return asyncio.run(fairness.priority(folder, progress=progress))


def _shares(rate: float) -> Callable[[Path, argparse.Namespace, Progress], dict[str, Any]]:
    def run(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
        return asyncio.run(fairness.shares(folder, seconds=SHARES_S, rate=rate, progress=progress))

    return run


def _provider(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    return asyncio.run(provider.trial(folder, progress=progress))


TOGETHER = "limits"
SHARES_S = 30
SHARES_RATE = 350
PROVIDER_S = 483
TRIALS: dict[str, tuple[str, int, Callable[[Path, argparse.Namespace, Progress], dict[str, Any]]]] = {
    **{name: (f"Limits on {name}", 60, _rates(name)) for name in DIMENSIONS},
    TOGETHER: ("Limits at the same time", 60, _together),
    "priority": ("100 urgent messages behind a newsletter of 100,000", 100, _priority),
    "shares": ("Campaigns of weight 1, 2 and 4 share connections", SHARES_S, _shares(0)),
    "shares-of-rate": ("Campaigns of weight 1, 2 and 4 share a rate", SHARES_S, _shares(SHARES_RATE)),
    "slow-provider": ("A provider that takes 50 a second, then more", PROVIDER_S, _provider),
}
CHOICES = [name for name in TRIALS if name != TOGETHER]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/limits", description=__doc__)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=f"which of {', '.join(CHOICES)}; default: all")
    parser.add_argument("--seconds", type=float, default=60, help="how long each limit is tried (default 60)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="which limits; default: all")
    parser.add_argument("--limits", nargs="+", metavar="DIMENSION/KIND", help="these limits alone, at the same time")
    parser.add_argument("--least", type=float, default=0.97, help="share of a limit to be reached (default 0.97)")
    parser.add_argument("--queues", type=int, default=1, help="queues that share them (default 1)")
    parser.add_argument("--random", type=int, metavar="N", help="N random configurations instead, in simulated time")
    parser.add_argument("--real", type=int, default=0, metavar="M", help="and M with real processes, of --seconds each")
    parser.add_argument("--seed", type=int, default=0, help="number of the first; each number is always the same")
    parser.add_argument("--folder", type=Path, help="where queues and logs lie; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    unknown = [name for name in options.trials if name not in CHOICES]
    if unknown:
        parser.error(f"there is no trial {unknown[0]!r}; there are {', '.join(CHOICES)}")
    if options.random is not None or options.real:
        if options.queues < 2:
            parser.error("--random is about limits that queues share; add --queues 3")
        if options.seconds == 60:
            options.seconds = 30
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-limits-"))
    console = Console(stderr=options.json)
    console.print(f"queues and logs in {folder}")
    if options.random is not None or options.real:
        return _at_random(console, folder, options)
    trials = [TOGETHER] if options.limits else options.trials or CHOICES
    figures = {name: _run(console, name, folder / name, options) for name in trials}
    if options.json:
        print(json.dumps(figures, indent=1))
    return 1 if any(row["broken"] for row in figures.values()) else 0


def _at_random(console: Console, folder: Path, options: argparse.Namespace) -> int:
    first, queues, figures = options.seed, options.queues, dict[str, Any]()
    if options.random:
        title = f"Random configurations of {queues} queues, simulated"
        with bar(console, title, options.random) as progress:
            figures["simulated"] = variety.simulate(first, options.random, queues, progress)
        table(console, title, figures["simulated"])
    if options.real:
        title = f"Random configurations of {queues} queues, {options.seconds:g} s each"
        with bar(console, title, options.real) as progress:
            figures["real"] = variety.real(folder, first, options.real, queues, options.seconds, progress)
        table(console, title, figures["real"])
    if options.json:
        print(json.dumps(figures, indent=1))
    return 1 if any(row["broken"] for row in figures.values()) else 0


def _run(console: Console, name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    title, total, trial = TRIALS[name]
    folder.mkdir(parents=True, exist_ok=True)
    with bar(console, title, int(options.seconds) if name in (*DIMENSIONS, TOGETHER) else total) as progress:
        figures = trial(folder, options, progress)
    if "limits" in figures:
        _limits(console, title, figures)
    else:
        table(console, title, figures)
    return figures


def _limits(console: Console, title: str, figures: dict[str, Any]) -> None:
    """A row for each kind of limit: what it allows at once, what was granted and came at once, how much was reached."""
    columns = ("kind", "limit", "buckets", "at once", "granted", "came", "reached", "away")
    rows = Table(*columns, title=title)
    for row in figures["limits"]:
        granted = "" if row["granted"] is None else f"{row['granted']:,.2f}"
        reached = f"{row['reached_least']:.1%}"
        rows.add_row(
            row["kind"], row["limit"], str(row["buckets"]), f"{row['burst']:,g}", granted,
            f"{row['came']:,.2f}", reached, f"{row['away_s']:.2f} s",
        )  # fmt: skip
    console.print(rows)
    for line in figures["broken"]:
        console.print(f"[red]broken[/red] {line}")
    if not figures["broken"]:
        console.print("[green]kept[/green]")


if __name__ == "__main__":
    sys.exit(main())
