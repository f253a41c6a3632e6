"""Where an MTA's journals are: each of its queues has a folder with a journal and an archive of its own.

Queue 0 has the MTA's folder (`server.folder`) itself, queue k `queues/k/` in it. Whoever reads files reads those of all
queues, also of those that are no more: what they wrote is the MTA's history. Record numbers are a queue's own; where
rows of several come together, `base_of` sets them apart. Failures: OSError.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

from zonemta_py.disk.frame import Record

FOLDER = "queues"
LAYOUT = "layout"
"""The file in it that says which queues there are (`queues/layout.py`)."""
SHIFT = 52
"""By how many bits `base_of` shifts a queue's number: record numbers stay below."""


def folder_of(folder: Path, number: int) -> Path:
    """Of the queue of that number. folder: the MTA's."""
    return folder / FOLDER / str(number) if number else folder


def every(folder: Path) -> dict[int, Path]:
    """The folders of all queues that are, or were, by number. folder: the MTA's."""
    return {0: folder} | _others(folder, "")


def beside(place: Path) -> dict[int, Path]:
    """All folders of that name of the MTA, by the number of their queues. place: its archive/, or its journal/, or
    that of one queue, which is taken alone, as is one that lies elsewhere. Those that are not there are left out."""
    whole = place.resolve()
    number = whole.parent.name
    if number.isdecimal() and whole.parent.parent.name == FOLDER and (whole.parent.parent / LAYOUT).exists():
        return {int(number): place} if place.is_dir() else {}
    return ({0: place} if place.is_dir() else {}) | _others(place.parent, place.name)


def _others(folder: Path, name: str) -> dict[int, Path]:
    """With that folder in them; "": with a journal or an archive."""
    try:
        found = {int(path.name): path for path in (folder / FOLDER).iterdir() if path.name.isdecimal()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    wanted = [name] if name else ["journal", "archive"]
    return {
        number: path / name for number, path in sorted(found.items()) if any((path / one).is_dir() for one in wanted)
    }


def base_of(number: int) -> int:
    """What is added to the record numbers of that queue; 0 of queue 0, so they are what they are with one queue."""
    return number << SHIFT


def in_time(journals: Iterable[Iterator[Record]]) -> Iterator[Record]:
    """Records of several journals as one: by time, those of each in their order."""
    several = list(journals)
    return several[0] if len(several) == 1 else heapq.merge(*several, key=lambda record: record.ms)
