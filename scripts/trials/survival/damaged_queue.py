"""The queue that `damage` strikes: mail in every state, orders, and requests, left by four crashes; and its recovery.

Each life of it is a process of its own, which ends without a word. It has what a queue of some age has: segments that
are in the archive only, in both, and in the journal only; bodies in the store and in files; receipts; a suppression
list, stops, and keys of requests, of which some are in a copy or in the archive only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from survival import blows
from survival.letters import Letter, letter, name_in
from zonemta_py.config import Config
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Delivery, Outcome, QueueRefusal, Result
from zonemta_py.queue.maintenance import archive
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import offline
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.schedule.time.clock import Clock

LETTERS = 240
LATE = 24
"""Letters that are acknowledged in the moment before the crash."""
ENDED = range(5_000, 5_020)
"""Letters whose records are in the archive only."""
HUGE = (31, 92, 153, 214, 250)
"""Letters whose bodies are files: deferred, held, leased, not tried, acknowledged last."""
REQUESTED = range(5, LETTERS + LATE, 37)
"""Letters that came with a key."""
SUPPRESSED = [f"never-{number}@one.test" for number in range(8)]
STOPPED = ["acme", "umbrella"]
"""Tenants."""
ORDERS = [*SUPPRESSED, *STOPPED, *(f"key-{number}" for number in REQUESTED)]
"""What `deliver` lists where all of them hold."""
OLD_CASE = "an old case"
_HUGE_BYTES = 700_000
DELIVERIES_BEFORE_BLOW = 20
IDLE_S = 3.0
PATIENCE_S = 60.0
_VERDICTS = {0: DELIVERED, 1: DEFERRED, 2: HELD}
"""By a letter's number modulo 5, of the first two thirds; 3 stays leased at the crash, 4 and the rest are not tried."""


_LINE_BYTES = bytes(65 if byte in b"\0\r\n." else byte for byte in range(256))


def _config(folder: Path) -> Config:
    many = {"host": "127.0.0.1", "port": 2, "connections": 100_000, "connections_per_destination": 100_000}
    return Config.model_validate(
        {
            "server": {"folder": folder, "hostname": "mta.test"},
            "queue": {"segment_bytes": 65_536, "write_buffer_bytes": 65_536, "reserve_bytes": 0},
            "learning": {"initial": 100_000},
            "shares": {"tenants": dict.fromkeys(STOPPED, 1)},
            "zones": [
                {"name": "default", "default": True, **many},
                {"name": "bulk", "recipient_domains": ["bulk.test"], "in_doubt": "hold", **many},
            ],
        }
    )


def letter_of(number: int) -> Letter:
    one = letter(number, kinds="plain", large=0.03)
    if number not in HUGE:
        return one
    noise = random.Random(number).randbytes(_HUGE_BYTES).translate(_LINE_BYTES)
    lines = (noise[at : at + 76] + b"\r\n" for at in range(0, len(noise), 76))
    return one._replace(data=one.data + b"".join(lines))


# -- its lives


def make(folder: Path) -> dict[str, str]:
    """Fills a queue in two lives, both ended by a crash; returns the state that each recipient should be in."""
    for life in (_early_life, _first_life, _second_life, _last_moments):
        code = process(life, folder)
        assert code == 0, f"the queue could not be made: exit status {code}"
    said = folder / "stderr"
    words = [line for line in said.read_text().splitlines() if OLD_CASE not in line]
    assert not words, f"of a healthy queue it was said: {words}"
    said.unlink()
    states = {}
    for number in range(LETTERS + LATE):
        for address in letter_of(number).recipients:
            held_doubt = number % 5 == 3 and address.endswith("@bulk.test")
            tried = number < LETTERS * 2 // 3
            state = {0: "ended", 2: "held", 3: "held" if held_doubt else "alive"}.get(number % 5, "alive")
            states[address] = state if tried else "alive"
    return states


