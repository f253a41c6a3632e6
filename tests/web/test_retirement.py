"""The end of an HTTP process that another follows: who has just connected is answered all the same."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from zonemta_py.config import Config
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.retirement import Retirement
from zonemta_py.web.serving.connection import HttpServer, behind, settings


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


async def answered(turns: int) -> bool:
    """Whether a client is answered, or left to the process that follows, that connects so many turns of the loop after
    this one was told to end, and sends its request a while later."""
    with socket.create_server(("127.0.0.1", 0)) as bound, bound.dup() as following, socket.socket() as client:
        bound.setblocking(False)
        following.setblocking(False)
        client.setblocking(False)
        retirement = Retirement()
        connections = behind(ConnectionLimits(Config().limits))
        server, loop = HttpServer(settings(hello, connections, None)), asyncio.get_running_loop()
        serving = asyncio.ensure_future(server.until_end(bound, connections, retirement))
        while not server.started:  # noqa: ASYNC110 (another's)
            await asyncio.sleep(0.01)
        retirement._over.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        with suppress(BlockingIOError):
            client.connect(following.getsockname())
        await asyncio.sleep(0.3)
        with suppress(BlockingIOError):
            following.accept()[0].close()
            return True
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        found = await asyncio.wait_for(loop.sock_recv(client, 1000), 3)
        await asyncio.wait_for(serving, 10)
        return found.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("turns", range(8))
def test_who_has_just_connected_is_answered(turns: int) -> None:
    """Also where its connection is only accepted when the end begins."""
    assert uvloop.run(answered(turns))
