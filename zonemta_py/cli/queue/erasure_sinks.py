"""The part of `zonemta forget` that is about event sinks: their files, dead letters and rings on this machine."""

from __future__ import annotations

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.config import Config
from zonemta_py.events import erasure
from zonemta_py.events.cursor import FOLDER
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym


def in_sinks(config: Config, address: str, subaddresses: bool, tell: Telling) -> None:
    """Raises CommandError."""
    try:
        person = DataSubject(address, pseudonym(), subaddresses)
        letters, rings, lines, files = _erased(config, person)
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    except OSError as error:
        why = f"{error.filename}: {error.strerror}; run this again as the MTA's user"
        raise CommandError(Exit.TEMPORARY, f"what event sinks keep is not erased: {why}") from None
    if letters or rings or lines:
        free = f", {rings:,} rings removed; restart the MTA to free them" if rings else ""
        tell(f"event sinks: {lines:,} lines of {files:,} files and {letters:,} dead letters rewritten{free}")
    away = [sink.name for sink in config.event_sinks if sink.kind != "file"]
    tell(sinks={"lines": lines, "files": files, "dead_letters": letters, "rings": rings, "not_changed": away})
    if away:
        names = ", ".join(away)
        tell(f"what the event sinks {names} were sent, or have in memory, is not changed: inform their operators")


def _erased(config: Config, person: DataSubject) -> tuple[int, int, int, int]:
    found = [0, 0, 0, 0]
    folder = config.folder / FOLDER
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.is_dir():
            letters, rings = erasure.in_folder(place, person.erased)
            found[0] += letters
            found[1] += rings
    for sink in config.event_sinks:
        if sink.path is not None:
            lines, files = erasure.in_files(sink.path, person.erased)
            found[2] += lines
            found[3] += files
    return found[0], found[1], found[2], found[3]
