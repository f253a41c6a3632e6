"""Bounces come back at 200,000 an hour while a campaign goes out, in every second one of several stretches: what that
costs its speed, and how long after its bounce's 250 a recipient of queued mail still gets some.

First everybody gets a message with VERP, to which the bounces come back later. Then the campaign to the same people,
and others, waits for a lift; some of them bounce in each stretch. Speed is by what leaves the queue, so that mail that
is removed for a bounce counts; and by the queue's processor time, which a machine that is short of it cannot blur. How
processes are killed meanwhile is scripts/trials/returns.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from ports import kept_port

from survival.before import bring_in, pss_kb
from survival.client import Client, Connection
from survival.command import Progress, command
from survival.ledger import Ledger
from survival.letters import Letter
from survival.returns import MORE, TICKS, Handing, Sent, back, kind_of, news, sent_of, spent
from survival.rig import SHIPPED, Mta
from zonemta_py.sink import Sink, SinkOptions

PER_HOUR = 200_000
SESSIONS = 4
AT_ONCE = 100
APART = 7_919
"""A prime: so far from each other are people who follow one another in the queue."""
STRETCH_S = 5.0
PEOPLE_PER_S = 8_000
"""Of the campaign: so many are queued for each second of all stretches, so that it does not end before."""
FOLLOWED_S_MAX = 2.0
SAMPLED = 40
"""Of so many bounces one, whose entry in the suppression list is waited for."""


def batch(number: int, attempt: int, *, people: int) -> Letter:
    """A hundred recipients of the campaign, each at a domain of its own, from all over its `people`."""
    turns = range(number * AT_ONCE, (number + 1) * AT_ONCE)
    names = [f"ann@p{one * APART % people}.test" for one in turns]
    text = (
        f"From: n@src.test\r\nSubject: spring\r\nX-Campaign: spring\r\nMessage-ID: <c{number}.{attempt}@src.test>\r\n"
    )
    return Letter(f"{number}.{attempt}", "n@src.test", names, f"{text}\r\nWhat is new.\r\n".encode())


class _Loop:
    """One trial. bounced: when each person's bounce got its 250, by time.time()."""

    def __init__(self, mta: Mta, port: int, sent: list[Sent], seed: int) -> None:
        self._mta, self._port, self._sent = mta, port, sent
        self._order = [number for number in range(len(sent)) if kind_of(number) == "bounce"]
        random.Random(seed).shuffle(self._order)
        self.bounced: dict[str, float] = {}
        self.followed_s: list[float] = []

    async def stretch(self, bouncing: bool) -> tuple[float, float]:
        """Recipients that leave the queue in a second, and in a second of its process's work."""
        before, began, worked = await self._left(), time.monotonic(), spent(self._mta)["queue"]
        if bouncing:
            await self._bounces()
        await asyncio.sleep(max(0.0, STRETCH_S - (time.monotonic() - began)))
        after, ended = await self._left(), time.monotonic()
        gone, worked = before - after, (spent(self._mta)["queue"] - worked) / TICKS
        return gone / (ended - began), gone / worked

    async def _left(self) -> int:
        total = (await asyncio.to_thread(self._mta.ask, "size"))["total"]
        return int(total["queued"] + total["leased"] + total["deferred"])

    async def _bounces(self) -> None:
        """At their rate, whatever their answers take."""
        due: asyncio.Queue[int] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            hands = [group.create_task(self._hand_in(due)) for _ in range(SESSIONS)]
            began, count = time.monotonic(), int(STRETCH_S * PER_HOUR / 3600)
            for number in range(min(count, len(self._order))):
                await asyncio.sleep(max(0.0, began + number * 3600 / PER_HOUR - time.monotonic()))
                due.put_nowait(self._order.pop())
            await due.join()
            for hand in hands:
                hand.cancel()

    async def _hand_in(self, due: asyncio.Queue[int]) -> None:
        connection = await Connection.open(self._port)
        try:
            while True:
                number = await due.get()
                await connection.transaction(back(number, 0, sent=self._sent))
                person, now = self._sent[number].recipient, time.time()
                self.bounced[person] = now
                if number % SAMPLED == 0:  # more questions would be a part of the cost
                    await self._wait(person, now)
                due.task_done()
        finally:
            connection.close()

    async def _wait(self, person: str, since: float) -> None:
        while not await asyncio.to_thread(self._mta.ask, "suppression", address=person):
            await asyncio.sleep(0.02)
            if time.time() - since > 30:
                break
        self.followed_s.append(time.time() - since)


async def trial(
    folder: Path, *, stretches: int, before: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    ours, broken = kept_port(), list[str]()
    people = 2 * int(STRETCH_S * PER_HOUR / 3600) * ((stretches + 1) // 2)  # half of them bounce
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as running:
        mta = Mta(folder, running.port, more=MORE.format(port=ours.getsockname()[1]), **SHIPPED)
        mta.start()
        try:
            await mta.taking()
            port = ours.getsockname()[1]
            found_before = await bring_in(mta, port, running, folder, before, progress) if before else {"broken": []}
            broken += found_before.pop("broken")
            await Handing(mta.port, Ledger(), make=news, series="first").hand_in(range(people))
            await mta.drained()
            sent = {one.recipients[0]: sent_of(one) for one in running.messages}
            running.messages.clear()
            back_to = [sent[f"ann@p{number}.test"] for number in range(people)]
            loop = _Loop(mta, port, back_to, seed)
            await asyncio.to_thread(mta.ask, "stop", kind="zone", name="default", seconds=3600.0, cause="not yet")
            batches = int(stretches * STRETCH_S * PEOPLE_PER_S / AT_ONCE)
            await Client(mta.port, Ledger(), make=batch, people=batches * AT_ONCE).hand_in(range(batches))
            await asyncio.to_thread(mta.ask, "lift", kind="zone", name="default")
            await asyncio.sleep(STRETCH_S)  # it gets up to its speed
            found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            for number in range(stretches):
                found[number % 2 == 0].append(await loop.stretch(number % 2 == 0))
                progress(before, f"{found[number % 2 == 0][-1][0]:,.0f} a second")
            left, memory = await loop._left(), pss_kb(mta)
            late = [one.time - loop.bounced[who] for one in running.messages for who in one.recipients
                    if who in loop.bounced and one.time > loop.bounced[who]]  # fmt: skip
        finally:
            mta.end()
    speed = {bouncing: statistics.median(one for one, _ in rows) for bouncing, rows in found.items()}
    by_work = {bouncing: statistics.median(one for _, one in rows) for bouncing, rows in found.items()}
    worst = max(late, default=0.0)
    broken += ["the campaign was over before the trial was"] * (not left)
    broken += [f"{worst:.1f} s after a bounce its recipient got mail"] * (worst > FOLLOWED_S_MAX)
    broken += await mta.problems()
    return {
        **found_before,
        "bounces": len(loop.bounced),
        "deliveries_a_second": round(speed[False]),
        "with_bounces": round(speed[True]),
        "share": round(speed[True] / speed[False], 3),
        "share_by_the_queues_work": round(by_work[True] / by_work[False], 3),
        "suppressed_after_s": round(statistics.median(loop.followed_s), 3),
        "at_worst_s": round(max(loop.followed_s), 3),
        "last_mail_after_a_bounce_s": round(worst, 3),
        "queue_pss_mb_at_its_end": round(memory / 1024, 1),
        "broken": broken,
    }


def main() -> int:
    return command(
        "loop", __doc__, "The loop", trial, stretches=(8, "stretches of 5 s, every second one with bounces"),
        before=(0, "bounces that come in before, as fast as they go: 200000 are an hour's"),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
