"""Asks a full queue everything an operator can ask, in a loop, with and without deliveries going on.

Three processes, as in an MTA: the queue, a sender that takes leases and settles them at once as delivered (so that the
queue's event loop is as busy as it can be), and this one, which asks by the socket. A task in the queue's process notes
how late it is woken. Everything is on this machine, and removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DELIVERED, HELD, Outcome, Result
from zonemta_py.queue.maintenance.garbage import Garbage
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.client import RemoteQueue, ask
from zonemta_py.wire.server import serve

ZONES, TENANTS, CAMPAIGNS, TOGETHER = ("default", "news", "alerts"), 20, 50, 20
BODY = b"Subject: hello\r\n\r\nHi\r\n"
BEAT_S = 0.005
LATER_MS = 7 * 86_400_000


def config_of(folder: Path) -> Config:
    zones = [{"name": name, "default": name == "default", "connections": 500} for name in ZONES]
    server = {"folder": folder, "hostname": "mta.test"}
    return Config.model_validate({"server": server, "zones": zones, "learning": {"initial": 100}})


# -- the queue's process


def queue_process(folder: Path, recipients: int, domains: int, pipe: Connection) -> None:
    uvloop.run(_queue(folder, recipients, domains, pipe))


async def _queue(folder: Path, recipients: int, domains: int, pipe: Connection) -> None:
    queue, garbage = await open_queue(config_of(folder)), Garbage()
    queue.start()
    server = await serve(queue, folder)
    begun = time.monotonic()
    await _fill(queue, recipients, domains)
    pipe.send(time.monotonic() - begun)
    late: list[tuple[float, float]] = []
    watching = asyncio.gather(_watch(late), garbage.watch())
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_reader(pipe.fileno(), asked.set)
    while True:
        await asked.wait()
        asked.clear()
        if pipe.poll():
            if pipe.recv() == "end":
                watching.cancel()
                server.close()
                return
            found, late[:] = list(late), []
            pipe.send((found, time.process_time()))


async def _watch(late: list[tuple[float, float]]) -> None:
    """By how much it is woken late, and how much of that the loop worked: other programs may have had the machine."""
    while True:
        due, worked = time.perf_counter() + BEAT_S, time.thread_time()
        await asyncio.sleep(BEAT_S)
        late.append((max(0.0, time.perf_counter() - due), time.thread_time() - worked))


async def _fill(queue: Any, recipients: int, domains: int) -> None:
    """Four tenths wait for a time next week, a few hundred are held, the others for their turn."""
    die, now_ms = random.Random(1), time.time_ns() // 1_000_000

    async def put(number: int) -> None:
        people = [Recipient(f"u{number}.{at}@d{die.randrange(domains)}.test") for at in range(TOGETHER)]
        envelope = Envelope(f"s{number % 1000}@src.test", people, len(BODY), received_ms=now_ms)
        envelope.sending_zone = ZONES[number % len(ZONES)]
        if number % 2:
            envelope.tenant, envelope.campaign = f"t{number % TENANTS}", f"c{number % CAMPAIGNS}"
        if number % 5 < 2:
            envelope.hold_until_ms = now_ms + LATER_MS
        await queue.accept(envelope, BODY)

    for first in range(0, recipients // TOGETHER, 200):
        await asyncio.gather(*(put(number) for number in range(first, min(first + 200, recipients // TOGETHER))))
    for delivery in await queue.lease(200):
        await queue.settle(_result(delivery, HELD))


# -- the sender's process


def sender_process(folder: Path, pipe: Connection) -> None:
    uvloop.run(_sender(folder, pipe))


async def _sender(folder: Path, pipe: Connection) -> None:
    done, going = 0, asyncio.Event()
    queue = await RemoteQueue.connect(folder, "sender-1")

    async def send() -> None:
        nonlocal done
        while True:
            await going.wait()
            deliveries = await queue.lease(20)
            await asyncio.gather(*(queue.settle(_result(delivery, DELIVERED)) for delivery in deliveries))
            done += sum(len(delivery.recipients) for delivery in deliveries)

    sending = [asyncio.ensure_future(send()) for _ in range(4)]
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe.fileno(), asked.set)
    while True:
        await asked.wait()
        asked.clear()
        if pipe.poll():
            word = pipe.recv()
            if word == "end":
                for task in sending:
                    task.cancel()
                return
            going.set() if word == "go" else going.clear() if word == "stop" else None
            pipe.send(done)


def _result(delivery: Any, verdict: int) -> Result:
    reply = Reply(250, "2.0.0", "ok") if verdict == DELIVERED else Reply(451, "4.3.0", "for an operator")
    outcome = Outcome(verdict, reply, "dot", list(range(len(delivery.recipients))))
    return Result(delivery.lease, [outcome], remote="mx.test[127.0.0.9]:25")


# -- the operator


class Operator:
    """Asks one question after another; took: seconds, by question."""

    def __init__(self, folder: Path, domains: int) -> None:
        self._folder, self._domains, self._die = folder, domains, random.Random(2)
        self.took: dict[str, list[float]] = defaultdict(list)
        self.worked: dict[str, list[float]] = defaultdict(list)
        self.clock: Any = None
        rows = self._ask("list", limit=500)["rows"] + self._ask("list", limit=500, state="deferred")["rows"]
        self._ids, self._addresses = [row["id"] for row in rows], [row["recipient"] for row in rows]

    def _ask(self, question: str, **about: Any) -> Any:
        return ask(self._folder, question, **about)

    def round(self) -> None:
        """Each question once."""
        die, domain = self._die, f"d{self._die.randrange(self._domains)}.test"
        message, address = die.choice(self._ids), die.choice(self._addresses)
        campaign, tenant, zone = f"c{die.randrange(CAMPAIGNS) | 1}", f"t{die.randrange(TENANTS) | 1}", die.choice(ZONES)
        self.ask("size")
        for by, name in (("zone", zone), ("domain", domain), ("campaign", campaign), ("tenant", tenant)):
            self.ask("size", f"size {by}", **{by: name})
            self.ask("sizes", f"sizes {by}", by=by)
        self.ask("size", "size provider", provider="big")
        page = self.ask("list", limit=100)
        self.ask("list", "list, next page", limit=100, after=page["next"] or "")
        for name, where in {
            "domain": {"domain": domain}, "held": {"zone": zone, "state": "held"}, "state": {"state": "deferred"},
            "campaign": {"campaign": campaign}, "tenant, state": {"tenant": tenant, "state": "deferred"},
            "id": {"id": message}, "sender": {"sender": f"s{die.randrange(1000)}@src.test"},
            "nobody": {"sender": "nobody@src.test"}, "recipient": {"recipient": address}, "age": {"older_s": 3600},
            "subject": {"subject": "no such"},
        }.items():  # fmt: skip
            self.ask("list", f"list {name}", limit=100, **where)
        for name in (message, address, domain, campaign, tenant, zone):
            self.explained(name)
        try:
            self.ask("show", id=message)
        except ValueError:  # it was delivered
            self._ids = [one for one in self._ids if one != message] or self._ids
        for question in ("lanes", "standing", "in-doubt", "campaigns", "tasks", "positions", "qshape"):
            self.ask(question)
        self.ask("trace", what=message)

    def explained(self, name: str) -> None:
        kind = "address" if "@" in name else "id" if len(name) == 16 else "domain" if "." in name else name[0]
        with suppress(ValueError):  # nothing of it is there any more
            self.ask("explain", f"explain {kind}", what=name)

    def ask(self, question: str, name: str = "", **about: Any) -> Any:
        before = self.clock() if self.clock else 0.0
        begun = time.perf_counter()
        try:
            return self._ask(question, **about)
        finally:
            self.took[name or question].append(time.perf_counter() - begun)
            if self.clock:
                self.worked[name or question].append(self.clock() - before)


def tails(values: list[float]) -> dict[str, float]:
    """Milliseconds."""
    found = sorted(values) or [0.0]
    at = {"p50": statistics.median(found), "p99": found[min(len(found) - 1, int(len(found) * 0.99))], "max": found[-1]}
    return {name: round(1000 * value, 2) for name, value in at.items()}


def trial(folder: Path, recipients: int, seconds: float, say: Any = print, parts: int = 4) -> dict[str, Any]:
    """The figures."""
    domains, context = max(100, recipients // 50), multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    queue = context.Process(target=queue_process, args=(folder, recipients, domains, theirs), daemon=True)
    queue.start()
    theirs.close()  # so that its end is noticed
    say(f"{recipients:,} recipients for {domains:,} domains were queued in {ours.recv():.0f} s")
    mine, its = context.Pipe()
    sender = context.Process(target=sender_process, args=(folder, its), daemon=True)
    sender.start()
    its.close()

    def told(pipe: Connection, word: str) -> Any:
        pipe.send(word)
        return pipe.recv()

    try:
        found: dict[str, Any] = {"recipients": recipients, "size": ask(folder, "size")["total"]}
        operator = Operator(folder, domains)
        operator.clock = lambda: told(ours, "late")[1]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            operator.round()
        found["idle"] = {name: tails(took) for name, took in operator.took.items()}
        found["work"] = {name: tails(took) for name, took in operator.worked.items()}
        operator.clock = None
        found["alone"], found["asked"] = [], []
        for part in range(parts):
            operator.took.clear() if part == 1 else None
            told(mine, "go")
            time.sleep(1.0)
            worked, before, begun = told(ours, "late")[1], told(mine, "count"), time.monotonic()
            while time.monotonic() < begun + seconds:
                operator.round() if part % 2 else time.sleep(0.2)
            count, took_s = told(mine, "count") - before, time.monotonic() - begun
            late, ended = told(ours, "late")
            found["asked" if part % 2 else "alone"].append({
                "rate": round(count / took_s), "by_work": round(count / (ended - worked)),
                "late": tails([one for one, _ in late]), "worked": tails([one for _, one in late]),
            })  # fmt: skip
            told(mine, "stop")
        found["busy"] = {name: tails(took) for name, took in operator.took.items()}
        return found
    finally:
        mine.send("end")
        ours.send("end")
        sender.join(10)
        queue.join(10)
        for process in (sender, queue):
            process.kill() if process.is_alive() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipients", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part")
    parser.add_argument("--folder", type=Path, help="where the queue lies; else in /tmp")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = trial(Path(folder) / "mta", asked.recipients, asked.seconds, lambda text: print(text, file=sys.stderr))
    if asked.json:
        print(json.dumps(found, indent=1))
        return 0
    heads = ("idle p50", "p99", "max", "work p50", "max", "busy p50", "p99", "max")
    print(f"{'question':20}", *(f"{head:>8}" for head in heads), " ms")
    for name, idle in sorted(found["idle"].items()):
        busy = found["busy"].get(name, {"p50": 0, "p99": 0, "max": 0})
        work = found["work"][name]
        cells = (*idle.values(), work["p50"], work["max"], *busy.values())
        print(f"{name:20}", *(f"{cell:8}" for cell in cells))
    for name in ("alone", "asked"):
        for part in found[name]:
            print(f"deliveries, {name}: {part['rate']:,}/s, {part['by_work']:,} for each second of the queue's work; "
                  f"the loop was late by {part['late']}, of which it worked {part['worked']} ms")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
