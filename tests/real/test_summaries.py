"""`queue.summaries = true`: a process of the real MTA makes the summary of each segment that closes, also after a
kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from survival.rig import TOP, Mta

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.wire.client import RemoteQueue

PATIENCE_S = 60


async def test_summaries_of_a_running_mta(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    async with Sink(SinkOptions(listen=("127.0.0.1:0",))) as sink:
        mta = Mta(folder, sink.port, home=tmp_path)
        file = mta.config_file
        file.write_text(file.read_text().replace("[queue]\n", "[queue]\nsummaries = true\n"))
        mta.start()
        try:
            for number in range(2):
                await mta.accepting()
                await send(folder, f"p{number}@x.test")
                await asyncio.to_thread(until, lambda wanted=number + 1: summaries(folder) >= wanted, mta)
                if not number:
                    kill(mta)
        finally:
            mta.end()
    question = "summary", "mail", "--by", "domain", "--json", "--folder", str(folder)
    command = [sys.executable, "-m", "zonemta_py", *question]
    said = json.loads(await asyncio.to_thread(subprocess.check_output, command, cwd=TOP))
    assert {row["domain"]: row["delivered"] for row in said["rows"]}["x.test"] == 2


async def send(folder: Path, address: str) -> None:
    """A message, until it is delivered and its segment closed."""
    queue = await RemoteQueue.connect(folder, "test", reconnect=True)
    await queue.accept(Envelope("a@src.test", [Recipient(address)], size=9), b"Subject: x\r\n\r\nx\r\n")
    async with asyncio.timeout(PATIENCE_S):
        while (await queue.ask("list", limit=1))["rows"]:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.05)
    await queue.ask("rotate")


def summaries(folder: Path) -> int:
    return len(list((folder / "archive").glob("*.summary")))


def kill(mta: Mta) -> None:
    (pid,) = [pid for pid in mta.children() if "summari" in Path(f"/proc/{pid}/comm").read_text()]
    os.kill(pid, signal.SIGKILL)


def until(true: Callable[[], bool], mta: Mta) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, mta.log_tail()
        time.sleep(0.05)
