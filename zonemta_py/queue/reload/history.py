"""The configurations that this queue has had: who gave it each, when, and what was different.

One file each below configurations/ in the queue's folder, readable by its owner only, since secrets are in it as they
are in the configuration: the file's text, to go back to, and every key's value, to compare. KEPT of them are kept.
What people see of them (`rows`) has no secrets. Failures: OSError of the disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zonemta_py.config import Config
from zonemta_py.config.difference import difference, leaves
from zonemta_py.config.file import SourceFile
from zonemta_py.disk.files import replace_file

FOLDER = "configurations"
KEPT = 50


def add(folder: Path, config: Config, origin: SourceFile, by: str, ms: int) -> int:
    """Writes it down, unless it is the one before; returns its number. Raises OSError."""
    place = folder / FOLDER
    place.mkdir(mode=0o700, exist_ok=True)
    numbers, values = _numbers(place), leaves(config)
    last = numbers[-1] if numbers else 0
    before = _read(place, last)
    if before is not None and (before["values"], before["text"], before["file"]) == (values, origin.text, origin.path):
        return last
    row = {"number": last + 1, "ms": ms, "by": by, "file": origin.path, "text": origin.text, "values": values}
    replace_file(_path(place, last + 1), json.dumps(row).encode() + b"\n", 0o600)
    for number in numbers[: max(0, len(numbers) + 1 - KEPT)]:
        _path(place, number).unlink(missing_ok=True)
    return last + 1


def rows(folder: Path) -> list[dict[str, Any]]:
    """Newest first: number, ms, by, file, and what it changed. Raises OSError."""
    place = folder / FOLDER
    found: list[dict[str, Any]] = []
    before: dict[str, Any] | None = None
    for number in _numbers(place):
        row = _read(place, number)
        if row is None:
            continue
        changes = [list(one) for one in difference(before["values"], row["values"])] if before is not None else []
        found.append({key: row[key] for key in ("number", "ms", "by", "file")} | {"changes": changes})
        before = row
    return found[::-1]


def text(folder: Path, number: int) -> SourceFile:
    """The file as it was. Raises ValueError, OSError."""
    row = _read(folder / FOLDER, number)
    if row is None:
        raise ValueError(f"there is no configuration {number} any more; `zonemta config history` lists those there are")
    return SourceFile(row["file"], row["text"])


def forget(folder: Path, before: int | None = None) -> int:
    """Removes those with smaller numbers, and the secrets in them; all but the newest by default. How many there were.
    Raises OSError."""
    place = folder / FOLDER
    numbers = _numbers(place)
    gone = [number for number in numbers[:-1] if before is None or number < before]
    for number in gone:
        _path(place, number).unlink(missing_ok=True)
    return len(gone)


def newest(folder: Path) -> SourceFile:
    """The file of the latest as it was; empty if there is none. Raises OSError."""
    numbers = _numbers(folder / FOLDER)
    row = _read(folder / FOLDER, numbers[-1]) if numbers else None
    return SourceFile(row["file"], row["text"]) if row is not None else SourceFile()


def _path(place: Path, number: int) -> Path:
    return place / f"{number:06d}.json"


def _numbers(place: Path) -> list[int]:
    return sorted(int(path.stem) for path in place.glob("*.json") if path.stem.isdigit()) if place.is_dir() else []


def _read(place: Path, number: int) -> dict[str, Any] | None:
    """None: it is not there, or damaged."""
    try:
        row: dict[str, Any] = json.loads(_path(place, number).read_text())
        return row if {"number", "ms", "by", "file", "text", "values"} <= row.keys() else None
    except (FileNotFoundError, ValueError, AttributeError):
        return None
