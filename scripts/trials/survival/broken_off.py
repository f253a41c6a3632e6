"""Clients that break off large bodies before the dot, again and again, beside others that send large mail to its end.

What the queue holds is looked at all the while: more than three times what lives is a fault. What lives is the mail
that waits, and what was being handed in within the last two seconds (none of it can be compressed). The archive is the
history of all mail, which grows with each message whatever its size, and is kept as long as the configuration says: it
is counted apart, and more than 2 KB a message is a fault. So is a process that grows by more than 128 MB (half of which
malloc keeps for later), and anything that is left in the end.

A client that hangs up at once takes back what the MTA has not read yet, so some pause before they do; the MB written
by the MTA are what has really passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from survival.ledger import Ledger
from survival.rig import PATIENCE_S, Mta, sink

BODY_BYTES = 8 * 1024 * 1024
TIMES_MAX = 3
LITTLE_BYTES = 1024 * 1024
HISTORY_BYTES_MAX = 2048
"""In the archive, of a message."""
GROWTH_BYTES = 128 * 1024 * 1024
LIVES_ON_S = 2.0
PAUSE_S = 0.5
WAITING = 4
_BLOCK = 256 * 1024
_LINE_BYTES = bytes(65 if byte in b"\0\r\n." else byte for byte in range(256))
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Progress = Callable[[int, str], None]


async def trial(folder: Path, seconds: float, seed: int = 0, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Returns figures; `broken`: what was wrong."""
    run = _Run(folder, seed)
    async with sink(Ledger(), rules=("rcpt:/^waits-/ 450 4.2.1 not now",)) as server:
        mta = run.mta = Mta(folder / "queue", server.port, home=folder, write_buffer_bytes=4 * 1024 * 1024)
        mta.start()
        try:
            await mta.taking()
            for number in range(WAITING):
                await run.hand_in(f"waits-{number}@x.test", BODY_BYTES)
            run.before = run.resident()
            end = time.monotonic() + seconds
            work = [run.break_off, run.break_off, run.break_off, run.deliver, run.deliver, run.letters]
            tasks = [asyncio.create_task(one(end)) for one in work]
            while time.monotonic() < end:
                await asyncio.sleep(0.2)
                run.look()
                progress(0, f"{run.broken_off} broken off, {run.delivered} delivered")
            _, hanging = await asyncio.wait(tasks, timeout=PATIENCE_S)
            for task in hanging:
                task.cancel()
                run.wrong.append(f"a client waits without an answer: {mta.log_tail(3)}")
            await asyncio.gather(*tasks, return_exceptions=True)
            run.wrong += [
                f"a client failed: {task.exception()!r}" for task in tasks if not task.cancelled() and task.exception()
            ]
            await run.left()
        finally:
            mta.end()
    return run.figures()


