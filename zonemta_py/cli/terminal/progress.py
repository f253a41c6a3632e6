"""A bar for long work: on a terminal only, on standard error, so that results stay clean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Move = Callable[[int, int], None]
"""(done, of how many)."""


@contextmanager
def bar(label: str) -> Iterator[Move]:
    """Shows `label` and a bar that the given function moves."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
