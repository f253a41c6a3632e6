"""scripts/replies: prints how well rules understand collections of replies, and readers one of returned mail."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from understood import replies, reports

COLUMNS = {
    "number": "number", "class_right": "class right %", "hard_right": "hard/soft right %", "undefined": "undefined %",
    "false_suppressions": "false suppressions", "suppressed": "suppressed by one %", "kind_right": "kind right %",
    "recipient_and_hard_right": "recipient and hard/soft right %",
    "bounces_right": "the same of bounces %", "false_bounces": "false bounces",
    "spurious": "news of nobody",
}  # fmt: skip
LAST = "_final"
"""Collections whose names end so are measured only when they are named: a look at their misses spoils them."""
REPORTS = tuple(sorted(path.stem for path in reports.FOLDER.glob("*.jsonl")))
"""Collections of mail that comes back."""
SEEN = "seen"
"""Collections whose names begin so may be read."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replies", description=__doc__)
    names = [*sorted(path.stem for path in replies.FOLDER.glob("*.jsonl")), *REPORTS]
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(names)}; default: all but *{LAST}"
    )
    parser.add_argument(
        "--rules", type=Path, action="append", default=[], help="a file of rules before the shipped one"
    )
    parser.add_argument("--show", action="store_true", help=f"misses of all, not only of {SEEN}*: this spoils them")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"there is no collection {unknown[0]!r}; there are {', '.join(names)}")
    rules = replies.Rules.load([*options.rules, replies.RULES])
    chosen = options.names or [name for name in names if not name.endswith(LAST)]
    of_replies = {
        name: replies.measured(rules, replies.read(replies.FOLDER / f"{name}.jsonl"))
        for name in chosen
        if name not in REPORTS
    }
    of_reports = {
        name: reports.measured(rules, reports.read(reports.FOLDER / f"{name}.jsonl"))
        for name in chosen
        if name in REPORTS
    }
    figures = {name: asdict(replies.figures(ones)) for name, ones in of_replies.items()}
    figures |= {name: asdict(reports.figures(ones)) for name, ones in of_reports.items()}
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    console = Console(soft_wrap=True, highlight=False)
    _tables(console, figures)
    for name, ones in of_replies.items():
        if name.startswith(SEEN) or options.show:
            _confusion(console, name, ones)
            _misses(console, name, ones)
    for name, mails in of_reports.items():
        if options.show:
            _missed_reports(console, name, mails)
    return 0


def _tables(console: Console, figures: dict[str, dict[str, Any]]) -> None:
    for title, part in (("Replies", set(figures) - {*REPORTS}), ("Mail that comes back", {*REPORTS})):
        rows = {name: row for name, row in figures.items() if name in part}
        table = Table("", title=title, title_justify="left")
        for key in next(iter(rows.values()), {}):
            table.add_column(COLUMNS[key], justify="right")
        for name, row in rows.items():
            table.add_row(name, *(str(value) for value in row.values()))
        if rows:
            console.print(table)


def _confusion(console: Console, name: str, ones: list[replies.Understood]) -> None:
    table = Table("is", "taken for", "times", title=f"Confused in {name}", title_justify="left")
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
            console.print(text, markup=False)


def _missed_reports(console: Console, name: str, mails: list[reports.Understood]) -> None:
    for number, mail in enumerate(mails, 1):
        for one in mail.news:
            if not (one.kind_right and one.recipient_right and one.hard_right and one.class_right):
                made = (
                    f"{one.found.kind} {one.found.recipient} {one.kind}: {one.found.reply}" if one.found else "nothing"
                )
                console.print(f"{name} {number} ({mail.form or 'no form'}): {one.expected}: {made}", markup=False)
        for found in mail.spurious:
            console.print(f"{name} {number} ({mail.form or 'no form'}): news of nobody: {found}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
