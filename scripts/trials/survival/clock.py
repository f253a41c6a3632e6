"""The machine's clock as the MTA's processes see it: it is set, forth and back, while they run or while they are down.

The clock is tests/faults/clock_steps.c, loaded into all of them; it is moved by writing into a file that they share.
"""

from __future__ import annotations

import math
import mmap
import random
import struct
import time
import uuid
from pathlib import Path

from survival.shim import compiled, missing

LEAST_S, MOST_S, AFAR_S = 60.0, 365 * 86_400.0, 730 * 86_400.0
OFF_S = 3 * 86_400.0
"""So far it is set at the most while the machine is off: for the queue that time has passed, and its archive, its keys
of requests and its list of those in doubt are that much older (`rig` keeps them for 60 days)."""
_UNWRITTEN_S = 10.0
"""A clock that was set so shortly before everything died may not have been written down."""


class MachineClock:
    """environment: what loads it into a process. Raises SystemExit: it cannot be made here."""

    def __init__(self, home: Path) -> None:
        if reason := missing():
            raise SystemExit(f"the clock cannot be set: {reason}")
        home.mkdir(parents=True, exist_ok=True)
        control, self._boot = home / "clock", home / "boot_id"
        control.write_bytes(bytes(8))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._ahead_s = 0.0
        self._settings = [(0.0, 0.0)]
        self._off: list[float] = []
        self.start_machine()
        self.environment = {
            "LD_PRELOAD": str(compiled("clock_steps", home)),
            "CLOCK_STEPS_CONTROL": str(control),
            "CLOCK_STEPS_BOOT": str(self._boot),
        }

    def step(self, dice: random.Random, most_s: float = MOST_S) -> float:
        """Sets it by a minute to a year, forth or back; returns by how many seconds."""
        by_s = math.exp(dice.uniform(math.log(LEAST_S), math.log(most_s)))
        back = dice.random() < 0.5 if abs(self._ahead_s) < AFAR_S else self._ahead_s > 0
        by_s = -by_s if back else by_s
        self.move(by_s)
        return by_s

    def move(self, by_s: float) -> None:
        """Sets it by so many seconds."""
        self._ahead_s += by_s
        self._settings.append((time.time(), self._ahead_s))
        struct.pack_into("<q", self._map, 0, int(self._ahead_s * 1e9))

    def start_machine(self) -> None:
        """Everything is down, and what runs next runs on a machine that was started anew."""
        self._boot.write_text(f"{uuid.uuid4()}\n")
        now = time.time()
        before = [
            ahead
            for (_, ahead), (until, _) in zip(self._settings, [*self._settings[1:], (now, 0)], strict=True)
            if until >= now - _UNWRITTEN_S
        ]
        if self._ahead_s > min(before):
            self._off.append(now)

    def was_off(self, since: float, until: float) -> bool:
        """Whether the machine was started in that time with its clock set forth: nobody but it knew how long it was
        off, so what waited then may be over earlier (`zonemta_py/schedule/time/steady.py`)."""
        return any(since <= moment <= until for moment in self._off)


class TrueClock(MachineClock):
    """One that nobody sets."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self._off = []
