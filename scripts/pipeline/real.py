#!/usr/bin/env python3
"""A small real archive: the queue itself takes mail, leases it and hears results, with a clock that is moved.

    scripts/pipeline/real.py FOLDER [MESSAGES]

FOLDER/archive then has the segments whose mail has ended, FOLDER/journal the others. The process ends as the queue
always does: at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, Outcome, Result
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.schedule.time.clock import Clock

REPLIES = {
    DELIVERED: Reply(250, "2.0.0", "Ok: queued as 4ZT8"),
    DEFERRED: Reply(451, "4.7.1", "Greylisted, try again later"),
    BOUNCED: Reply(550, "5.1.1", "no such user hère"),
}
DOMAINS = ("gmail.com", "example.net", "bücher.example", "example.org")


class Hand(Clock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_772_490_000.0  # 2026-03-02, late in the evening

    def ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s - 1_700_000_000.0

    def random(self) -> float:
        return 0.5


def envelope(die: random.Random, number: int, now_ms: int) -> Envelope:
    recipients = [Recipient(f"r{number}.{n}@{die.choice(DOMAINS)}") for n in range(die.choice((1, 1, 1, 2, 3)))]
    known = {"headers": {"subject": f"Hello {number}"}, "campaign": die.choice((None, "spring")), "tenant": "acme"}
    return Envelope(f"s{number}@src.test", recipients, 40, received_ms=now_ms, origin="198.51.100.7", **known)


def result(die: random.Random, delivery: Delivery, now_ms: int) -> Result:
    verdicts = die.choices((DELIVERED, DEFERRED, BOUNCED), (8, 1, 1), k=len(delivery.recipients))
    outcomes = [
        Outcome(verdict, REPLIES[verdict], "dot", [n for n, one in enumerate(verdicts) if one == verdict])
        for verdict in sorted(set(verdicts))
    ]
    tls = die.choice(("", "TLSv1.3 TLS_AES_256_GCM_SHA384"))
    return Result(
        delivery.lease, outcomes, None, "mx.test[127.0.0.9]:25", "127.0.0.1", tls, now_ms, die.randint(1, 900)
    )


async def work_off(queue: LocalQueue, die: random.Random, clock: Hand) -> None:
    """Everything that may go now gets a result."""
    while True:
        task = asyncio.ensure_future(queue.lease(100))
        done, _ = await asyncio.wait([task], timeout=0.1)
        if not done:
            task.cancel()
            return
        await asyncio.gather(*(queue.settle(result(die, delivery, clock.ms())) for delivery in task.result()))


async def run(folder: Path, messages: int) -> None:
    die, clock = random.Random(7), Hand()
    server = {"folder": folder, "hostname": "mta.test"}
    bounds = {"segment_bytes": 64 * 1024, "archive_days": 0, "reserve_bytes": 0}
    queue = await open_queue(Config.model_validate({"server": server, "queue": bounds}), None, clock)
    for start in range(0, messages, 50):
        numbers = range(start, min(start + 50, messages))
        await asyncio.gather(
            *(queue.accept(envelope(die, n, clock.ms()), b"Subject: x\r\n\r\nHi\r\n") for n in numbers)
        )
        await work_off(queue, die, clock)
        clock.now_s += 1200
        queue.core.changed()
    for _ in range(8):
        clock.now_s += 30_000
        queue.core.changed()
        await work_off(queue, die, clock)
    for _ in range(2):
        await queue.core.disk.lines.stable()
        await queue.maintenance.position()


def main() -> None:
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 400))


if __name__ == "__main__":
    try:
        main()
    finally:
        sys.stdout.flush()
        os._exit(1 if sys.exc_info()[0] else 0)
