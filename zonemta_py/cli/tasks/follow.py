"""A task as it goes on: asked for again and again, with a bar on a terminal; and what is said of it at its end.

A task is the queue's: whoever stops following it, by Ctrl-C or a broken connection, leaves it as it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.output import bar, counted, print_aside, print_json
from zonemta_py.config import Config
from zonemta_py.queue import questions

Row = questions.TaskRow
_LOOK_S = 0.05
_LOOK_MAX_S = 0.5
_DONE = {
    "delete": "deleted", "purge": "purged", "hold": "held", "release": "released", "flush": "tried now",
    "move": "moved", "set": "changed", "requeue": "queued again",
}  # fmt: skip


def until(config: Config, row: Row, over: Callable[[Row], bool], label: str) -> Row:
    """The row, once it is `over`. Raises CommandError."""
    pause = _LOOK_S
    try:
        with bar(label) as move:
            while not over(row):
                time.sleep(pause)
                pause = min(pause * 1.5, _LOOK_MAX_S)
                row = answer(config, questions.task_row, id=row["id"])
                move(row["done"], row["count"] or 0)
    except KeyboardInterrupt:
        if row["state"] == "running":
            said = f"task {row['id']} continues; `zonemta task cancel {row['id']}` stops it, `task undo` undoes it"
            print(f"zonemta: {said}", file=sys.stderr)
        raise
    return row


def done(row: Row) -> bool:
    return row["state"] not in ("counting", "running")


def to_the_end(config: Config, row: Row) -> Row:
    """Raises CommandError."""
    return until(config, row, done, row["words"])


def tell(row: Row, json: bool) -> None:
    """How it ended, and how it is undone."""
    if json:
        return print_json(row)
    if row["undone"] or row["state"] == "undone":
        some = f"{row['undone']:,} of {counted(row['done'], 'recipient')}"
        print_aside(f"{some} {_are(row['undone'])} as they were before task {row['id']}")
        if row["undone"] < row["done"]:
            print_aside("the others have been sent, tried or changed since, or their zone is gone")
        return None
    word = _DONE.get(row["verb"], "done")
    if row["state"] == "running":
        print_aside(f"task {row['id']} runs; `zonemta task follow {row['id']}` shows how far it is")
    else:
        zones = ", ".join(f"{zone}: {count:,}" for zone, count in sorted(row["zones"].items())[:_ZONES_SHOWN])
        stopped = "canceled; " if row["state"] == "canceled" else ""
        print_aside(
            f"{stopped}{counted(row['done'], 'recipient')} {_are(row['done'])} {word}"
            + (f" ({zones})" if len(row["zones"]) > 1 else "")
        )
    for remark in row["remarks"]:
        print_aside(remark)
    if row["undoable"]:
        end = when.until(row["undo_until_ms"], int(time.time() * 1000), "it has ended") if row["undo_until_ms"] else ""
        print_aside(f"undo: zonemta task undo {row['id']}" + (f" (until {end})" if end else ""))
    return None


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


_ZONES_SHOWN = 5
