"""Two queues, each in a process of its own: one is empty, in the other all wait for an hour of their own time zone.

Their processor time is read alternately (/proc/PID/schedstat, ns), after a minute of rest; memory is PSS. Everything is
on this machine, and removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.maintenance.garbage import Garbage
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
IN_A_BATCH, DOMAINS = 500, 5_000


def queue_process(folder: Path, recipients: int, pipe: Connection) -> None:
    uvloop.run(_queue(folder, recipients, pipe))


async def _queue(folder: Path, recipients: int, pipe: Connection) -> None:
    config = Config.model_validate({"server": {"folder": folder, "hostname": "mta.test"}})
    queue = await open_queue(config)
    Garbage()
    queue.start()
    server = await serve(queue, folder)
    if recipients:
        await _fill(queue, recipients)
    sender = await RemoteQueue.connect(folder, "sender-1")  # who waits for something to send, as in an MTA
    waits = asyncio.ensure_future(sender.lease(10))
    pipe.send(queue.core.schedule.zones["default"].loaded)
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    waits.cancel()
    server.close()


async def _fill(queue: LocalQueue, recipients: int) -> None:
    template = prepare(TemplateSource("t", Text("Hi"), Text("news@src.test"), text=Text("Hello\n"))).pack()
    hours = {"at": time.strftime("%Y-%m-%d", time.gmtime(time.time() + 3 * 86_400)), "window": "09:00-17:00"}
    hours |= {"time_zone_column": "zone"}
    await queue.ask("campaign-put", name="spring", sender="news@src.test", template=template, hours=hours)
    for first in range(0, recipients, IN_A_BATCH):
        people = [
            Recipient(f"r{n}@d{n % DOMAINS}.test", values=[ZONES[n % 4]]) for n in range(first, first + IN_A_BATCH)
        ]
        await queue.accept(Envelope("", people, columns=["zone"], campaign="spring"), b"")


def cpu_ms(pid: int) -> float:
    """Of all its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def pss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--recipients", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--rounds", type=int, default=4)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="zonemta-scheduled-") as base:
        found = []
        for name, recipients in (("empty", 0), ("scheduled", asked.recipients)):
            mine, theirs = multiprocessing.Pipe()
            folder = Path(base) / name
            process = multiprocessing.get_context("spawn").Process(
                target=queue_process, args=(folder, recipients, theirs)
            )
            process.start()
            print(f"{name}: {mine.recv()} in memory", flush=True)
            found.append((name, process, mine))
        time.sleep(asked.seconds)
        taken = measure({name: process.pid or 0 for name, process, _ in found}, asked.rounds, asked.seconds)
        for name, process, pipe in found:
            each = ", ".join(f"{one:.1f}" for one in taken[name])
            memory = pss_kb(process.pid or 0) / 1024
            print(f"{name}: {statistics.median(taken[name]):.1f} ms of CPU a minute ({each}); {memory:.0f} MB")
            pipe.send("end")
            process.join()


def measure(pids: dict[str, int], rounds: int, seconds: float) -> dict[str, list[float]]:
    """ms of CPU in a minute, for each round."""
    taken: dict[str, list[float]] = {name: [] for name in pids}
    for _ in range(rounds):
        for name, pid in pids.items():
            before = cpu_ms(pid)
            time.sleep(seconds)
            taken[name].append((cpu_ms(pid) - before) * 60 / seconds)
    return taken


if __name__ == "__main__":
    main()
