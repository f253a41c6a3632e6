"""`zonemta backup DIR`: a consistent copy of a queue that is running."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import Telling


def backup(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for the copy; must not exist yet.")],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Copy the running queue to a new folder. Mail continues to flow, and little is copied: most of it is hard-linked.

    To restore: zonemta run --folder DIR (or a copy of DIR), then zonemta queue adopt.
    """
    if directory.exists():
        raise CommandError(Exit.CANT_CREATE, f"{directory}: already exists; name a new folder")
    made = Path(answer(configuration(config, folder), "backup"))
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            made.rename(directory)
        except OSError:  # another file system
            shutil.copytree(made, directory)
        os.sync()
    finally:
        shutil.rmtree(made, ignore_errors=True)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    with Telling(json) as tell:
        tell(f"{directory}: {size:,} bytes; it sends nothing until `zonemta queue adopt`", folder=directory, bytes=size)
