"""Where the folders of an MTA's queues are: queue 0 has `server.folder` itself, queue k `queues/k/` in it.

So a folder of an MTA with one queue is that of queue 0. The file `queues/layout` says which queues there are; without
it, there is only that one. One that there is no more leaves `queues/k.gone-TIME`, whose journal and archive have what
became of its mail up to then. On a node of a cluster the file says, too, which queue is at `home` in `server.folder`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.disk.files import fresh_file, sync
from zonemta_py.journal.folders import FOLDER as FOLDER
from zonemta_py.journal.folders import GONE, LAYOUT
from zonemta_py.journal.folders import folder_of as folder_of
from zonemta_py.journal.folders import home_of as home_of
from zonemta_py.queue.api import ORDERS_NOTE
from zonemta_py.wire import AUTHORITY

ORDERS = "orders"
"""The log of orders, in FOLDER."""
NODES = "cluster"
"""The file in FOLDER with the numbers of all queues of the cluster that this node is in (JSON: {number: node})."""
OF_A_QUEUE = (
    "store", "journal", "archive", "bodies", "receipts", "quarantine", "feedback", "events", "reporting", "identity",
    "configuration", "owed", ORDERS_NOTE,
)  # fmt: skip
"""What a queue has in its folder; all else there is the MTA's."""


def config_of(config: Config, number: int) -> Config:
    """The same configuration, with that queue's folder."""
    return config.for_queue(number, folder_of(config.folder, number)) if number != config.queue_number else config


def node_folder(config: Config) -> Path:
    """Of the MTA that has the queue of that configuration."""
    folder = config.folder
    return folder.parent.parent if folder.parent.name == FOLDER and folder.name == str(config.queue_number) else folder


def each(config: Config) -> list[Config]:
    """The configuration of each queue that there is. Raises ValueError, OSError."""
    return [config_of(config, number) for number in numbers(config.folder)]


def numbers(folder: Path) -> list[int]:
    """Of the queues that there are, also if the MTA does not run; the one that has the folder itself is the first.
    Raises ValueError with one sentence, OSError."""
    home = home_of(folder)
    return sorted(_read(folder)[0], key=lambda number: (number != home, number))


def known(folder: Path) -> list[int]:
    """The same, with those that were about to be, or to be no more, when something ended the process that moves mail.
    Raises ValueError, OSError."""
    there, becoming = _read(folder)
    return sorted({*there, *becoming})


def settled(folder: Path) -> bool:
    """Whether no mail is on its way from one set of queues to another. Raises ValueError, OSError."""
    return not _read(folder)[1]


def _read(folder: Path) -> tuple[list[int], list[int]]:
    path = folder / FOLDER / LAYOUT
    try:
        found = json.loads(path.read_bytes())
        return sorted(map(int, found["queues"])), sorted(map(int, found.get("becoming", ())))
    except FileNotFoundError:
        return [0], []
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f'{path}: cannot be read; write {{"queues": [0, 1, …]}} there, with the names of the folders beside it'
        ) from None


def mta_of(folder: Path, number: int) -> Path:
    """The MTA's folder. folder: of the queue of that number."""
    beside = folder.parent
    inside = beside.name == FOLDER and folder.name == str(number) and (beside / LAYOUT).exists()
    return beside.parent if inside else folder


def far_folder(folder: Path, number: int) -> Path:
    """Where the socket is that leads to a queue of another node."""
    return folder / FOLDER / "far" / str(number)


def gone(folder: Path) -> list[Path]:
    """The folders of queues that there were: nothing of theirs is sent, but their journals and archives can be read,
    the oldest first."""
    return sorted((folder / FOLDER).glob(f"*{GONE}*"), key=lambda path: path.name.partition(GONE)[2])


def set_aside(folder: Path, number: int) -> None:
    """There is no such queue any more: its folder, if it has anything, becomes one of `gone`. Raises OSError."""
    if number != home_of(folder):
        _aside(folder_of(folder, number))


def _aside(place: Path) -> None:
    if not place.exists():
        return
    if not any(place.iterdir()):
        place.rmdir()
        return
    place.rename(place.with_name(f"{place.name}{GONE}{time.time_ns() // 1_000_000}"))
    sync(place.parent)


def set_home_aside(folder: Path) -> None:
    """The same of the queue that has the MTA's folder itself: what is a queue's goes into a folder of its own. Can be
    repeated after a crash. Raises OSError."""
    number = home_of(folder)
    place = folder / FOLDER / f"{number}.going"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in OF_A_QUEUE:
        if (folder / name).exists():
            (folder / name).rename(place / name)
    sync(folder)
    if any(place.iterdir()):
        place.rename(place.with_name(f"{number}{GONE}{time.time_ns() // 1_000_000}"))
    else:
        place.rmdir()
    sync(place.parent)


def write(folder: Path, queues: Iterable[int], becoming: Iterable[int] = (), home: int | None = None) -> None:
    """Those that there are from now on, with their folders. becoming: those that there are to be, for which mail is
    about to be moved. home: the one that has `folder` itself; None: as it is. Raises OSError."""
    there, next_ = sorted(queues), sorted(becoming)
    path = folder / FOLDER / LAYOUT
    home = home_of(folder) if home is None else home
    if home != home_of(folder):  # what it has beside is of another time, and must not be found there later
        _aside(folder / FOLDER / str(home))
    if there == [0] and not next_ and not home:
        path.unlink(missing_ok=True)
        (folder / AUTHORITY).unlink(missing_ok=True)
        return
    for number in {*there, *next_} - {home}:
        (folder / FOLDER / str(number)).mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = {"queues": there} | ({"becoming": next_} if next_ else {}) | ({"home": home} if home else {})
    with fresh_file(path) as file:
        file.write(json.dumps(said).encode())
