"""Tasks and SIGKILL: the queue's process is killed at random moments while tasks run; each ends as ordered, once.

A process of its own serves a queue on its socket; the operator orders one task after another for four groups of
recipients (hold, release, delete, undo, set, flush, delete for good), and does not know which orders arrived when the
queue was killed: it looks. At the end every recipient must be where the tasks in the queue's own list put it, each task
must have counted what it was ordered for, `fsck` must find the queue healthy, and what is left is delivered, each once.

`speed` queues many recipients, in the queue's process itself, and measures how long the order to delete three tenths of
them takes, how much of that the queue's event loop works, and that none of them is sent, while a sender takes what it
can get. Not all that is left is sent: `--sent` recipients, and all that the sender gets until the task is done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from survival.filling import fill_within
from survival.recover import problems
from zonemta_py.config import load
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DELIVERED, Outcome, QueueRefusal, Result
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

HERE = Path(__file__).resolve()
GROUPS = 4
TOGETHER = 10
FILLED_A_SECOND = 2_000
"""At least so many recipients are queued a second, when a queue is filled."""
IN_A_MESSAGE = 100
OTHERS = 20
"""Orders about nobody, before the one that is measured."""
BODY = b"Subject: hello\r\n\r\nHi\r\n"
ENDED = ("undoable", "done", "canceled", "undone")
VERBS = ("hold", "release", "delete", "set", "flush")
PATIENCE_S = 60.0


class Host:
    """The queue's process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder.parent / "zonemta.toml"
        self.file.write_text(
            f'[server]\nfolder = "{folder}"\nhostname = "mta.test"\n[queue]\nundo_s = 3600\nposition_s = 1\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, recipients: int = 0) -> RemoteQueue:
        """recipients: of which it is full, before it answers."""
        self.process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "survival.tasks", "serve", self.file, "--recipients", str(recipients)],
            env=os.environ | {"PYTHONPATH": str(HERE.parents[1])}, cwd=HERE.parents[3],
        )  # fmt: skip
        until = time.monotonic() + PATIENCE_S + recipients / FILLED_A_SECOND
        while time.monotonic() < until:
            try:
                return await RemoteQueue.connect(self.folder, "operator")
            except (OSError, QueueRefusal):
                assert self.process.poll() is None, "the queue did not start"
                await asyncio.sleep(0.02)
        raise AssertionError("the queue does not answer")

    def worked_ms(self) -> float:
        """CPU time of its main thread, which runs the event loop."""
        assert self.process is not None
        number = self.process.pid
        return int(Path(f"/proc/{number}/task/{number}/schedstat").read_text().split()[0]) / 1e6

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def people(count: int) -> list[str]:
    return [f"p{number}@d{number % GROUPS}.test" for number in range(count)]


async def fill(queue: RemoteQueue, count: int, groups: int = GROUPS) -> None:
    """Messages with recipients of one group each, several accepted at a time."""
    addresses = [[one for one in people(count) if one.endswith(f"@d{group}.test")] for group in range(groups)]
    parts = [rows[at : at + TOGETHER] for rows in addresses for at in range(0, len(rows), TOGETHER)]
    for at in range(0, len(parts), 200):
        envelopes = [
            Envelope("ann@src.test", [Recipient(one) for one in part], len(BODY)) for part in parts[at : at + 200]
        ]
        await asyncio.gather(*(queue.accept(envelope, BODY) for envelope in envelopes))


class Operator:
    """Gives orders, and keeps what must come of them."""

    def __init__(self, dice: random.Random, count: int) -> None:
        self.dice, self.count = dice, count
        self.unknown: dict[str, Any] | None = None
        self.orders = 0
        self.undoing: dict[int, str] = {}
        """By group: the task whose undo was ordered. Another order meanwhile would take a part of what it puts back."""

    async def order(self, queue: RemoteQueue) -> None:
        """One more task, or the undo of the latest one of a group; its cause is its name."""
        group = self.dice.randrange(GROUPS)
        if group in self.undoing:
            await self.ended(queue, group)
        rows = [row for row in await queue.ask("tasks", limit=10_000) if row["where"]["domain"] == f"d{group}.test"]
        latest = rows[0] if rows else None
        if latest is not None and latest["undoable"] and self.dice.random() < 0.4:
            self.undoing[group] = latest["id"]
            await queue.ask("task-undo", id=latest["id"])
            await self.ended(queue, group)
            return
        verb = self.dice.choice(VERBS)
        change = {"priority": self.dice.randrange(9)} if verb == "set" else None
        self.orders += 1
        await queue.ask("task", verb=verb, where={"domain": f"d{group}.test"}, set=change, cause=f"order {self.orders}")

    async def ended(self, queue: RemoteQueue, group: int) -> None:
        """The undo has ended, or has never arrived."""
        while (await queue.ask("task-row", id=self.undoing[group]))["state"] not in ENDED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        del self.undoing[group]


