"""`zonemta task …`: what was ordered for many recipients at once; how far it is, its end, and its undoing."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.running import me
from zonemta_py.cli.tasks import follow
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import moment, print_json, print_table, sentence
from zonemta_py.queue import questions

app = typer.Typer(
    help="Show, cancel and undo tasks: queue delete, hold, release, flush, move, set, requeue and purge.",
    no_args_is_help=True,
)
Id = Annotated[str, typer.Argument(metavar="ID", help="Number of the task, as `zonemta task list` shows it.")]
_ORDER = ("id", "what", "state", "done", "of", "undo until")


@app.command("list")
@tabled
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Rows to show.")] = 100, config: ConfigFile = None,
    folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """List tasks, newest first; finished ones are listed for 30 days."""
    rows = answer(in_force(config, folder), questions.tasks, limit=limit)
    if json:
        return print_json(rows)
    cells = [
        (row["id"], row["words"], row["state"], row["done"], row["count"], moment(row["undo_until_ms"]), row["by"],
         moment(row["created_ms"]), sentence(row["cause"]))
        for row in rows
    ]  # fmt: skip
    columns = ("id", "what", "state", "done ", "of ", "undo until", "by", "ordered", "cause")
    return print_table(f"Tasks: {len(rows)}", columns, cells, order=_ORDER, keys=("id",))


@app.command()
@tabled
def show(id: Id, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show one task: the order, who gave it, progress, and examples of what it changed."""
    row = answer(in_force(config, folder), questions.task_row, id=id)
    if json:
        return print_json(row)
    now_ms = int(time.time() * 1000)
    undo = when.until(row["undo_until_ms"], now_ms, "it ends") if row["undoable"] else "not possible"
    shown = [
        ("what", row["words"]), ("state", row["state"]), ("by", row["by"]), ("cause", row["cause"]),
        ("done", f"{row['done']:,}"), ("of", "" if row["count"] is None else f"{row['count']:,}"),
        ("undone", f"{row['undone']:,}"), ("ordered", when.since(row["created_ms"], now_ms)),
        ("ended", when.since(row["ended_ms"], now_ms)), ("can be undone until", undo),
        *(("note", one) for one in row["remarks"]),
        *((f"zone {zone}", f"{count:,}") for zone, count in sorted(row["zones"].items())),
        *((one["id"], one["recipient"]) for one in row["examples"]),
    ]  # fmt: skip
    return print_table(f"Task {row['id']}", ("about", "value"), [one for one in shown if one[1]])


@app.command()
def cancel(id: Id, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Stop a running task. Changes already made remain, and can be undone."""
    chosen = in_force(config, folder)
    follow.tell(follow.to_the_end(chosen, answer(chosen, questions.task_cancel, id=id, by=me())), json)


@app.command()
def undo(id: Id, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Undo a task, except for recipients sent to since."""
    chosen = in_force(config, folder)
    follow.tell(follow.to_the_end(chosen, answer(chosen, questions.task_undo, id=id, by=me())), json)


@app.command("follow")
def follow_(id: Id, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show a task's progress until it ends; Ctrl-C leaves it running."""
    chosen = in_force(config, folder)
    follow.tell(follow.to_the_end(chosen, answer(chosen, questions.task_row, id=id)), json)
