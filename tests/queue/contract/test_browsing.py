"""The contract of browsing: in the order of their coming, wherever they wait, while others do what they like."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from zonemta_py.queue.api import DEFERRED, HELD

Make = Callable[..., Any]
PEOPLE = [f"p{number:02}@d{number % 3}.test" for number in range(24)]
OTHERS = [who for who in PEOPLE if not who.endswith("d0.test")]


async def full(caller: Make) -> Any:
    """Each has a message; those of d0.test are of one sender, and every fourth is delayed for an hour."""
    one = await caller()
    for number, person in enumerate(PEOPLE):
        later = {"hold_until_ms": one.home.clock.ms() + 3_600_000} if number % 4 == 0 else {}
        await one.put(person, sender="x@src.test" if number % 3 == 0 else "y@src.test", **later)
    return one


async def rest_of(one: Any, after: str | None, limit: int = 3) -> list[str]:
    found: list[str] = []
    while after is not None:
        page = await one.ask("list", limit=limit, after=after)
        found += [row["recipient"] for row in page["rows"]]
        after = page["next"]
        await asyncio.sleep(0)
    return found


@pytest.mark.parametrize("limit", [1, 2, 5, 24, 100])
async def test_in_the_order_of_their_coming(caller: Make, limit: int) -> None:
    """Whether they may go, wait for their time or for an operator; page by page, or all at once."""
    one = await full(caller)
    for number, delivery in enumerate(await one.home.leases()):
        if number % 3:
            await one.settle(delivery, DEFERRED if number % 3 == 1 else HELD)
    await one.home.rest()
    assert await one.browse(limit=limit) == PEOPLE
    assert await one.browse(limit=limit, domain="d1.test") == [who for who in PEOPLE if who.endswith("d1.test")]


@pytest.mark.parametrize("verb", ["flush", "hold", "set"])
async def test_an_order_changes_no_order(caller: Make, verb: str) -> None:
    one = await full(caller)
    more = {"set": {"priority": 5}} if verb == "set" else {}
    assert (await one.task(verb, domain=["d0.test", "d2.test"], **more))["done"]
    assert await one.browse(limit=4) == PEOPLE


async def take_all(one: Any) -> None:
    while deliveries := await one.home.leases():
        for delivery in deliveries:
            await one.settle(delivery)
    await one.home.rest()


async def put_some(one: Any) -> None:
    for number in range(5):
        await one.put(f"new{number}@new.test")


def ordered(verb: str, **where: Any) -> Callable[[Any], Awaitable[Any]]:
    async def order(one: Any) -> Any:
        return await one.task(verb, **where)

    return order


DONE = {
    "put": (put_some, PEOPLE), "delete by sender": (ordered("delete", sender="x@src.test"), OTHERS),
    "delete by recipient": (ordered("delete", recipient="*@d0.test"), OTHERS),
    "delete by domain": (ordered("delete", domain="d0.test"), OTHERS),
    "purge": (ordered("purge", undo_s=0), []), "delete": (ordered("delete"), []),
    "flush": (ordered("flush"), PEOPLE), "hold": (ordered("hold"), PEOPLE),
    "take": (take_all, PEOPLE[::4]),
}  # fmt: skip
"""What somebody does, and who is left of those that were there."""


@pytest.mark.parametrize("what", DONE)
async def test_between_two_pages(caller: Make, what: str) -> None:
    """The rest is who is left: nobody else, nobody twice, in their order; then who came meanwhile."""
    one = await full(caller)
    page = await one.ask("list", limit=5)
    first = [row["recipient"] for row in page["rows"]]
    do, left = DONE[what]
    await do(one)
    await one.home.rest()
    found = await rest_of(one, page["next"])
    new = [f"new{number}@new.test" for number in range(5)] if what == "put" else []
    assert first == PEOPLE[:5]
    assert found == [who for who in left if who not in first] + new


@pytest.mark.parametrize("what", DONE)
async def test_at_the_same_time(caller: Make, what: str) -> None:
    """Neither fails; whoever is left was seen, once, and nobody was seen twice."""
    one = await full(caller)
    do, left = DONE[what]
    found, _ = await asyncio.gather(rest_of(one, "", 1), do(one))
    assert len(found) == len(set(found))
    assert set(left) <= set(found)
    await one.home.rest()
    assert [who for who in await one.browse() if "new" not in who] == left


@pytest.mark.parametrize("what", DONE)
async def test_taking_is_not_disturbed_by_browsing(caller: Make, what: str) -> None:
    """What is left may all be taken, once, after its time, by whoever takes while others browse."""
    one = await full(caller)
    do, left = DONE[what]
    await asyncio.gather(rest_of(one, "", 2), do(one), rest_of(one, "", 7))
    await one.task("release")
    await one.home.move(3_601)
    taken, _ = await asyncio.gather(one.all_of_it(), rest_of(one, "", 3))
    assert sorted(who for who in taken if "new" not in who) == sorted(left)


async def test_a_row_says_until_when_it_is_delayed(caller: Make) -> None:
    """At least as long as was asked; who is not delayed has no such time."""
    one = await caller()
    later = one.home.clock.ms() + 5_000
    await one.put("later@x.test", hold_until_ms=later)
    await one.put("now@x.test")
    rows = {row["recipient"]: row["due_ms"] for row in (await one.ask("list"))["rows"]}
    assert rows["later@x.test"] >= later
    assert rows["now@x.test"] == 0
