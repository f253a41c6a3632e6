"""Quarantine: what is damaged is moved aside with a note, never deleted (the promise, point 4).

Each case is a folder `quarantine/<time>-<what>/` that holds the damaged bytes and `note.json`: what was found, where,
which messages it concerns, and what a person can do. One incident is one case, however many messages it has cost.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import replace_file, sync, write_file

log = logging.getLogger(__name__)

HARMLESS = "torn"
"""What such a case has kept was never acknowledged: nobody misses it."""


class Quarantine:
    """The folder; `case` makes one place in it, and says so. fresh: cases since somebody looked: name, and what is
    wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fresh: list[tuple[str, str]] = []

    def case(self, what: str, note: dict[str, Any], contents: dict[str, bytes] | None = None) -> Path:
        """Writes a note and some bytes, synced; returns the case's folder. Raises OSError, and leaves nothing then."""
        place = self._fresh(what)
        try:
            for name, data in (contents or {}).items():
                write_file(place / name, data)
            write_file(place / "note.json", json.dumps(note, indent=1, ensure_ascii=False, default=str).encode())
            sync(place)
            sync(self.folder)
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        what_is_wrong = str(note.get("error", what))
        level = logging.WARNING if what == HARMLESS else logging.ERROR
        log.log(level, "damage: %s; what is left is in quarantine/%s", what_is_wrong, place.name)
        if what != HARMLESS:
            self.fresh.append((place.name, what_is_wrong))
        return place

    def move(self, what: str, note: dict[str, Any], path: Path) -> Path:
        """Moves a file or folder there."""
        place = self.case(what, note)
        path.rename(place / path.name)
        return place

    def copy(self, what: str, note: dict[str, Any], paths: list[Path]) -> Path:
        """Copies files or folders there, for when the original has to be repaired in place; synced.

        Raises OSError, and leaves nothing then: retries on a full disk must not fill it with partial copies.
        """
        place = self.case(what, note)
        try:
            for path in paths:
                if path.is_dir():
                    shutil.copytree(path, place / path.name, copy_function=_copy)
                elif path.exists():
                    _copy(str(path), str(place / path.name))
            _sync_folders(place)
        except (OSError, shutil.Error):
            shutil.rmtree(place, ignore_errors=True)
            raise
        return place

    def incident(self, what: str, note: dict[str, Any]) -> Incident:
        """A case for all messages that one incident has damaged. Raises OSError."""
        return Incident(self.case(what, note | {"messages": []}), note)

    def cases(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*"))

    def _fresh(self, what: str) -> Path:
        stem = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + what
        for number in range(1, 10_000):
            place = self.folder / (stem if number == 1 else f"{stem}-{number}")
            try:
                place.mkdir(parents=True)
            except FileExistsError:
                continue
            return place
        raise FileExistsError(f"{self.folder}: too many cases named {stem}; move old ones out of the folder")


def _copy(source: str, target: str) -> None:
    """A table of LevelDB's is never written again, so a second name for it is as good as its bytes."""
    if source.endswith(".ldb"):
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)
    sync(Path(target))


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        sync(Path(folder))


class Incident:
    """One case that grows. `rows` stand in its note under "messages", as of the last `save`."""

    def __init__(self, place: Path, note: dict[str, Any]) -> None:
        self.place, self._note = place, note
        self.rows: list[dict[str, Any]] = []

    def add(self, message_id: str, row: dict[str, Any], contents: dict[str, bytes]) -> None:
        """Writes what is left of a message to files named after it. Raises OSError."""
        for name, data in contents.items():
            write_file(self.place / f"{message_id}-{name}", data)
        self.rows.append({"message": message_id, **row})

    def save(self) -> None:
        """Raises OSError; then the previous note stays."""
        text = json.dumps(self._note | {"messages": self.rows}, indent=1, ensure_ascii=False, default=str)
        replace_file(self.place / "note.json", text.encode())
