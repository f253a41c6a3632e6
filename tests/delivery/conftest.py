"""A real SMTP server on loopback that misbehaves on command, and a queue that hands out what a test gives it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.delivery.picky import TEMPLATE, TEMPLATE_NAME, PickyServer
from zonemta_py.config import Config, Plugins, Zone
from zonemta_py.delivery import worker
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Delivery, OpenConnection, QueueRefusal, Result
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.zones.admittance import Admittance

PATIENCE_S = 60.0
SILENCE_S = 1.0
"""How long a server that never answers is waited for."""
CLOCKS = {"banner": "connect", "starttls": "connect", "dot": "dot"}
"""Which of the zone's timeouts a silence at this point is up against; anywhere else it is `reply`."""

KEYWORDS = ("PIPELINING", "8BITMIME", "SIZE 100000000", "DSN")
LINES = {"4xx": b"450 4.9.1 not now\r\n", "5xx": b"550 5.9.1 never\r\n", "421": b"421 4.3.2 going away\r\n"}


class Server:
    """script: point → way. Points: banner, ehlo, starttls, mail, rcpt1 …, data, body, dot, after, next, rset, quit.

    tls: a context, or a list of one for each handshake to come. Ways: 4xx, 5xx, 421, silence, reset, garbage, half, the
    bytes of a reply, or an event that the usual reply waits for. bodies: every message whose end came, as it came but
    for the dot-stuffing. commands: every line of every connection. talking: connections that have not ended.
    """

    def __init__(self, script: dict[str, Any], keywords: tuple[str, ...], tls: Any) -> None:
        self.script, self.keywords, self.tls = script, keywords, tls
        self.connections = self.talking = 0
        self.bodies: list[bytes] = []
        self.commands: list[str] = []
        self.port = 0
        self.slow_s = 0.0
        self.auth: Callable[[str], bytes] | None = None
        self._over = asyncio.Event()

    @property
    def silences(self) -> set[str]:
        """Which of the zone's timeouts it makes run out."""
        return {CLOCKS.get(point, "reply") for point, way in self.script.items() if way == "silence"}

    async def start(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: no Nagle then
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=65536)

    def close(self) -> None:
        self._over.set()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.talking += 1
        with contextlib.suppress(ConnectionError, EOFError, ssl.SSLError, asyncio.CancelledError):
            await self._talk(reader, writer)
        self.talking -= 1
        writer.close()

    async def _act(self, point: str, usual: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = self.script.get(point)
        if way == "silence":
            await self._over.wait()
            raise EOFError
        if isinstance(way, asyncio.Event):
            await way.wait()
            way = getattr(way, "then", "")
        if way == "reset":
            await asyncio.sleep(0.02)  # a reset overtakes what was not read yet
            for _ in range(5):  # and the clock may have run while the loop stood still
                await asyncio.sleep(0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            raise EOFError
        if way == "garbage":
            writer.write(b"\x00\xfe what?\r\n")
        elif way == "half":
            writer.write(b"250-ha")
            await writer.drain()
            raise EOFError
        elif isinstance(way, bytes):
            writer.write(way)
        else:
            writer.write(LINES.get(way or "", usual))
        await writer.drain()
        if way == "421":
            raise EOFError

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._act("banner", b"220 scripted ESMTP\r\n", reader, writer)
        recipients = messages = accepted = 0
        point = ""
        while line := (await reader.readline()).decode():
            self.commands.append(line.rstrip("\r\n"))
            verb = line[:4].strip().upper()
            if verb in ("EHLO", "HELO"):
                lines = ["scripted", *self.keywords] if verb == "EHLO" else ["scripted"]
                usual = "".join(f"250{'-' if one is not lines[-1] else ' '}{one}\r\n" for one in lines)
                await self._act("ehlo", usual.encode(), reader, writer)
            elif verb == "STAR":
                await self._act("starttls", b"220 go\r\n", reader, writer)
                context = self.tls.pop(0) if isinstance(self.tls, list) else self.tls
                if context is not None:
                    await writer.start_tls(context)
            elif verb == "AUTH" and self.auth is not None:
                writer.write(self.auth(line.split()[-1]))
            elif verb == "MAIL":
                recipients = accepted = 0
                point = "next" if messages else "mail"
                await self._act(point, b"250 2.1.0 ok\r\n", reader, writer)
                messages += 1
            elif point in ("mail", "next") and point in self.script and verb in ("RCPT", "DATA"):
                writer.write(b"503 5.5.1 MAIL first\r\n")
            elif verb == "RCPT":
                recipients += 1
                which = f"rcpt{recipients}" if f"rcpt{recipients}" in self.script else "rcpt"
                accepted += which not in self.script
                await self._act(which, b"250 2.1.5 ok\r\n", reader, writer)
            elif verb == "DATA":
                if not accepted and "data" not in self.script:
                    writer.write(b"503 5.5.1 no recipients\r\n")
                    continue
                await self._act("data", b"354 go\r\n", reader, writer)
                if self.script.get("data") in (None, b"354 go\r\n"):
                    await self._message(reader, writer)
            elif verb == "RSET":
                await self._act("rset", b"250 2.0.0 ok\r\n", reader, writer)
            elif verb == "QUIT":
                await self._act("quit", b"221 2.0.0 bye\r\n", reader, writer)
                return
            else:
                writer.write(b"500 5.5.2 what?\r\n")

    async def _message(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept: list[bytes] = []
        size = 0
        while (line := await reader.readuntil(b"\n")) != b".\r\n":
            kept.append(line[1:] if line.startswith(b".") else line)
            size += len(line)
            if self.slow_s and len(kept) % 2000 == 0:
                await asyncio.sleep(self.slow_s)
            if size > 100_000 and "body" in self.script:
                await self._act("body", b"", reader, writer)
                await self._over.wait()  # it reads no more
                raise EOFError
        self.bodies.append(b"".join(kept))
        await self._act("dot", b"250 2.0.0 taken\r\n", reader, writer)
        if "after" in self.script:
            await self._act("after", b"", reader, writer)


class Queue:
    """An `Outlet` that gives out what it was given, one by one or `batch` at a time, and is gone after the last."""

    def __init__(self, deliveries: list[Delivery], chunk: Callable[[str, int], bytes] | None, batch: int) -> None:
        self.waiting, self.batch = list(deliveries), batch
        self.results: list[Result] = []
        self.closings: list[int] = []
        self.asked: list[tuple[int, str, str]] = []
        self.places: list[Admittance] = []
        self.opened: list[OpenConnection] = []
        self.closed = self.closings.append
        self.left_open = self.opened.extend
        self.parts: list[Result] = []
        self._all = len(deliveries)
        self._chunk = chunk
        self._end = asyncio.Event()
        self.fetched = 0

    async def lease(self, most: int) -> list[Delivery]:
        if not self.waiting:
            await self._end.wait()
            raise QueueRefusal(Reply(451, "4.3.0", "nothing left"))
        count = min(most, self.batch)
        given, self.waiting = self.waiting[:count], self.waiting[count:]
        return given

    def settle_part(self, result: Result) -> None:
        assert result.more
        self.parts.append(result)

    async def settle(self, result: Result) -> None:
        told = [outcome for part in self.parts if part.lease == result.lease for outcome in part.outcomes]
        result.outcomes = told + result.outcomes
        self.results.append(result)
        await asyncio.sleep(0.02)
        if len(self.results) == self._all:
            self._end.set()

    async def place(self, lease: int, site: str, provider: str) -> Admittance:
        self.asked.append((lease, site, provider))
        return self.places.pop(0) if self.places else Admittance(True)

    async def chunk(self, message_id: str, number: int) -> bytes:
        assert self._chunk is not None
        self.fetched = max(self.fetched, number)
        return self._chunk(message_id, number)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the sender process runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """Waits for what comes by itself: `await until(lambda: server.commands)`; a test fails that waits in vain."""

    async def come(true: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110 - what is looked at tells nobody that it has changed
                await asyncio.sleep(0.005)

    return come


@pytest.fixture
def servers() -> list[Server]:
    """Those that `scripted` has started."""
    return []


@pytest.fixture
async def scripted(servers: list[Server]) -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """Starts servers: `await scripted({"mail": "4xx"}, keywords, tls)`."""

    async def start(
        script: dict[str, Any] | None = None, keywords: tuple[str, ...] = KEYWORDS, tls: Any = None
    ) -> Server:
        server = Server(script or {}, keywords, tls)
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def letter() -> Callable[..., Delivery]:
    """Makes a delivery to `port` on 127.0.0.1 with `count` recipients."""

    def make(port: int, count: int = 1, body: bytes = b"Subject: x\r\n\r\nhello\r\n", **fields: Any) -> Delivery:
        given: dict[str, Any] = {"size": len(body), "chunks": 1, "body": body, "host": "127.0.0.1", "port": port}
        recipients = [Recipient(f"r{number}@d.example") for number in range(1, count + 1)]
        given |= {"recipients": recipients} | fields
        return Delivery(0, "m1", "default", given.pop("destination", "d.example"), "a@b.example", **given)

    return make


@pytest.fixture
def deliver(servers: list[Server]) -> Callable[..., Awaitable[list[Result]]]:
    """Runs the worker over deliveries until all are settled; keyword arguments set the zone's fields.

    Only what a server is silent at is not waited for with patience.
    """

    async def run(
        *deliveries: Delivery, host: Host | None = None, most: int = 1, chunk: Any = None, batch: int = 1,
        resolver: Any = None, contexts: Any = None, queue: Queue | None = None, pools: Any = (),
        smart_host: str = "", sections: Any = None, **zone: Any,
    ) -> list[Result]:  # fmt: skip
        for number, delivery in enumerate(deliveries, 1):
            delivery.lease = number
        silences = set[str]().union(*(server.silences for server in servers))
        timeouts = {
            f"{name}_timeout_s": SILENCE_S if name in silences else PATIENCE_S for name in ("connect", "reply", "dot")
        }
        default = Zone(
            name="default", default=True, host=smart_host, **({"tls": "none", "allow_private": True} | timeouts | zone)
        )
        config = Config(zones=[default], pools=list(pools), **(sections or {}))
        queue = queue or Queue(list(deliveries), chunk, batch)
        await asyncio.wait_for(
            worker.run(config, queue, host or Host.empty(), most, resolver=resolver, contexts=contexts), 120
        )
        return sorted(queue.results, key=lambda result: result.lease)

    return run


@pytest.fixture
def queue_of() -> type[Queue]:
    return Queue


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], Host]:
    """A host with one plugin of the given functions."""

    def load(source: str) -> Host:
        file = tmp_path / "steer.py"
        file.write_text('"""A plugin."""\nfrom zonemta_py.plugin import *\n' + source)
        return Host.load(Plugins(enabled=[str(file)]))

    return load


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_sink(stack: AsyncExitStack) -> Callable[..., Awaitable[Sink]]:
    async def start(listen: str = "127.0.0.1:0") -> Sink:
        return await stack.enter_async_context(Sink(SinkOptions(listen=(listen,), keep=True)))

    return start


@pytest.fixture
async def picky() -> AsyncIterator[Callable[..., Awaitable[PickyServer]]]:
    """Starts servers that treat each recipient as told: `await picky({"n1": "rcpt!"}, strict=True)`."""
    listening = []

    async def start(
        ways: Mapping[str, str] | None = None, keywords: tuple[str, ...] = ("PIPELINING",), strict: bool = False
    ) -> PickyServer:
        server = PickyServer(ways or {}, keywords, strict)
        listening.append(await asyncio.start_server(server.serve, "127.0.0.1", 0))
        server.port = listening[-1].sockets[0].getsockname()[1]
        return server

    yield start
    for one in listening:
        one.close()


@pytest.fixture
def people(letter: Callable[..., Delivery]) -> Callable[..., Delivery]:
    """A lease of merged messages to n1, n2 …: people(port, 5)."""

    def make(port: int, count: int, names: list[str] | None = None, **more: Any) -> Delivery:
        names = names or [f"n{number}" for number in range(1, count + 1)]
        given = {"recipients": [Recipient(f"{name}@d.example") for name in names], "columns": ["name"]}
        given |= {"values": [[name] for name in names], "template": TEMPLATE_NAME, "campaign": "spring"}
        given |= {"chunks": 0, "size": 9}
        delivery = letter(port, **(given | {"attempts": [0] * len(names)} | more))
        delivery.body = None
        return delivery

    return make


@pytest.fixture
def send(queue_of: Any, deliver: Any) -> Callable[..., Awaitable[list[Result]]]:
    """Delivers leases of merged messages, one after the other; their template is there."""

    async def run(*leases: Delivery, queue: Any = None, **more: Any) -> list[Result]:
        queue = queue or queue_of(list(leases), None, 1)

        async def template(_: str) -> bytes:
            return TEMPLATE

        queue.template = template
        results: list[Result] = await deliver(*leases, queue=queue, **more)
        return results

    return run


class Takes:
    """A server that takes everything, by SMTP or LMTP. people: who got a message, once for each copy."""

    def __init__(self, protocol: str) -> None:
        self.lmtp = protocol == "lmtp"
        self.people: list[str] = []
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Ends all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, EOFError, asyncio.CancelledError):
            await self._talk(reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        people: list[str] = []
        while line := (await reader.readline()).decode():
            verb = line[:4].upper()
            if verb in ("EHLO", "LHLO"):
                writer.write(b"250-here\r\n250 PIPELINING\r\n")
            elif verb == "DATA":
                writer.write(b"354 go\r\n")
                while await reader.readuntil(b"\n") != b".\r\n":
                    pass
                self.people += people
                writer.write(b"250 2.0.0 taken\r\n" * (len(people) if self.lmtp else 1))
            else:
                people = [] if verb == "MAIL" else people
                if verb == "RCPT":
                    people.append(line.partition("<")[2].partition(">")[0])
                writer.write(b"250 ok\r\n")


@pytest.fixture
async def takes() -> AsyncIterator[Callable[[str], Awaitable[Takes]]]:
    """Starts servers: `await takes("lmtp")`."""
    listening = []

    async def start(protocol: str = "smtp") -> Takes:
        server = Takes(protocol)
        listening.append(await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20))
        server.port = listening[-1].sockets[0].getsockname()[1]
        return server

    yield start
    for one in listening:
        one.close()
