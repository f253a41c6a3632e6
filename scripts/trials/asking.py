"""Asks a full queue everything an operator can ask, in a loop, with and without deliveries going on.

Three processes, as in an MTA: the queue, a sender that takes leases and settles them at once as delivered (so that the
queue's event loop is as busy as it can be), and this one, which asks by the socket. A task in the queue's process notes
how late it is woken. Everything is on this machine, and removed at the end.

With several queues there are the authority, which is asked, and a queue and a sender for each (`several.py`); what is
said of the queue's work is that of all of them. Orders are given too, as often as it takes to see how long each takes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import several
import uvloop
from survival.filling import fill_within

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DELIVERED, HELD, Outcome, Result
from zonemta_py.queue.maintenance.garbage import Garbage
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire import SOCKET
from zonemta_py.wire.blocking_client import ask, ask_at
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

ZONES, TENANTS, CAMPAIGNS, TOGETHER = ("default", "news", "alerts"), 20, 50, 20
A_THIRD = {"domain": ["d1*", "d2*", "d3*"]}
BODY = b"Subject: hello\r\n\r\nHi\r\n"
IN_A_DOMAIN = 10
BEAT_S = 0.005
LATER_MS = 7 * 86_400_000
TASKS, ORDERS = 3, 20


def config_of(folder: Path, queues: int = 1) -> Config:
    zones = [{"name": name, "default": name == "default", "connections": 500} for name in ZONES]
    server = {"folder": folder, "hostname": "mta.test", "queues": queues, "log_level": "warning"}
    log = {"mail": False}
    return Config.model_validate({"server": server, "zones": zones, "learning": {"initial": 100}, "log": log})


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
    await hold_some(queue)
    pipe.send(time.monotonic() - begun)
    await watch(pipe)
    server.close()


async def hold_some(queue: Any, most: int = 200) -> None:
    for delivery in await queue.lease(most):
        await queue.settle(_result(delivery, HELD))


async def watch(pipe: Connection) -> None:
    """Tells what is to be known of this process, until its end."""
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
                return
            os.set_blocking(pipe.fileno(), True)  # the event loop has made it another one; there may be much to tell
            pipe.send(Watched(list(beats), list(pauses), time.process_time()))
            beats.clear()
            pauses.clear()


def fill_one(recipients: int, domains: int, config: Config, number: int) -> None:
    """One of several queues."""
    most = 200 // config.server.queues if isinstance(config.server.queues, int) else 1
    letters, end = _letters(recipients, domains), partial(hold_some, most=most)
    uvloop.run(several.fill(config, number, letters, BODY, end))


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


def sender_process(folder: Path, name: str, pipe: Connection) -> None:
    uvloop.run(_sender(folder, name, pipe))


async def _sender(folder: Path, name: str, pipe: Connection) -> None:
    done, going = 0, asyncio.Event()
    queue = await RemoteQueue.connect(folder, name)

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
    """Asks one question after another; took: seconds, by question. folders: of each queue."""

    def __init__(self, folder: Path, domains: int, folders: Sequence[Path]) -> None:
        self._folder, self._domains, self._die, self._folders = folder, domains, random.Random(2), folders
        self.took: dict[str, list[float]] = defaultdict(list)
        self.worked: dict[str, list[float]] = defaultdict(list)
        self.authority: dict[str, list[float]] = defaultdict(list)
        self.clock: Callable[[], tuple[float, float]] | None = None
        """How long the queues have worked, and their authority."""
        rows = self._ask("list", limit=500)["rows"] + self._ask("list", limit=500, state="deferred")["rows"]
        self._ids, self._addresses = [row["id"] for row in rows], [row["recipient"] for row in rows]

    def _ask(self, question: str, **about: Any) -> Any:
        if question == "positions":  # it is about the files of one queue
            return ask_at(self._folders[len(self.took[question]) % len(self._folders)] / SOCKET, question, **about)
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

    def ask(self, question: str, name: str = "", /, **about: Any) -> Any:
        before = self.clock() if self.clock else (0.0, 0.0)
        begun = time.perf_counter()
        try:
            return self._ask(question, **about)
        finally:
            self.took[name or question].append(time.perf_counter() - begun)
            if self.clock:
                after = self.clock()
                self.worked[name or question].append(after[0] - before[0])
                self.authority[name or question].append(after[1] - before[1])

    def orders(self, times: int) -> None:
        """Each that an operator gives, so often; what it has changed is changed back."""
        for number in range(times):
            domain, address = f"d{self._die.randrange(self._domains)}.test", f"gone{number}@stopped.test"
            campaign = f"c{self._die.randrange(CAMPAIGNS) | 1}"
            self.ask("stop", "suspend", kind="domain", name=domain, cause="a trial")
            self.ask("lift", "resume", kind="domain", name=domain)
            self.ask("suppress", "suppression add", rows=[[address, "manual"]])
            self.ask("unsuppress", "suppression remove", addresses=[address])
            self.ask("campaign-pause", "campaign pause", name=campaign)
            self.ask("campaign-resume", "campaign resume", name=campaign)

    def tasks(self, times: int) -> None:
        """A third is to be deleted, and that is canceled at once."""
        for _ in range(times):
            row = self.ask("task", "delete a third", verb="delete", where=A_THIRD)
            self.ask("task-cancel", "task cancel", id=row["id"])

    def delete(self) -> tuple[int, float, float]:
        """A third, and its undo. How many that were; how long it took to delete them, and to put them back, seconds."""
        row = self.ask("task", "delete a third", verb="delete", where=A_THIRD)
        done = self._ended(row["id"])
        self.ask("task-undo", "undo", id=row["id"])
        undone = self._ended(row["id"])
        return undone[0]["done"], done[1], undone[1]

    def _ended(self, id: str) -> tuple[dict[str, Any], float]:
        begun = time.monotonic()
        while (row := self._ask("task-row", id=id))["state"] == "running":
            time.sleep(0.1)
        return row, time.monotonic() - begun


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
    """The queues, their senders and the operator. Used as a context: it ends its processes."""

    def __init__(self, folder: Path, recipients: int, say: Callable[[str], object], queues: int = 1) -> None:
        self.folder, self.domains = folder, max(100, recipients // IN_A_DOMAIN)
        self._context = multiprocessing.get_context("spawn")
        self._processes = list[BaseProcess]()
        self._several: several.SeveralQueues | None = None
        begun = time.monotonic()
        if queues > 1:
            fill = partial(fill_one, recipients, self.domains)
            self._several = several.SeveralQueues(config_of(folder, queues), fill, watch)
            folders, self._queues, took_s = self._several.folders, self._several.pipes, self._several.filled_s
        else:
            folders, self._queues = [folder], [self._start(queue_process, folder, recipients, self.domains)]
            took_s = self._queues[0].recv()
        say(f"{recipients:,} recipients for {self.domains:,} domains were queued in {took_s:.0f} s")
        self._senders = [
            self._start(sender_process, place, f"sender-{number + 1}") for number, place in enumerate(folders)
        ]
        if self._several is not None:
            self._several.wait()
            say(f"{queues} queues answer as one {time.monotonic() - begun - took_s:.0f} s later")
        self._operator = Operator(folder, self.domains, folders)

    def _start(self, work: Callable[..., None], *arguments: Any) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(*arguments, theirs), daemon=True)
        self._processes.append(process)
        process.start()
        theirs.close()  # so that its end is noticed
        return ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (*self._queues, *self._senders):
            with suppress(OSError):
                pipe.send("end")
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
        if self._several is not None:
            self._several.end()

    def idle(self, seconds: float) -> dict[str, Any]:
        """Milliseconds that each question took, and that the queues worked for it, while nothing is sent."""
        operator, end = self._operator, time.monotonic() + seconds
        operator.clock = self._worked
        while time.monotonic() < end:
            operator.round()
        return {"idle": self._taken(), **self._work()}

    def orders(self, times: int) -> dict[str, Any]:
        """The same of orders."""
        self._operator.clock = self._worked
        self._operator.orders(times)
        self._operator.tasks(TASKS)
        deleted = [self._operator.delete()]
        names = "recipients", "deleted_s", "put_back_s"
        return {"orders": self._taken(), **self._work("orders_"), "deletes": [dict(zip(names, one, strict=True))
                for one in deleted]}  # fmt: skip

    def _taken(self) -> dict[str, dict[str, float]]:
        operator = self._operator
        took = {name: tails(took) for name, took in operator.took.items()}
        operator.took.clear()
        operator.clock = None
        return took

    def _work(self, kind: str = "") -> dict[str, Any]:
        """Of the queues; of several, of their authority, too."""
        operator = self._operator
        found = {f"{kind}work": {name: tails(worked) for name, worked in operator.worked.items()}}
        if self._several is not None:
            found[f"{kind}authority"] = {name: tails(worked) for name, worked in operator.authority.items()}
        operator.worked.clear()
        operator.authority.clear()
        return found

    def stretch(self, seconds: float, asked: bool) -> Stretch:
        """Mail is sent as quickly as the queues give it out."""
        self._sent("go")
        time.sleep(min(1.0, seconds / 4))
        before, count, begun = self.watched(), self._sent("count"), time.monotonic()
        while time.monotonic() < begun + seconds:
            self._operator.round() if asked else time.sleep(0.1)
        sent, took_s, watched = self._sent("count") - count, time.monotonic() - begun, self.watched()
        self._sent("stop")
        return Stretch(asked, sent / took_s, sent / (watched.worked - before.worked), watched)

    def busy_orders(self, times: int) -> dict[str, Any]:
        """Orders while mail is sent."""
        self._sent("go")
        time.sleep(0.5)
        self._operator.took.clear()
        self._operator.orders(times)
        self._operator.tasks(TASKS)
        self._sent("stop")
        return {"busy_orders": self._taken()}

    def _sent(self, word: str) -> int:
        return sum(_told(pipe, word) for pipe in self._senders)

    def _worked(self) -> tuple[float, float]:
        if self._several is not None:
            return self._several.worked_s()
        return self.watched().worked, 0.0

    def watched(self) -> Watched:
        each = [cast(Watched, _told(pipe, "watched")) for pipe in self._queues]
        beats, pauses = [beat for one in each for beat in one.beats], [pause for one in each for pause in one.pauses]
        return Watched(beats, pauses, sum(one.worked for one in each))

    def busy(self) -> dict[str, Any]:
        """Milliseconds that each question took while mail was sent."""
        return self._taken()


def _told(pipe: Connection, word: str) -> Any:
    pipe.send(word)
    return pipe.recv()


def trial(
    folder: Path, recipients: int, seconds: float, say: Callable[[str], object] = print, stretches: int = 6,
    queues: int = 1, orders: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """The figures. Stretches with questions and without follow one another so that what changes slowly is shared.
    orders: how often each is given; 0: none is."""
    with Trial(folder, recipients, say, queues) as trial:
        found: dict[str, Any] = {"recipients": recipients, "size": ask(folder, "size")["total"], "queues": queues}
        found |= trial.idle(seconds)
        if orders:
            say(f"the machine's load is {os.getloadavg()[0]:.1f}; orders follow")
            found |= trial.orders(orders)
        made = list[Stretch]()
        trial.stretch(seconds, asked=False)  # the first is quicker than all others: what was queued last is in memory
        for number in range(stretches):
            made.append(trial.stretch(seconds, asked=number % 4 in (1, 2)))
            say(f"{'asked' if made[-1].asked else 'alone'}: {made[-1].rate:,.0f} deliveries a second, "
                f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
        found |= {"busy": trial.busy()} | {name: _sum(made, name == "asked") for name in ("alone", "asked")}
        found["ratio"] = round(found["asked"]["rate"] / max(1, found["alone"]["rate"]), 3)
        found |= trial.busy_orders(orders) if orders else {}
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
    parser.add_argument("--queues", type=int, default=1, help="of the MTA (default 1)")
    parser.add_argument(
        "--orders", type=int, help="how often each order is given (default 20 with several queues, 0 with one)"
    )
    parser.add_argument("--stretches", type=int, default=6, help="while mail is sent, half of them with questions")
    parser.add_argument("--folder", type=Path, help="where the queue lies; else in /tmp")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        said = lambda text: print(text, file=sys.stderr)  # noqa: E731
        orders = asked.orders if asked.orders is not None else ORDERS if asked.queues > 1 else 0
        stretches = max(2, asked.stretches)
        found = trial(Path(folder) / "mta", asked.recipients, asked.seconds, said, stretches, asked.queues, orders)
    print(json.dumps(found, indent=1)) if asked.json else _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    _table("question", found, "idle", "work", "authority", "busy")
    if "orders" in found:
        _table("order", found, "orders", "orders_work", "orders_authority", "busy_orders")
        for one in found["deletes"]:
            print(
                f"{one['recipients']:,} were deleted in {one['deleted_s']:.1f} s, put back in {one['put_back_s']:.1f} s"
            )
    for name in ("alone", "asked"):
        one = found[name]
        print(f"{name}: {one['rate']:,} deliveries a second ({', '.join(map(str, one['rates']))}), "
              f"{one['by_work']:,} for each second of the queue's work")  # fmt: skip
        print(f"  the loop was late by {one['late']} ms, of which it worked {one['worked']} ms")
        print(f"  searches for garbage: {one['garbage']} ms")
    print(f"asked / alone: {found['ratio']:.3f}")


def _table(what: str, found: dict[str, Any], idle: str, work: str, authority: str, busy: str) -> None:
    """ms. Of several queues, also what the authority worked for it."""
    heads = ["idle p50", "p99", "max", "work p50", "max", *(["auth p50", "max"] if authority in found else [])]
    print(f"{what:20}", *(f"{head:>8}" for head in (*heads, "busy p50", "p99", "max")), " ms")
    for name, took in sorted(found[idle].items()):
        there = found[busy].get(name, {"p50": 0, "p99": 0, "max": 0})
        worked = [found[kind][name] for kind in (work, authority) if kind in found]
        cells = (*took.values(), *(one[at] for one in worked for at in ("p50", "max")), *there.values())
        print(f"{name:20}", *(f"{cell:8}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
