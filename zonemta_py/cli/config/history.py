"""`zonemta config history`, `diff`, `back` and `forget`: the configurations this MTA has had, and the way back to one.

They are kept by the MTA itself, in its folder; the commands read them there, so that they work when it is stopped too.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.run.folder import check_unlocked
from zonemta_py.cli.run.running import check_file, order, tell, written
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, in_force, tabled
from zonemta_py.cli.terminal.output import Telling, moment, print_json, print_table, printable
from zonemta_py.config import Config
from zonemta_py.config.file import of_text
from zonemta_py.disk.files import fresh_file
from zonemta_py.queue.reload import history as kept

_SHOWN = 3
_MODE = 0o600

Number = Annotated[int, typer.Argument(metavar="N", help="Its number, as `zonemta config history` shows it.")]


@tabled
def history(
    number: Annotated[
        int | None, typer.Argument(metavar="N", help="Only this one, with all its changes.")
    ] = None,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """List the configurations that this MTA has used, newest first: who applied each, when, and what it changed."""
    found = _rows(in_force(config, folder).folder)
    if number is not None:
        found = [row for row in found if row["number"] == number]
        if not found:
            raise CommandError(Exit.DATA, f"there is no configuration {number}; leave the number out to see all")
    if json:
        print_json(found)
    elif number is not None:
        changes = [tuple(map(written, change)) for change in found[0]["changes"]]
        print_table(_title(found[0]), ["key", "before", "after"], changes, order=("key", "after"))
    else:
        rows = [(row["number"], moment(row["ms"]), printable(row["by"]), _short(row["changes"])) for row in found]
        print_table("", ["number ", "since", "by", "changed"], rows)


def diff(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show the differences between the configuration file and the running configuration (zonemta reload --check)."""
    chosen = configuration(config, folder)
    check_file(chosen, config)
    tell(order(chosen, check=True), check=True, json=json)


def back(
    number: Number,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the file even if its changes were never applied.")
    ] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Roll back: write an earlier configuration to its file, and apply it if the MTA is running."""
    settings = in_force(config, folder)
    try:
        origin = kept.text(settings.folder, number)
        if not origin.path:
            raise CommandError(Exit.DATA, f"configuration {number} came from no file: it was the built-in defaults")
        file = Path(origin.path)
        of_text(file, origin.text)  # it may be of an earlier version
        before = file.read_text() if file.exists() else ""
        if before != kept.newest(settings.folder).text and not force:
            raise CommandError(Exit.DATA, f"{file}: has changes that were never applied; keep a copy, then use --force")
        _write(file, origin.text)
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None
    except OSError as error:
        raise from_os(error) from None
    with Telling(json) as said:
        said(file=file, number=number, generation=None, now=None, changes=[], later=[])
        _put_in_force(settings, file, before, number, said, json)


def forget(
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="N", help="Only those with lower numbers; default: all but the newest."),
    ] = None,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Delete earlier configurations, with the old passwords and keys in them."""
    settings = in_force(config, folder)
    _rows(settings.folder)
    try:
        count = kept.forget(settings.folder, before)
    except OSError as error:
        raise from_os(error) from None
    with Telling(json) as said:
        said(f"{count} earlier configuration{'' if count == 1 else 's'} removed", removed=count)


def _put_in_force(settings: Config, file: Path, before: str, number: int, said: Telling, json: bool) -> None:
    """Raises CommandError."""
    if _stopped(settings):
        said(f"{file}: is configuration {number} again; it holds from the next start on")
        return
    try:
        found = order(settings)
        if not json or found["refused"]:
            tell(found, check=False)
    except CommandError:
        _write(file, before)
        raise
    taken = {name: found[name] for name in ("generation", "changes", "later", "plugins")}
    said(f"{file}: is configuration {number} again", now=found["number"], **taken)


def _stopped(settings: Config) -> bool:
    try:
        check_unlocked(settings.folder)
    except CommandError:
        return False
    return True


def _write(file: Path, text: str) -> None:
    """With the rights and the owner that it has; where it is a link, what that leads to. A full disk leaves it whole,
    where the folder may be written to."""
    file = file.resolve()
    about = file.stat() if file.exists() else None
    if about is not None and not (os.access(file.parent, os.W_OK) and os.geteuid() in (0, about.st_uid)):
        file.write_text(text)
        return
    with fresh_file(file, _MODE) as fresh:
        if about is not None:
            os.fchown(fresh.fileno(), about.st_uid, about.st_gid)
            os.fchmod(fresh.fileno(), stat.S_IMODE(about.st_mode))
        fresh.write(text.encode())


def _rows(folder: Path) -> list[dict[str, Any]]:
    try:
        if not (folder / kept.FOLDER).is_dir():
            sentence = f"{folder}: contains no configurations; name the MTA's folder with --folder or --config"
            raise CommandError(Exit.NO_INPUT, sentence)
        return kept.rows(folder)
    except OSError as error:
        raise from_os(error) from None


def _title(row: dict[str, Any]) -> str:
    return f"Configuration {row['number']}, since {moment(row['ms'])}, given by {printable(row['by'])}"


def _short(changes: list[list[Any]]) -> str:
    names = ", ".join(printable(key) for key, _, _ in changes[:_SHOWN])
    return f"{names} and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else names
