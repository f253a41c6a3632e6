"""A bug of ours at any await of a submission: what was refused is not stored, what is stored is not refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.delivery.injected import FAULTS, Faulty
from zonemta_py.config import Config, Plugins
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.plugin.host import Host
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.reception.listeners import serve
from zonemta_py.reception.smtp.session import ServerSession
from zonemta_py.web.authentication import AuthenticationMiddleware
from zonemta_py.web.outbound import fetching, tls_terms
from zonemta_py.web.server import serve as serve_http
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve as serve_queue

PLUGIN = '''"""Listens everywhere."""
import asyncio
from zonemta_py.plugin import *

async def message_analyze(envelope, stream):
    async for _ in stream:
        await asyncio.sleep(0)

async def message_headers(envelope, headers):
    await asyncio.sleep(0)

async def message_store(envelope, stream):
    async for _ in stream:
        pass

async def message_queue(envelope, info):
    await asyncio.sleep(0)

async def queue_route(envelope, routing):
    await asyncio.sleep(0)
'''
SMALL = b"Subject: x\r\n\r\nhello\r\n"
LARGE = b"Subject: x\r\n\r\n" + b"0123456789abcde\r\n" * (4 * CHUNK_BYTES // 17)
PATIENCE_S = 60


class Door:
    """A queue, and both doors to it in this process."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.folder, self.host = folder, host
        self.config = Config.model_validate(
            {"server": {"folder": folder, "hostname": "mx.test"}, "queue": {"reserve_bytes": 0},
             "http": {"enabled": True}}
        )  # fmt: skip
        self.queue: LocalQueue

    async def begin(self) -> None:
        self.queue = await open_queue(self.config)
        self.wire = await serve_queue(self.queue, self.folder)
        self.remote = await RemoteQueue.connect(self.folder, "receiver", reconnect=True)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.port, self.http = (one.getsockname()[1] for one in sockets)
        self.doors = [
            asyncio.ensure_future(serve(self.config, [(self.config.listeners[0], sockets[0])], self.remote, self.host)),
            asyncio.ensure_future(
                serve_http(
                    self.config, sockets[1], self.remote, self.host, tls_terms(self.config), fetch=fetching(self.config)
                )
            ),
        ]
        await asyncio.sleep(0)

    async def end(self) -> None:
        self.remote._reconnect = False
        for door in self.doors:
            door.cancel()
        await asyncio.wait(self.doors)
        self.wire.close()
        self.queue.close()

    async def stored(self) -> int:
        return int((await self.queue.ask("size"))["total"]["queued"])


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Callable[[bool], Any]]:
    opened: list[Door] = []

    async def make(plugins: bool) -> Door:
        file = tmp_path / "everywhere.py"
        file.write_text(PLUGIN)
        host = Host.load(Plugins(enabled=[str(file)])) if plugins else Host.empty()
        door = Door(tmp_path / "spool", host)
        opened.append(door)
        await door.begin()
        return door

    yield make
    for door in opened:
        await door.end()


async def by_smtp(port: int, body: bytes) -> str:
    """The last reply; "" if the connection ended without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reply = ""
    with contextlib.suppress(ConnectionError):
        for line in (b"", b"EHLO c.test", b"MAIL FROM:<a@b.test>", b"RCPT TO:<c@d.test>", b"DATA", body + b"."):
            if line:
                writer.write(line + b"\r\n")
            reply = "-"
            while reply[3:4] == "-" or reply == "-":
                reply = (await reader.readline()).decode()
            if reply[:1] not in ("2", "3"):
                break
    writer.close()
    return reply


PAIRS = [
    (body, fault, plugins) for body in ("small", "large") for fault in FAULTS for plugins in (False, True)
]  # fmt: skip
QUICK = [("small", "bug", False), ("large", "canceled", True)]
WANTED = PAIRS if os.environ.get("ZONEMTA_ALL_FAULTS") else QUICK


@pytest.mark.parametrize(("size", "fault", "plugins"), WANTED)
async def test_a_bug_at_any_await_of_smtp(
    size: str, fault: str, plugins: bool, doors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that tries again whatever was refused, or not answered, has its message in the queue once."""
    door = await doors(plugins)
    body, place, reached, wait_for = (SMALL if size == "small" else LARGE), 0, 0, ServerSession.wait_for

    def faulty(self: ServerSession, job: Any) -> Any:
        work = Faulty(job, place - reached, FAULTS[fault])

        async def run() -> Any:
            nonlocal reached
            try:
                return await work
            finally:
                reached += work.reached

        return wait_for(self, run())

    monkeypatch.setattr(ServerSession, "wait_for", faulty)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            place, reached = place + 1, 0
            while (reply := await by_smtp(door.port, body))[:3] != "250":
                assert reply, "the client was left without an answer"
                assert await door.stored() == place - 1, "what is refused is not stored"
            assert await door.stored() == place, "it is there, once"
            if reached < place:
                break
    assert place > 1


@pytest.mark.parametrize(("size", "fault", "plugins"), WANTED)
async def test_a_bug_at_any_await_of_http(
    size: str, fault: str, plugins: bool, doors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, and with the request's key also for a client that cannot read its answer."""
    door = await doors(plugins)
    body, place, pending, done, call = (SMALL if size == "small" else LARGE), 0, False, True, None
    call = AuthenticationMiddleware.__call__

    async def faulty(self: Any, scope: Any, receive: Any, send: Any) -> None:
        nonlocal pending, done
        work = Faulty(call(self, scope, receive, send), place if pending else 0, FAULTS[fault])
        pending = False
        try:
            await work
        finally:
            done = done and work.reached < place

    monkeypatch.setattr(AuthenticationMiddleware, "__call__", faulty)
    token = (door.folder / "http.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "message/rfc822"}
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(base_url=f"http://127.0.0.1:{door.http}") as client:
        while True:
            place, pending, done = place + 1, True, True
            status = 0
            while status != 200:
                with contextlib.suppress(httpx.TransportError):
                    answer = await client.post(
                        "/v1/inject", params={"sender": "a@b.test", "to": "c@d.test"}, content=body,
                        headers=headers | {"Idempotency-Key": str(place)},
                    )  # fmt: skip
                    status = answer.status_code
            assert await door.stored() == place, "it is there, once"
            if done:
                break
    assert place > 1