async def settled(queue: RemoteQueue) -> list[dict[str, Any]]:
    """All tasks, the oldest first, when nothing is left to do."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        rows: list[dict[str, Any]] = await queue.ask("tasks", limit=10_000)
        if all(row["state"] in ENDED for row in rows):
            return rows[::-1]
        await asyncio.sleep(0.05)
    raise AssertionError("tasks do not end")


def judge(rows: list[dict[str, Any]], count: int, found: dict[str, set[str]], operator: Operator) -> list[str]:
    """What is not as the tasks in the list should have left it."""
    broken = []
    names = [row["cause"] for row in rows]
    if len(set(names)) != len(names):
        broken.append("an order was taken twice")
    for group in range(GROUPS):
        size = sum(one.endswith(f"@d{group}.test") for one in people(count))
        state = "waiting"
        for row in rows:
            if row["where"]["domain"] != f"d{group}.test":
                continue
            before, verb = state, row["verb"]
            meant = {"hold": "waiting", "release": "held", "set": "waiting held"}.get(verb, "waiting held")
            if verb == "flush":
                continue  # what is due already is left as it is
            applies = state in meant.split()
            if applies and verb in ("hold", "release", "delete"):
                state = {"hold": "held", "release": "waiting", "delete": "deleted"}[verb]
            if row["state"] == "undone":
                state = before
                if row["done"] != row["undone"]:
                    broken.append(f"task {row['id']} did {row['done']} and undid {row['undone']}")
            elif row["done"] != (size if applies else 0):
                broken.append(
                    f"task {row['id']} ({verb}, {row['state']}) did {row['done']} of {size if applies else 0}"
                )
        everybody = {one for one in people(count) if one.endswith(f"@d{group}.test")}
        if found[state] & everybody != everybody:
            broken.append(f"{len(everybody - found[state])} of group {group} are not {state}")
    return broken


async def states(queue: RemoteQueue) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, kinds in (("waiting", ["queued", "deferred"]), ("held", ["held"]), ("deleted", ["deleted"])):
        after, found[name] = "", set()
        while True:
            page = await queue.ask("list", state=kinds, limit=1000, **({"after": after} if after else {}))
            found[name] |= {row["recipient"] for row in page["rows"]}
            if not page["next"]:
                break
            after = page["next"]
    return found


async def kills(folder: Path, *, recipients: int, kills: int, seed: int) -> dict[str, Any]:
    """The trial; "broken" lists what was."""
    dice, host = random.Random(seed), Host(folder)
    queue = await host.start()
    await fill(queue, recipients)
    operator, struck = Operator(dice, recipients), 0
    while struck < kills:
        ordering = asyncio.ensure_future(_orders(operator, queue))
        await asyncio.sleep(dice.random() * 0.25)
        host.kill()
        struck += 1
        ordering.cancel()
        await asyncio.wait([ordering])
        queue = await host.start()
    rows = await settled(queue)
    broken = judge(rows, recipients, await states(queue), operator)
    for verb in ("delete", "hold"):  # whatever is left goes out, once
        for row in [row for row in reversed(rows) if row["verb"] == verb and row["undoable"]]:
            await queue.ask("task-undo", id=row["id"])
            await settled(queue)
    await queue.ask("task", verb="release", where={"all": True})
    await settled(queue)
    sent = await deliver(queue)
    gone = (await states(queue))["deleted"]
    if sorted([*sent.elements(), *gone]) != sorted(people(recipients)):
        broken.append(f"{sum(sent.values())} were sent and {len(gone)} are deleted, of {recipients}")
    host.kill()
    broken += problems(host.file)
    done = Counter(f"{row['verb']} {row['state']}" for row in rows)
    return {"kills": struck, "tasks": len(rows), **dict(sorted(done.items())), "broken": broken}


async def _orders(operator: Operator, queue: RemoteQueue) -> None:
    """One after the other, until the queue is gone."""
    while True:
        await operator.order(queue)
        await asyncio.sleep(operator.dice.random() * 0.02)


async def deliver(queue: RemoteQueue, seconds: float = 2.0) -> Counter[str]:
    """Takes and delivers all there is."""
    sent: Counter[str] = Counter()
    while True:
        try:
            found = await asyncio.wait_for(queue.lease(100), seconds)
        except TimeoutError:
            return sent
        for delivery in found:
            sent.update(one.address for one in delivery.recipients)
            outcome = Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", list(range(len(delivery.recipients))))
            await queue.settle(Result(delivery.lease, [outcome]))


def address(number: int) -> str:
    """Three of ten are those that are to be deleted."""
    return f"p{number}@{'gone' if number % 10 < 3 else 'kept'}{number % 7}.test"


async def _timed(host: Host, queue: RemoteQueue, **order: Any) -> tuple[dict[str, Any], float, float]:
    """The task's row; how long that took, and how long the event loop worked meanwhile, in ms."""
    worked, begin = host.worked_ms(), time.perf_counter()
    row = await queue.ask("task", **order)
    took_ms = (time.perf_counter() - begin) * 1000
    return row, took_ms, host.worked_ms() - worked


