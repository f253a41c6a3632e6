"""What one queue is told by servers and people: all learn it, and no operator waits for that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.conftest import house as house
from tests.queue.test_guard import bounced, delivered, refused
from tests.queue.test_suppression_policy import guards, listed, settled
from tests.queues.conftest import Three
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.questions.question import given
from zonemta_py.queue.suppression.policy import Statement
from zonemta_py.queues import authority as authority_module
from zonemta_py.queues.authority import TAUGHT_AT_ONCE, Authority, OnMachine
from zonemta_py.queues.member import LESSONS, Lessons, Member
from zonemta_py.queues.orders import OrderLog
from zonemta_py.schedule.policy.state import GUARD

DAY_MS = 86_400_000
Make = Callable[..., Any]


def three(folder: Path) -> Authority:
    queues = {number: OnMachine.lasting(folder / str(number), "authority") for number in range(3)}
    return Authority(queues, OrderLog(folder / "orders"))


async def test_an_order_waits_for_one_order_of_lessons_however_many_there_are(tmp_path: Path) -> None:
    authority = three(tmp_path)
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
    authority = three(tmp_path)
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


async def test_what_cannot_be_noted_is_taught_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator hears that nothing is changed; lessons, which nobody gives again, wait."""
    monkeypatch.setattr(authority_module, "AGAIN_S", 0.02)
    authority, file = three(tmp_path), tmp_path / "orders"
    for link in authority.links.values():
        link.until = 0.0
    file.rename(tmp_path / "away")
    with pytest.raises(QueueRefusal, match=r"cannot be noted now .*; nothing is changed, give it again in a moment"):
        await authority.order(questions.stop, {"kind": "zone", "name": "default"})
    authority._heard(1, LESSONS, [[1, "took", ["p@x.test", "", 1]]])
    await asyncio.sleep(0.1)
    assert not list(authority._orders.after(0))
    (tmp_path / "away").rename(file)
    assert authority._teaching is not None
    await authority._teaching
    assert [order.question for order in authority._orders.after(0)] == [questions.learn]


async def test_what_became_of_an_order_may_stay_unknown(tmp_path: Path) -> None:
    """The log can be written when it is given, and not when a queue has said what is meant by it."""
    authority, file = three(tmp_path), tmp_path / "orders"
    for link in authority.links.values():
        link.until = 0.0
    authority.links[1].applied = 0
    giving = asyncio.ensure_future(authority.order(questions.stop, {"kind": "zone", "name": "default"}))
    while authority._progress is None:  # noqa: ASYNC110 (until it is on the disk)
        await asyncio.sleep(0.01)
    file.unlink()
    authority._progress.say(authority._progress.answers, 1, ["done", 3, {"name": "default"}])
    with pytest.raises(QueueRefusal, match="look whether the order holds, later"):
        await giving


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


class Pupil:
    """A member that learns and teaches, and shares no limits: nobody is there to grant any."""

    def __init__(self, home: Any) -> None:
        self.lessons = Lessons(home.queue)
        self.lesson, self.is_telling = self.lessons.add, self.lessons.is_telling
        home.queue.core.membership = self

    def may_lease(self) -> bool:
        return True

    def refusal(self, _: Any) -> None: ...

    def turn(self) -> None: ...


class School:
    """Three queues that learn from each other when they are told to. told: all lessons so far, of which queue."""

    def __init__(self, three: Three) -> None:
        self.three, self.told = three, list[tuple[int, list[list[Any]]]]()
        self.pupils = {number: Pupil(home) for number, home in three.houses.items()}
        for number, home in three.houses.items():
            home.queue.core.config = home.config.for_queue(number, home.folder)

    async def learn(self) -> None:
        """All that each has to tell, and what follows from it."""
        for _ in range(3):
            for number, pupil in self.pupils.items():
                while lessons := pupil.lessons.next():
                    self.told.append((number, lessons))
                    self.tell(number, lessons)
            for home in self.three.houses.values():
                await settled(home)

    async def later(self, seconds: int = 6) -> None:
        """All learn what there is, second by second: guards go up that are to."""
        await self.learn()
        for _ in range(seconds):
            await self.three.move(1)
            for number, home in self.three.houses.items():
                if number in self.pupils:
                    home.queue.policy.tick()
            await self.learn()

    def raised(self) -> int:
        """How many guards have gone up, in all queues together."""
        meters = [home.queue.core.counters.meter for home in self.three.houses.values()]
        return sum(round(meter.total("zonemta_suppression_guards_total")) for meter in meters)

    def shares(self, place: str = "x.test") -> list[float]:
        """How many of whom that provider does not know within a day, as each sees it."""
        return [home.queue.policy.guard._answered.share(place) for home in self.three.houses.values()]

    def tell(self, origin: int, lessons: list[list[Any]]) -> None:
        """As an order does."""
        for number, pupil in self.pupils.items():
            with given(True, repeated=number > 0):
                (pupil.lessons.forget if number == origin else pupil.lessons.take)(lessons)

    async def lists(self) -> list[list[str]]:
        return [sorted(await listed(home)) for home in self.three.houses.values()]

    def held(self) -> list[int]:
        """For how many people each holds something back."""
        return [
            sum(any(item.held for item in found.items) for found in home.queue.policy.store.portion(b"")[0])
            for home in self.three.houses.values()
        ]


