"""The contract of the queue: what comes first goes first, once, whole, and never before its time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED, RELEASED

Make = Callable[..., Any]


async def test_an_empty_queue_has_nothing(caller: Make) -> None:
    one = await caller()
    assert await one.size() == {}
    assert await one.browse() == []
    assert await one.home.idle()


async def test_what_comes_first_goes_first(caller: Make) -> None:
    one = await caller()
    people = [f"p{number}@x.test" for number in range(20)]
    for person in people:
        await one.put(person)
    assert await one.all_of_it() == people


async def test_what_is_taken_is_what_was_put(caller: Make) -> None:
    one = await caller()
    ident = await one.put(
        "a@x.test", "b@x.test", sender="news@src.test", body=b"Subject: x\r\n\r\nwhole", tenant="shop"
    )
    (delivery,) = await one.take()
    assert (delivery.id, delivery.sender, delivery.body) == (ident, "news@src.test", b"Subject: x\r\n\r\nwhole")
    assert [who.address for who in delivery.recipients] == ["a@x.test", "b@x.test"]
    assert delivery.tenant == "shop"


async def test_who_takes_waits_until_there_is_something(caller: Make) -> None:
    one = await caller()
    waiting = asyncio.ensure_future(one.take())
    await one.home.rest()
    assert not waiting.done()
    await one.put("a@x.test")
    assert [who.address for who in (await waiting)[0].recipients] == ["a@x.test"]


async def test_what_is_taken_is_given_to_nobody_else(caller: Make) -> None:
    one = await caller()
    await one.put("a@x.test")
    (delivery,) = await one.take()
    assert await one.home.idle()
    assert (await one.size())["leased"] == 1
    await one.settle(delivery)
    assert await one.size() == {}


async def test_what_was_not_tried_goes_again_in_its_place(caller: Make) -> None:
    one = await caller()
    for name in "abc":
        await one.put(f"{name}@x.test")
    (delivery,) = await one.take()
    await one.settle(delivery, RELEASED)
    await one.home.rest()
    assert await one.all_of_it() == ["a@x.test", "b@x.test", "c@x.test"]


async def test_many_at_once_each_take_their_own(caller: Make) -> None:
    one = await caller()
    people = [f"p{number}@d{number % 5}.test" for number in range(60)]
    taken: list[str] = []

    async def put(some: list[str]) -> None:
        for person in some:
            await one.put(person)

    async def take() -> None:
        while len(taken) < len(people):
            try:
                found = await asyncio.wait_for(one.queue.lease(1), 0.3)
            except TimeoutError:
                continue
            for delivery in found:
                taken.extend(who.address for who in delivery.recipients)
                await one.settle(delivery)

    await asyncio.gather(*(put(people[at::3]) for at in range(3)), *(take() for _ in range(4)))
    assert sorted(taken) == sorted(people)
    assert await one.size() == {}


@pytest.mark.parametrize("seconds", [1, 60, 86_400])
async def test_a_delay_lasts_at_least_as_long_as_asked(caller: Make, seconds: int) -> None:
    one = await caller()
    await one.put("a@x.test", hold_until_ms=one.home.clock.ms() + seconds * 1000)
    await one.home.move(seconds - 0.5)
    assert await one.home.idle()
    assert await one.size() == {"deferred": 1}
    await one.home.move(0.6)
    assert await one.all_of_it() == ["a@x.test"]


async def test_what_is_delayed_holds_up_nobody(caller: Make) -> None:
    one = await caller()
    await one.put("later@x.test", hold_until_ms=one.home.clock.ms() + 5_000)
    await one.put("sooner@x.test", hold_until_ms=one.home.clock.ms() + 2_000)
    await one.put("now@x.test")
    await one.put("past@x.test", hold_until_ms=one.home.clock.ms() - 2_000)
    assert await one.all_of_it() == ["now@x.test", "past@x.test"]
    await one.home.move(10)
    assert await one.all_of_it() == ["sooner@x.test", "later@x.test"]


async def test_what_is_deferred_waits_at_least_as_long_as_said(caller: Make) -> None:
    one = await caller()
    await one.put("a@x.test")
    (delivery,) = await one.take()
    await one.settle(delivery, DEFERRED, delay_s=100.0)
    await one.home.move(99)
    assert await one.home.idle()
    await one.home.move(2)
    assert await one.all_of_it() == ["a@x.test"]


async def test_the_highest_priority_is_pulled_first(caller: Make) -> None:
    one = await caller(zones=[{"name": "default"}, {"name": "jobs", "delivery": "pull"}])
    for number, priority in enumerate((0, 5, -3, 5, None)):
        await one.put(
            "jobs@queue", sender="", protocol="PULL", sending_zone="jobs", priority=priority, body=b"%d" % number
        )
    found = []
    while taken := await one.queue.pull("jobs"):
        found.append(bytes(taken[0].body))
        await one.queue.ack(taken[0].lease, taken[0].id)
    assert found == [b"1", b"3", b"0", b"4", b"2"]
