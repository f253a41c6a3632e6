"""A way to a server that can be cut: what is sent there is neither passed on nor refused, as on a broken network."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    """From a port of its own, which it has from its start on, to that one on this machine."""

    def __init__(self, to: int) -> None:
        self.port, self._to = 0, to
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.AbstractServer | None = None
        self._tasks = set[asyncio.Task[None]]()

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]

    def cut(self, cut: bool) -> None:
        """Connections stay as they are, and carry nothing; what is connected anew gets no answer."""
        if cut:
            self._open.clear()
        else:
            self._open.set()

    def end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            there, to = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        for one, other in ((reader, to), (there, writer)):
            task = asyncio.get_running_loop().create_task(self._carry(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()