@pytest.mark.parametrize("late", [False, True], ids=["one by one", "all at once"])
async def test_all_hold_back_what_a_guard_in_one_holds_back(three_and_one: Make, late: bool) -> None:
    """Also what was heard before it went up, and has suppressed people elsewhere already."""
    three, _ = await three_and_one(suppression={})
    school = School(three)
    await refused(three.houses[1], 19)
    if not late:
        await school.learn()
        assert [len(one) for one in await school.lists()] == [19, 19, 19]
    await refused(three.houses[1], 41, first=19)
    await school.later()
    assert school.raised() == 1
    assert [guards(home) for home in three.houses.values()] == [["x.test"]] * 3
    assert await school.lists() == [[], [], []]
    assert school.held() == [60, 60, 60]
    assert [row["people"] for row in await three.ask("guards")] == [60]
    for origin, lessons in school.told:  # the authority has died meanwhile
        school.tell(origin, lessons)
    assert school.held() == [60, 60, 60]
    assert await three.ask("guard-release", name="x.test", drop=True) == 60
    await school.learn()
    assert await school.lists() == [[], [], []]
    assert school.held() == [0, 0, 0]
    assert await three.ask("guards") == []


async def test_a_guard_is_for_what_all_have_heard(three_and_one: Make) -> None:
    """Each of them has heard too little for one: together they put up one, once. Released, it counts for all."""
    three, _ = await three_and_one(suppression={})
    school = School(three)
    for number, people in ((0, 7), (1, 7), (2, 6)):
        await refused(three.houses[number], people, first=100 * number)
    await refused(three.houses[0], 3, domain="y.test")
    await school.later()
    assert [guards(home) for home in three.houses.values()] == [["x.test"]] * 3
    assert school.raised() == 1
    await refused(three.houses[1], 20, first=300)
    await refused(three.houses[2], 1, first=400)
    await school.later()
    assert school.held() == [41, 41, 41]
    assert school.raised() == 1
    assert await school.lists() == [[f"p{number}@y.test" for number in range(3)]] * 3
    assert [row["people"] for row in await three.ask("guards")] == [41]
    assert await three.ask("guard-release", name="x.test") == 41
    await school.learn()
    assert [len(one) for one in await school.lists()] == [44, 44, 44]
    assert school.held() == [0, 0, 0]


@pytest.mark.parametrize("way", [refused, bounced])
@pytest.mark.parametrize(("others", "suppressed"), [(20, 0), (100, 0), (400, 20)])
async def test_what_others_have_delivered_speaks_against_a_guard(
    three_and_one: Make, way: Any, others: int, suppressed: int
) -> None:
    """As with one queue: also where one queue hears all refusals, and another one has delivered."""
    three, single = await three_and_one(suppression={})
    school, one = School(three), single.houses[0]
    for home in (three.houses[0], one):
        await delivered(home, others)
    for home in (three.houses[2], one):
        await way(home, 20)
    await school.later()
    assert [len(rows) for rows in await school.lists()] == [suppressed] * 3
    assert len(await listed(one)) == suppressed
    assert school.raised() == len(guards(one)) == (not suppressed)


