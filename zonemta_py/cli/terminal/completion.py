"""`zonemta completion SHELL`, and what its script asks for each time the Tab key is pressed.

It must be quick: the command's own group is all that is loaded, and for the name of a command nothing at all.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

import typer

ASKED = "_ZONEMTA_COMPLETE"
"""The variable by which the shell's script asks."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script by which your shell completes commands and options of zonemta with the Tab key."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="zonemta", complete_var=ASKED, shell=shell))


def wanted() -> str | None:
    """The command whose words are completed; "" for its name itself, None if no shell is asking."""
    if ASKED not in os.environ:
        return None
    if "COMP_CWORD" in os.environ:  # bash
        before = os.environ.get("COMP_WORDS", "").split()[: int(os.environ["COMP_CWORD"])]
    else:
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
        before = line.split() if line[-1:].isspace() else line.split()[:-1]
    return before[1] if len(before) > 1 else ""


def complete(command: Any) -> None:
    """Answers the shell, and ends the process."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
    command.main([], prog_name="zonemta", complete_var=ASKED)
