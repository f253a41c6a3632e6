"""Limits of a domain's own site, where its MX hosts are the last resort of smart hosts: its sender asks for a place."""

import asyncio
from typing import Any

import pytest

from tests.queue.test_reload import reload
from zonemta_py.queue.api import POSTPONED, RELEASED

ZONE = {"name": "default", "default": True, "hosts": ["relay.test:25", "mx"]}
SITE = ("mx.test", "big")


async def ask(home: Any, delivery: Any) -> Any:
    return await home.queue.place(delivery.lease, *SITE)


async def postpone(home: Any, delivery: Any, place: Any) -> None:
    await home.settle(delivery, POSTPONED, stage="limit", kept=False, delay_s=place.wait_s)


async def test_connections_at_a_provider_are_counted_there(house: Any) -> None:
    """As many as are allowed, whoever asks, until each lease has ended and its connection is closed. Who gets none is
    put off, without an attempt, each message to a moment of its own."""
    home = await house(zones=[ZONE], throttles=[{"name": "t", "only": {"provider": "big"}, "connections": 2}])
    for number in range(5):
        await home.put(f"r{number}@x.test")
    one, two = await asyncio.wait_for(home.queue.lease(2, "one"), 60)
    others = await asyncio.wait_for(home.queue.lease(3, "two"), 60)
    assert [tuple(await ask(home, lease))[:2] for lease in (one, two)] == [(True, True)] * 2
    places = [await ask(home, lease) for lease in others]
    assert not any(place.granted for place in places)
    assert len({place.wait_s for place in places}) == 3
    assert "connections" in places[0].cause
    for lease, place in zip(others, places, strict=True):
        await postpone(home, lease, place)
    rows = await home.listed()
    assert {row["attempts"] for row in rows} == {0}
    result = home.result(one, kept=False)
    result.connection = one.lease  # it is being closed
    await home.queue.settle(result)
    await home.move(5)
    (third,) = await asyncio.wait_for(home.queue.lease(1, "two"), 60)
    assert not (await ask(home, third)).granted
    home.queue.closed(one.lease)
    (fourth,) = await asyncio.wait_for(home.queue.lease(1, "two"), 60)
    assert (await ask(home, fourth)).granted
    for number in range(2):
        await home.put(f"s{number}@x.test")
    home.queue.lost("one")
    (fifth,) = await asyncio.wait_for(home.queue.lease(1, "three"), 60)
    assert not (await ask(home, fifth)).granted, "a lost sender's counts until it has ended"
    home.queue.over("one")
    (sixth,) = await asyncio.wait_for(home.queue.lease(1, "three"), 60)
    assert (await ask(home, sixth)).granted


@pytest.mark.parametrize(
    "throttle", [{"messages": "2/h", "burst": 2}, {"recipients": "2/h", "burst": 2}, {"bytes": "44B/h", "burst": 44}]
)
async def test_rates_at_a_provider_hold_there(house: Any, throttle: dict[str, Any]) -> None:
    """What is not sent after all is given back."""
    home = await house(zones=[ZONE], throttles=[{"name": "t", "only": {"provider": "big"}, **throttle}])
    for number in range(4):
        await home.put(f"r{number}@x.test")
    one, two, three, four = await home.leases()
    assert [(await ask(home, lease)).granted for lease in (one, two, three)] == [True, True, False]
    await home.settle(one, RELEASED, stage="limit", kept=False)
    assert (await ask(home, four)).granted
    await home.settle(two, kept=False)
    place = await ask(home, three)
    assert place.wait_s == 900, "at the latest"
    assert not (await home.queue.place(three.lease, *SITE)).granted


async def test_a_place_is_asked_for_once_a_lease(house: Any) -> None:
    """Another message of it is another lease. A lease that is not out has none."""
    home = await house(zones=[ZONE], throttles=[{"name": "t", "per": ["provider"], "messages": "5/h", "burst": 5}])
    await home.put("r@x.test")
    (lease,) = await home.leases()
    assert (await ask(home, lease)).granted
    again = await ask(home, lease)
    assert (again.granted, again.wait_s) == (False, 0.0)
    await home.settle(lease, RELEASED, stage="limit", kept=False)
    assert not (await ask(home, lease)).granted


async def test_no_limit_is_in_the_way(house: Any) -> None:
    """Nor where the limit is of another provider."""
    home = await house(zones=[ZONE], throttles=[{"name": "t", "only": {"provider": "other"}, "connections": 1}])
    for number in range(3):
        await home.put(f"r{number}@x.test")
    assert [tuple(await ask(home, lease))[:2] for lease in await home.leases()] == [(True, False)] * 3


async def test_what_is_stopped_gets_nothing_by_the_way_round(house: Any) -> None:
    """A stop of the provider or the site holds there too."""
    home = await house(zones=[ZONE])
    await home.put("r@x.test")
    home.queue.core.schedule.policy.stop("destination", "big", 60, "an operator")
    (lease,) = await home.leases()
    place = await ask(home, lease)
    assert not place.granted
    assert "big is suspended" in place.cause
    assert 50 < place.wait_s <= 60


async def test_another_configuration_counts_it_there(house: Any) -> None:
    """A lease that has gone there counts at limits that come later."""
    home = await house(zones=[ZONE])
    await home.put("r@x.test")
    await home.put("s@x.test")
    first, second = await home.leases()
    assert tuple(await ask(home, first))[:2] == (True, False)
    reload(home, throttles=[{"name": "t", "only": {"provider": "big"}, "connections": 1}])
    assert not (await ask(home, second)).granted
    await home.settle(first, kept=False)
    assert (await ask(home, second)).granted
    reload(home, throttles=[])
    reload(home, throttles=[{"name": "u", "only": {"site": "mx.test"}, "connections": 1}])
    await home.put("t@x.test")
    (third,) = await home.leases()
    assert not (await ask(home, third)).granted
    await home.settle(second, kept=False)
    assert (await ask(home, third)).granted
    await home.settle(third, kept=False)
    assert not [limit for limit in home.queue.core.schedule.admission.throttles if limit.connections]
