"""Connections to a queue's socket on another node, over real NATS servers, on the event loop that nodes run on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from zonemta_py.cluster.nats import Nats
from zonemta_py.cluster.tunnel import CLOSE, DATA, OPEN, Tunnels
from zonemta_py.config import ClusterSection
from zonemta_py.queues.layout import far_folder
from zonemta_py.wire import SOCKET

QUEUE = 2
EVERYTHING = "everything from then on"
PIECES = [b"%d " % number for number in range(5)]


def test_what_is_written_comes_whole_while_the_other_end_is_being_opened(
    tmp_path: Path, section: ClusterSection
) -> None:
    assert uvloop.run(_broken(tmp_path, section, 100)) == 0


def test_a_queue_that_is_on_this_node_now_is_reached(tmp_path: Path, section: ClusterSection) -> None:
    """Processes that have known it on another node still go there by its socket for far queues."""
    assert uvloop.run(_broken(tmp_path, section, 20, "a")) == 0


@pytest.mark.parametrize("kind", [OPEN, DATA, CLOSE, EVERYTHING])
def test_what_is_lost_ends_the_connection(
    tmp_path: Path, section: ClusterSection, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it was the last word, and nothing follows that would be missing something."""
    monkeypatch.setattr("zonemta_py.cluster.tunnel.ROUND_S", 0.1)
    uvloop.run(_lossy(tmp_path, section, kind))


class _Losing(Tunnels):
    """Loses one message."""

    lose = ""

    def tell(self, node: str, message: list[Any]) -> None:
        if message[0] == self.lose:
            self.lose = ""
        else:
            super().tell(node, message)


async def _lossy(folder: Path, section: ClusterSection, kind: str) -> None:
    queue, ended = folder / "queue", asyncio.Event()

    async def send_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()
        ended.set()

    server = await asyncio.start_unix_server(send_back, str(queue))
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        kept = list[_Losing]()
        for node in "ba":
            nats = await Nats.connect(section, node)
            stack.push_async_callback(nats.close)
            kept.append(_Losing(nats, section.name, node, folder, lambda _: "b", lambda _: queue))
            await kept[-1].start()
        await kept[1].serve({QUEUE})
        kept[1].lose = kind
        reader, writer = await asyncio.open_unix_connection(str(far_folder(folder, QUEUE) / SOCKET))
        writer.write(b"x")
        if kind in (CLOSE, EVERYTHING):
            assert await reader.read(1) == b"x"
        if kind == EVERYTHING:
            await kept[0]._nats.close()
        if kind != CLOSE:
            assert await reader.read(1) == b"", "nobody says that it has ended"
        writer.close()
        if kind in (CLOSE, DATA):
            await ended.wait()
        while kept[1].ends or (kept[0].ends and kind != EVERYTHING):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    server.close()


async def _broken(folder: Path, section: ClusterSection, connections: int, owner: str = "b") -> int:
    """Of so many connections one after the other, on each of which the far queue sends back what it gets."""
    queue = folder / "queue"

    async def send_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_unix_server(send_back, str(queue))
    async with AsyncExitStack() as stack:
        kept = list[Tunnels]()
        for node in "ba":
            nats = await Nats.connect(section, node)
            stack.push_async_callback(nats.close)
            kept.append(Tunnels(nats, section.name, node, folder, lambda _: owner, lambda _: queue))
            await kept[-1].start()
        await kept[-1].serve({QUEUE})
        whole = [await _sent_back(far_folder(folder, QUEUE) / SOCKET) for _ in range(connections)]
    server.close()
    return whole.count(False)


async def _sent_back(socket: Path) -> bool:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    for piece in PIECES:
        writer.write(piece)
        await asyncio.sleep(0)
    try:
        return await asyncio.wait_for(reader.readexactly(len(b"".join(PIECES))), 60) == b"".join(PIECES)
    except asyncio.IncompleteReadError:
        return False
    finally:
        writer.close()
