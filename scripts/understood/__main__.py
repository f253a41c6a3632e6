"""scripts/replies: prints how well the rules understand each collection of replies."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from understood import replies

COLUMNS = {
    "number": "replies", "class_right": "class right %", "hard_right": "hard/soft right %", "undefined": "undefined %",
    "false_suppressions": "false suppressions", "suppressed": "suppressed by one %",
}  # fmt: skip
LAST = "unseen_final"
"""Measured only when it is named: a look at its misses spoils it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replies", description=__doc__)
    names = sorted(path.stem for path in replies.FOLDER.glob("*.jsonl"))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(names)}; default: all but {LAST}"
    )
    parser.add_argument(
        "--rules", type=Path, action="append", default=[], help="a file of rules before the shipped one"
    )
    parser.add_argument("--show", action="store_true", help="every miss of an unseen collection, too: this spoils it")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"there is no collection {unknown[0]!r}; there are {', '.join(names)}")
    rules = replies.Rules.load([*options.rules, replies.RULES])
    chosen = options.names or [name for name in names if name != LAST]
    found = {name: replies.measured(rules, replies.read(replies.FOLDER / f"{name}.jsonl")) for name in chosen}
    if options.json:
        print(json.dumps({name: asdict(replies.figures(ones)) for name, ones in found.items()}, indent=1))
    else:
        _print(Console(), found, options.show)
    return 0


def _print(console: Console, found: dict[str, list[replies.Understood]], show: bool) -> None:
    table = Table(title="Replies", title_justify="left")
    table.add_column("")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    for name, ones in found.items():
        table.add_row(name, *(str(value) for value in asdict(replies.figures(ones)).values()))
    console.print(table)
    for name, ones in found.items():
        if name == "seen" or show:
            _confusion(console, name, ones)
            _misses(console, name, ones)


def _confusion(console: Console, name: str, ones: list[replies.Understood]) -> None:
    table = Table(title=f"Confused in {name}", title_justify="left")
    for heading in ("is", "taken for", "times"):
        table.add_column(heading)
    for right, wrong, number in replies.confusion(ones):
        table.add_row(right, wrong, str(number))
    console.print(table)


def _misses(console: Console, name: str, ones: list[replies.Understood]) -> None:
    for one in ones:
        wrong = [] if one.class_right else [f"{one.kind} instead of {' or '.join(one.entry.kinds)}"]
        wrong += [] if one.hard_right else ["given up" if one.hard else "tried again"]
        wrong += ["suppressed"] if one.falsely_suppressed else []
        if wrong:
            said = f"{one.entry.stage} {one.entry.provider}".strip()
            text = f"{name}: {', '.join(wrong)} (rule {one.rule or 'none'}): {said}: {one.entry.text}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
