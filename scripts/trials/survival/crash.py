"""SIGKILL at random moments: any process of the MTA, or all of them, while mail comes in and goes out.

Half of the blows fall at a write, a sync or a message to another process (`deaths`), the others at any moment. The
moments are drawn over the progress of the run (letters acknowledged plus recipients delivered), not over its time, so a
slow machine is hit as often as a fast one; each blow falls a random few milliseconds later. Where a blow ended
everything, `fsck` or `fsck --repair` may come before the next start, and must find the queue healthy.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from survival.client import Client
from survival.command import Progress, command
from survival.deaths import Deaths
from survival.ledger import Ledger
from survival.rig import Mta, enter, sink

ROLES = ("queue", "receiver", "sender", "supervisor", "all", "any")
SEVERAL = ("queue", "authority", "two queues")
FSCK_SHARE = 0.5


async def trial(
    folder: Path, *, letters: int, kills: int, queues: int = 1, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    ledger = Ledger()
    start = time.monotonic()
    async with sink(ledger, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        deaths = Deaths(folder.with_name(f"{folder.name}-deaths"), random.Random(f"deaths {seed}"))
        mta = Mta(folder, running.port, queues=queues, environment=deaths.environment)
        mta.start()
        try:
            await mta.accepting()
            client = Client(mta.port, ledger)
            killer = _Killer(mta, deaths, seed, kills, letters, (*ROLES, *(SEVERAL if queues > 1 else ())))
            done = lambda: client.replies[250] + running.counters.messages  # noqa: E731
            async with asyncio.TaskGroup() as group:  # where one fails, nobody starts the MTA again
                group.create_task(killer.until_in(client.hand_in(range(letters))))
                group.create_task(killer.work(done, progress))
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
        problems = await mta.problems()
    return {
        "seconds": round(time.monotonic() - start, 1),
        "kills": dict(killer.killed),
        "kills_at_writes": deaths.at_writes,
        "kills_at_rest": killer.at_rest,
        "fsck_runs": killer.fscks,
        "replies": dict(client.replies),
        "connections_broken": client.broken,
        **judgement.figures(),
        "broken": judgement.broken + killer.broken[:5] + [f"check: {problem}" for problem in problems[:5]],
    }


class _Killer:
    def __init__(
        self, mta: Mta, deaths: Deaths, seed: int, kills: int, letters: int, roles: tuple[str, ...]
    ) -> None:  # fmt: skip
        self._mta, self._deaths, self._dice, self._roles = mta, deaths, random.Random(seed), roles
        self._moments = sorted(self._dice.randrange(2 * letters) for _ in range(kills))
        self.killed: Counter[str] = Counter()
        self.fscks, self.broken, self.at_rest = 0, list[str](), 0
        """at_rest: how many blows fell when there was nothing left to do."""
        self.all_is_in = False

    async def until_in(self, handing: Awaitable[None]) -> None:
        """Hands in everything."""
        await handing
        self.all_is_in = True

    async def work(self, done: Callable[[], int], progress: Progress) -> None:
        for moment in self._moments:
            while done() < moment:
                self._start_again()
                if self.all_is_in and await self._idle():
                    self.at_rest += 1
                    break
                await asyncio.sleep(0.002)
            await asyncio.sleep(self._dice.random() * 0.05)
            await self._strike()
            progress(self.killed.total(), f"{done():,} in and out")
        self._start_again()

    async def _idle(self) -> bool:
        """Nothing is left to deliver, so waiting for more would wait for ever."""
        total = (await asyncio.to_thread(self._mta.ask, "size"))["total"] if self._mta.alive else {"queued": 1}
        return not any(total.get(state) for state in ("queued", "leased", "deferred"))

    async def _strike(self) -> None:
        role = self._dice.choice(self._roles)
        for one in ["queue", "queue"] if role == "two queues" else [role]:
            while not await self._deaths.strike(self._mta, one):
                self._start_again()
                await asyncio.sleep(0.01)
        self.killed[role] += 1
        if not self._mta.alive and self._dice.random() < FSCK_SHARE:
            self.fscks += 1
            repair = ["--repair"] if self._dice.random() < 0.5 else []
            self.broken += filter(None, [await asyncio.to_thread(self._mta.fsck, *repair)])
        self._start_again()

    def _start_again(self) -> None:
        if not self._mta.alive:
            self._mta.start()


if __name__ == "__main__":
    sys.exit(
        command(
            "crash",
            __doc__,
            "SIGKILL at random moments",
            trial,
            letters=(20_000, "letters handed in"),
            kills=(200, "blows"),
            queues=(1, "queues"),
        )
    )
