"""Who lives is not held dead, whoever sleeps, is cut off, or reads what is old; who is dead is found out."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.cluster.presence import Presence

DEAD_S, BEAT_S, LOOK_S = 5.0, 1.0, 0.5
NODES, SECONDS, DRIFT = 3, 300.0, 0.02


class World:
    """A bucket that may have no quorum, and of which a replica may be behind; nodes that sleep, are cut off, or die."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now, self.order = random.Random(seed), 0.0, count()
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.log: list[tuple[float, str, int]] = []
        """When, whose sign of life; its revision is its place, from 1."""
        self.away_until = 0.0
        self.nodes = [LivingNode(self, number) for number in range(NODES)]
        self.found = list[float]()

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self.due, (self.now + seconds, next(self.order), work))

    def run(self) -> None:
        for node in self.nodes:
            self.later(self.chance.random(), node.beat)
            self.later(self.chance.random(), node.look)
        while self.due and self.now < SECONDS:
            self.now, _, work = heapq.heappop(self.due)
            if self.chance.random() < 0.002:
                self.away_until = self.now + self.chance.uniform(0, 9)
            work()


class LivingNode:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.name, self.presence = world, f"node{number}", Presence(DEAD_S)
        self.offset, self.rate = world.chance.uniform(0, 1e6), world.chance.uniform(1 - DRIFT, 1 + DRIFT)
        self.asleep_until = self.cut_off_until = self.behind_until = 0.0
        self.seen, self.revision, self.dead = 0, 0, False
        self.heard = [0.0]

    def clock(self) -> float:
        return self.offset + self.world.now * self.rate

    def _is_asleep(self, work: Callable[[], None]) -> bool:
        world = self.world
        if world.now < self.asleep_until:
            world.later(self.asleep_until - world.now + world.chance.random() / 100, work)
            return True
        chance = world.chance.random()
        if chance < 0.002:
            self.asleep_until = world.now + world.chance.uniform(0, 20)
        elif chance < 0.004:
            self.cut_off_until = world.now + world.chance.uniform(0, 20)
        elif chance < 0.006:
            self.behind_until = world.now + world.chance.uniform(0, 20)
        return False

    @property
    def _reaches(self) -> bool:
        return self.world.now >= max(self.cut_off_until, self.world.away_until)

    def beat(self) -> None:
        if self.dead or self._is_asleep(self.beat):
            return
        if self._reaches:
            self.world.log.append((self.world.now, self.name, len(self.world.log) + 1))
            self.revision = len(self.world.log)
            self.heard.append(self.world.now)
            self.presence.acknowledged(self.clock())
        self.world.later(BEAT_S if self._reaches else 0.3, self.beat)

    def look(self) -> None:
        if self.dead or self._is_asleep(self.look):
            return
        world = self.world
        world.later(LOOK_S, self.look)
        if not self._reaches:
            return
        if world.now >= self.behind_until:
            self.seen = len(world.log)
        last = {name: revision for _, name, revision in world.log[: self.seen]}
        for name, revision in last.items():
            self.presence.seen(name, revision, 0.0, self.clock())
        if last.get(self.name, 0) >= self.revision:
            self.presence.looked(self.clock())
        for other in world.nodes:
            if other is not self and self.presence.is_dead(other.name, self.clock()):
                silent_s = other.silent_s()
                assert silent_s >= DEAD_S / (1 + DRIFT), f"{other.name} was never silent for {silent_s:.1f} s"
                if other.dead:
                    world.found.append(silent_s)

    def silent_s(self) -> float:
        """The longest silence that lasts, or was over so lately that another could not have heard of it: what that one
        has seen last may be half of DEAD_S old, and so may its own sign of life have been that was in it."""
        lately = self.world.now - DEAD_S / (1 - DRIFT)
        ends = [*self.heard[1:], self.world.now]
        return max(end - begin for begin, end in zip(self.heard, ends, strict=True) if end >= lately)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_nobody_who_lives_is_dead(seed: int) -> None:
    World(seed).run()


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_the_dead_are_found_out(seed: int) -> None:
    world = World(seed)
    world.later(100.0, lambda: setattr(world.nodes[0], "dead", True))
    world.run()
    assert world.found


def test_who_reads_what_is_old_would_mistake_the_living() -> None:
    """The simulation reaches what it is about."""
    looked, found = Presence.looked, 0

    def seen(self: Presence, node: str, revision: int, grace_s: float, now: float) -> None:
        original(self, node, revision, grace_s, now)
        looked(self, now)  # as if all that is read were new

    original = Presence.seen
    Presence.seen = seen  # type: ignore[method-assign]
    try:
        for seed in range(40):
            try:
                World(seed).run()
            except AssertionError:
                found += 1
    finally:
        Presence.seen = original  # type: ignore[method-assign]
    assert found