async def test_what_was_told_again_counts_once(three_and_one: Make) -> None:
    """The authority has died, or a queue, before it had noted what it carried out; each sees what one queue would."""
    three, single = await three_and_one(suppression={"guard_people": 30})
    school, one = School(three), single.houses[0]
    for number in range(9):
        for home in (three.houses[number % 3], one):
            await delivered(home, 7)
            await (bounced if number == 4 else refused)(home, 2, first=10 * number)
        await school.later(2)
    expected = one.queue.policy.guard._answered.share("x.test")
    assert expected == 18 / (63 + 16)
    await school.later()
    assert school.shares() == [expected] * 3
    for origin, lessons in [*school.told, *reversed(school.told)]:
        school.tell(origin, lessons)
    await school.later()
    assert school.shares() == [expected] * 3
    for number, home in three.houses.items():
        await home.crash(True)
        school.pupils[number] = Pupil(home)
    assert school.shares() == [expected] * 3


async def test_mail_that_is_only_delivered_teaches_nothing(three_and_one: Make) -> None:
    """Nor does what is told of some who do not exist, among the others; figures are told once a second at most."""
    three, _ = await three_and_one(suppression={})
    school = School(three)
    for number in range(20):
        await delivered(three.houses[number % 3], 3)
    await refused(three.houses[0], 9)
    await school.later()
    assert {row[1] for _, lessons in school.told for row in lessons} == {"heard"}
    school.told.clear()
    await refused(three.houses[0], 1, first=9)
    for number in range(6):
        await delivered(three.houses[number % 3], 3)
        await school.later(1)
    counted = [row for _, lessons in school.told for row in lessons if row[1] == "counted"]
    assert 3 <= len(counted) <= 18


async def test_figures_of_a_queue_whose_steady_time_is_another_one(three_and_one: Make) -> None:
    """Its spans of time have other numbers; what is older than a minute, or a day, counts no more."""
    _, single = await three_and_one(suppression={"guard_people": 3})
    home = single.houses[0]
    guard, ms = home.queue.policy.guard, home.queue.core.clock.steady_ms()
    slices = [[["", "x.test"], 5_000 - ago, 4, "other", 5_000 - ago] for ago in (0, 3, 7)]
    steps = [["x.test", 900 - ago, 10, "other", 900 - ago] for ago in (0, 6, 7)]
    for _ in range(2):
        guard.learn([ms, 5_000, 900, slices + steps])
    await refused(home, 1)
    assert guard._took(("", "x.test")) == 8
    assert guard._answered.share("x.test") == 1 / 21
    await home.crash(True)
    guard = home.queue.policy.guard
    assert guard._took(("", "x.test")) == 8
    assert guard._answered.share("x.test") == 1 / 21


async def test_a_guard_goes_up_where_the_first_queue_is_dead(three_and_one: Make) -> None:
    three, _ = await three_and_one(suppression={})
    school = School(three)
    del school.pupils[0]
    await refused(three.houses[1], 10)
    await refused(three.houses[2], 10, first=100)
    await school.later()
    assert [guards(home) for home in three.houses.values()] == [[], ["x.test"], ["x.test"]]
    assert school.raised() == 1


async def test_a_guard_goes_up_after_a_start(three_and_one: Make) -> None:
    """All queues have died before it was decided."""
    three, _ = await three_and_one(suppression={})
    school = School(three)
    for number, home in three.houses.items():
        await refused(home, 7, first=100 * number)
    await school.learn()
    for home in three.houses.values():
        await home.crash(True)
    school = School(three)
    await school.later()
    assert [guards(home) for home in three.houses.values()] == [["x.test"]] * 3
    assert school.raised() == 1
    assert await school.lists() == [[], [], []]


async def test_what_a_guard_takes_off_the_lists_is_told_once(three_and_one: Make) -> None:
    """And what is put on them when it is released; by a queue that has heard it, whichever has put the guard up."""
    three, _ = await three_and_one(suppression={})
    school = School(three)
    await refused(three.houses[2], 5, first=100)
    await refused(three.houses[1], 14, first=5)
    await school.learn()
    assert [len(one) for one in await school.lists()] == [19, 19, 19]
    await refused(three.houses[1], 1, first=19)
    await school.later()
    assert await school.lists() == [[], [], []]
    assert await three.ask("guard-release", name="x.test") == 20
    await school.learn()
    for who, times in (("p5", 2), ("p103", 2), ("p19", 2)):
        told = [row["what"] for row in (await three.ask("trace", what=f"{who}@x.test"))["rows"]]
        assert told.count("suppressed") == times, who
        assert told.count("no longer suppressed") == times - 1, who
