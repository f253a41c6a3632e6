"""Messages that go from a queue to another one while both run: each is in one of them, once, whichever of the two dies
at whatever moment; an order that comes meanwhile holds for all."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.queue.conftest import BODY, Hand, House
from tests.queue.conftest import _patience as _patience
from tests.queue.conftest import folder as folder
from tests.queue.lives import seeds
from tests.queue.test_campaigns import batch, template
from zonemta_py.config import Config
from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, QueueRefusal
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.core.tasks import WORK
from zonemta_py.queue.questions.question import given
from zonemta_py.queue.recovery import offline
from zonemta_py.queue.recovery.start import Opening
from zonemta_py.queues import transfers
from zonemta_py.queues.transfers import Transfers, WantedMail

ZONES: list[dict[str, Any]] = [
    {"name": "default"},
    {"name": "bulk", "recipient_domains": ["x.test", "y.test"]},
    {"name": "other", "recipient_domains": ["z.test"]},
]
LOST = Reply(451, "4.3.0", "lost")


class Side(House):
    """One of two queues."""

    def __init__(self, folder: Path, number: int, clock: Hand, **options: Any) -> None:
        super().__init__(folder, zones=ZONES, queue={"keep_bounced_s": 86_400}, **options)
        self.number, self.clock = number, clock
        self.other: Side
        self.orders = list[tuple[str, dict[str, Any]]]()
        """That all have."""
        self.done = 0
        self.answers = 1.0
        """How likely an answer of the other one comes."""
        self.die = random.Random(0)

    @property
    def config(self) -> Config:
        return super().config.for_queue(self.number, self.folder)

    async def begin(self) -> Opening:
        opening = await super().begin()
        self.one = asyncio.Lock()
        self.transfers = Transfers(self.queue, lambda _: self.ask_other, self.one, lambda: self.done)
        return opening

    async def ask_other(self, question: str, **arguments: Any) -> Any:
        if self.die.random() > self.answers:
            raise QueueRefusal(LOST)
        take = getattr(self.other.transfers, str(question).replace("-", "_"))
        found = await asyncio.shield(asyncio.ensure_future(take(**arguments)))
        if self.die.random() > self.answers:
            raise QueueRefusal(LOST)
        return found

    async def carry_out(self) -> None:
        """What it has not yet carried out of the orders."""
        while self.done < len(self.orders):
            async with self.one:
                question, arguments = self.orders[self.done]
                with given(True, repeated=self.number > 0):
                    await self.queue.answer(question, arguments)
                self.done += 1

    async def at_rest(self) -> None:
        while any(task.state in WORK for task in self.queue.core.tasks.by_number.values()):
            await self.rest()
            await asyncio.sleep(0.01)
        await self.rest()

    def places(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Where each recipient is: (message, address) → (family, zone)."""
        found = dict[tuple[str, str], tuple[str, str]]()
        store: Store = self.queue.core.disk.store
        for family in FAMILY:
            prefix = f"{family} ".encode()
            for key in store.keys(prefix, keys.end(prefix)):
                place = keys.place(key)
                assert (place.id, place.recipient) not in found
                found[place.id, place.recipient] = family, place.zone
        return found

    def left(self, zone: str) -> int:
        return sum(
            family in ("delivery-zone", "deferred", "parked") and at == zone for family, at in self.places().values()
        )


@pytest.fixture
async def sides(folder: Path) -> AsyncIterator[tuple[Side, Side]]:
    clock = Hand()
    both = Side(folder / "a", 0, clock), Side(folder / "b", 1, clock)
    for one, other in (both, both[::-1]):
        one.other = other
    both[1].orders = both[0].orders
    for one in both:
        await one.open()
    yield both
    for one in both:
        one.abandon()
        assert one.damages == []


ALL = WantedMail("bulk", ["default", "bulk", "other"])


async def test_mail_of_a_zone_goes_and_is_sent_from_there(sides: tuple[Side, Side]) -> None:
    a, b = sides
    large = BODY + random.Random(1).randbytes(600_000).hex().encode()
    ids = [await a.put(f"u{number}@x.test") for number in range(20)]
    ids += [await a.put("big@y.test", body=large), await a.put("ann@z.test")]
    await a.rest()
    gone = await a.transfers.give(1, ALL)
    assert gone == {"messages": 21, "recipients": 21, "left": 0, "why": ""}
    await b.rest()
    assert set(a.places()) == {(ids[-1], "ann@z.test")}
    sent = list[str]()
    while found := await b.leases():
        for one in found:
            sent.append(one.id)
            await b.settle(one)
        await b.rest()
    assert sorted(sent) == ids[:-1]
    assert b.places() == {}
    assert [one.id for one in await a.leases()] == ids[-1:]


