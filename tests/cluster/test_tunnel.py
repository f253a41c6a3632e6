"""Connections to a queue's socket on another node, over real NATS servers, on the event loop that nodes run on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from zonemta_py.cluster.nats import Nats
from zonemta_py.cluster.tunnel import Tunnels
from zonemta_py.config import ClusterSection
from zonemta_py.queues.layout import far_folder
from zonemta_py.wire import SOCKET

QUEUE = 2
PIECES = [b"%d " % number for number in range(5)]


def test_what_is_written_comes_whole_while_the_other_end_is_being_opened(
    tmp_path: Path, section: ClusterSection
) -> None:
    assert uvloop.run(_broken(tmp_path, section, 100)) == 0


async def _broken(folder: Path, section: ClusterSection, connections: int) -> int:
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
            kept.append(Tunnels(nats, section.name, node, folder, lambda _: "b", lambda _: queue))
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
