"""Connections of clients that are open, and likewise requests in progress and streams of events, in all processes of a
service together, those included that end because others have followed them.

Each process writes its own row of memory that all of them share, and reads the rows of the others when a client comes:
nobody asks or waits for anybody. The supervisor gives out the rows, and clears that of a process when it has ended,
however it did. A row has how many there are, how many of them are strangers, and a hash table of clients (of requests:
of their keys), each of which is found among WINDOW slots from its place on.

Failures: a process for which no row is left, and a client for which no slot is, count in their process alone.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from threading import Lock
from typing import NamedTuple

SERVICES = ("receiver", "http", "pull", "links")
"""Roles that have clients, without their number."""
ROWS = 512
"""As many as 64 receivers and those before them have."""
SLOTS = 16_384
"""Of clients, in a row."""
WINDOW = 16
_HEAD = 8
_SERVICE, _TOTAL, _STRANGERS, _PID, _NAME = 0, 1, 2, 3, 4
_NAME_BYTES = 8 * (_HEAD - _NAME)
_HTTP_ROWS, _KEYS = 64, 1_024
"""Of what has to do with requests: there is one process for them, with those before it."""


class Opened(NamedTuple):
    """connections: of clients, to that process."""

    process: str
    pid: int
    connections: int


class Sums(NamedTuple):
    """here: of one client."""

    total: int
    strangers: int
    here: int


class ConnectionTable:
    """In memory that is shared with the processes forked from this one. services: that have such things."""

    def __init__(self, rows: int = ROWS, slots: int = SLOTS, services: tuple[str, ...] = SERVICES) -> None:
        self.slots, self._services = slots, services
        self._words = 2 * slots
        """Of a row, behind its head: the clients' hashes, their counts."""
        self._memory = mmap.mmap(-1, 8 * (1 + rows * (_HEAD + self._words)))
        self.words = memoryview(self._memory).cast("q")
        """The first one grows whenever another process has a row."""
        self.places = [(1 + row * _HEAD, 1 + rows * _HEAD + row * self._words) for row in range(rows)]
        """Where the head of each row begins, and where its clients do."""
        self._free = list(reversed(range(rows)))
        self._of: dict[int, int] = {}
        self._mine: int | None = None

    # -- for the supervisor

    def reserve(self, role: str) -> int | None:
        """The row of the process that is forked next; None: it has no clients, or no row is left."""
        service = role.partition("-")[0]
        self._mine = self._free.pop() if service in self._services and self._free else None
        if self._mine is not None:
            at, _ = self.places[self._mine]
            self._bytes(at + _NAME, role.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"))
            self.words[at + _SERVICE] = 1 + self._services.index(service)
            self.words[0] += 1
        return self._mine

    def forked(self, row: int | None, pid: int) -> None:
        """It has that row until it ends; pid 0: it could not be forked."""
        self._mine = None
        if row is None:
            return
        self._of[pid] = row
        if not pid:
            self.gone(0)

    def gone(self, pid: int) -> None:
        """That process has ended, and its connections with it."""
        row = self._of.pop(pid, None)
        if row is not None:
            for at, words in zip(self.places[row], (_HEAD, self._words), strict=True):
                self._bytes(at, bytes(8 * words))
            self.words[0] += 1
            self._free.append(row)

    def _bytes(self, at: int, data: bytes) -> None:
        self._memory[8 * at : 8 * at + len(data)] = data

    # -- for all

    def mine(self) -> OpenConnections:
        """This process's."""
        if self._mine is None:
            return OpenConnections.alone()
        self.words[self.places[self._mine][0] + _PID] = os.getpid()
        return OpenConnections(self, self._mine)

    def rows(self) -> Iterator[Opened]:
        """Of processes that have clients, or may get them."""
        for at, _ in self.places:
            if self.words[at + _SERVICE]:
                name = self._memory[8 * (at + _NAME) : 8 * (at + _HEAD)].rstrip(b"\0").decode("ascii", "replace")
                yield Opened(name, self.words[at + _PID], self.words[at + _TOTAL])


class OpenConnections:
    """What one process writes, and the sums of all that have the same service."""

    def __init__(self, table: ConnectionTable, row: int) -> None:
        self._words, self._places, self._slots_max = table.words, table.places, table.slots
        self._at, self._own = table.places[row]
        self._clients: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._others: list[tuple[int, int]] = []
        self._known = -1
        self._fence = Lock()

    @classmethod
    def alone(cls) -> OpenConnections:
        """Of a process that shares with nobody."""
        table = ConnectionTable(1)
        table.reserve(SERVICES[0])
        return table.mine()

    def add(self, client: str, by: int, stranger: bool) -> None:
        """by: 1 or -1. What others have written before is seen by `sums` from then on."""
        words, at = self._words, self._at
        here = self._clients.get(client, 0) + by
        slot = self._slots.get(client)
        if slot is None:
            slot = self._slot(client)
        if slot is not None:
            words[slot + self._slots_max] = here
        if here:
            self._clients[client] = here
        else:
            self._clients.pop(client, None)
            self._slots.pop(client, None)
        words[at + _TOTAL] += by
        if stranger:
            words[at + _STRANGERS] += by
        with self._fence:  # its atomic instructions keep the processor from reading first and writing then
            pass

    def know(self) -> None:
        """One of the strangers is none any more."""
        self._words[self._at + _STRANGERS] -= 1

    def sums(self, client: str) -> Sums:
        words, at = self._words, self._at
        if words[0] != self._known:
            self._look()
        total, strangers, here = words[at + _TOTAL], words[at + _STRANGERS], self._clients.get(client, 0)
        if self._others:
            key, place = place_of(client, self._slots_max)
            for head, clients in self._others:
                total += words[head + _TOTAL]
                strangers += words[head + _STRANGERS]
                slot = clients + place
                window = words[slot : slot + WINDOW].tolist()
                if key in window:
                    here += words[slot + window.index(key) + self._slots_max]
        return Sums(total, strangers, here)

    def _look(self) -> None:
        """Who the others are."""
        self._known = self._words[0]
        service = self._words[self._at + _SERVICE]
        others = (place for place in self._places if place[0] != self._at)
        self._others = [place for place in others if self._words[place[0] + _SERVICE] == service]

    def _slot(self, client: str) -> int | None:
        """A free one, that has the client's hash from now on."""
        key, place = place_of(client, self._slots_max)
        words, first = self._words, self._own + place
        for slot in range(first, first + WINDOW):
            if not words[slot + self._slots_max]:  # nobody reads the count of a client that has gone
                words[slot] = key
                self._slots[client] = slot
                return slot
        return None


def place_of(name: str, slots: int) -> tuple[int, int]:
    """Its hash, and where its window begins. Hashes of text are keyed, and equal in all forks."""
    key = hash(name) or 1
    return key, key % (slots - WINDOW)


CONNECTIONS = ConnectionTable()
"""Of this program: made before the first fork. So are the others."""
REQUESTS = ConnectionTable(_HTTP_ROWS, _KEYS, ("http",))
STREAMS = ConnectionTable(_HTTP_ROWS, _KEYS, ("http",))
TABLES = (CONNECTIONS, REQUESTS, STREAMS)
