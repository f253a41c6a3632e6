"""An MTA with three queues, as real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from survival.client import Client
from survival.ledger import Ledger
from survival.rig import Mta, sink

QUEUES = 3


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Mta, Ledger, Client]]:
    ledger = Ledger()
    async with sink(ledger) as destination:
        mta = Mta(folder, destination.port, queues=QUEUES)
        mta.start()
        try:
            await mta.taking()
            yield mta, ledger, Client(mta.port, ledger)
        finally:
            mta.end()


def pid(mta: Mta, name: str) -> int:
    found = find(mta, name)
    assert found, f"there is no process {name}: {mta.log_tail()}"
    return found


def find(mta: Mta, name: str) -> int:
    """The process of that name; 0: there is none."""
    for one in mta.children():
        with suppress(OSError):
            if Path(f"/proc/{one}/comm").read_text().strip() == f"zonemta {name}"[:15]:
                return one
    return 0


async def killed(mta: Mta, name: str) -> None:
    """Returns when another has its place."""
    before = pid(mta, name)
    os.kill(before, signal.SIGKILL)
    await until(lambda: find(mta, name) not in (before, 0))


async def until(true: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)
