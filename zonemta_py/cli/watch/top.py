"""`zonemta top`: the live screen of `screen.py`, on a terminal, if the library for it is there."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import ConfigFile, Folder, in_force
from zonemta_py.queue import questions


def top(
    every: Annotated[float, typer.Option(min=0.2, max=3600, metavar="SECONDS", help="Refresh interval.")] = 1.0,
    config: ConfigFile = None,
    folder: Folder = None,
) -> None:
    """Watch zones and destinations live; suspend and resume them with a keystroke.

    Keys: z zones, d destinations, p suspensions and rests; o sorts by the next column; s suspends the selected row, r
    resumes it (y confirms); q quits.
    """
    if not sys.stdout.isatty():
        raise CommandError(Exit.USAGE, "zonemta top needs a terminal; `zonemta status` prints how it is")
    try:
        from zonemta_py.cli.watch.screen import Top
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        sentence = "zonemta top needs textual; `pip install 'zonemta-py[terminal]'` installs it"
        raise CommandError(Exit.UNAVAILABLE, sentence) from None
    chosen = in_force(config, folder)
    answer(chosen, questions.now)  # what cannot be reached is said in one sentence, not on a screen
    Top(partial(answer, chosen), every).run()
