"""A disk that is full at some offset, and a disk that fails at its k-th sync, beneath the running MTA.

The faults come from tests/faults/disk_faults.c, loaded into all of the MTA's processes; what is on the disk is real. A
failed sync also loses what it should have made stable. A small file system that is really full is a trial of its own.
"""

from __future__ import annotations

import asyncio
import mmap
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from survival.client import Client
from survival.ledger import Ledger
from survival.rig import PATIENCE_S, RULES, TOP, Mta, enter, sink

SOURCE = TOP / "tests" / "faults" / "disk_faults.c"
AGAIN_S = 5.0
BUSY = ("mail 450 4.3.2 busy, 50%", *RULES)
Progress = Callable[[int, str], None]


def missing() -> str:
    """Why the trials with faults cannot run; empty if they can."""
    return "" if shutil.which("gcc") else "gcc is not installed: apt-get install gcc libc6-dev"


class Faults:
    """The control block of disk_faults.c, and the environment that loads it. Raises CalledProcessError."""

    _NAMES = ("room", "fail_from", "fail_to", "lose", "syncs", "refused", "failed")

    def __init__(self, home: Path, folder: Path) -> None:
        library, control = home / "disk_faults.so", home / "control"
        flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")
        subprocess.run(["gcc", *flags, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
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


class _Bench:
    """An MTA beneath whose feet the disk fails, and clients that go on all the while."""

    def __init__(self, folder: Path, port: int, ledger: Ledger, *, shim: bool) -> None:
        self.ledger, queue = ledger, folder / "queue"
        self.faults = Faults(folder, queue) if shim else None
        environment = self.faults.environment if self.faults else {}
        self.mta = Mta(queue, port, home=folder, environment=environment)
        self.client = Client(self.mta.port, ledger)
        self.codes: set[int] = set()
        self.slowest_s = 0.0
        self.silent: list[int] = []
        self._next = 0

    async def round(self, number: int, code: int, begin: Callable[[], None], struck: Callable[[], bool]) -> None:
        """begin: breaks the disk. struck: whether it has been felt. Ends when mail is taken again."""
        begin()
        work = asyncio.create_task(self._load(lambda: struck() and self.client.replies[code] > before))
        before, taken = self.client.replies[code], self.client.replies[250]
        await work
        if self.client.replies[code] == before:
            self.silent.append(number)
        if self.faults:
            self.faults.heal()
        start, taken = time.monotonic(), self.client.replies[250]
        again = asyncio.create_task(self._load(lambda: self.client.replies[250] > taken))
        await again
        self.slowest_s = max(self.slowest_s, time.monotonic() - start)

    async def _load(self, enough: Callable[[], bool]) -> None:
        """Hands letters in until `enough`, whatever the answers are."""
        end = time.monotonic() + PATIENCE_S
        tasks = {asyncio.create_task(self._one()) for _ in range(6)}
        while not enough() and time.monotonic() < end:
            _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            tasks |= {asyncio.create_task(self._one()) for _ in range(6 - len(tasks))}
        self._rest = tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self) -> None:
        self._next += 1
        await self.client.hand_in(range(self._next, self._next + 1), 1)
