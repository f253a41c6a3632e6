"""SIGKILL at random moments while clients push and pop: nothing is lost, and only what was in flight comes twice.

Every client pushes and takes in turn, one connection a command; a third of what is taken is reserved and acknowledged.
Killed are the queue's process, that of the clients' connections, or all. The moments are drawn over the progress of the
run, so a slow machine is hit as often as a fast one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ports import kept_port
from survival.command import Progress, command
from survival.rig import Mta

from named_queues import client
from named_queues.client import Broken, Message, Unreachable

CLIENTS = 50
ROLES = ("queue", "pull", "all")
QUEUES = ("default", "jobs", "mail.out")
RESERVED_SHARE = 1 / 3
RESERVED_S, WAIT_S, AGAIN_S = 60.0, 0.5, 0.02
LAST_BLOW = 0.9
"""Part of the run after which no blow falls: pushes whose end is unknown may never be popped."""
LATE_S = 5.0
"""How long after a client has a message its end may not yet be on stable storage, on a loaded machine."""
PATIENCE_S = 300.0
CONFIG = "[pull]\nenabled = true\nport = {port}\n"
_SIZES = (0, 40, 40, 40, 300, 300, 5_000, 70_000, 200_000)


@dataclass
class Taking:
    """A message that a client has as a whole. began, ended: of the command; of its acknowledgement, if reserved."""

    client: int
    began: float
    ended: float


@dataclass
class Book:
    """What the clients know. stored: ids of acknowledged pushes, and the body's checksum. taken: by id."""

    messages: int
    stored: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    unknown: int = 0
    broken_pops: int = 0
    taken: dict[str, list[Taking]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    sums: set[int] = field(default_factory=set)

    @property
    def done(self) -> int:
        return len(self.stored) + self.unknown + len(self.taken)

    def judge(self) -> dict[str, Any]:
        lost = [name for name in self.stored if name not in self.taken]
        repeated = {name: rows for name, rows in self.taken.items() if len(rows) > 1}
        causeless = self._causeless(repeated)
        broken = list(self.wrong[:5])
        if lost:
            broken.append(f"lost: {len(lost)} ({', '.join(lost[:5])})")
        if causeless:
            broken.append(f"came twice, though not in flight at a kill: {len(causeless)} ({', '.join(causeless[:5])})")
        return {
            "pushed": len(self.stored), "pushes_unknown": self.unknown, "taken": len(self.taken),
            "takings_cut": self.broken_pops, "lost": len(lost), "repeated": len(repeated), "broken": broken,
        }  # fmt: skip

    def _causeless(self, repeated: dict[str, list[Taking]]) -> list[str]:
        """Each kill excuses one message a client: the one that it was about to have."""
        excused = set[tuple[int, float]]()
        found = []
        for name, rows in sorted(repeated.items(), key=lambda row: row[1][0].ended):
            for one in rows[:-1]:
                causes = [kill for kill in self.kills if one.began <= kill <= one.ended + LATE_S]
                cause = next((kill for kill in causes if (one.client, kill) not in excused), None)
                if cause is None:
                    found.append(name)
                    break
                excused.add((one.client, cause))
        return found


class _Worker:
    """One client."""

    def __init__(self, number: int, port: int, book: Book, seed: int) -> None:
        self._number, self._port, self._book = number, port, book
        self._dice = random.Random(seed * 1_000 + number)

    async def work(self) -> None:
        """Until everything is pushed, and every queue is empty."""
        end = time.monotonic() + PATIENCE_S
        while True:
            before = self._book.done
            if self._book.begun < self._book.messages and self._dice.random() < 0.6:
                await self._push()
            elif not await self._take() and self._book.begun >= self._book.messages and await self._empty():
                return
            if self._book.done > before:
                end = time.monotonic() + PATIENCE_S
            if time.monotonic() > end:
                self._book.wrong.append(f"client {self._number} got nothing for {PATIENCE_S:g} s")
                return

    async def _push(self) -> None:
        book, dice = self._book, self._dice
        book.begun += 1
        head = f"{self._number} {book.begun} ".encode()
        body = head + dice.randbytes(dice.choice(_SIZES))
        book.sums.add(zlib.crc32(body))
        try:
            name = await client.push(self._port, dice.choice(QUEUES), body, by_size=dice.random() < 0.5)
            book.stored[name] = zlib.crc32(body)
        except Unreachable:
            book.begun -= 1
            await asyncio.sleep(AGAIN_S)
        except Broken:
            book.unknown += 1
            await asyncio.sleep(AGAIN_S)

    async def _take(self) -> bool:
        began = time.monotonic()
        try:
            message = await self._taken(self._dice.choice(QUEUES))
        except Broken as broken:
            self._book.broken_pops += not isinstance(broken, Unreachable)
            await asyncio.sleep(AGAIN_S)
            return True
        if message is None:
            return False
        if zlib.crc32(message.body) not in self._book.sums:
            self._book.wrong.append(f"{message.id} is not what was pushed")
        if self._book.stored.get(message.id, zlib.crc32(message.body)) != zlib.crc32(message.body):
            self._book.wrong.append(f"{message.id} has another's bytes")
        taking = Taking(self._number, began, time.monotonic())
        self._book.taken[message.id].append(taking)
        if message.receipt:
            with contextlib.suppress(Broken):
                await client.ack(self._port, message.receipt)
            taking.ended = time.monotonic()
        return True

    async def _taken(self, queue: str) -> Message | None:
        if self._dice.random() < RESERVED_SHARE:
            return await client.reserve(self._port, queue, RESERVED_S, WAIT_S)
        return await client.pop(self._port, queue, WAIT_S)

    async def _empty(self) -> bool:
        try:
            return not any([await client.left(self._port, queue) for queue in QUEUES])
        except Broken:
            return False


class _Killer:
    def __init__(self, mta: Mta, book: Book, seed: int, kills: int) -> None:
        self._mta, self._book, self._dice = mta, book, random.Random(seed)
        self._moments = sorted(self._dice.randrange(int(LAST_BLOW * 2 * book.messages)) for _ in range(kills))
        self.killed: Counter[str] = Counter()

    async def work(self, progress: Progress) -> None:
        for moment in self._moments:
            while self._book.done < moment:  # noqa: ASYNC110 (others work)
                await asyncio.sleep(0.002)
            await asyncio.sleep(self._dice.random() * 0.05)
            role = self._dice.choice(ROLES)
            while not self._mta.kill(role, self._dice.random()):  # noqa: ASYNC110 (another process is waited for)
                await asyncio.sleep(0.01)
            self._book.kills.append(time.monotonic())
            self.killed[role] += 1
            if not self._mta.alive:
                self._mta.start()
            progress(self.killed.total(), f"{self._book.done:,} pushed and popped")


async def trial(
    folder: Path, *, messages: int, kills: int, seed: int, clients: int = CLIENTS,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:  # fmt: skip
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    book, kept = Book(messages), kept_port()
    port = kept.getsockname()[1]
    start = time.monotonic()
    mta = Mta(folder, 9, processes=1, more=CONFIG.format(port=port))
    mta.start()
    try:
        await mta.taking()
        killer = _Killer(mta, book, seed, kills)
        killing = asyncio.create_task(killer.work(progress))
        await asyncio.gather(*(_Worker(number, port, book, seed).work() for number in range(clients)))
        killing.cancel()
        in_doubt = len(mta.in_doubt())
    finally:
        mta.end()
        kept.close()
    seconds = time.monotonic() - start
    figures = book.judge()
    problems = await mta.problems()
    figures["broken"] += [f"check: {problem}" for problem in problems[:5]]
    return {"seconds": round(seconds, 1), "kills": dict(killer.killed), "in_doubt": in_doubt, **figures}


if __name__ == "__main__":
    sys.exit(
        command(
            "pull trial",
            __doc__,
            "Named queues under SIGKILL",
            trial,
            messages=(100_000, "messages pushed and popped"),
            kills=(30, "blows"),
        )
    )
