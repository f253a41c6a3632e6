"""Two never lead at once: nodes with clocks of their own, over a bucket whose messages come late, twice or never."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.cluster.election import MARGIN_S, TERM_S, VACANT, Bid, Election, LeaderEntry

DRIFT = MARGIN_S / TERM_S / 2 * 0.9
"""Of one clock, to either side."""
NODES, SECONDS = 3, 120.0


class World:
    """Real time; a bucket with one key; nodes whose messages it carries."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now, self.order = random.Random(seed), 0.0, count()
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.entry, self.revision, self.away_until = VACANT, 0, 0.0
        self.nodes = [SimulatedNode(self, number) for number in range(NODES)]
        self.leaders = list[str]()

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self.due, (self.now + seconds, next(self.order), work))

    def carry(self, work: Callable[[], None]) -> None:
        """A message: most are quick, some late, some lost."""
        if self.chance.random() < 0.1:
            return
        self.later(self.chance.choice([0.001, 0.01, 0.3, 2.0, 7.0] if self.chance.random() < 0.3 else [0.002]), work)

    def write(self, bid: Bid, answer: Callable[[int | None], None]) -> None:
        if self.now < self.away_until:
            return
        taken = bid.revision == self.revision
        if taken:
            self.entry, self.revision = bid.entry, self.revision + 1
        revision = self.revision if taken else None
        self.carry(lambda: answer(revision))

    def run(self) -> None:
        for node in self.nodes:
            self.later(self.chance.random(), node.round)
        while self.due and self.now < SECONDS:
            self.now, _, work = heapq.heappop(self.due)
            if self.chance.random() < 0.001:  # the bucket has no quorum for a while
                self.away_until = self.now + 6
            work()
            leading = [node.name for node in self.nodes if node.election.until > node.clock()]
            assert len(leading) <= 1, f"at {self.now:.3f} {leading} lead"
            if leading and leading != self.leaders[-1:]:
                self.leaders += leading


class SimulatedNode:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.name = world, f"node{number}"
        self.offset, self.rate = world.chance.uniform(0, 1e6), world.chance.uniform(1 - DRIFT, 1 + DRIFT)
        self.instances = count()
        self.begin()

    def begin(self) -> None:
        self.election = Election(self.name, f"{self.name}-{next(self.instances)}")

    def clock(self) -> float:
        return self.offset + self.world.now * self.rate

    def round(self) -> None:
        world, election = self.world, self.election
        bid = election.bid(sent_at := self.clock())
        if bid is not None:

            def answer(revision: int | None) -> None:
                if revision is not None:
                    election.taken(bid, revision, sent_at, self.clock())

            world.carry(lambda: world.write(bid, answer))
            if world.chance.random() < 0.2:  # it is tried again
                world.carry(lambda: world.write(bid, answer))
        else:
            world.carry(self._look)
        chance = world.chance.random()
        if chance < 0.002:
            self.begin()  # anew, with an instance of its own
        if chance < 0.01:  # it sleeps
            world.later(world.chance.uniform(1, 20), self.round)
        else:
            world.later(0.25, self.round)

    def _look(self) -> None:
        entry, revision, election = self.world.entry, self.world.revision, self.election
        self.world.carry(lambda: election.seen(entry, revision, self.clock()))


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_two_never_lead_at_once(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.leaders


def test_the_lead_goes_from_one_to_another() -> None:
    """The simulation reaches what it is about."""
    changes = [len(world.leaders) for world in map(World, range(30)) if world.run() is None]
    assert sum(changes) > 60


def test_whoever_counts_from_the_answer_is_found_out() -> None:
    """The same world, with a leader that counts from when its answer came: two lead."""

    def counts_from_the_answer(self: Election, bid: Bid, revision: int, sent_at: float, now: float) -> None:
        honest(self, bid, revision, now, now)

    honest, found = Election.taken, 0
    Election.taken = counts_from_the_answer  # type: ignore[method-assign]
    try:
        for seed in range(60):
            try:
                World(seed).run()
            except AssertionError:
                found += 1
    finally:
        Election.taken = honest  # type: ignore[method-assign]
    assert found


def test_one_that_goes_in_order_is_followed_at_once() -> None:
    first, second = Election("a", "a1"), Election("b", "b1")
    first.seen(VACANT, 0, 10.0)
    bid = first.bid(10.0)
    assert bid == (("a", "a1", 1), 0)
    first.taken(bid, 1, 10.0, 10.1)
    assert first.until == 10.0 + TERM_S
    second.seen(bid.entry, 1, 500.0)
    assert second.bid(500.1) is None
    left = first.resign()
    assert left == (("", "", 1), 1)
    assert first.until == 0.0
    second.seen(left.entry, 2, 500.2)
    assert second.bid(500.2) == (LeaderEntry("b", "b1", 2), 2)


def test_an_older_answer_says_nothing() -> None:
    one = Election("a", "a1")
    one.seen(LeaderEntry("b", "b1", 4), 9, 1.0)
    one.seen(LeaderEntry("c", "c1", 3), 8, 3.0)
    assert one.entry.node == "b"
    assert one.bid(1.0 + TERM_S + MARGIN_S) == (("a", "a1", 5), 9)