@pytest.mark.parametrize("deferred", [False, True])
async def test_what_came_after_the_last_position_is_sent_after_a_crash(
    sides: tuple[Side, Side], deferred: bool
) -> None:
    """Though it is older than what the queue had sent by then: its low-water marks had passed that."""
    a, b = sides
    old = await a.put("ann@x.test")
    await b.put("bob@x.test")
    for side in (a, b) if deferred else ():
        (lease,) = await side.leases()
        await side.settle(lease, DEFERRED)
        await side.move(100_000)
    for lease in await b.leases():
        await b.settle(lease)
    await b.rest()
    await b.queue.position()
    assert (await a.transfers.give(1, ALL))["messages"] == 1
    await (await b.crash_and_begin()).finish()
    await b.move(1)
    assert [one.id for one in await b.leases()] == [old]


@pytest.mark.parametrize("whose", ["give", "take"])
async def test_who_asks_may_go_away_at_any_moment(
    sides: tuple[Side, Side], whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has begun is done to its end: nothing stays between the schedule and the store."""
    a, b = sides
    monkeypatch.setattr(transfers, "AGAIN_S", 0.01)
    for moment in range(24):
        ids = [await a.put(f"u{number}@x.test") for number in range(3)]
        await a.rest()
        if whose == "take":
            monkeypatch.setattr(a, "ask_other", partial(cut_off, b, moment))
            with suppress(QueueRefusal):
                await a.transfers.give(1, ALL)
            monkeypatch.undo()
            monkeypatch.setattr(transfers, "AGAIN_S", 0.01)
        else:
            await canceled(a.transfers.give(1, ALL), moment)
        async with asyncio.timeout(10):
            while a.transfers.under_way:
                await a.rest()
        await a.transfers.give(1, ALL)
        sent = list[str]()
        while len(sent) < len(ids):
            for one in await b.leases():
                sent.append(one.id)
                await b.settle(one)
            await b.rest()
        assert sorted(sent) == ids
        assert a.places() == b.places() == {}


async def canceled(work: Coroutine[Any, Any, Any], moment: int) -> None:
    task = asyncio.ensure_future(work)
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def cut_off(other: Side, moment: int, question: str, **arguments: Any) -> Any:
    """The connection by which it is asked is lost."""
    await canceled(getattr(other.transfers, str(question).replace("-", "_"))(**arguments), moment)
    raise QueueRefusal(LOST)


async def test_there_and_back_and_what_is_being_delivered_stays(sides: tuple[Side, Side]) -> None:
    a, b = sides
    first, second = await a.put("ann@x.test"), await a.put("bob@y.test")
    (lease,) = await a.lease()
    assert (await a.transfers.give(1, ALL))["messages"] == 1
    assert (await a.transfers.give(1, ALL)) == {"messages": 0, "recipients": 0, "left": 1, "why": ""}
    await a.settle(lease, DEFERRED)
    await a.rest()
    assert (await a.transfers.give(1, ALL))["messages"] == 1
    assert a.places() == {}
    assert (await b.transfers.give(0, ALL))["messages"] == 2
    assert b.places() == {}
    for one in (a, b):
        await one.crash_and_begin(power=True)
        await (await one.crash_and_begin()).finish()
    assert {key[0] for key in a.places()} == {first, second}
    await a.move(3_600)
    assert {one.id for one in await a.leases()} == {first, second}


async def test_a_message_of_several_zones_goes_where_more_of_it_can_be_sent(sides: tuple[Side, Side]) -> None:
    a, b = sides
    more = await a.put("ann@x.test", "bob@y.test", "cat@z.test")
    less = await a.put("ann@x.test", "dan@z.test", "eve@z.test")
    await a.rest()
    assert (await a.transfers.give(1, WantedMail("bulk", ["bulk"], ["other", "default"])))["messages"] == 1
    assert {key[0] for key in b.places()} == {more}
    assert {key[0] for key in a.places()} == {less}
    assert (await a.transfers.give(1, WantedMail("bulk", ["bulk"])))["messages"] == 0


async def test_an_order_that_the_other_has_carried_out_before_comes_first(sides: tuple[Side, Side]) -> None:
    """What has not heard of it stays until it has."""
    a, b = sides
    await a.put("ann@x.test")
    a.orders.append(("task", {"verb": "hold", "where": {"domain": "x.test"}}))
    await b.carry_out()
    said = await a.transfers.give(1, ALL)
    assert (said["messages"], said["left"]) == (0, 1)
    assert said["why"]
    await a.carry_out()
    await a.at_rest()
    assert [family for family, _ in a.places().values()] == ["held"]
    await a.put("bob@x.test")
    assert (await a.transfers.give(1, ALL))["messages"] == 1
    await b.at_rest()
    assert [family for family, _ in b.places().values()] == ["delivery-zone"]


async def lived(a: Side, b: Side, die: random.Random) -> None:
    """Mail of all kinds in both queues, and orders that both have."""
    if not a.orders:
        a.orders.append(("campaign-put", {"name": "spring", "sender": "news@src.test", "template": template("spring")}))
        for side in (a, b):
            await side.carry_out()
    for number in range(12):
        side, what = die.choice((a, b)), die.random()
        people = [f"{die.choice('abcdef')}{number}@{die.choice('xyz')}.test" for _ in range(die.randint(1, 3))]
        if what < 0.5:
            more = {"campaign": "named"} if die.random() < 0.3 else {}
            await side.put(*people, body=BODY + b"x" * die.choice((0, 0, 100_000, 600_000)), **more)
        elif what < 0.65:
            await side.queue.accept(batch(*people, campaign="spring"), b"")
        elif what < 0.85:
            for delivery in await side.leases(die.randint(1, 3)):
                await side.settle(delivery, die.choice((DELIVERED, DEFERRED, DEFERRED, BOUNCED, HELD)))
        else:
            where = {"domain": f"{die.choice('xyz')}.test"}
            a.orders.append(("task", {"verb": die.choice(("hold", "release", "flush")), "where": where, "undo_s": 60}))
            for one in die.sample((a, b), die.randint(0, 2)):
                await one.carry_out()
        await side.move(die.choice((0, 1, 60, 3_000)))


async def moved(side: Side, die: random.Random, to_end: bool = False) -> None:
    end = die.randint(1, 4)
    while end or to_end:
        end -= 1
        try:
            said = await side.transfers.give(1 - side.number, ALL, die.choice((3, 50)))
        except QueueRefusal:
            continue
        if to_end:
            for one in (side, side.other):
                await one.carry_out()
                await one.at_rest()
            if not said["left"]:
                return


@pytest.mark.parametrize("seed", seeds(6))
async def test_random_lives_and_deaths(
    sides: tuple[Side, Side], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for name, seconds in (("ANSWER_S", 0.3), ("SAME_S", 0.1), ("AGAIN_S", 0.05)):
        monkeypatch.setattr(transfers, name, seconds)
    a, b = sides
    die = random.Random(seed)
    for side in sides:
        side.die = die
    for _ in range(4):
        for side in sides:
            side.answers = 1.0
        await lived(a, b, die)
        for side in sides:
            await side.sound()
        before = Counter(a.places().keys()) + Counter(b.places().keys())
        assert before == Counter(set(before))
        for _ in range(3):
            a.answers = b.answers = die.choice((0.7, 1.0))
            side = die.choice(sides)
            work = asyncio.ensure_future(moved(side, die))
            for _ in range(die.randint(0, 120)):
                await asyncio.sleep(0)
            struck = die.sample(sides, die.randint(0, 2))
            for one in struck:
                await (await one.crash_and_begin(power=die.random() < 0.5, die=die)).finish()
            if side in struck:
                work.cancel()
            await asyncio.wait([work])
        a.answers = b.answers = 1.0
        for one in sides:
            await one.carry_out()
        while a.transfers.under_way or b.transfers.under_way:  # noqa: ASYNC110 (it ends by itself)
            await asyncio.sleep(0.01)
        for one in sides:
            await one.at_rest()
        assert Counter(a.places().keys()) + Counter(b.places().keys()) == before
    await moved(a, die, to_end=True)
    assert a.left("bulk") == 0
    for one in sides:
        await one.at_rest()
        one.abandon()
        report = await offline.check(one.config, clock=one.clock)
        assert [each for each in report.problems if each.severity != "harmless"] == []
        await one.open()
        await one.move(1_000_000)
        while found := await one.leases():
            for lease in found:
                await one.settle(lease)
            await one.rest()
        waiting = Counter(family for family, _ in one.places().values())
        assert not waiting["delivery-zone"] + waiting["deferred"] + waiting["parked"]
