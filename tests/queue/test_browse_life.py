"""A random life of the queue between the pages of a list: whoever stays is listed, once, wherever it goes meanwhile."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.tasks.test_tasks import done
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.reload import apply

Row = dict[str, Any]
DOMAINS = [f"d{number}.test" for number in range(5)]
OTHER = {"domain": "going.test"}


class Browsed:
    """A queue, those who stay in it, and what may happen to them, and to others, from one page to the next."""

    def __init__(self, home: Any, ask: Callable[..., Any], seed: int) -> None:
        self.home, self.ask, self.die = home, ask, random.Random(seed)
        self.staying = set[tuple[str, str]]()
        self.held = set[str]()

    async def begin(self) -> None:
        for number in range(self.die.randint(5, 20)):
            await self.put(number, stays=True)
            await self.put(number, stays=False)
        for _ in range(10):
            await self.step()

    async def put(self, number: int, stays: bool) -> None:
        people = [f"{'stay' if stays else 'go'}{number}-{one}" for one in range(self.die.randint(1, 8))]
        whole = [f"{one}@{self.die.choice(DOMAINS)}" for one in people]
        more = {"campaign": f"c{number % 2}", "tenant": "acme"} if self.die.random() < 0.5 else {}
        id = await self.home.put(*whole, **more)
        if stays:
            self.staying |= {(id, address) for address in whole}

    async def step(self) -> None:
        verb = self.die.choice((self.deliver, self.deliver, self.stop, self.lift, self.task, self.reload, self.later,
                                self.arrive, self.home.rest))  # fmt: skip
        await verb()

    async def deliver(self) -> None:
        """Who goes gets any answer; who stays none that ends it."""
        for delivery in await self.home.leases(self.die.randint(1, 10)):
            stays = any((delivery.id, one.address) in self.staying for one in delivery.recipients)
            verdicts = (DEFERRED, DEFERRED, HELD) if stays else (DELIVERED, BOUNCED, DEFERRED, HELD)
            await self.home.settle(delivery, self.die.choice(verdicts))

    async def stop(self) -> None:
        kind, name = self.die.choice((("domain", self.die.choice(DOMAINS)), ("tenant", "acme"), ("zone", "b")))
        await self.ask("stop", kind=kind, name=name)

    async def lift(self) -> None:
        kind, name = self.die.choice((("domain", self.die.choice(DOMAINS)), ("tenant", "acme"), ("zone", "b")))
        await self.ask("lift", kind=kind, name=name)

    async def task(self) -> None:
        """Moves, holds, releases, flushes, and orders anew; sometimes all that is undone."""
        verb, more = self.die.choice((
            ("hold", {}), ("release", {}), ("flush", {}), ("move", {"set": {"zone": self.die.choice("abc")}}),
            ("set", {"set": {"priority": self.die.randint(-3, 3)}}), ("requeue", {}),
        ))  # fmt: skip
        row = await done(self.home, verb, where={"domain": self.die.choice(DOMAINS)}, **more)
        if self.die.random() < 0.2 and row["undoable"]:
            await self.ask("task-undo", id=row["id"])

    async def reload(self) -> None:
        window = self.die.choice((100, 101, 1000))
        self.home.options["queue"] = self.home.options.get("queue", {}) | {"window": window}
        apply.take(self.home.queue, self.home.config, NoHooks(), None)

    async def later(self) -> None:
        await self.home.move(self.die.choice((1, 60, 3600)))

    async def arrive(self) -> None:
        await self.put(self.die.randint(100, 10_000), stays=False)

    async def walk(self, **where: Any) -> list[Row]:
        """All pages, and what happens between them."""
        rows, after = list[Row](), ""
        while after is not None:
            page = await self.ask("list", limit=self.die.randint(1, 20), after=after, **where)
            rows, after = rows + page["rows"], page["next"]
            for _ in range(self.die.choice((0, 0, 1, 2))):
                await self.step()
        return rows


ZONES = [
    {"name": "a", "default": True},
    {"name": "b", "recipient_domains": ["d1.test"]},
    {"name": "c", "connections": 1, "recipient_domains": ["d2.test"]},
]
RETRY = {"life_h": 100_000, "delay_notice_h": 0}


def missed_or_twice(wanted: set[tuple[str, str]], rows: list[Row]) -> dict[tuple[str, str], int]:
    seen = Counter((row["id"], row["recipient"]) for row in rows)
    return {one: seen[one] for one in wanted if seen[one] != 1}


@pytest.mark.parametrize("order", ["", "age"])
@pytest.mark.parametrize("seed", range(12))
async def test_who_stays_is_listed_once(house: Any, front: Any, seed: int, order: str) -> None:
    """Held, deferred, parked, leased, moved, set, released: in whatever state it is when its page is made."""
    home = await house(zones=ZONES, queue={"window": 100, "keep_bounced_s": 10**6}, retry=RETRY)
    browsed = Browsed(home, (await front(home)).ask, seed)
    await browsed.begin()
    for _ in range(3):
        assert missed_or_twice(browsed.staying, await browsed.walk(**({"order": order} if order else {}))) == {}
