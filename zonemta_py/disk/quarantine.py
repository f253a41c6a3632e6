"""Quarantine: what is damaged is moved aside with a note, never deleted (the promise, point 4).

Each case is a folder `quarantine/<time>-<what>/` that holds the damaged bytes and `note.json`: what was found, where,
which messages it concerns, and what a person can do.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any


class Quarantine:
    """The folder; `case` makes one place in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def case(self, what: str, note: dict[str, Any], contents: dict[str, bytes] | None = None) -> Path:
        """Writes a note and some bytes, synced; returns the case's folder. Raises OSError, and leaves nothing then."""
        place = self._fresh(what)
        try:
            for name, data in (contents or {}).items():
                _write(place / name, data)
            _write(place / "note.json", json.dumps(note, indent=1, ensure_ascii=False, default=str).encode())
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return place

    def move(self, what: str, note: dict[str, Any], path: Path) -> Path:
        """Moves a file or folder there."""
        place = self.case(what, note)
        path.rename(place / path.name)
        return place

    def copy(self, what: str, note: dict[str, Any], paths: list[Path]) -> Path:
        """Copies files or folders there, for when the original has to be mended in place."""
        place = self.case(what, note)
        for path in paths:
            if path.is_dir():
                shutil.copytree(path, place / path.name)
            elif path.exists():
                shutil.copy2(path, place / path.name)
        os.sync()  # the copies must be there before the original is mended
        return place

    def cases(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.is_dir() else []

    def _fresh(self, what: str) -> Path:
        stem = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + what
        for number in range(1, 10_000):
            place = self.folder / (stem if number == 1 else f"{stem}-{number}")
            try:
                place.mkdir(parents=True)
            except FileExistsError:
                continue
            return place
        raise FileExistsError(f"{self.folder}: too many cases named {stem}; clear the folder")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
