"""Asks a full queue everything an operator can ask, in a loop, with and without deliveries going on.

Three processes, as in an MTA: the queue, a sender that takes leases and settles them at once as delivered (so that the
queue's event loop is as busy as it can be), and this one, which asks by the socket. A task in the queue's process notes
how late it is woken. Everything is on this machine, and removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import uvloop
from survival.filling import fill_within

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DELIVERED, HELD, Outcome, Result
from zonemta_py.queue.maintenance.garbage import Garbage
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.blocking_client import ask
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

ZONES, TENANTS, CAMPAIGNS, TOGETHER = ("default", "news", "alerts"), 20, 50, 20
BODY = b"Subject: hello\r\n\r\nHi\r\n"
IN_A_DOMAIN = 10
BEAT_S = 0.005
LATER_MS = 7 * 86_400_000


def config_of(folder: Path) -> Config:
    zones = [{"name": name, "default": name == "default", "connections": 500} for name in ZONES]
    server = {"folder": folder, "hostname": "mta.test"}
    return Config.model_validate({"server": server, "zones": zones, "learning": {"initial": 100}})


# -- the queue's process


class Watched(NamedTuple):
    """Of the queue's process, since it was asked before. beats: by how much a task was woken late, and how much of that
    the loop worked: other programs may have had the machine. pauses: of Python's search for garbage. Seconds."""

    beats: list[tuple[float, float]]
    pauses: list[float]
    worked: float
    """Processor time, since its start."""


def queue_process(folder: Path, recipients: int, domains: int, pipe: Connection) -> None:
    uvloop.run(_queue(folder, recipients, domains, pipe))


async def _queue(folder: Path, recipients: int, domains: int, pipe: Connection) -> None:
    queue = await open_queue(config_of(folder))
    Garbage()
    queue.start()
    server = await serve(queue, folder)
    begun = time.monotonic()
    await fill_within(queue, _letters(recipients, domains), BODY)
    for delivery in await queue.lease(200):
        await queue.settle(_result(delivery, HELD))
    pipe.send(time.monotonic() - begun)
    beats, pauses = list[tuple[float, float]](), list[float]()
    gc.callbacks.append(_noting(pauses))
    watching = asyncio.ensure_future(_watch(beats))
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
            pipe.send(Watched(list(beats), list(pauses), time.process_time()))
            beats.clear()
            pauses.clear()


async def _watch(beats: list[tuple[float, float]]) -> None:
    while True:
        due, worked = time.perf_counter() + BEAT_S, time.thread_time()
        await asyncio.sleep(BEAT_S)
        beats.append((max(0.0, time.perf_counter() - due), time.thread_time() - worked))


def _noting(pauses: list[float]) -> Callable[[str, dict[str, int]], None]:
    begun = 0.0

    def note(phase: str, _: dict[str, int]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - begun)

    return note