async def _early_life(folder: Path) -> None:
    """All that came has ended; somebody was suppressed, something stopped."""
    queue = await open_queue(_config(folder))
    await _put(queue, ENDED)
    everyone: list[int]
    for delivery in await queue.lease(100_000, "sender"):
        everyone = list(range(len(delivery.recipients)))
        await queue.settle(Result(delivery.lease, [Outcome(DELIVERED, Reply(250, "", "Ok"), "dot", everyone)]))
    await _order(queue, 0)
    await queue.position()
    queue.core.disk.ledger.rotate()
    await archive.publish(queue.core)
    await queue.position()  # it leaves the journal
    Quarantine(folder / "quarantine").case("body", {"error": OLD_CASE}, {"body": b"damaged"})


async def _order(queue: LocalQueue, half: int) -> None:
    middle = len(SUPPRESSED) // 2
    who = SUPPRESSED[middle:] if half else SUPPRESSED[:middle]
    await queue.ask("suppress", rows=[[address, "complaint"] for address in who])
    await queue.ask("stop", kind="tenant", name=STOPPED[half])


async def _first_life(folder: Path) -> None:
    queue = await open_queue(_config(folder))
    await _put(queue, range(LETTERS * 2 // 3))
    number = {}
    deliveries = await queue.lease(100_000, "sender")
    for delivery in deliveries:
        number[delivery.lease] = int(str(name_in(delivery.sender)).partition(".")[0])
        verdict = _VERDICTS.get(number[delivery.lease] % 5)
        if verdict is not None:
            outcome = Outcome(verdict, Reply(450, "", "so be it"), "dot", list(range(len(delivery.recipients))), 3600.0)
            await queue.settle(Result(delivery.lease, [outcome]))
    for delivery in deliveries:
        if number[delivery.lease] % 5 == 4:
            queue.leases.take_back(queue.leases.out[delivery.lease])
    await _order(queue, 1)
    await queue.position()
    queue.core.disk.ledger.rotate()
    await archive.publish(queue.core)


async def _second_life(folder: Path) -> None:
    queue = await open_queue(_config(folder))
    await _put(queue, range(LETTERS * 2 // 3, LETTERS))
    await queue.position()


async def _last_moments(folder: Path) -> None:
    """Ends with the last 250: the journal has heard of none of these."""
    queue = await open_queue(_config(folder))
    await queue.position()
    await _put(queue, range(LETTERS, LETTERS + LATE))


async def _put(queue: LocalQueue, numbers: range) -> None:
    for number in numbers:
        one = letter_of(number)
        envelope = _envelope(number)
        chunks = [one.data[at : at + CHUNK_BYTES] for at in range(0, len(one.data), CHUNK_BYTES)]
        if len(chunks) == 1:
            message_id = (await queue.accept(envelope, chunks[0])).id
        else:
            incoming = queue.begin()
            for chunk in chunks[:-1]:
                await incoming.write(chunk)
            message_id = (await incoming.accept(envelope, chunks[-1])).id
        with (queue.core.config.folder / "acknowledged").open("a") as ids:
            ids.write(json.dumps(dict.fromkeys(one.recipients, message_id)) + "\n")


def _envelope(number: int) -> Envelope:
    one = letter_of(number)
    request = f"key-{number}" if number in REQUESTED else ""
    recipients = [Recipient(address) for address in one.recipients]
    return Envelope(one.sender, recipients, size=len(one.data), request=request, digest=b"the same")


# -- what becomes of it


async def check(folder: Path) -> None:
    """`zonemta fsck --repair`, and fsck once more; what it finds then is written down."""
    config = _config(folder)
    for problem in (await offline.check(config, repair=True, clock=_Later())).problems:
        if problem.severity == "damage":
            print(f"fsck: {problem}", file=sys.stderr, flush=True)
    again = await offline.check(config, clock=_Later())
    found = [str(problem) for problem in again.problems if problem.severity != "harmless"]
    (folder / "checked").write_text("".join(line + "\n" for line in found))


class _Later(Clock):
    """Two hours on: what was deferred is due."""

    def ms(self) -> int:
        return super().ms() + 7_200_000

    def monotonic(self) -> float:
        return super().monotonic() + 7_200


async def deliver(folder: Path) -> None:
    queue = await open_queue(_config(folder), clock=_Later())
    queue.start()
    done = 0
    with (folder / "deliveries").open("a") as log:
        while (deliveries := await _lease(queue)) is not None:
            for delivery in deliveries:
                await _deliver_one(queue, delivery, log)
                done += 1
                if done == DELIVERIES_BEFORE_BLOW and (blow := blows.ordered(folder)) is not None:
                    blow.strike(folder)
        held = await _held(queue)
        in_doubt = await queue.ask("in-doubt")
        rows = {"held": held, "in_doubt": in_doubt}
        kept = {name: [row["recipient"] for row in some] for name, some in rows.items()}
        log.write(json.dumps(kept | {"orders": await _orders(queue)}) + "\n")


async def _held(queue: LocalQueue) -> list[dict[str, Any]]:
    """All pages of them: one may be short."""
    rows, after = list[dict[str, Any]](), ""
    while after is not None:
        page = await queue.ask("list", state="held", limit=10_000, after=after)
        rows, after = rows + page["rows"], page["next"]
    return rows


async def _orders(queue: LocalQueue) -> list[str]:
    """What holds still of suppressions, stops, and answers to requests."""
    found = [row["address"] for row in (await queue.ask("suppressions", limit=10_000))["rows"]]
    found += [row["name"] for row in await queue.ask("standing") if row["kind"] == "tenant"]
    for number in REQUESTED:
        if (await queue.accept(_envelope(number), b"the same")).repeated:
            found.append(_envelope(number).request)
    return found


async def _lease(queue: LocalQueue) -> list[Delivery] | None:
    """None: nothing is left that could be leased."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            total = (await queue.ask("size"))["total"]
            if not any(total[state] for state in ("queued", "deferred", "leased")):
                return None
            try:
                return await asyncio.wait_for(queue.lease(100, "sender"), IDLE_S)
            except TimeoutError:
                continue


async def _deliver_one(queue: LocalQueue, delivery: Delivery, log: Any) -> None:
    everyone = list(range(len(delivery.recipients)))
    try:
        chunks = [await queue.chunk(delivery.id, number) for number in range(1, delivery.chunks + 1)]
    except QueueRefusal as refusal:
        await queue.settle(Result(delivery.lease, [Outcome(BOUNCED, refusal.reply, "body", everyone)]))
        return
    row = {
        "sender": delivery.sender,
        "recipients": [recipient.address for recipient in delivery.recipients],
        "sha256": hashlib.sha256(b"".join(chunks)).hexdigest(),
    }
    log.write(json.dumps(row) + "\n")
    log.flush()
    await queue.settle(Result(delivery.lease, [Outcome(DELIVERED, Reply(250, "2.0.0", "Ok"), "dot", everyone)]))


# -- processes


def process(work: Callable[[Path], Any], folder: Path) -> int:
    """Runs it in a process of its own; its exit status. A queue ends with its process, never before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=_run, args=(work, folder))
    with _findable():
        child.start()
    child.join(PATIENCE_S)
    if child.exitcode is None:
        child.kill()
        child.join()
    return int(child.exitcode or 0)


@contextlib.contextmanager
def _findable() -> Iterator[None]:
    """The server that forks looks for what it is to load by its environment only."""
    before, here = os.environ.get("PYTHONPATH", ""), str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, before)))
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before


def _run(work: Callable[[Path], Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr").open("ab") as errors:
        os.dup2(errors.fileno(), 2)
    asyncio.run(_then_end(work, folder))


async def _then_end(work: Callable[[Path], Any], folder: Path) -> None:
    try:
        await work(folder)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
