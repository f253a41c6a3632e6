"""A real queue behind its real socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from zonemta_py.config import Config
from zonemta_py.queue.recovery.start import Opening, begin
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve


class Service:
    """`start` and `stop` are a queue process's life; stopping closes its connections, as its end would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = Config.model_validate({"server": {"folder": folder}, "queue": {"reserve_bytes": 0}})
        self.remotes: list[RemoteQueue] = []

    async def start(self) -> None:
        await (await self.begin()).finish()

    async def begin(self) -> Opening:
        opening = await begin(self.config)
        self.queue = opening.queue
        self.server = await serve(self.queue, self.folder)
        return opening

    async def stop_and_begin(self) -> Opening:
        """A start of which only the beginning is over."""
        await self.stop()
        return await self.begin()

    async def connect(self, name: str = "receiver", reconnect: bool = True) -> RemoteQueue:
        remote = await RemoteQueue.connect(self.folder, name, reconnect)
        self.remotes.append(remote)
        return remote

    async def stop(self) -> None:
        self.server.close()
        (self.folder / "socket").unlink()
        for remote in self.remotes:
            if remote._protocol is not None and remote._protocol._transport is not None:
                remote._protocol._transport.abort()
        core = self.queue.core
        await core.disk.lines.stable()
        await core.disk.journal.stable()
        core.ready, core.stopping = False, True
        self.queue.close()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    one = Service(tmp_path)
    await one.start()
    yield one
    for remote in one.remotes:
        remote._reconnect = False
    await one.stop()
