"""A random life of the scheduler in which the configuration is another one again and again, without a restart."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.lives import seeds
from tests.queue.test_admin_orders_life import Directory, Life, Referee, options
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.reload import apply


class Reloaded(Life):
    """Its senders are others after each reload; those before say sooner or later which connections they have, and end
    what they have."""

    generation = 0

    def __init__(self, house: Any, seed: int) -> None:
        super().__init__(house, seed)
        self.silent: list[str] = []

    async def lease(self, worker: str, most: int = 4) -> Any:
        return await super().lease(f"{worker}-{self.generation}", most)

    def lose(self, worker: str) -> None:
        super().lose(f"{worker}-{self.die.randint(max(0, self.generation - 1), self.generation)}")

    async def step(self) -> None:
        if self.die.random() < 0.1:
            self.reload()
        if self.silent and self.die.random() < 0.3:
            self.say(self.silent.pop())
        await super().step()

    def say(self, worker: str) -> None:
        """Its connections end with their messages; those that were lost with it have ended too."""
        self.house.queue.left_open([], worker)
        self.house.queue.over(worker)

    async def drain(self) -> None:
        for generation in range(self.generation):  # also those that were lost after they had said it
            for worker in ("one", "two"):
                self.say(f"{worker}-{generation}")
        await super().drain()

    def reload(self) -> None:
        house, queue = self.house, self.house.queue
        before, limits = house.options, house.config.throttles
        house.options = options(self.die)
        if self.die.random() < 0.5:
            names = {zone["name"] for zone in house.options["zones"]}
            kept = [one for one in before["throttles"] if one.get("only", {}).get("zone", "default") in names]
            house.options["throttles"] = kept
        if apply.faults(queue, house.config):  # the zone "bulk" has mail
            bulk = {**house.options["zones"][0], "name": "bulk", "default": False, "recipient_domains": ["bulk.test"]}
            house.options["zones"].append(bulk)
        assert apply.faults(queue, house.config) == []
        for worker in ("one", "two"):
            queue.leases.retire(f"{worker}-{self.generation}")
            self.silent.append(f"{worker}-{self.generation}")
        self.generation += 1
        apply.take(queue, apply.prepare(house.config, NoHooks(), house.resolver))
        if house.config.throttles != limits:
            self.referee.verdict()
            self._count_out()
        else:
            self.referee.warmups = Referee(house.config).warmups

    def _count_out(self) -> None:
        """What is out counts at the new limits, too."""
        self.referee = Referee(self.house.config)
        for number, (delivery, _) in self.out.items():
            self.referee.leases[number] = []
            self.referee.connected[number] = [key for _, key in self.referee.keys(delivery)]
            for key in self.referee.connected[number]:
                self.referee.open[key] += 1


@pytest.mark.parametrize("seed", [*seeds(2), 14, 123])
async def test_a_random_life_with_reloads(house: Callable[..., Any], seed: int) -> None:
    """Limits hold through all of them, stops hold, and in the end all mail has ended; nothing is left in memory."""
    die = random.Random(seed)
    home = await house(resolver=Directory(die) if die.random() < 0.8 else None, **options(die))
    life = Reloaded(home, seed)
    for _ in range(100):
        await life.step()
    await home.sound()
    await life.drain()
    life.referee.verdict()
    await home.sound()
    assert not any((await home.sizes()).values())
    for zone in home.queue.core.schedule.zones.values():
        assert (zone.active, zone.loaded, zone.stuck) == (0, 0, 0)
    assert not home.queue.core.schedule.busy
