"""A sender that stands still, and is the only one there is."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from survival.client import Connection
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import Mta, enter, sink

PATIENCE_S = 60


async def test_another_sender_takes_its_place(tmp_path: Path) -> None:
    """It is stopped before it has anything; what comes meanwhile is sent by its successor, once."""
    ledger = Ledger()
    async with sink(ledger) as server:
        mta = Mta(tmp_path / "queue", server.port, home=tmp_path, processes=1)
        mta.config_file.write_text(mta.config_file.read_text().replace("[queue]", "[queue]\nlease_s = 1", 1))
        mta.start()
        try:
            await mta.taking()
            (stopped,) = await until(lambda: [pid for pid, role in mta.children().items() if role == "sender"])
            await give(mta, "1.0")
            await asyncio.to_thread(settled, mta)  # now it waits for more
            assert server.counters.recipients == 1
            os.kill(stopped, signal.SIGSTOP)
            await give(mta, "2.0")
            await until(lambda: enter(server, ledger) or server.counters.recipients > 1)
            assert server.counters.recipients == 2
            assert stopped not in mta.children()
            assert "is still stuck: it is killed" in mta.log_tail(20)
        finally:
            mta.end()


async def give(mta: Mta, id: str) -> None:
    connection = await Connection.open(mta.port)
    await connection.transaction(Letter(id, "a@b.test", ["bob@x.test"], b"Subject: x\r\n\r\nHello\r\n"))
    connection.close()


def settled(mta: Mta) -> None:
    end = time.monotonic() + PATIENCE_S
    while mta.ask("size")["total"]["messages"]:
        assert time.monotonic() < end, mta.log_tail()
        time.sleep(0.05)


async def until(found: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (what := found()):  # noqa: ASYNC110 (other processes are waited for)
            await asyncio.sleep(0.05)
        return what
