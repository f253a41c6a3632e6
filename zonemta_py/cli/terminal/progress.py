"""A bar for long work: on a terminal only, on standard error, so that results stay clean."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Move(Protocol):
    def __call__(self, done: int, total: int, label: str = "", /) -> None:
        """label: another one from now on."""


@contextmanager
def bar(label: str) -> Iterator[Move]:
    """Shows `label` and a bar that the given function moves."""
    if not sys.stderr.isatty():
        yield lambda done, total, label="": None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None)

        def move(done: int, total: int, said: str = "", /) -> None:
            shown.update(task, completed=done, total=total, description=escape(said or label))

        yield move
