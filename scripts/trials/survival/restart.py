"""How long a restart takes: SIGKILL to every process, a start, and a clock beside it, with much or little mail queued.

Each round gives four times, in seconds: from the start to the greeting, to the first 250 after the dot, to the first
message that is whole at its destination; and from the death of the queue's process alone to the next 250.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from survival.client import Connection, Refused
from survival.letters import Letter
from survival.rig import TOP, Mta

ONCE = 1_000
"""Recipients of one message."""
DOMAINS = 50
HOLD_S = 2.0
"""So long the destination keeps its answer to a message back: what is queued lasts for all rounds."""
FIGURES = ("banner", "accepted", "delivered", "queue back")


class Slow:
    """A destination that takes everything, slowly. first: when the first message after `forget` was whole."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.first: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled: the trial is over; the callback of asyncio's streams would print that as a mistake.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            writer.write(b"220 slow.test\r\n")
            while line := await reader.readline():
                verb = line[:4].upper()
                if verb == b"DATA":
                    writer.write(b"354 go on\r\n")
                    await reader.readuntil(b"\r\n.\r\n")
                    if not self.first.done():
                        self.first.set_result(time.monotonic())
                    await asyncio.sleep(HOLD_S)
                writer.write(b"250-slow.test\r\n250 PIPELINING\r\n" if verb == b"EHLO" else b"250 OK\r\n")
        writer.close()


def mail(number: int, recipients: int) -> Letter:
    """A small message to that many."""
    people = [f"r{number}-{each}@d{each % DOMAINS}.test" for each in range(recipients)]
    data = f"Subject: {number}\r\nMessage-ID: <{number}@fill.test>\r\n\r\nHello\r\n".encode()
    return Letter(f"{number}.0", "fill@sender.test", people, data)


async def fill(mta: Mta, recipients: int, start: int = 0) -> None:
    """Queues that many."""
    connection = await Connection.open(mta.port)
    for number in range(start, start + recipients // ONCE):
        if number % 50 == 49:  # a connection may say only so much
            connection.close()
            connection = await Connection.open(mta.port)
        await connection.transaction(mail(number, ONCE))
    connection.close()


async def one_more(port: int, number: int, since: float) -> tuple[float, float]:
    """When a client that tries again and again was greeted, and when its message was taken."""
    greeted = 0.0
    while time.monotonic() < since + 120:
        with suppress(OSError, EOFError, Refused):
            connection = await Connection.open(port)
            greeted = greeted or time.monotonic() - since
            await connection.transaction(mail(number, 1))
            connection.close()
            return greeted, time.monotonic() - since
        await asyncio.sleep(0.002)
    raise AssertionError("nothing is taken after two minutes")


async def trial(folder: Path, recipients: int, runs: int) -> dict[str, Any]:
    """All figures of all rounds."""
    slow = Slow()
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0, limit=1 << 22)
    mta = Mta(folder, server.sockets[0].getsockname()[1], segment_bytes=64 << 20, write_buffer_bytes=8 << 20)
    figures: dict[str, list[float]] = {name: [] for name in FIGURES}
    mta.start()
    try:
        await mta.accepting()
        await fill(mta, recipients)
        for number in range(runs):
            await asyncio.sleep(2)
            await asyncio.to_thread(mta.end)
            slow.forget()
            began = time.monotonic()
            mta.start()
            greeted, taken = await one_more(mta.port, 1_000_000 + number, began)
            figures["banner"].append(greeted)
            figures["accepted"].append(taken)
            figures["delivered"].append(await asyncio.wait_for(slow.first, 300) - began)
            await asyncio.sleep(2)
            began = time.monotonic()
            mta.kill("queue")
            figures["queue back"].append((await one_more(mta.port, 2_000_000 + number, began))[1])
        queued = mta.ask("size")["total"]["queued"]
    finally:
        mta.end()
        server.close()
    return {"recipients": recipients, "queued": queued, "figures": figures}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/restart", description=__doc__)
    parser.add_argument("--recipients", type=int, nargs="+", default=[0, 100_000, 1_000_000], help="queued meanwhile")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    compileall.compile_dir(TOP / "zonemta_py", quiet=1)  # as installed: compiling takes longer than a start
    console = Console(stderr=chosen.json)
    table = Table("queued", *FIGURES, title="seconds after a kill of everything, median (worst)")
    results = []
    for recipients in chosen.recipients:
        with tempfile.TemporaryDirectory(prefix="restart-") as folder:
            result = asyncio.run(trial(Path(folder) / "queue", recipients, chosen.runs))
        results.append(result)
        cells = [f"{statistics.median(row):.2f} ({max(row):.2f})" for row in result["figures"].values()]
        table.add_row(f"{result['queued']:,}", *cells)
    console.print(table)
    if chosen.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
