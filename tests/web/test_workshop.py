"""Templates of many keys are worked on at once, and no key's templates hold up another's."""

from __future__ import annotations

import asyncio

import pytest

from zonemta_py.web.api.templates.workshop import BUDGET_S, FREE_S, REGROWTH, Turns
from zonemta_py.web.documents.problem import RequestProblem


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Works:
    """Pieces of work that end when they are told to."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.begun, self.ends = turns, list[str](), dict[str, asyncio.Event]()
        self.tasks = dict[str, asyncio.Task[None]]()

    def begin(self, name: str) -> None:
        """Its key is the name's first letter."""
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._one(name))

    async def _one(self, name: str) -> None:
        async with self.turns.one(name[0]):
            self.begun.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settle()


async def test_a_key_has_one_place_and_leaves_the_other() -> None:
    works = Works(Turns(now=Clock()))
    for name in ("a1", "a2", "a3", "a4"):
        works.begin(name)
    await settle()
    assert works.begun == ["a1"]
    works.begin("b1")
    await settle()
    assert works.begun == ["a1", "b1"]
    await works.end("a1")
    assert works.begun == ["a1", "b1", "a2"]


async def test_of_those_who_wait_each_key_has_its_turn() -> None:
    works = Works(Turns(now=Clock()))
    for name in ("a1", "b1", "a2", "a3", "b2", "c1"):
        works.begin(name)
    await settle()
    for name in ("a1", "b1", "a2", "b2", "c1", "a3"):
        assert name in works.begun
        await works.end(name)
    assert works.begun[-2:] == ["c1", "a3"] or works.begun.index("c1") < works.begun.index("a3")


async def test_who_has_used_most_is_next_last() -> None:
    clock = Clock()
    works = Works(Turns(now=clock))
    works.begin("a1")
    await settle()
    clock.now += FREE_S + 20
    await works.end("a1")
    for name in ("x1", "y1", "a2", "b1"):
        works.begin(name)
    await settle()
    await works.end("x1")
    assert works.begun == ["a1", "x1", "y1", "b1"]


async def test_who_waits_no_longer_holds_up_nobody() -> None:
    """A client that has gone before its turn, and one that goes at the instant of its turn."""
    works = Works(Turns(at_once=1, now=Clock()))
    for name in ("a1", "b1", "c1", "d1"):
        works.begin(name)
    await settle()
    works.tasks["b1"].cancel()
    await settle()
    works.ends["a1"].set()
    await asyncio.sleep(0)
    works.tasks["c1"].cancel()
    await settle()
    assert works.begun[-1] == "d1"


async def test_what_is_expensive_is_refused_until_it_has_grown_back() -> None:
    clock = Clock()
    turns = Turns(now=clock)
    while turns.used_s("a") < BUDGET_S:
        async with turns.one("a"):
            clock.now += 20
    with pytest.raises(RequestProblem) as refused:
        async with turns.one("a"):
            raise AssertionError("it was let in")
    assert refused.value.status == 429
    async with turns.one("b"):
        pass
    clock.now += int(refused.value.headers["retry-after"]) + 1 / REGROWTH
    async with turns.one("a"):
        pass


async def test_ordinary_work_costs_nothing() -> None:
    clock = Clock()
    turns = Turns(now=clock)
    for _ in range(10_000):
        async with turns.one("a"):
            clock.now += FREE_S / 2
    assert turns.used_s("a") == 0
