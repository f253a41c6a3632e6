"""A disk that is full at some offset, and a disk that fails at its k-th sync, beneath the running MTA.

The faults come from tests/faults/disk_faults.c, loaded into all of the MTA's processes; what is on the disk is real. A
failed sync also loses what it should have made stable. A small file system that is really full is a trial of its own.
"""

from __future__ import annotations

import asyncio
import mmap
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from survival.client import Client
from survival.ledger import Ledger
from survival.rig import PATIENCE_S, RULES, Mta, enter, sink
from survival.shim import compiled
from zonemta_py.sink import Sink

AGAIN_S = 15.0
BUSY = ("mail 451 4.3.0 not at the moment, 40%", RULES[1])
Progress = Callable[[int, str], None]


class Faults:
    """The control block of disk_faults.c, and the environment that loads it. Raises CalledProcessError."""

    _NAMES = ("room", "fail_from", "fail_to", "lose", "syncs", "refused", "failed", "read_only")

    def __init__(self, home: Path, folder: Path) -> None:
        library, control = compiled("disk_faults", home), home / "control"
        control.write_bytes(bytes(8 * len(self._NAMES)))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.heal()
        self.environment = {
            "LD_PRELOAD": str(library),
            "DISK_FAULTS_FOLDER": str(folder),
            "DISK_FAULTS_CONTROL": str(control),
        }

    def _set(self, name: str, value: int) -> None:
        struct.pack_into("<q", self._map, 8 * self._NAMES.index(name), value)

    def _get(self, name: str) -> int:
        return int(struct.unpack_from("<q", self._map, 8 * self._NAMES.index(name))[0])

    def heal(self) -> None:
        self._set("fail_from", 1 << 60)
        self._set("room", -1)
        self._set("read_only", 0)

    def remount_read_only(self) -> None:
        """EROFS from all that would change anything."""
        self._set("read_only", 1)

    def fill_after(self, room: int) -> None:
        """ENOSPC after that many bytes."""
        self._set("room", room)

    def fail_syncs(self, first: int, last: int) -> None:
        """EIO from these syncs, counted from now on; what they should have made stable is lost."""
        self._set("lose", 1)
        self._set("syncs", 0)
        self._set("fail_to", last)
        self._set("fail_from", first)

    @property
    def refused(self) -> int:
        return self._get("refused")

    @property
    def failed(self) -> int:
        return self._get("failed")


NOTED = ("configuration", "configurations/000001.json")
"""What a start writes once mail is being taken, in this order."""


