"""Sender domains as processes other than the queue's read them: a table in SQLite, made of what the queue keeps.

The queue is the only writer, and its store is what counts: the file can be removed, and is made again when the queue
starts. Readers keep the domains that they have used last, and look once in LOOK_S whether anything has changed; they
hold no others in memory. Failures: BookUnreadable.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from heapq import nsmallest
from pathlib import Path
from typing import Any

from zonemta_py.disk import packing
from zonemta_py.mail.sender_domain import SenderDomain

FILE = "domains.sqlite"
LOOK_S = 0.25
KEPT_MAX = 2_000
_WAIT_S = 5.0
_TABLES = """
CREATE TABLE IF NOT EXISTS domains (name TEXT PRIMARY KEY, verp TEXT NOT NULL, value BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_verp ON domains (verp) WHERE verp != '';
"""


class BookUnreadable(Exception):
    """One sentence."""


class DomainBookWriter:
    """For the queue that has the MTA's folder. Raises OSError: then readers have what was there before."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._open: sqlite3.Connection | None = None

    @property
    def version(self) -> int:
        """Of what it has; 0: nothing."""
        try:
            return int(self._connection().execute("PRAGMA user_version").fetchone()[0])
        except (sqlite3.Error, OSError):
            return 0

    def every(self) -> Iterator[SenderDomain]:
        """All, for a store that has lost them."""
        with suppress(sqlite3.Error, OSError, ValueError):
            for (value,) in self._connection().execute("SELECT value FROM domains"):
                yield SenderDomain.of(packing.unpack(value))

    def write(self, domains: Iterable[SenderDomain], gone: Iterable[str], version: int) -> None:
        """These as they are now, and none of the names in `gone`."""
        self._change(version, domains, gone, anew=False)

    def make(self, domains: Iterable[SenderDomain], version: int) -> None:
        """These, and no others. A file that cannot be used is made anew."""
        try:
            self._change(version, domains, (), anew=True)
        except OSError:
            self.close()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(FILE + suffix).unlink(missing_ok=True)
            self._change(version, domains, (), anew=True)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _change(self, version: int, domains: Iterable[SenderDomain], gone: Iterable[str], *, anew: bool) -> None:
        try:
            connection = self._connection()
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if anew:
                    connection.execute("DELETE FROM domains")
                connection.executemany("DELETE FROM domains WHERE name = ?", ((name,) for name in gone))
                rows = ((one.name, one.verp, packing.pack(one.pack())) for one in domains)
                connection.executemany("INSERT OR REPLACE INTO domains VALUES (?, ?, ?)", rows)
                connection.execute(f"PRAGMA user_version = {version % (1 << 31)}")
        except sqlite3.Error as error:
            raise OSError(f"{self.path}: {error}") from None

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self.path.touch(0o600)
            connection = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.executescript(_TABLES)
            except sqlite3.Error:
                connection.close()
                raise
            self._open = connection
        return self._open


class DomainBook:
    """For every other process. folder: the MTA's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._open: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._version = -1
        self._looked = float("-inf")
        self._kept = OrderedDict[str, SenderDomain | None]()
        self._paths = OrderedDict[str, SenderDomain | None]()

    def of(self, domain: str, tenant: str, now: float) -> SenderDomain | None:
        """The domain, or the nearest above it, that is for that tenant's mail: what another has made below changes
        nothing for it. domain: canonical. now: steady seconds. Raises BookUnreadable."""
        self._look(now)
        while domain:
            if domain not in self._kept:
                self._keep(self._kept, domain, self._row("SELECT value FROM domains WHERE name = ?", domain))
            if (found := self._kept[domain]) is not None and found.tenant in ("", tenant):
                return found
            domain = domain.partition(".")[2]
        return None

    def at(self, return_path: str, now: float) -> SenderDomain | None:
        """Whose return paths are at that domain. Raises BookUnreadable."""
        self._look(now)
        if return_path not in self._paths:
            row = self._row("SELECT value FROM domains WHERE verp = ? AND verp != '' LIMIT 1", return_path)
            self._keep(self._paths, return_path, row)
        return self._paths[return_path]

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _row(self, query: str, name: str) -> SenderDomain | None:
        if self._open is None:
            return None
        found = self._asked(lambda connection: connection.execute(query, (name,)).fetchone())
        return SenderDomain.of(packing.unpack(found[0])) if found is not None else None

    @staticmethod
    def _keep(memory: OrderedDict[str, SenderDomain | None], name: str, domain: SenderDomain | None) -> None:
        memory[name] = domain
        if len(memory) > KEPT_MAX:
            memory.popitem(last=False)

    def _look(self, now: float) -> None:
        """Forgets what it knows if something has changed."""
        if now < self._looked + LOOK_S:
            return
        self._looked = now
        try:
            there = self._path.stat()
            file = there.st_dev, there.st_ino
        except OSError:
            file = (0, 0)
        if file != self._file:
            self.close()
            self._forget(file)
        if file == (0, 0):
            return
        if self._open is None:
            try:
                self._open = sqlite3.connect(f"file:{self._path}?mode=rw", uri=True, timeout=_WAIT_S)
            except sqlite3.Error as error:
                raise BookUnreadable(f"{self._path} cannot be opened: {error}") from None
        version = self._asked(lambda connection: connection.execute("PRAGMA data_version").fetchone()[0])
        if version != self._version:
            self._forget(file)
            self._version = version

    def _forget(self, file: tuple[int, int]) -> None:
        self._file, self._version = file, -1
        self._kept.clear()
        self._paths.clear()

    def _asked(self, ask: Callable[[sqlite3.Connection], Any]) -> Any:
        assert self._open is not None
        try:
            return ask(self._open)
        except sqlite3.Error as error:
            self.close()
            self._forget((0, 0))
            raise BookUnreadable(f"{self._path} cannot be read: {error}") from None


def due(folder: Path, now_ms: int, most: int) -> list[str]:
    """Names of domains at which DNS is to be asked again (`SenderDomain.next_look_ms`), those longest due first."""
    path = folder / FILE
    if not path.exists():
        return []
    found = list[tuple[int, str]]()
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=_WAIT_S)) as connection:
            for (value,) in connection.execute("SELECT value FROM domains"):
                domain = SenderDomain.of(packing.unpack(value))
                if (at_ms := domain.next_look_ms()) <= now_ms:
                    found.append((at_ms, domain.name))
    except (sqlite3.Error, ValueError) as error:
        raise BookUnreadable(f"{path} cannot be read: {error}") from None
    return [name for _, name in nsmallest(most, found)]
