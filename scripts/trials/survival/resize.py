"""Another number of queues again and again, 3, 1, 3 …, while mail of every kind goes in and out, and under kills.

Traffic, operator and judge are those of `mixed`: letters by SMTP, by HTTP under idempotency keys, batches of a
campaign; requests that are hung up on and repeated, also after other queues have their keys; a zone that is stopped
and lifted.
Each change is the number in the configuration and a reload. Blows fall while it is under way or soon after: on what
moves the mail, queues, the authority, receivers, senders, the supervisor, or all; half of them at a write (`deaths`).
Whatever falls, the number that is configured must come about, and then the ledger judges.
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

from ports import kept_port

from survival import mixture
from survival.clock import TrueClock
from survival.command import Progress, command
from survival.deaths import Deaths
from survival.mixed import Traffic, release_all
from survival.operator import Operator
from survival.rig import Mta, enter, sink
from survival.sized import are_there, configure
from survival.waits import Waits
from zonemta_py.queues import layout
from zonemta_py.wire.blocking_client import QueueGone, ask

MANY, FEW = 3, 1
ROLES = ("moving", "moving", "queue", "two queues", "authority", "receiver", "sender", "supervisor", "all", "any")
BLOW_S = 3.0
"""A blow falls so long after the order at the latest."""
IDLE_S = 5.0
THERE_S = 120.0
"""So long other queues may take on a loaded machine, once nothing is killed any more."""


class Resizer:
    """Changes the number of queues and strikes. took_s: of changes that nobody disturbed. broken: what did not come
    about."""

    def __init__(self, mta: Mta, deaths: Deaths, dice: random.Random, progress: Progress) -> None:
        self._mta, self._deaths, self._dice, self._progress = mta, deaths, dice, progress
        self._done, self._starting = 0, asyncio.Lock()
        self.queues = mta.queues
        self.changes, self.struck = Counter[str](), Counter[str]()
        self.took_s, self.broken, self.refused = list[float](), list[str](), Counter[str]()
        self.all_is_in = False

    async def work(self, done: Callable[[], int], letters: int, changes: int, kills: int) -> None:
        """done: how much has gone in and out."""
        blows = Counter(self._dice.randrange(changes) for _ in range(kills))
        for number in range(changes):
            until = time.monotonic() + IDLE_S
            while done() < 2 * letters * number / changes:
                if self.all_is_in and time.monotonic() > until:
                    break
                await self.running()
                await asyncio.sleep(0.005)
            await self.change(FEW if self.queues == MANY else MANY, blows[number])
            self._told(f"{done():,} in and out")

    async def until_in(self, traffic: Awaitable[None]) -> None:
        """Hands in everything."""
        await traffic
        self.all_is_in = True

    async def change(self, queues: int, blows: int) -> None:
        before = self.queues
        configure(self._mta, queues)
        self.queues, begun = queues, time.monotonic()
        striking = [asyncio.create_task(self._strike(self._dice.random() * BLOW_S)) for _ in range(blows)]
        await self._there(queues)
        for blow in striking:
            await blow
        await self._there(queues)
        self.changes[f"{before} to {queues}"] += 1
        if not blows:
            self.took_s.append(time.monotonic() - begun)

    async def _there(self, queues: int) -> None:
        """Orders it until the queues are there and answer."""
        until = time.monotonic() + THERE_S
        while not await asyncio.to_thread(are_there, self._mta, queues):
            if time.monotonic() > until:
                raise AssertionError(f"there are no {queues} queues: {self._mta.log_tail(40)}")
            await self.running()
            if layout.numbers(self._mta.folder) == list(range(queues)) and layout.settled(self._mta.folder):
                await asyncio.sleep(0.02)
                continue
            try:
                answer = await asyncio.to_thread(ask, self._mta.folder, "reload", by="the trial")
                self.refused.update(answer["refused"])
            except (QueueGone, ValueError):
                pass
            await asyncio.sleep(0.1)

    async def _strike(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        role = self._dice.choice(ROLES)
        for one in ["queue", "queue"] if role == "two queues" else [role]:
            if not await self._deaths.strike(self._mta, one):  # none of them runs just now
                role = "all"
                await self._deaths.strike(self._mta, role)
        self.struck[role] += 1
        self._told("")
        await self.running()

    async def running(self) -> None:
        """An MTA that has ended is started again, once, whoever finds it so."""
        async with self._starting:
            if not self._mta.alive:
                await asyncio.to_thread(self._mta.dead)
                self._mta.start()

    def _told(self, note: str) -> None:
        self._done += 1
        self._progress(self._done, note)


async def trial(
    folder: Path, *, letters: int, changes: int, kills: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken. folder: of the queues."""
    clock, dice = TrueClock(), random.Random(f"resize {seed}")
    ledger, deaths = Waits(clock), Deaths(folder.with_name(f"{folder.name}-deaths"), dice)
    begun = time.monotonic()
    async with sink(ledger, rules=mixture.RULES, dot_latency_s=0.005, jitter=1.0, seed=seed) as running:
        http_socket = kept_port()
        http = http_socket.getsockname()[1]
        more = mixture.CONFIG.format(http=http, sink=running.port)
        mta = Mta(folder, running.port, more=more, environment=deaths.environment, queues=MANY)
        mta.start()
        try:
            await mta.accepting()
            traffic, operator = Traffic(mta, http, ledger, letters, seed), Operator(mta, clock)
            resizer = Resizer(mta, deaths, dice, progress)
            ordering = asyncio.create_task(operator.work())
            changing = resizer.work(lambda: traffic.done + running.counters.messages, letters, changes, kills)
            async with asyncio.TaskGroup() as group:  # where one fails, nobody starts the MTA again
                group.create_task(resizer.until_in(traffic.work()))
                group.create_task(changing)
            ledger.calm()
            await operator.end(ordering)
            await release_all(mta)
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
            http_socket.close()
        enter(running, ledger)
        judgement = ledger.judge(in_doubt)
        problems = await mta.problems()
    sent = ledger.sent_while(operator.forbidden, "@stopped.test")
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "changes": dict(resizer.changes),
        "kills": dict(resizer.struck),
        "kills_at_writes": deaths.at_writes,
        "undisturbed_change_s": _most(resizer.took_s),
        "reloads_refused": dict(resizer.refused),
        "replies": dict(traffic.client.replies),
        "http_answers": dict(traffic.http_answers),
        "repeated_late": traffic.repeated,
        "orders": operator.given,
        **judgement.figures(),
        **ledger.figures(),
        "broken": [
            *judgement.broken,
            *ledger.untimely(),
            *(f"sent out of the stopped zone: {address}" for address in sent[:5]),
            *operator.broken[:5],
            *(f"check: {one}" for one in problems[:5]),
        ],
    }


def _most(seconds: list[float]) -> str:
    if not seconds:
        return ""
    return f"{sorted(seconds)[len(seconds) // 2]:.1f} (median of {len(seconds)}), {max(seconds):.1f} at most"


if __name__ == "__main__":
    sys.exit(
        command(
            "resize", __doc__, "Other numbers of queues under load", trial,
            letters=(20_000, "letters handed in"), changes=(100, "changes of the number of queues"),
            kills=(100, "blows meanwhile"),
        )
    )  # fmt: skip