class Trial:
    """An MTA beneath which the disk fails, and clients that go on all the while."""

    def __init__(self, mta: Mta, ledger: Ledger, heal: Callable[[], None], client: Client | None = None) -> None:
        self.mta, self.heal = mta, heal
        self.client = client or Client(mta.port, ledger)
        self.slowest_s, self.again_s = 0.0, AGAIN_S
        self.unfelt: list[int] = []
        self.next = 0

    async def blow(self, number: int, code: int, strike: Callable[[], None]) -> None:
        """Breaks the disk, hands in until `code` is the answer, mends it, hands in until mail is taken again."""
        replies = self.client.replies
        before = replies[code]
        strike()
        if not await self.hand_in(lambda: replies[code] >= before + 5):
            self.unfelt.append(number)
        self.heal()
        start, taken = time.monotonic(), replies[250]
        await self.hand_in(lambda: replies[250] > taken)
        self.slowest_s = max(self.slowest_s, time.monotonic() - start)

    async def hand_in(self, enough: Callable[[], bool]) -> bool:
        """Hands letters in until it is enough; False: that did not come, however long."""
        end = time.monotonic() + PATIENCE_S
        sessions = [asyncio.create_task(self.session()) for _ in range(6)]
        while not enough() and time.monotonic() < end:
            ended, _ = await asyncio.wait(sessions, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
            if ended:
                break
        for session in sessions:
            session.cancel()
        for ended in await asyncio.gather(*sessions, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        return enough()

    async def session(self) -> None:
        while True:
            self.next += 1
            await self.client.hand_in(range(self.next, self.next + 1), 1)

    async def figures(self, ledger: Ledger, running: Sink, code: int) -> dict[str, Any]:
        """Waits until all is delivered, ends the MTA, and judges."""
        await self.mta.drained()
        in_doubt = self.mta.in_doubt()
        self.mta.end()
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
        broken = judgement.broken + [f"check: {problem}" for problem in (await self.mta.problems())[:5]]
        if self.unfelt:
            broken.append(f"{code} was never said in rounds {self.unfelt}")
        if self.slowest_s > self.again_s:
            broken.append(f"mail was taken again only after {self.slowest_s:.1f} s")
        strange = set(self.client.replies) - {250, code}
        if strange:
            broken.append(f"replies {sorted(strange)} were given, not only 250 and {code}")
        return {
            "slowest_again_s": round(self.slowest_s, 2),
            "replies": dict(self.client.replies),
            **judgement.figures(),
            "broken": broken,
        }


async def no_space(
    folder: Path, *, rounds: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """ENOSPC at random offsets, from the very next byte to a few hundred KB on."""
    ledger, dice = Ledger(), random.Random(seed)
    faults = Faults(folder, folder / "queue")
    async with sink(ledger, rules=BUSY, seed=seed) as running:
        mta = Mta(folder / "queue", running.port, home=folder, environment=faults.environment)
        mta.start()
        try:
            await mta.taking()
            trial = Trial(mta, ledger, faults.heal)
            for number in range(rounds):
                room = 0 if number == 0 else dice.randrange(1 << dice.randint(3, 19))
                await trial.blow(number, 452, lambda room=room: faults.fill_after(room))  # type: ignore[misc]
                progress(number + 1, f"full after {room:,} bytes")
            return {"rounds": rounds, **await trial.figures(ledger, running, 452)}
        finally:
            mta.end()


async def failing_syncs(
    folder: Path, *, calls: range, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """EIO from the k-th sync, for each k in `calls`; what it should have made stable is gone. At last all is killed."""
    ledger = Ledger()
    faults = Faults(folder, folder / "queue")
    async with sink(ledger, rules=BUSY, seed=seed) as running:
        mta = Mta(folder / "queue", running.port, home=folder, environment=faults.environment)
        mta.start()
        try:
            await mta.taking()
            until = time.monotonic() + PATIENCE_S
            while not all((folder / "queue" / name).exists() for name in NOTED) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # else the first sync may be theirs
            trial = Trial(mta, ledger, faults.heal)
            for number, call in enumerate(calls, 1):
                await trial.blow(call, 451, lambda call=call: faults.fail_syncs(call, call))  # type: ignore[misc]
                progress(number, f"sync {call} failed")
            mta.end()
            mta.start()
            await mta.taking()
            return {"failed": faults.failed, **await trial.figures(ledger, running, 451)}
        finally:
            mta.end()


async def read_only(
    folder: Path, *, rounds: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """EROFS, as of a file system that was remounted read-only while files of it are open, and then rw again."""
    ledger = Ledger()
    faults = Faults(folder, folder / "queue")
    async with sink(ledger, rules=BUSY, seed=seed) as running:
        mta = Mta(folder / "queue", running.port, home=folder, environment=faults.environment)
        mta.start()
        try:
            await mta.taking()
            trial = Trial(mta, ledger, faults.heal)
            for number in range(rounds):
                await trial.blow(number, 451, faults.remount_read_only)
                progress(number + 1, "read-only, and back")
            figures = await trial.figures(ledger, running, 451)
            if "Read-only file system" not in mta.log.read_text(errors="replace"):
                figures["broken"].append("the log does not say that the file system is read-only")
            return {"rounds": rounds, **figures}
        finally:
            mta.end()
