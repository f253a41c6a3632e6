"""When a sink waits for more events to send at once, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from zonemta_py.config.services.events import EventSink
from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.events.backlog import Backlog
from zonemta_py.events.sink import RunningSink
from zonemta_py.events.sinks.base import Ready
from zonemta_py.journal.tail import JournalTail

LONG_S = 60.0


class Recorder:
    """Takes everything. batches: how many events each had."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def open(self) -> None:
        pass

    async def send(self, batch: Sequence[Ready]) -> None:
        self.batches.append(len(batch))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("memory", "size"),
    [(100, 100), (10_000, 8000)],
    ids=["the rest waits in the ring, where memory holds less than a batch", "the batch is full by its bytes"],
)
async def test_nobody_waits_for_more_while_more_is_there(
    memory: int, size: int, tmp_path: Path, ready: Callable[..., Ready]
) -> None:
    settings = EventSink(
        name="s", kind="webhook", url="http://127.0.0.1:9/", batch_s=LONG_S, batch_events=200, batch_bytes=65_536
    )
    queue = OverflowQueue(tmp_path / "ring", memory, 8 << 20, 1000, whole=True)
    recorder = Recorder()
    sink = RunningSink(
        settings, recorder, tmp_path, Backlog(queue, 0, 0, lambda seq: JournalTail(tmp_path, seq), lambda _: [])
    )
    work = asyncio.create_task(sink.run())
    while not sink.backlog.live:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for seq in range(1, 1001):
        sink.offer(seq, [ready(seq, size=size)])
    async with asyncio.timeout(LONG_S / 2):
        while sum(recorder.batches) < 900:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    sink.stop()
    await work
    queue.close()
