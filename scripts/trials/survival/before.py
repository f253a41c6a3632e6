"""What an hour of bounces leaves behind: so many come back at once, about different people, before the trial itself.

Everybody gets a message of one of a few campaigns, with VERP; then all of these bounce, as fast as they are taken.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

from survival.client import Client
from survival.command import Progress
from survival.ledger import Ledger
from survival.letters import Letter
from survival.returns import SESSIONS, Handing, Sent, back, sent_of
from survival.rig import Mta
from zonemta_py.sink import Sink

CAMPAIGNS = 4
AT_ONCE = 100
PORTION = 20_000
PATIENCE_S = 60.0


def letter(number: int, attempt: int) -> Letter:
    """A hundred people, each at a domain of their own: a guard per provider lets them all be suppressed."""
    names = [person(one) for one in range(number * AT_ONCE, (number + 1) * AT_ONCE)]
    text = (
        f"From: n@src.test\r\nSubject: before\r\nX-Campaign: before-{number % CAMPAIGNS}\r\n"
        f"Message-ID: <b{number}.{attempt}@src.test>\r\n\r\nWhat was new.\r\n"
    )
    return Letter(f"before.{number}.{attempt}", "n@src.test", names, text.encode())


def person(number: int) -> str:
    return f"ben@q{number}.test"


async def bring_in(
    mta: Mta, port: int, running: Sink, folder: Path, bounces: int, progress: Progress
) -> dict[str, Any]:  # fmt: skip
    """Figures: how long, memory of the queue process, bytes of its journal. port: of the listener for bounces."""
    sent = await _delivered(mta, running, bounces)
    memory, written, began = [pss_kb(mta)], journal_bytes(folder), time.monotonic()
    client = Handing(port, Ledger(), make=partial(back, kind="bounce"), sent=sent)
    for first in range(0, bounces, PORTION):
        await client.hand_in(range(first, min(first + PORTION, bounces)), SESSIONS)
        memory.append(pss_kb(mta))
        progress(min(first + PORTION, bounces), f"{memory[-1]:,} KB")
    took_s = time.monotonic() - began
    broken = await _followed(mta, bounces)
    return {
        "before": bounces,
        "before_took_s": round(took_s, 1),
        "queue_pss_mb_after_each_20000": " ".join(f"{one / 1024:.1f}" for one in memory),
        "memory_bytes_a_bounce": round((memory[-1] - memory[0]) * 1024 / bounces),
        "journal_bytes_a_bounce": round((journal_bytes(folder) - written) / bounces),
        "broken": broken,
    }


async def _delivered(mta: Mta, running: Sink, people: int) -> list[Sent]:
    """By the number of the person."""
    found = dict[str, Sent]()
    for first in range(0, people, PORTION):
        batches = range(first // AT_ONCE, -(-min(first + PORTION, people) // AT_ONCE))
        await Client(mta.port, Ledger(), make=letter).hand_in(batches)
        await mta.drained()
        found |= {one.recipients[0]: sent_of(one) for one in running.messages}
        running.messages.clear()
    return [found[person(number)] for number in range(people)]


async def _followed(mta: Mta, people: int) -> list[str]:
    """Waits until one in a thousand, and the last one, is on the list; who is not."""
    end = time.monotonic() + PATIENCE_S
    for number in (*range(0, people, 1_000), people - 1):
        while not await asyncio.to_thread(mta.ask, "suppression", address=person(number)):
            if time.monotonic() > end:
                return [f"{person(number)} bounced, and is not suppressed"]
            await asyncio.sleep(0.05)
    return []


def pss_kb(mta: Mta) -> int:
    """Memory of the queue's process, what it shares counted in part."""
    pid = next(pid for pid, role in mta.children().items() if role == "queue")
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def journal_bytes(folder: Path) -> int:
    """Of its journal, and of what is archived of it."""
    files = (path for part in ("journal", "archive") for path in (folder / part).rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files)
