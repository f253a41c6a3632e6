"""`zonemta completion SHELL`, and what its script asks for each time the Tab key is pressed.

It must be quick: the command's own group is all that is loaded, and for the name of a command nothing at all. Names of
zones and sources are those of the configuration, names of campaigns and tenants those that the running queue knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import typer

ASKED = "_ZONEMTA_COMPLETE"
"""The variable by which the shell's script asks."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a shell script for Tab completion of commands and options."""
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
    for path, one in _every(command):
        for parameter in one.params:
            kind = _kind(path, parameter)
            if kind:
                parameter._custom_shell_complete = partial(_names, kind)  # click's own place for it
    command.main([], prog_name="zonemta", complete_var=ASKED)


_KINDS = ("zone", "source", "campaign", "tenant")


def _every(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _every(one, f"{path} {name}".strip())


def _kind(path: str, parameter: Any) -> str:
    """Of what an option or argument is the name; "": of nothing that is known here."""
    if parameter.name == "name":
        return {"campaign": "campaign", "suspend": "kind", "resume": "kind"}.get(path.split()[0], "")
    if parameter.name == "source" and parameter.param_type_name == "argument":
        return "source"
    word = max(parameter.opts, key=len).lstrip("-")
    return word if word in _KINDS and parameter.param_type_name == "option" else ""


def _names(kind: str, context: Any, parameter: Any, begun: str) -> list[str]:
    """Those that begin so; none if nobody can say which there are."""
    from zonemta_py.cli.run.ask_queue import ask_queue
    from zonemta_py.cli.terminal.errors import CommandError
    from zonemta_py.cli.terminal.options import configuration
    from zonemta_py.config import ConfigError
    from zonemta_py.queue import questions

    kind = context.params.get("kind", "") if kind == "kind" else kind
    try:
        config = configuration(context.params.get("config"), context.params.get("folder"))
        if kind == "zone":
            found = [zone.name for zone in config.zones]
        elif kind == "source":
            found = sorted({source.address for zone in config.zones for source in config.sources(zone)})
        elif kind == "campaign":
            found = [row["name"] for row in ask_queue(config.folder, questions.campaigns)]
        elif kind == "tenant":
            found = [row["name"] for row in ask_queue(config.folder, questions.sizes, by="tenant", limit=_MOST)["rows"]]
        else:
            found = []
    except (CommandError, ConfigError, OSError):
        return []
    return [name for name in found if name.startswith(begun)][:_MOST]


_MOST = 100
