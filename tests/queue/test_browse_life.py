"""A random life of the queue between the pages of a list: whoever stays is listed, once, wherever it goes meanwhile."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.lives import seeds
from tests.queue.tasks.test_tasks import done, ended
from zonemta_py.queue.admin.browse import by_id, large_message, of_index
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD
from zonemta_py.queue.core.sizes import DEFERRED as DEFERRED_AT
from zonemta_py.queue.core.sizes import HELD as HELD_AT
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.reload import apply

Who = tuple[str, str]
"""A message's id, and a recipient's address."""
DOMAINS = [f"d{number}.test" for number in range(5)]


class Browsed:
    """A queue, those who stay in it, and what may happen to them, and to others, from one page to the next."""

    def __init__(self, home: Any, ask: Callable[..., Any], seed: int) -> None:
        self.home, self.ask, self.die = home, ask, random.Random(seed)
        self.staying = dict[Who, str]()
        """Their campaigns."""
        self.held, self.later_on = set[Who](), set[Who]()
        """Who is held all the time, or waits for a time that does not come."""

    async def begin(self) -> None:
        self.held = await self._put("held", "still.test")
        for delivery in await self.home.leases():
            await self.home.settle(delivery, HELD)
        self.later_on = await self._put("later", "far.test", hold_until_ms=self.home.clock.ms() + 10**12)
        self.staying |= dict.fromkeys(self.held | self.later_on, "")
        for number in range(self.die.randint(5, 20)):
            await self.put(f"stay{number}")
            await self.put(f"go{number}")
        for _ in range(10):
            await self.step()

    async def _put(self, name: str, domain: str = "", **more: Any) -> set[Who]:
        people = [f"{name}-{one}@{domain or self.die.choice(DOMAINS)}" for one in range(self.die.randint(1, 8))]
        id = await self.home.put(*people, **more)
        return {(id, address) for address in people}

    async def put(self, name: str) -> None:
        more = {"campaign": f"c{len(name) % 2}", "tenant": "acme"} if self.die.random() < 0.5 else {}
        found = await self._put(name, **more)
        if name.startswith("stay"):
            self.staying |= dict.fromkeys(found, more.get("campaign", ""))

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
        apply.take(self.home.queue, apply.prepare(self.home.config, NoHooks(), None))

    async def later(self) -> None:
        await self.home.move(self.die.choice((1, 60, 3600)))

    async def arrive(self) -> None:
        await self.put(f"go{self.die.randint(100, 10_000)}")

    async def walk(self, **where: Any) -> list[Who]:
        """All pages, and what happens between them. Nobody is there twice."""
        rows, after = list[Who](), ""
        while after is not None:
            page = await self.ask("list", limit=self.die.randint(1, 20), after=after, **where)
            rows, after = rows + [(row["id"], row["recipient"]) for row in page["rows"]], page["next"]
            for _ in range(self.die.choice((0, 0, 1, 2))):
                await self.step()
        assert [one for one, count in Counter(rows).items() if count > 1] == []
        assert rows == sorted(rows)
        return rows

    def questions(self) -> list[tuple[dict[str, Any], set[Who]]]:
        """Filters, and who of those that stay is meant all the time."""
        domains = self.die.sample(DOMAINS, 2)
        ids = self.die.sample(sorted({id for id, _ in self.staying}), 3)
        every = set(self.staying)
        return [
            ({}, every),
            ({"order": "age"}, every),
            ({"younger_s": 10.0**9}, every),
            ({"sender": "ann@*", "order": "age"}, every),
            ({"domain": domains}, {one for one in every if one[1].partition("@")[2] in domains}),
            ({"domain": "d1.test"}, {one for one in every if one[1].endswith("@d1.test")}),
            ({"recipient": "stay*"}, {one for one in every if one[1].startswith("stay")}),
            ({"campaign": "c0"}, {one for one, name in self.staying.items() if name == "c0"}),
            ({"tenant": "acme", "order": "age"}, {one for one, name in self.staying.items() if name}),
            ({"id": ids}, {one for one in every if one[0] in ids}),
            ({"state": "held"}, self.held),
            ({"state": ["deferred", "leased"]}, self.later_on),
            ({"state": "deferred", "zone": "a", "order": "age"}, self.later_on),
            ({"zone": ["a", "c"]}, self.held | self.later_on),
        ]


ZONES = [
    {"name": "a", "default": True},
    {"name": "b", "recipient_domains": ["d1.test"]},
    {"name": "c", "connections": 1, "recipient_domains": ["d2.test"]},
]
OPTIONS: dict[str, Any] = {
    "zones": ZONES, "queue": {"window": 100, "keep_bounced_s": 10**6}, "retry": {"life_h": 100_000}
}  # fmt: skip


@pytest.mark.parametrize("large", [0, 1])
@pytest.mark.parametrize("seed", seeds(2))
async def test_who_stays_is_listed_once(
    house: Any, front: Any, seed: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held, deferred, parked, leased, moved, set, released: in whatever state it is when its page is made; also in
    messages that have too many recipients to be sorted at once."""
    if large:
        monkeypatch.setattr(of_index, "FEW", 1)
        monkeypatch.setattr(of_index, "LARGE", large)
        monkeypatch.setattr(large_message, "STEP", 2)
        monkeypatch.setattr(large_message, "AT_ONCE", 3)
        monkeypatch.setattr(by_id, "AT_ONCE", 3)
    home = await house(**OPTIONS)
    browsed = Browsed(home, (await front(home)).ask, seed)
    await browsed.begin()
    for where, wanted in browsed.questions():
        rows = await browsed.walk(**where)
        assert wanted - set(rows) == set(), where


