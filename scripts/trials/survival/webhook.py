"""A receiver of webhooks that can be away, and the judgement of what came: every event of the journal at least once, in
order per message."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from zonemta_py.disk import identity
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import Event, id_of
from zonemta_py.journal.tail import JournalTail, last_seq

_WRONG = b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n"
_NONE = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


class Arrived(NamedTuple):
    id: str
    subject: str
    place: tuple[int, int]


class WebhookReceiver:
    """Says 204 to all that comes, after `delay_s`. arrived: in order, repeats too."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.requests = 0
        self.refuses: Callable[[dict[str, str]], bool] = lambda _: False
        """Of a batch with such an event nothing is taken."""
        self.delay_s = 0.0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """On the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_port=True)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def away(self) -> bool:
        return self._server is None

    async def stop(self) -> None:
        """Nobody listens, and connections are broken off."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, EOFError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:")
                body = await reader.readexactly(size)
                await asyncio.sleep(self.delay_s)
                rows = json.loads(body)
                wrong = any(map(self.refuses, rows))
                if not wrong:
                    self._take(rows)
                writer.write(_WRONG if wrong else _NONE)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def _take(self, rows: list[dict[str, str]]) -> None:
        self.requests += 1
        for row in rows:
            _, seq, part = row["id"].rsplit("-", 2)
            self.arrived.append(Arrived(row["id"], row.get("subject", ""), (int(seq), int(part))))


def expected(folder: Path, wants: Callable[[Event], bool] = lambda _: True) -> list[str]:
    """Ids of all events in the journal of a queue that has come to rest."""
    source, journal, until, found = identity.name_of(folder), JournalTail(folder, 1), last_seq(folder), list[str]()
    while records := journal.read(until, 1000):
        found += [id_of(event, source) for record in records for event in events_of(record) if wants(event)]
    return found


def judged(wanted: list[str], arrived: list[Arrived]) -> dict[str, int]:
    """missing, repeated, unexpected, and disorder: events that came for the first time behind a later one of their
    message."""
    counts = Counter(one.id for one in arrived)
    newest, disorder, seen = dict[str, tuple[int, int]](), 0, set[str]()
    for one in arrived:
        if one.id not in seen:
            seen.add(one.id)
            disorder += one.place < newest.get(one.subject, (0, 0))
            newest[one.subject] = max(newest.get(one.subject, (0, 0)), one.place)
    return {
        "events": len(wanted),
        "missing": len(set(wanted) - seen),
        "unexpected": len(seen - set(wanted)),
        "repeated": sum(counts.values()) - len(counts),
        "disorder": disorder,
    }
