"""The Spark session of a command, and how the pipeline's errors become one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.output import bar

if TYPE_CHECKING:
    from zonemta_py.pipeline.spark.session import SparkSession

Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark master, spark://host:port; default: this machine.")
]
Memory = Annotated[float, typer.Option(metavar="GB", min=0.5, help="Memory for Spark on this machine.")]


@contextmanager
def spark(master: str | None = None, memory_gb: float = 2, long: bool = False) -> Iterator[SparkSession]:
    """A session for one command; ends with it, if it is its own. Raises CommandError where Spark cannot run.

    long: for minutes of work (`pipeline.session`).
    """
    try:
        from zonemta_py.pipeline.spark.session import Unavailable, running, session

        before = running()
    except ImportError as error:
        sentence = f"{error.name}: not installed; `pip install 'zonemta-py[pipeline]'` installs it"
        raise CommandError(Exit.UNAVAILABLE, sentence) from None
    try:
        with bar("starting Spark"):
            one = session(master, memory_gb, long=long)
    except Unavailable as error:
        raise CommandError(Exit.UNAVAILABLE, str(error)) from None
    try:
        yield one
    finally:
        if before is None:
            one.stop()


@contextmanager
def told() -> Iterator[None]:
    """Turns the pipeline's expected errors into CommandError."""
    from zonemta_py.pipeline.journal.reader import Damaged
    from zonemta_py.pipeline.lake.bronze import Foreign
    from zonemta_py.pipeline.lake.table import Busy, Missing

    try:
        yield
    except (Damaged, Foreign) as error:
        raise CommandError(Exit.DATA, str(error)) from None
    except Busy as error:
        raise CommandError(Exit.TEMPORARY, str(error)) from None
    except Missing as error:
        raise CommandError(Exit.NO_INPUT, str(error)) from None
    except OSError as error:
        raise from_os(error) from None