class _Run:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.dice = folder, random.Random(seed)
        noise = self.dice.randbytes(76 * 4000).translate(_LINE_BYTES)
        self.lines = b"\r\n".join(noise[at : at + 76] for at in range(0, len(noise), 76)) + b"\r\n"
        self.mta: Mta
        self.before: dict[int, int] = {}
        self.broken_off = self.delivered = self.small = 0
        self.bytes = {"broken off": 0, "delivered": 0}
        self.arriving: dict[asyncio.StreamWriter, int] = {}
        """What is being handed in: so many bytes of each."""
        self.lived: deque[tuple[float, int]] = deque()
        self.written: dict[int, int] = {}
        self.most, self.most_of_live = 0, 0.0
        self.archived = 0
        self.grown: dict[str, int] = {}
        self.slowest_s = 0.0
        self.wrong: list[str] = []

    # -- clients

    async def begin(self, address: str) -> _Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.mta.port)
        await _reply(reader)
        for line in ("EHLO client.test", "MAIL FROM:<ann@src.test>", f"RCPT TO:<{address}>", "DATA"):
            writer.write(line.encode() + b"\r\n")
            await _reply(reader)
        writer.write(b"Subject: large\r\n\r\n")
        return reader, writer

    async def send(self, writer: asyncio.StreamWriter, size: int) -> None:
        self.arriving[writer] = 0
        while size > 0:
            writer.write(self.lines[:_BLOCK])
            await writer.drain()
            self.arriving[writer] += _BLOCK
            size -= _BLOCK

    async def hand_in(self, address: str, size: int) -> None:
        reader, writer = await self.begin(address)
        try:
            await self.send(writer, size)
            writer.write(b"\r\n.\r\n")
            answer = await _reply(reader)
        finally:
            self.bytes["delivered"] += self.arriving.pop(writer, 0)
        if not answer.startswith("250"):
            self.wrong.append(f"{answer} to mail of {size} bytes")
        writer.close()

    async def break_off(self, end: float) -> None:
        while time.monotonic() < end:
            with contextlib.suppress(OSError, EOFError):
                _, writer = await self.begin("never@x.test")
                try:
                    await self.send(writer, self.dice.randint(1, BODY_BYTES))
                    await asyncio.sleep(self.dice.choice((0.0, PAUSE_S * self.dice.random())))
                finally:
                    self.bytes["broken off"] += self.arriving.pop(writer, 0)
                    writer.transport.abort()
                self.broken_off += 1

    async def deliver(self, end: float) -> None:
        while time.monotonic() < end:
            await self.hand_in("bob@x.test", self.dice.choice((BODY_BYTES // 64, BODY_BYTES // 8, BODY_BYTES)))
            self.delivered += 1

    async def letters(self, end: float) -> None:
        while time.monotonic() < end:
            begun = time.monotonic()
            await self.hand_in("small@x.test", 0)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
            self.small += 1
            await asyncio.sleep(0.05)

    # -- what is looked at

    def look(self) -> None:
        live, used = self.live(), _used(self.mta.folder)
        self.archived = used.pop("archive", 0)
        self._judge(live, sum(used.values()))
        roles = self.mta.children()
        for pid, now in self.resident().items():
            role = roles.get(pid, "new")
            self.grown[role] = max(self.grown.get(role, 0), now - self.before.get(pid, now))

        for pid in roles:
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/io").read_text().splitlines()
                self.written[pid] = int(next(line for line in lines if line.startswith("write_bytes")).split()[1])

    def _judge(self, live: int, used: int) -> None:
        self.most, self.most_of_live = max(self.most, used), max(self.most_of_live, used / live)
        if used > TIMES_MAX * live:
            self.wrong.append(f"{used / 1e6:.0f} MB on the disk, of which {live / 1e6:.0f} MB may live")

    def live(self) -> int:
        now = time.monotonic()
        self.lived.append((now, sum(self.arriving.values())))
        while self.lived[0][0] < now - LIVES_ON_S:
            self.lived.popleft()
        return WAITING * BODY_BYTES + max(size for _, size in self.lived)

    def resident(self) -> dict[int, int]:
        found = {}
        for pid in self.mta.children():
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                found[pid] = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
        return found

    async def left(self) -> None:
        """All has ended but what waits; a position later the disk has no more than that."""
        until = time.monotonic() + 60
        waiting = WAITING * 1.1 * BODY_BYTES
        while (used := sum(path.stat().st_size for path in self.mta.folder.glob("bodies/*"))) > waiting:
            if time.monotonic() > until:
                self.wrong.append(f"{used / 1e6:.0f} MB of bodies are left")
                return
            await asyncio.sleep(0.2)

    def figures(self) -> dict[str, Any]:
        grown = {role: round(size / 1e6) for role, size in self.grown.items()}
        messages = WAITING + self.broken_off + self.delivered + self.small
        if self.archived > HISTORY_BYTES_MAX * messages + LITTLE_BYTES:
            self.wrong.append(f"the archive has {self.archived / messages:.0f} bytes a message")
        if any(size > GROWTH_BYTES for size in self.grown.values()):
            self.wrong.append(f"a process grew by more than {GROWTH_BYTES / 1e6:.0f} MB: {grown}")
        return {
            "broken_off": self.broken_off,
            "delivered": self.delivered,
            "small letters": self.small,
            "slowest small letter, s": round(self.slowest_s, 2),
            **{f"MB {what}": round(size / 1e6) for what, size in self.bytes.items()},
            "MB written by the MTA": round(sum(self.written.values()) / 1e6),
            "most MB on the disk": round(self.most / 1e6),
            "most on the disk, of what lives": round(self.most_of_live, 2),
            "MB of history": round(self.archived / 1e6, 1),
            "growth MB": str(grown),
            "broken": sorted(set(self.wrong)),
        }


async def _reply(reader: asyncio.StreamReader) -> str:
    while True:
        line = (await reader.readline()).decode()
        if not line.endswith("\n"):
            raise EOFError("the connection ended in a reply")
        if line[3:4] != "-":
            return line.rstrip()


def _used(folder: Path) -> Counter[str]:
    """Bytes of the disk in each part of the queue's folder, of files that come and go."""
    used: Counter[str] = Counter()
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            used[path.relative_to(folder).parts[0]] += path.stat().st_blocks * 512
    return used
