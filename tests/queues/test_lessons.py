"""What one queue is told by servers and people: all learn it, and no operator waits for that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.conftest import house as house
from tests.queue.test_guard import refused
from tests.queue.test_suppression_policy import guards
from zonemta_py.config import Config
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.questions.question import given
from zonemta_py.queue.suppression.policy import Statement
from zonemta_py.queues.authority import TAUGHT_AT_ONCE, Authority
from zonemta_py.queues.member import LESSONS, Member
from zonemta_py.schedule.policy.state import GUARD

DAY_MS = 86_400_000
Make = Callable[..., Any]


async def test_an_order_waits_for_one_order_of_lessons_however_many_there_are(tmp_path: Path) -> None:
    authority = Authority(Config.model_validate({"server": {"folder": tmp_path, "queues": 3}}), [0, 1, 2])
    for link in authority.links.values():
        link.until = 0.0  # none runs
    lessons = [[number, "took", [f"p{number}@x.test", "", 1]] for number in range(20 * TAUGHT_AT_ONCE)]
    for at in range(0, len(lessons), 100):
        authority._heard(at // 100 % 3, LESSONS, lessons[at : at + 100])
    await asyncio.sleep(0)
    with pytest.raises(QueueRefusal, match="no queue is running"):
        await authority.order(questions.stop, {"kind": "zone", "name": "default"})
    log = authority._orders
    assert next(order.number for order in log.after(0) if order.question == questions.stop) <= 2
    assert authority._teaching is not None
    await authority._teaching
    taught = [order.arguments for order in log.after(0) if order.question == questions.learn]
    assert max(len(one["lessons"]) for one in taught) <= TAUGHT_AT_ONCE
    assert sorted(row for one in taught for row in one["lessons"]) == lessons
    for queue in range(3):  # each queue's in their order
        numbers = [row[0] for one in taught if one["origin"] == queue for row in one["lessons"]]
        assert numbers == sorted(numbers)
        assert len(numbers) > 1000


async def test_what_all_have_learnt_is_listed_once(three_and_one: Make) -> None:
    """Also where their clocks were set a little apart; what one alone has heard so far is there, too."""
    three, _ = await three_and_one(suppression={"automatic": True})
    for number, home in three.houses.items():
        core = home.queue.core
        for at_ms, message in ((-5 * DAY_MS, "m1"), (-3 * DAY_MS, "m2"), (0, f"only in {number}")):
            ms = core.clock.steady_ms() + at_ms + number
            said = Statement("ann@x.test", "user-unknown", message, ms, said="550 who?")
            core.disk.lines.submit(home.queue.policy.heard(said, taught=number > 0), immediately, sync=False, keep=True)
            await home.rest()
    heard = (await three.ask("evidence", address="ann@x.test"))["heard"]
    assert [row["message"] for row in heard] == ["m1", "m2", "only in 0", "only in 1", "only in 2"]


async def test_an_order_waits_for_a_queue_that_is_busy_with_it(tmp_path: Path) -> None:
    """Its time to lease is over meanwhile: it is not told that no queue runs."""
    authority = Authority(Config.model_validate({"server": {"folder": tmp_path, "queues": 3}}), [0, 1, 2])
    for link in authority.links.values():
        link.until = 0.0
    authority.links[1].applied = 0  # it was heard from
    giving = asyncio.ensure_future(authority.order(questions.stop, {"kind": "zone", "name": "default"}))
    while authority._progress is None:  # noqa: ASYNC110 (until it is on the disk)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert not giving.done()
    authority._progress.say(authority._progress.answers, 1, ["done", 3, {}])
    assert await giving == {1: 3}


async def test_a_guard_is_ended_by_the_queue_that_has_put_it_up(house: Make) -> None:
    """Another one, by which nothing goes there, sees no reason for it; one that nobody ends is ended after a day."""
    home = await house(suppression={"guard_calm_s": 3600})
    await refused(home, 20)
    core = home.queue.core
    core.membership = Member(home.queue)
    with given(True, repeated=True):
        core.schedule.policy.stop(GUARD, "elsewhere.test", math.inf, "another queue has put it up")
    home.queue.policy.tick()
    assert sorted(guards(home)) == ["elsewhere.test", "x.test"]
    await home.move(3_601)
    home.queue.policy.tick()
    assert guards(home) == ["elsewhere.test"]
    await home.move(86_400)
    home.queue.policy.tick()
    assert guards(home) == []