async def speed(folder: Path, *, recipients: int, sent: int = 1_000) -> dict[str, Any]:
    """How long the order to delete three tenths takes, and how many of them are sent afterwards (none)."""
    host = Host(folder)
    begin = time.perf_counter()
    queue = await host.start(recipients)
    filled_s = time.perf_counter() - begin
    sender, taken = await RemoteQueue.connect(folder, "sender"), Counter[str]()
    others = [await _timed(host, queue, verb="hold", where={"domain": "nobody.test"}) for _ in range(OTHERS)]
    begin = time.perf_counter()
    row, accepted_ms, worked_ms = await _timed(host, queue, verb="delete", where={"domain": "gone*"})
    while (await queue.ask("task-row", id=row["id"]))["state"] == "running" or sum(taken.values()) < sent:
        try:
            found = await asyncio.wait_for(sender.lease(20), 1)
        except TimeoutError:
            continue
        for delivery in found:
            taken.update(one.address.partition("@")[2][:4] for one in delivery.recipients)
            outcome = Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", list(range(len(delivery.recipients))))
            await sender.settle(Result(delivery.lease, [outcome]))
    took_s = time.perf_counter() - begin
    row, size = await queue.ask("task-row", id=row["id"]), (await queue.ask("size"))["total"]
    host.kill()
    expected = sum("@gone" in address(number) for number in range(recipients))
    broken = [f"{taken['gone']} deleted recipients were sent"] if taken["gone"] else []
    if row["done"] != expected or size["deleted"] != expected:
        broken.append(f"{row['done']} of {expected} were deleted")
    took_ms = [ms for _, ms, _ in others]
    return {
        "recipients": recipients, "filled_s": round(filled_s, 1), "deleted": row["done"],
        "accepted_ms": round(accepted_ms, 1), "worked_ms": round(worked_ms, 1),
        "other_orders_ms": f"{statistics.median(took_ms):.1f} (median of {OTHERS}), {max(took_ms):.1f} at most",
        "other_orders_worked_ms": round(statistics.median(ms for *_, ms in others), 1),
        "done_s": round(took_s, 1), "sent_meanwhile": taken["kept"], "sent_though_deleted": taken["gone"],
        "broken": broken,
    }  # fmt: skip


async def host(file: Path, recipients: int) -> None:
    """The process that is killed. recipients: it is filled with so many first."""
    config = load(file)
    queue = await open_queue(config)
    queue.start()
    parts = (range(first, first + IN_A_MESSAGE) for first in range(0, recipients, IN_A_MESSAGE))
    letters = (Envelope("ann@src.test", [Recipient(address(one)) for one in part], len(BODY)) for part in parts)
    await fill_within(queue, letters, BODY)
    await serve(queue, config.folder)
    await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/tasks", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("what", choices=("kills", "speed", "serve"), help="kills: SIGKILL; speed: measures an order")
    parser.add_argument("file", nargs="?", type=Path, help="of serve: its configuration")
    parser.add_argument("--recipients", type=int, default=0, help="default 2,000 for kills, 1,000,000 for speed")
    parser.add_argument("--kills", type=int, default=100, help="moments of a kill (default 100)")
    parser.add_argument("--sent", type=int, default=1_000, help="at least so many are sent meanwhile (default 1,000)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run's orders")
    options = parser.parse_args()
    if options.what == "serve":
        asyncio.run(host(options.file, options.recipients))
    folder = Path(tempfile.mkdtemp(prefix="zonemta-tasks-")) / "queue"
    if options.what == "kills":
        run = kills(folder, recipients=options.recipients or 2_000, kills=options.kills, seed=options.seed)
    else:
        run = speed(folder, recipients=options.recipients or 1_000_000, sent=options.sent)
    figures = asyncio.run(run)
    print(json.dumps({"seed": options.seed, "folder": str(folder), **figures}, indent=1))
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
