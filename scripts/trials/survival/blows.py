"""Blows on a queue's files: a bit flipped, a tail cut, a stretch zeroed, a file emptied or gone; at rest or not."""

from __future__ import annotations

import json
import random
import shutil
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk.leveldb import log as store_log
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal.families import FAMILIES
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

ORDER = "blow"
"""A file in the queue's folder: the blow that falls while it delivers."""
_PLACES = ("journal", "store", "archive", "bodies", "receipts", "quarantine/*")
_TOGETHER = (
    "store journal",
    "store journal receipts",
    "store journal archive",
    "store journal archive receipts",
    "store archive",
    "store bodies",
    "journal archive",
    "journal archive receipts",
    "journal receipts",
    "bodies archive",
)
_LATE_BATCHES = 3
"""So many of LevelDB's newest log were written in the last moments before the crash."""


FAMILY = "without "
"""A kind of blow: the store loses all keys of the family that is named behind it."""


class Blow(NamedTuple):
    """file: relative to the queue's folder; several, with a space between, where they go together. at: the byte that
    is struck, or the length that is left.
    """

    kind: str
    file: str
    at: int = 0
    bit: int = 1
    running: bool = False

    def strike(self, folder: Path) -> None:
        """Does it; a file that has meanwhile gone by itself is as good as struck."""
        for file in self.file.split(" "):
            if (folder / file).exists():
                self._strike(folder / file)

    def _strike(self, path: Path) -> None:
        if self.kind.startswith(FAMILY):
            _take_away(path, self.kind.removeprefix(FAMILY))
            return
        if self.kind == "gone":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            return
        with path.open("r+b") as file:
            if self.kind in ("cut", "emptied"):
                file.truncate(self.at)
                return
            length = {"flip": 1, "zeroed": 4_096, "wiped": path.stat().st_size}[self.kind]
            file.seek(self.at)
            data = file.read(length)
            file.seek(self.at)
            file.write(bytes([data[0] ^ self.bit]) if self.kind == "flip" and data else bytes(len(data)))

    def order(self, folder: Path) -> None:
        """Strikes now, or leaves word for the process that delivers."""
        if self.running:
            (folder / ORDER).write_text(json.dumps(self))
        else:
            self.strike(folder)

    def __str__(self) -> str:
        return f"{self.kind} {self.file} at {self.at}{' while it runs' if self.running else ''}"


def _take_away(path: Path, family: str) -> None:
    """As a table that is cut: LevelDB has noticed it."""
    store = Store(path)
    keys = [key for key in store.keys(b"", b"\xff") if key.split(b" ")[0].decode() == family]
    store.write([(key, None) for key in keys], sync=True)
    store.close()
    (path.parent / REPAIR_MARK).write_text(f"its keys {family!r} are lost")


def each(folder: Path, seed: int) -> list[Blow]:
    """Each family of the store's keys lost once, and each file gone and flipped once."""
    dice = random.Random(seed)
    rows = [Blow(FAMILY + one.name, "store") for one in FAMILIES]
    paths = sorted(path for place in (*_PLACES, "events/*") for path in folder.glob(f"{place}/*") if path.is_file())
    for path in paths:
        name, size = str(path.relative_to(folder)), path.stat().st_size
        if path.name not in ("LOCK", "LOG", "LOG.old"):
            rows.append(Blow("gone", name))
            rows += [Blow("flip", name, dice.randrange(size), 1 << dice.randrange(8))] if size else []
    return rows


def ordered(folder: Path) -> Blow | None:
    """The blow that somebody left word of; once."""
    path = folder / ORDER
    if not path.exists():
        return None
    blow = Blow(*json.loads(path.read_text()))
    path.unlink()
    return blow