class Killed(Browsed):
    """It is killed again and again, and goes on."""

    def __init__(self, home: Any, seed: int) -> None:
        async def ask(question: str, **arguments: Any) -> Any:
            return await home.queue.ask(question, **arguments)

        super().__init__(home, ask, seed)

    async def step(self) -> None:
        if self.die.random() < 0.05:
            await self.home.crash(power=self.die.random() < 0.5, die=self.die, drop=self.die.random() < 0.5)
        await super().step()

    async def quiet(self) -> None:
        """Tasks and undos have ended, and both disks have all."""
        for row in await self.ask("tasks"):
            await ended(self.home, row)
        await self.home.rest()


@pytest.mark.parametrize("seed", seeds(2))
async def test_a_cursor_outlives_kills_and_lists_are_as_long_as_sizes_say(house: Any, seed: int) -> None:
    """Of each state, zone and domain, after a random life; what was accepted and who stays is still there."""
    home = await house(**OPTIONS)
    browsed = Killed(home, seed)
    await browsed.begin()
    for where, wanted in browsed.die.sample(browsed.questions(), 4):
        assert wanted - set(await browsed.walk(**where)) == set(), where
    await browsed.quiet()
    size = await browsed.ask("size")
    states = ("queued", "deferred", "held", "deleted", "bounced")
    for state in states:
        assert len(await home.listed(7, state=state)) == size["total"][state], state
        for zone, counts in size["zones"].items():
            assert len(await home.listed(50, state=state, zone=zone)) == counts[state], (state, zone)
    for domain in (*DOMAINS, "still.test", "far.test"):
        counts = await browsed.ask("size", domain=domain)
        for state in states:
            assert len(await home.listed(9, state=state, domain=domain)) == counts[state], (state, domain)
        waiting = sum(counts[state] for state in ("queued", "deferred", "held"))
        assert len(await home.listed(20, domain=domain)) == waiting
    for name in ("c0", "c1"):
        counts = await browsed.ask("size", campaign=name)
        assert len(await home.listed(20, campaign=name, state=list(states))) == sum(counts.values())
    await home.sound()


async def test_what_the_store_does_not_have_yet_hides_nobody(house: Any) -> None:
    """The counters know of a change before the store: its zone is looked through all the same."""
    home = await house(**OPTIONS)
    await home.put("a@x.test", "b@x.test")
    for delivery in await home.leases():
        await home.settle(delivery, HELD)
    await home.rest()
    page = await home.queue.ask("list", limit=1)
    id = page["rows"][0]["id"]
    go = home.freeze()
    home.queue.core.counters.sizes.move("a", "x.test", HELD_AT, DEFERRED_AT, 2)
    try:
        rest = await home.queue.ask("list", after=page["next"])
    finally:
        home.queue.core.counters.sizes.move("a", "x.test", HELD_AT, DEFERRED_AT, -2)
        go()
    assert [(row["id"], row["recipient"]) for row in rest["rows"]] == [(id, "b@x.test")]
