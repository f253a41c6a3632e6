"""Deaths at the worst instants: a process dies right before or behind a write, a sync, a rename, a message to another.

tests/faults/death_at_writes.c does it, loaded into all of the MTA's processes; it is told how many such calls are left
by a file that they share. Half of all blows fall so, the others at any moment.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import random
import struct
import time
from pathlib import Path

from survival.rig import Mta
from survival.shim import compiled, missing

SHARE = 0.5
"""Of blows that fall at a write, where a library in C can be made."""
CALLS_MAX = 400
"""Before which a death falls, of a process that works."""
PATIENCE_S = 1.0
"""Who makes no call for so long is killed as it stands there."""


class Deaths:
    """environment: what loads it into a process. at_writes: how many have died so. Without a compiler: none."""

    def __init__(self, home: Path, dice: random.Random) -> None:
        self._dice, self.environment = dice, dict[str, str]()
        if missing():
            return
        home.mkdir(parents=True, exist_ok=True)
        control = home / "deaths"
        control.write_bytes(bytes(32))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        library = compiled("death_at_writes", home)
        self.environment = {"LD_PRELOAD": str(library), "DEATH_CONTROL": str(control)}

    @property
    def at_writes(self) -> int:
        return int(struct.unpack_from("<q", self._map, 24)[0]) if self.environment else 0

    async def strike(self, mta: Mta, role: str) -> bool:
        """Kills one process of that role, or "supervisor", or "all", or "any" that makes such a call; False if there
        is none just now."""
        choice = self._dice.random()
        at_write = bool(self.environment) and self._dice.random() < SHARE
        if not at_write and role == "any":
            role = "all"
        if not at_write:
            return mta.kill(role, choice)
        whole = role in ("all", "any")
        victim = 0 if whole else mta.one(role, choice)
        if not whole and not victim:
            return False
        before = self.at_writes
        self._set(int(math.exp(self._dice.uniform(0, math.log(CALLS_MAX)))), victim, role == "all")
        until = time.monotonic() + PATIENCE_S
        while self.at_writes == before:
            if time.monotonic() > until or not mta.alive:
                self._set(0, 0, False)
                return mta.kill("all" if whole else role, choice)
            await asyncio.sleep(0.002)
        if role in ("all", "supervisor"):
            mta.kill(role)  # it is reaped, and who dies with it is known
        return True

    def _set(self, left: int, pid: int, whole: bool) -> None:
        struct.pack_into("<qq", self._map, 8, pid, whole)
        struct.pack_into("<q", self._map, 0, left)