def anywhere(folder: Path, *, flips: int, cuts: int, seed: int) -> list[Blow]:
    """Files are drawn by turns of their kind (journal, tables, LevelDB's own …), so that small ones are hit too."""
    dice = random.Random(seed)
    kinds: dict[str, list[Path]] = {}
    for path in [path for place in _PLACES for path in folder.glob(f"{place}/*")]:
        if path.is_file() and path.stat().st_size:
            kinds.setdefault(_kind(path.relative_to(folder)), []).append(path)
    weights = {"journal": 40, ".ldb": 40, ".log": 8, "archive": 10, "bodies": 8, "receipts": 8, "quarantine": 2}
    drawn = dice.choices(sorted(kinds), [weights.get(kind, 4) for kind in sorted(kinds)], k=flips + cuts)
    rows = []
    for index, kind in enumerate(drawn):
        path = dice.choice(sorted(kinds[kind]))
        what = "flip" if index < flips else "cut"
        row = Blow(what, str(path.relative_to(folder)), dice.randrange(path.stat().st_size), 1 << dice.randrange(8))
        rows.append(row)
    return rows


def _kind(path: Path) -> str:
    """Of LevelDB's files each kind is one; elsewhere each folder."""
    if path.parts[0] != "store":
        return path.parts[0]
    return path.suffix if path.suffix in (".ldb", ".log") else path.name.partition("-")[0]


def whole_files(folder: Path, count: int, seed: int) -> list[Blow]:
    """Each kind of file and folder gone, at rest and while the queue runs; each kind of file emptied, wiped, zeroed.

    And the last moments before the crash: the end of LevelDB's newest log, where the newest 250s are, flipped and cut.
    """
    dice = random.Random(seed)
    names = _names(folder, dice)
    log = folder / names["log"]
    rows = [Blow("gone", name) for name in names.values()]
    rows += _last_moments(folder, log, dice)
    rows += [Blow("gone", name, running=True) for name in names.values()]
    rows += [Blow("gone", names, running=running) for names in _TOGETHER for running in (False, True)]
    rows += [row for _ in range(3) for row in _last_moments(folder, log, dice)]
    files = [name for name in names.values() if (folder / name).is_file()]
    for running in (False, True):
        rows += [Blow(kind, name, running=running) for kind in ("emptied", "wiped") for name in files]
        for name in files:
            size = (folder / name).stat().st_size
            rows.append(Blow("zeroed", name, dice.randrange(size), running=running))
            rows.append(Blow("flip", name, dice.randrange(size), 1 << dice.randrange(8), running=running))
            rows.append(Blow("cut", name, dice.randrange(size), running=running))
    return list(islice(cycle(rows), count))


def _names(folder: Path, dice: random.Random) -> dict[str, str]:
    tables, logs = sorted(folder.glob("store/*.ldb")), sorted(folder.glob("store/*.log"))
    segments, archived = (sorted(folder.glob(f"{place}/*.journal")) for place in ("journal", "archive"))
    found = {
        "current": folder / "store/CURRENT",
        "log": logs[-1],
        "store": folder / "store",
        "journal": folder / "journal",
        "newest segment": segments[-1],
        "table": dice.choice(tables),
        "manifest": next(folder.glob("store/MANIFEST-*")),
        "oldest segment": segments[0],
        "archive": folder / "archive",
        "receipts": folder / "receipts",
        "bodies": folder / "bodies",
        "quarantine": folder / "quarantine",
        "receipt": max(folder.glob("receipts/*"), key=lambda path: path.stat().st_size),
        "body": dice.choice(sorted(folder.glob("bodies/*"))),
        "archived": next(path for path in archived if not (folder / "journal" / path.name).exists()),
        "note": next(folder.glob("quarantine/*/note.json")),
    }
    return {what: str(path.relative_to(folder)) for what, path in found.items() if path.exists()}


def _last_moments(folder: Path, log: Path, dice: random.Random) -> list[Blow]:
    data = log.read_bytes()
    late = [at for at, _ in store_log.read(data).batches][-_LATE_BATCHES:]
    start, name = dice.choice(late), str(log.relative_to(folder))
    return [
        Blow("flip", name, dice.randrange(start, len(data)), 1 << dice.randrange(8)),
        Blow("flip", name, start + 4, 1 << dice.randrange(8)),
        Blow("cut", name, start),
        Blow("cut", name, dice.randrange(start, len(data))),
    ]
