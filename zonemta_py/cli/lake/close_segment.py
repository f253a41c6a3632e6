"""Before the archive is read: the running MTA closes its open segment, so that everything up to now is in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.config.file import of_text
from zonemta_py.journal import folders
from zonemta_py.queue import questions
from zonemta_py.queue.reload import history

if TYPE_CHECKING:
    from zonemta_py.pipeline.journal.reader import Archive as Archives

Archive = Annotated[Path, typer.Option(metavar="DIR", help="The MTA's archive/ of closed journal segments.")]


def of_nodes(places: Sequence[str]) -> list[Archives]:
    """As given on a command line: NODE=DIR, or DIR, whose node is the one that its MTA was in a cluster last; "": in
    none. Each is brought up to now. Raises CommandError."""
    from zonemta_py.pipeline.journal.reader import Archive

    found: list[Archives] = []
    for place in places:
        archive = Archive.read(place)
        up_to_now(archive.folder)
        found.append(archive if archive.node else Archive(archive.folder, node_of(archive.folder)))
    return found


def node_of(archive: Path) -> str:
    """By the configuration that its MTA had last; "": it was in no cluster, or nothing says so."""
    try:
        origin = history.newest(archive.resolve().parent)
        config = of_text(Path(origin.path), origin.text) if origin.text else None
    except (OSError, ValueError):
        return ""
    return config.node if config is not None and config.cluster.enabled else ""


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
