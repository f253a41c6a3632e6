"""Who strikes in `mixed`: kills one process, all, all again during recovery; and sets the clock while that goes on.

The moments are drawn over the progress of the run, as in `crash`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

from survival.clock import MOST_S, OFF_S, MachineClock
from survival.command import Progress
from survival.rig import Mta

BLOWS = ("queue", "receiver", "sender", "supervisor", "all", "twice")
"""twice: everything, and everything again while it recovers."""
STEPS = ("clock, running", "clock, restarted", "clock, machine restarted")
FSCK_SHARE = 0.5
IDLE_S, WRITTEN_S = 5.0, 1.5


class Killer:
    """struck: how often in which way. at_rest: how many blows fell when hardly anything was left to do. broken: what
    `fsck` said of a queue that was only killed, or whose clock was set."""

    def __init__(
        self, mta: Mta, clock: MachineClock, seed: int, blows: int, clock_steps: int, progress: Progress
    ) -> None:
        self._mta, self._clock, self._dice, self._progress = mta, clock, random.Random(seed), progress
        self._kinds = [False] * blows + [True] * clock_steps
        self._dice.shuffle(self._kinds)
        self.struck: Counter[str] = Counter()
        self.fsck_runs, self.at_rest, self.broken = 0, 0, list[str]()
        self.all_is_in = False

    async def work(self, done: Callable[[], int], letters: int) -> None:
        moments = sorted(self._dice.randrange(2 * letters) for _ in self._kinds)
        for number, (moment, is_step) in enumerate(zip(moments, self._kinds, strict=True), 1):
            until = time.monotonic() + IDLE_S
            while done() < moment:
                self._start_again()
                if self.all_is_in and time.monotonic() > until:
                    self.at_rest += 1
                    break
                await asyncio.sleep(0.002)
            await asyncio.sleep(self._dice.random() * 0.05)
            await (self._set_clock() if is_step else self._strike())
            self._progress(number, f"{done():,} in and out")
        self._start_again()

    async def _strike(self) -> None:
        blow = self._dice.choice(BLOWS if self._mta.queues == 1 else (*BLOWS, "authority"))
        await self._kill("all" if blow == "twice" else blow)
        self.struck[blow] += 1
        if blow == "twice":
            self._mta.start()
            await asyncio.sleep(self._dice.random() * 1.5)
            self._mta.kill("all")
        await self._perhaps_fsck()
        self._start_again()

    async def _set_clock(self) -> None:
        how = self._dice.choice(STEPS)
        if how == STEPS[2]:
            await self._written()
        if how != STEPS[0]:
            await self._kill("all")
            await asyncio.to_thread(self._mta.dead)
            await self._perhaps_fsck()
        self._clock.step(self._dice, OFF_S if how == STEPS[2] else MOST_S)
        self.struck[how] += 1
        if how == STEPS[2]:
            self._clock.start_machine()
        if how != STEPS[0]:
            await self._perhaps_fsck()
        self._start_again()
        if how == STEPS[2]:
            await self._written()

    async def _written(self) -> None:
        """How the clock is set, and on which start of the machine, must be written down before the machine starts, and
        after it before the clock is set again: nobody could tell the one from time in which it was off."""
        await asyncio.to_thread(self._mta.ask, "size")
        await asyncio.sleep(WRITTEN_S)

    async def _kill(self, role: str) -> None:
        while not self._mta.kill(role, self._dice.random()):
            self._start_again()
            await asyncio.sleep(0.01)

    async def _perhaps_fsck(self) -> None:
        """A queue that was killed is a healthy one."""
        if self._mta.alive or self._dice.random() >= FSCK_SHARE:
            return
        repair = ["--repair"] if self._dice.random() < 0.5 else []
        self.fsck_runs += 1
        self.broken += filter(None, [await asyncio.to_thread(self._mta.fsck, *repair)])

    def _start_again(self) -> None:
        if not self._mta.alive:
            self._mta.start()