def _letters(recipients: int, domains: int) -> Iterator[Envelope]:
    """A fifth waits for a time next week, the others for their turn."""
    die, now_ms = random.Random(1), time.time_ns() // 1_000_000
    for number in range(recipients // TOGETHER):
        people = [Recipient(f"u{number}.{at}@d{die.randrange(domains)}.test") for at in range(TOGETHER)]
        envelope = Envelope(f"s{number % 1000}@src.test", people, len(BODY), received_ms=now_ms)
        envelope.sending_zone = ZONES[number % len(ZONES)]
        if number % 2:
            envelope.tenant, envelope.campaign = f"t{number % TENANTS}", f"c{number % CAMPAIGNS}"
        if number % 5 == 0:
            envelope.hold_until_ms = now_ms + LATER_MS
        yield envelope


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


class Stretch(NamedTuple):
    """A part of the trial in which mail was sent."""

    asked: bool
    rate: float
    """Deliveries a second."""
    by_work: float
    """The same for each second of the queue's work."""
    watched: Watched


class Trial:
    """The queue, the sender and the operator. Used as a context: it ends its processes."""

    def __init__(self, folder: Path, recipients: int, say: Callable[[str], object]) -> None:
        self.folder, self.domains = folder, max(100, recipients // IN_A_DOMAIN)
        context = multiprocessing.get_context("spawn")
        self._queue, theirs = context.Pipe()
        arguments = (folder, recipients, self.domains, theirs)
        self._processes = [context.Process(target=queue_process, args=arguments, daemon=True)]
        self._processes[0].start()
        theirs.close()  # so that its end is noticed
        took_s = self._queue.recv()
        say(f"{recipients:,} recipients for {self.domains:,} domains were queued in {took_s:.0f} s")
        self._sender, its = context.Pipe()
        self._processes.append(context.Process(target=sender_process, args=(folder, its), daemon=True))
        self._processes[1].start()
        its.close()
        self._operator = Operator(folder, self.domains)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._queue, self._sender):
            with suppress(OSError):
                pipe.send("end")
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()

    def idle(self, seconds: float) -> dict[str, Any]:
        """Milliseconds that each question took, and that the queue worked for it, while nothing is sent."""
        operator, end = self._operator, time.monotonic() + seconds
        operator.clock = lambda: self.watched().worked
        while time.monotonic() < end:
            operator.round()
        operator.clock = None
        took = {name: tails(took) for name, took in operator.took.items()}
        operator.took.clear()
        return {"idle": took, "work": {name: tails(worked) for name, worked in operator.worked.items()}}

    def stretch(self, seconds: float, asked: bool) -> Stretch:
        """Mail is sent as quickly as the queue gives it out."""
        _told(self._sender, "go")
        time.sleep(min(1.0, seconds / 4))
        before, count, begun = self.watched(), _told(self._sender, "count"), time.monotonic()
        while time.monotonic() < begun + seconds:
            self._operator.round() if asked else time.sleep(0.1)
        sent, took_s, watched = _told(self._sender, "count") - count, time.monotonic() - begun, self.watched()
        _told(self._sender, "stop")
        return Stretch(asked, sent / took_s, sent / (watched.worked - before.worked), watched)

    def watched(self) -> Watched:
        return cast(Watched, _told(self._queue, "watched"))

    def busy(self) -> dict[str, Any]:
        """Milliseconds that each question took while mail was sent."""
        return {name: tails(took) for name, took in self._operator.took.items()}


def _told(pipe: Connection, word: str) -> Any:
    pipe.send(word)
    return pipe.recv()


def trial(
    folder: Path, recipients: int, seconds: float, say: Callable[[str], object] = print, stretches: int = 6
) -> dict[str, Any]:
    """The figures. Stretches with questions and without follow one another so that what changes slowly is shared."""
    with Trial(folder, recipients, say) as trial:
        found: dict[str, Any] = {"recipients": recipients, "size": ask(folder, "size")["total"]}
        found |= trial.idle(seconds)
        made = list[Stretch]()
        trial.stretch(seconds, asked=False)  # the first is quicker than all others: what was queued last is in memory
        for number in range(stretches):
            made.append(trial.stretch(seconds, asked=number % 4 in (1, 2)))
            say(f"{'asked' if made[-1].asked else 'alone'}: {made[-1].rate:,.0f} deliveries a second")
        found |= {"busy": trial.busy()} | {name: _sum(made, name == "asked") for name in ("alone", "asked")}
        found["ratio"] = round(found["asked"]["rate"] / max(1, found["alone"]["rate"]), 3)
        if not ask(folder, "size")["total"]["queued"]:
            say("the queue ran empty: take more recipients, or fewer seconds")
        return found


def _sum(stretches: list[Stretch], asked: bool) -> dict[str, Any]:
    """Of those with questions, or without."""
    chosen = [one for one in stretches if one.asked == asked]
    beats, pauses = (
        [one for each in chosen for one in each.watched.beats],
        [p for s in chosen for p in s.watched.pauses],
    )
    return {
        "rate": round(statistics.fmean(one.rate for one in chosen)), "rates": [round(one.rate) for one in chosen],
        "by_work": round(statistics.fmean(one.by_work for one in chosen)),
        "late": tails([late for late, _ in beats]), "worked": tails([worked for _, worked in beats]),
        "garbage": {"count": len(pauses), **tails(pauses), "sum": round(1000 * sum(pauses), 2)},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipients", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each stretch (default 10)")
    parser.add_argument("--stretches", type=int, default=6, help="while mail is sent, half of them with questions")
    parser.add_argument("--folder", type=Path, help="where the queue lies; else in /tmp")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        said = lambda text: print(text, file=sys.stderr)  # noqa: E731
        found = trial(Path(folder) / "mta", asked.recipients, asked.seconds, said, max(2, asked.stretches))
    print(json.dumps(found, indent=1)) if asked.json else _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    heads = ("idle p50", "p99", "max", "work p50", "max", "busy p50", "p99", "max")
    print(f"{'question':20}", *(f"{head:>8}" for head in heads), " ms")
    for name, idle in sorted(found["idle"].items()):
        busy = found["busy"].get(name, {"p50": 0, "p99": 0, "max": 0})
        work = found["work"][name]
        cells = (*idle.values(), work["p50"], work["max"], *busy.values())
        print(f"{name:20}", *(f"{cell:8}" for cell in cells))
    for name in ("alone", "asked"):
        one = found[name]
        print(f"{name}: {one['rate']:,} deliveries a second ({', '.join(map(str, one['rates']))}), "
              f"{one['by_work']:,} for each second of the queue's work")  # fmt: skip
        print(f"  the loop was late by {one['late']} ms, of which it worked {one['worked']} ms")
        print(f"  searches for garbage: {one['garbage']} ms")
    print(f"asked / alone: {found['ratio']:.3f}")


if __name__ == "__main__":
    sys.exit(main())
