"""A sink on a free port, and a raw client that shows every byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop

from zonemta_py.sink import Sink, SinkOptions

PATIENCE_S = 60


class Client:
    """Sends bytes, reads whole replies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def reply(self) -> str:
        """One reply, its lines joined by newlines; what there was, if the connection ended."""
        lines = []
        while True:
            line = (await asyncio.wait_for(self.reader.readline(), PATIENCE_S)).decode()
            lines.append(line.rstrip("\r\n"))
            if line[3:4] != "-":
                return "\n".join(lines)

    async def say(self, data: str | bytes) -> str:
        self.send(data)
        return await self.reply()

    def send(self, data: str | bytes) -> None:
        self.writer.write(data if isinstance(data, bytes) else data.encode() + b"\r\n")

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)

    async def until_data(self, recipient: str = "user@dest.test") -> list[str]:
        """EHLO, MAIL, RCPT, DATA; the last replies of each."""
        lines = ("EHLO me.test", "MAIL FROM:<from@src.test>", f"RCPT TO:<{recipient}>", "DATA")
        return [await self.say(line) for line in lines]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """Every test runs on asyncio's own loop, as in other tests, and on uvloop, as in the process."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_sink(stack: AsyncExitStack) -> Callable[..., Any]:
    """start_sink(**options) gives a running sink on a free port that keeps its messages."""

    async def start(**options: Any) -> Sink:
        wanted = {"listen": ("127.0.0.1:0",), "keep": True, **options}
        return await stack.enter_async_context(Sink(SinkOptions(**wanted)))

    return start


@pytest.fixture
def connect(stack: AsyncExitStack) -> Callable[..., Any]:
    """connect(port) gives a Client that has read the banner; greeted=False: that has read nothing."""

    async def start(port: int, greeted: bool = True) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(writer.close)
        client = Client(reader, writer)
        if greeted:
            assert (await client.reply()).startswith("220 ")
        return client

    return start
