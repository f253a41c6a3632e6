"""SIGKILL at random moments: any process of the MTA, or all of them, while mail comes in and goes out.

The moments are drawn over the progress of the run (letters acknowledged plus recipients delivered), not over its time,
so a slow machine is hit as often as a fast one; each blow falls a random few milliseconds later.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from survival.client import Client
from survival.ledger import Ledger
from survival.report import bar, table
from survival.rig import Mta, enter, sink

ROLES = ("queue", "receiver", "sender", "supervisor", "all")
Progress = Callable[[int, int], None]


async def trial(
    folder: Path, *, letters: int, kills: int, seed: int, progress: Progress = lambda done, killed: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    ledger = Ledger()
    start = time.monotonic()
    async with sink(ledger, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        mta = Mta(folder, running.port)
        mta.start()
        try:
            await mta.accepting()
            client = Client(mta.port, ledger)
            killer = _Killer(mta, seed, kills, letters)
            done = lambda: client.replies[250] + running.counters.messages  # noqa: E731
            killing = asyncio.create_task(killer.work(done, progress))
            await client.hand_in(range(letters))
            killer.all_is_in = True
            await killing
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
        "replies": dict(client.replies),
        "connections_broken": client.broken,
        **judgement.figures(),
        "broken": judgement.broken + [f"fsck: {problem}" for problem in problems[:5]],
    }


class _Killer:
    def __init__(self, mta: Mta, seed: int, kills: int, letters: int) -> None:
        self._mta, self._dice = mta, random.Random(seed)
        self._moments = sorted(self._dice.randrange(2 * letters) for _ in range(kills))
        self.killed: Counter[str] = Counter()
        self.all_is_in = False

    async def work(self, done: Callable[[], int], progress: Progress) -> None:
        for moment in self._moments:
            while done() < moment and not (self.all_is_in and await self._idle()):
                self._start_again()
                progress(done(), self.killed.total())
                await asyncio.sleep(0.002)
            await asyncio.sleep(self._dice.random() * 0.05)
            await self._strike()
            progress(done(), self.killed.total())
        self._start_again()

    async def _idle(self) -> bool:
        """Nothing is left to deliver, so waiting for more would wait for ever."""
        total = (await asyncio.to_thread(self._mta.ask, "size"))["total"] if self._mta.alive else {"queued": 1}
        return not any(total.get(state) for state in ("queued", "leased", "deferred"))

    async def _strike(self) -> None:
        role = self._dice.choice(ROLES)
        while not self._mta.kill(role, self._dice.random()):
            self._start_again()
            await asyncio.sleep(0.01)
        self.killed[role] += 1
        self._start_again()

    def _start_again(self) -> None:
        if not self._mta.alive:
            self._mta.start()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/crash", description=f"{__doc__}".split("\n\n")[0])
    parser.add_argument("--letters", type=int, default=20_000, help="messages handed in (default 20,000)")
    parser.add_argument("--kills", type=int, default=200, help="blows (default 200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run's moments")
    parser.add_argument("--folder", type=Path, help="where the queue lives; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-crash-"))
    console = Console(stderr=options.json)
    console.print(f"seed {options.seed}, queue and log in {folder}")
    with bar(console, "killed", options.kills) as advance:
        figures = asyncio.run(
            trial(
                folder,
                letters=options.letters,
                kills=options.kills,
                seed=options.seed,
                progress=lambda done, killed: advance(killed, f"{done:,} of about {2 * options.letters:,} steps"),
            )
        )
    if options.json:
        print(json.dumps({"seed": options.seed, **figures}, indent=1))
    else:
        table(console, "SIGKILL at random moments", figures)
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
