"""The machine's clock is set while a campaign waits for its hours: nobody gets it outside them, twice, or never."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.lives import seeds
from tests.queue.test_campaign_hours import BY_COLUMN, ZONES, batch, local, sent, timed
from tests.queue.test_campaigns import row, tick
from tests.queue.test_clock import HOUR
from zonemta_py.queue.api import DEFERRED

Make = Callable[..., Any]


@pytest.mark.parametrize(("set_h", "restart"), [(-5, False), (5, False), (-3, True), (4, True)])
async def test_nine_oclock_is_nine_by_the_clock_as_it_is_now(house: Make, set_h: int, restart: bool) -> None:
    """It is set at midnight; whoever was to go between nine and eleven goes then, by the clock that people see."""
    home = await timed(house, at="2024-03-29 09:00", until="2024-03-29 11:00", time_zone="UTC")
    await home.queue.accept(batch(ann="", bob=""), b"")
    await home.move(4 * HOUR)
    home.clock.set_s += set_h * HOUR
    if restart:
        await home.crash()
    went = []
    for _ in range(16):
        await tick(home)
        went += [(name, local(home, "UTC").strftime("%d %H:%M")) for name in await sent(home)]
        await home.rest()
        await home.move(HOUR)
    assert went == [("ann", "29 09:00"), ("bob", "29 09:00")]


@pytest.mark.parametrize("seed", seeds(1))
async def test_a_clock_that_is_set_again_and_again(house: Make, seed: int) -> None:
    """By hours, forward and back, over the night in which Berlin's clocks go forward; killed now and then, some tries
    deferred: each between nine and five of their own clocks, once, in the end."""
    die = random.Random(seed)
    home = await timed(house, at="2024-03-29", window="09:00-17:00", **BY_COLUMN)
    people = {f"r{number}": ZONES[number % 4] for number in range(24)}
    await home.queue.accept(batch(**people), b"")
    got = list[str]()
    for step in range(10 * 8):
        if die.random() < 0.3 and step < 8 * 8:
            home.clock.set_s += die.choice((-7, -3, -1, -0.5, 0.5, 1, 3, 7)) * HOUR
            await tick(home)
            await home.rest()
        for delivery in await home.leases(3):
            names = [one.address.partition("@")[0] for one in delivery.recipients]
            for name in names:
                assert 9 <= local(home, people[name]).hour < 17, f"{name} at {local(home, people[name])}"
            if die.random() < 0.2:
                await home.settle(delivery, DEFERRED)
            else:
                await home.settle(delivery)
                got += names
        if die.random() < 0.1:
            await home.crash(power=die.random() < 0.5, die=die)
        await home.rest()
        await home.move(3 * HOUR)
        await tick(home)
    assert sorted(got) == sorted(people)
    assert await row(home, "delivered", "bounced", "removed", "waiting") == (24, 0, 0, 0)
    await home.sound()
