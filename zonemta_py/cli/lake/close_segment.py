"""Before the archive is read: the running MTA closes its open segment, so that everything up to now is in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.journal import folders
from zonemta_py.queue import questions

Archive = Annotated[Path, typer.Option(metavar="DIR", help="The MTA's archive/ of closed journal segments.")]


def up_to_now(archive: Path) -> None:
    """Asks the MTA whose archive it is, if it runs. Raises CommandError where there is no such folder."""
    from zonemta_py.wire.blocking_client import QueueGone, ask

    folder = archive.resolve().parent
    if (
        not folders.beside(archive) and not (folder / "socket").exists()
    ):  # a new MTA makes it with the first segment it closes
        raise CommandError(Exit.NO_INPUT, f"{archive}: there is no such folder; name the MTA's archive/")
    if not (folder / "socket").exists():
        return  # a copy
    try:
        ask(folder, questions.rotate)
    except QueueGone:
        print(
            f"zonemta: {folder}: the MTA is not running, so what it wrote last is missing until it runs again",
            file=sys.stderr,
        )
    except ValueError as error:
        print(f"zonemta: the newest mail is missing: {error}", file=sys.stderr)
