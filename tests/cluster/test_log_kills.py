"""A queue at work is struck at random instants, with messages for its log on their way; another machine takes it over.

All that was acknowledged is there, and nothing that was never handed in; what was leased and has no result is in doubt;
what had one is not sent again.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.houses import KeptHouse
from tests.cluster.memory import MemoryStream
from tests.queue.lives import seeds
from zonemta_py.cluster import log
from zonemta_py.queue.api import DELIVERED, Delivery

LIVES, DEATHS = 6, 5


class Work:
    """What clients and senders of one queue know. asked: handed in; stored: answered with 250. sent: a destination has
    it. done: and the queue has acknowledged that."""

    def __init__(self, home: KeptHouse, die: random.Random) -> None:
        self.home, self.die = home, die
        self.asked: set[str] = set()
        self.stored: set[str] = set()
        self.sent: set[str] = set()
        self.done: set[str] = set()
        self.out: dict[int, Delivery] = {}
        self.number = 0
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        self.out = {}
        self.tasks = [asyncio.create_task(one) for one in (*(self._client() for _ in range(4)), self._sender())]

    async def die_within(self, seconds: float) -> None:
        await asyncio.sleep(self.die.random() * seconds)
        self.home.log.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    async def _client(self) -> None:
        while True:
            self.number += 1
            addresses = [f"{self.number}-{one}@x{self.number % 3}.test" for one in range(self.die.choice((1, 1, 3)))]
            size = 600_000 if self.die.random() < 0.1 else 30
            self.asked.update(addresses)
            more = {"durability": "node"} if self.home.spools else {}
            body = b"Subject: x\r\n\r\n" + self.die.randbytes(size)
            if self.home.spools and self.die.random() < 0.02:
                self.home.stream.down = True
            await self.home.put(*addresses, sender="", body=body, **more)
            self.stored.update(addresses)
            if self.die.random() < 0.1:
                self.home.log.mark = self.home.log.mark._replace(appended=1 << 40)  # a copy is due
            if self.die.random() < 0.05:
                await self.home.queue.position()
            if self.die.random() < 0.05:
                self.home.queue.core.disk.ledger.rotate()

    async def _sender(self) -> None:
        while True:
            for delivery in await self.home.queue.lease(3):
                self.out[delivery.lease] = delivery
            for lease, delivery in list(self.out.items()):
                if self.die.random() < 0.5:
                    people = [one.address for one in delivery.recipients]
                    self.sent.update(people)
                    await self.home.settle(delivery, DELIVERED)
                    self.done.update(people)
                    del self.out[lease]

    async def check(self) -> None:
        here = {row["recipient"] for row in await self.home.listed()}
        doubtful = {row["recipient"] for row in await self.home.queue.ask("in-doubt")}
        assert here <= self.asked
        assert self.stored - self.sent <= here
        assert not self.done & here
        assert (self.sent - self.done) & here <= doubtful, "what may have been sent is in doubt"
        leased = {one.address for delivery in self.out.values() for one in delivery.recipients}
        assert leased - self.sent <= doubtful
        for row in await self.home.listed():
            assert len(await self.home.queue.chunks(row["id"], 1, 1)) == 1
        self.sent |= here & doubtful  # from here on as the model of a second machine has it
        self.sent -= here
        self.stored, self.asked = set(here), set(here)


@pytest.mark.parametrize("spools", [False, True])
@pytest.mark.parametrize("seed", seeds(LIVES))
async def test_killed_at_any_instant(
    seed: int, spools: bool, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Again and again, in turn on other machines and on the same. spools: 250 is said before the log has it, also while
    the log does not answer."""
    monkeypatch.setattr(log, "RESTS", 0.0)
    monkeypatch.setattr(log, "AGAIN_S", 0.005)
    die = random.Random(seed)
    home = KeptHouse(memory / "house", MemoryStream(seed, 0.002, 0.0, die.choice((0.0, 0.003, 0.02))))
    home.ways = die.choice([("there",), ("here", "power", "there")])
    home.spools = spools
    await home.open()
    work = Work(home, die)
    for _ in range(DEATHS):
        work.begin()
        await work.die_within(0.4)
        home.stream.down = False
        await home.crash(die=die)
        await work.check()
    with suppress(asyncio.CancelledError):
        await home.sound()
    home.abandon()
