"""Another number of queues of an MTA that runs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from survival.rig import PATIENCE_S, Mta
from zonemta_py.queues import layout
from zonemta_py.wire.blocking_client import QueueGone, ask


def configure(mta: Mta, queues: int) -> None:
    """Holds from the next reload or start on."""
    text = mta.config_file.read_text()
    before = next(line for line in text.splitlines() if line.startswith("queues = "))
    mta.config_file.write_text(text.replace(before, f"queues = {queues}", 1))


async def resized(mta: Mta, queues: int) -> dict[str, Any]:
    """Returns what the reload has answered, when they are there. Raises AssertionError."""
    configure(mta, queues)
    answer: dict[str, Any] = await asyncio.to_thread(mta.ask, "reload", by="test")
    assert not answer["refused"], answer
    await settled(mta, queues)
    return answer


async def settled(mta: Mta, queues: int) -> None:
    """Waits until so many are there. Raises AssertionError."""
    until = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(are_there, mta, queues):
        assert time.monotonic() < until, f"there are no {queues} queues: {mta.log_tail()}"
        await asyncio.sleep(0.05)


def are_there(mta: Mta, queues: int) -> bool:
    """Whether so many queues are there, and answer."""
    if layout.numbers(mta.folder) != list(range(queues)) or not layout.settled(mta.folder):
        return False
    try:
        ask(mta.folder, "size")
    except (QueueGone, ValueError):
        return False
    return True
