"""What a person sees of a trial: a progress bar while it runs, a table of figures at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


@contextmanager
def bar(console: Console, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A function that shows how many of `total` are done, and a remark."""
    columns = (
        TextColumn(what),
        BarColumn(40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, note="")
        yield lambda done, note="": progress.update(task, completed=done, note=note)


def table(console: Console, title: str, figures: dict[str, Any]) -> None:
    """One row for each figure; what is broken comes last, in red."""
    rows = Table("what", "figure", title=title)
    for name, value in figures.items():
        if name != "broken":
            rows.add_row(name.replace("_", " "), str(value))
    console.print(rows)
    for line in figures["broken"]:
        console.print(f"[red]broken[/red] {line}")
    if not figures["broken"]:
        console.print("[green]survived[/green]")
