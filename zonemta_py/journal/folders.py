"""Where an MTA's journals are: each of its queues has a folder with a journal and an archive of its own.

Queue 0 has the MTA's folder (`server.folder`) itself, queue k `queues/k/` in it, and one that there is no more
`queues/k.gone-TIME/`. On a node of a cluster another one than queue 0 may have the folder itself, its *home* queue.
Whoever reads files reads those of all: they are the MTA's history. Each journal has a source, a number that stays the
same when its folder is set aside, or copied whole: 0 of the home queue, of others made of the queue's number and name.
Record numbers are a journal's own; where rows of several come together, `base_of` sets them apart.
Failures: OSError.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

from zonemta_py.disk import identity
from zonemta_py.disk.frame import Record
from zonemta_py.journal import segments

FOLDER = "queues"
LAYOUT = "layout"
"""The file in it that says which queues there are (`queues/layout.py`)."""
GONE = ".gone-"
"""Behind the number of a queue that there is no more, and before the time at which it went, UNIX ms."""
QUEUES_MAX = 64
SHIFT = 44
"""By how many bits `base_of` shifts a source: record numbers stay below."""
_NAMES = 1 << 63 - SHIFT - 6
"""How many the queues of one number can have, as far as sources tell them apart."""


def folder_of(folder: Path, number: int) -> Path:
    """Of the queue of that number. folder: the MTA's."""
    return folder if number == home_of(folder) else folder / FOLDER / str(number)


def mta_of(folder: Path) -> Path:
    """The MTA's folder. folder: its own, or that of one of its queues."""
    beside = folder.parent
    inside = beside.name == FOLDER and folder.name.isdecimal() and (beside / LAYOUT).exists()
    return beside.parent if inside else folder


def home_of(folder: Path) -> int:
    """The number of the queue that has the MTA's folder itself: 0, or of a node of a cluster what it was given."""
    try:
        return int(json.loads((folder / FOLDER / LAYOUT).read_bytes())["home"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def every(folder: Path) -> dict[int, Path]:
    """The folders of all queues that are, or were, by source. folder: the MTA's."""
    names = "journal", "archive"
    return {_home_source(folder): folder} | _by_source(
        one for one in _others(folder) if any((one / name).is_dir() for name in names)
    )


def beside(place: Path) -> dict[int, Path]:
    """All folders of that name of the MTA, by source. place: its archive/, or its journal/, or that of one queue,
    which is taken alone, as is one that lies elsewhere. Those that are not there are left out."""
    queue, there = place.resolve().parent, place.is_dir()
    if queue.parent.name == FOLDER and _number(queue) >= 0 and (queue.parent.parent / "journal").is_dir():
        return {_source(queue): place} if there else {}
    others = _by_source(one for one in _others(place.parent) if (one / place.name).is_dir() or is_gone(one))
    return ({_home_source(place.parent): place} if there else {}) | {
        source: one / place.name for source, one in others.items()
    }


def files(place: Path) -> list[Path]:
    """The segments of an archive, or a journal; of the archive of a queue that there is no more, those of its journal
    too, which nobody moves there any more."""
    if place.name == "archive" and is_gone(place.parent):
        return segments.every_file(place.parent / "journal", place)
    return segments.files(place)


def is_gone(folder: Path) -> bool:
    """Whether it is that of a queue that there is no more."""
    return GONE in folder.name and _number(folder) >= 0


def queue_of(source: int) -> int:
    """The number of the queue."""
    return source % QUEUES_MAX


def base_of(source: int) -> int:
    """What is added to the journal's record numbers; 0 of queue 0, so they are what they are with one queue."""
    return source << SHIFT


def in_time(journals: Iterable[Iterator[Record]]) -> Iterator[Record]:
    """Records of several journals as one: by time, those of each in their order."""
    several = list(journals)
    return several[0] if len(several) == 1 else heapq.merge(*several, key=lambda record: record.ms)


def _others(folder: Path) -> list[Path]:
    """Of queues but for the one that has the folder itself."""
    home = home_of(folder)
    try:
        found = [path for path in (folder / FOLDER).iterdir() if _number(path) > (-1 if home else 0)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda path: (_number(path), path.name))


def _by_source(folders: Iterable[Path]) -> dict[int, Path]:
    """In the order of sources."""
    found = dict[int, Path]()
    for folder in folders:
        source = _source(folder)
        while source in found:  # another queue's of that number: none is left out
            source += QUEUES_MAX
        found[source] = folder
    return dict(sorted(found.items()))


def _number(folder: Path) -> int:
    """-1: it is no queue's. 0 is one that was an MTA's only one, and that another node has taken over."""
    number = folder.name.partition(GONE)[0]
    return int(number) if number.isascii() and number.isdigit() and int(number) < QUEUES_MAX else -1


def _home_source(folder: Path) -> int:
    number = home_of(folder)
    return _source(folder, number) if number else 0


def _source(folder: Path, number: int = 0) -> int:
    """number: 0: as the folder's name says. That of queue 0 is 0, wherever it is."""
    if not number and not _number(folder):
        return 0
    try:
        name = identity.name_of(folder).partition(".")[0]
    except ValueError:  # a copy of the journal alone
        name = ""
    return (number or _number(folder)) + QUEUES_MAX * (crc32(name.encode()) % _NAMES if name else 0)
