"""A way to a server that can become one on which everything is lost, without anybody being told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

CHUNK = 65_536


class Way:
    """A port on loopback, from which everything goes to another one, and back, as long as it is open."""

    def __init__(self, to: int) -> None:
        self._to, self.port = to, 0
        self._open = asyncio.Event()
        self._open.set()
        self._tasks = set[asyncio.Task[None]]()

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def lose(self) -> None:
        """Whatever is sent is not seen again, in either direction; connections stay."""
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
        """What was lost in between ends the connection, as TCP would after a while."""
        lost = False
        with suppress(OSError):
            while data := await one.read(CHUNK):
                if not self._open.is_set():
                    lost = True
                    await self._open.wait()
                if lost:
                    break
                other.write(data)
                await other.drain()
        other.transport.abort()
