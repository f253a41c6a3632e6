"""The machine's clock is set, forward and back, by hours and days: nothing is sent twice unlisted, nothing ends early.

The rule is in `zonemta_py/schedule/time/steady.py`, that of the life of mail in `zonemta_py/queue/core/lifetime.py`.
"""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.queue.api import DEFERRED, HELD
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.schedule.time.steady import Steady

HOUR, DAY = 3600.0, 86400.0
ZONES = [{"name": "default", "default": True, "recipients_per_delivery": 3}]
Make = Callable[..., Any]


async def swept(home: Any) -> None:
    for _ in range(3):
        await home.queue.sweep()
        await home.rest()


async def lived(home: Any, hours: float) -> None:
    """So much time passes while the queue runs: an hour at a time, as its chores look."""
    while hours > 0:
        await home.move(min(hours, 1) * HOUR)
        await swept(home)
        hours -= 1


# -- a crash after the clock was set


@pytest.mark.parametrize("set_s", [-HOUR, -DAY, HOUR, 3 * DAY])
@pytest.mark.parametrize("also", ["", "and back"])
async def test_what_was_delivered_before_a_crash_is_not_sent_again(house: Make, set_s: float, also: str) -> None:
    """Put off, due while their destination rests, so parked; the clock is set, they go, and the store has not heard of
    it when the crash comes. And what was put off last, and is parked already, is put off once."""
    home = await house()
    for number in range(10):
        await home.put(f"r{number}@x.test", sender="")
    *first, last = await home.leases()
    for delivery in first:
        await home.settle(delivery, DEFERRED)
    await home.settle(last, DEFERRED, down_s=400, stage="connect", delay_s=100_000)
    await home.move(350)
    assert not await home.leases()  # due, and parked
    home.clock.set_s += set_s
    await home.move(100)
    probe = await home.leases()
    await home.settle(probe[0])
    again = await home.leases()
    assert len(again) == 8
    for delivery in again[:7]:
        await home.settle(delivery)
    await home.settle(again[7], DEFERRED)
    home.clock.set_s -= set_s if also else 0
    await home.crash(drop=True)  # the journal has the results, the store has not
    assert await home.queue.ask("in-doubt") == []
    assert (await home.sizes())["messages"] == 2
    await home.move(600)
    assert [one.recipients[0].address for one in await home.leases()] == [again[7].recipients[0].address]
    await home.sound()


async def test_ids_grow_and_are_unique_over_every_step(house: Make) -> None:
    """Also over a restart, with the clock days back."""
    home = await house()
    ids = []
    for set_s in (0, -HOUR, DAY, -2 * DAY, 0):
        home.clock.set_s = set_s
        ids += [await home.put(f"r{len(ids)}@x.test") for _ in range(3)]
        await home.crash()
    assert ids == sorted(set(ids))


# -- nothing ends early, nothing waits for ever


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("set_s", [2 * DAY, 400 * DAY])
async def test_a_clock_set_forward_ends_no_mail(house: Make, set_s: float, restart: bool) -> None:
    """Waiting for a retry, behind a destination that rests, in a stopped zone: all of it lives on."""
    home = await house(zones=[*ZONES, {"name": "slow", "recipient_domains": ["slow.test"]}])
    await home.queue.ask("stop", kind="zone", name="slow", seconds=None, cause="later")
    for name in ("a@x.test", "b@y.test", "c@slow.test"):
        await home.put(name, sender="")
    a, b = await home.leases()
    await home.settle(a, DEFERRED)
    await home.settle(b, DEFERRED, down_s=50_000, stage="connect")
    await home.put("d@y.test", sender="")
    home.clock.set_s += set_s
    if restart:
        await home.crash()
    await swept(home)
    await home.move(60)
    await swept(home)
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    assert (await home.sizes())["messages"] == 4


async def test_mail_lives_as_long_as_it_should_through_steps(house: Make) -> None:
    """48 hours that have passed end it, whatever the clock was set to meanwhile; not an hour before."""
    home = await house()
    await home.put("a@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, down_s=400_000, stage="connect")
    await home.put("b@x.test", sender="")
    for set_s in (2 * DAY, -3 * DAY, -HOUR, 30 * DAY):
        home.clock.set_s = set_s
        await lived(home, 11.5)
    assert (await home.sizes())["messages"] == 2
    await home.crash()
    await lived(home, 3)
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED, down_s=400_000, stage="connect")
    await swept(home)
    assert (await home.sizes())["messages"] == 0


async def test_a_retry_comes_when_its_time_has_passed(house: Make) -> None:
    """Five minutes later, with the clock a day back or forward."""
    for set_s in (-DAY, DAY):
        home = await house()
        await home.put("a@x.test")
        (delivery,) = await home.leases()
        await home.settle(delivery, DEFERRED)
        home.clock.set_s += set_s
        assert await home.idle()
        await home.crash()
        await home.move(299)
        assert await home.idle()
        await home.move(2)
        assert len(await home.leases()) == 1


async def test_a_stop_of_two_hours_lasts_two_hours(house: Make) -> None:
    home = await house()
    await home.queue.ask("stop", kind="zone", name="default", seconds=7200, cause="later")
    await home.put("a@x.test")
    home.clock.set_s += 2 * DAY
    await home.move(7000)
    await home.crash()
    assert await home.idle()
    (row,) = await home.queue.ask("standing")
    assert row["until_ms"] == pytest.approx(home.clock.ms() + 200_000, abs=2000)
    home.clock.set_s -= 3 * DAY
    await home.move(201)
    assert len(await home.leases()) == 1


async def test_mail_for_monday_goes_on_monday(house: Make) -> None:
    """A time of day is the clock's: where that was wrong when the mail came, it waits for the right one."""
    home = await house()
    home.clock.set_s = DAY
    await home.put("a@x.test", hold_until_ms=home.clock.ms() + 3_600_000)
    home.clock.set_s = 0
    await home.move(2 * HOUR)
    assert await home.idle()
    await home.move(DAY)
    assert len(await home.leases()) == 1


@pytest.mark.parametrize("set_s", [-DAY, DAY])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_hold_of_an_hour_lasts_an_hour(house: Make, set_s: float, restart: bool) -> None:
    """Said as an interval (HOLDFOR), it is no time of day: an hour later it goes, whatever the clock is set to."""
    home = await house()
    home.clock.set_s = HOUR / 2  # what it is ahead by when the mail comes is not what it is later
    id = await home.put("a@x.test", hold_until_ms=home.clock.ms() + 3_600_000, hold_for=True)
    home.clock.set_s += set_s
    if restart:
        await home.crash()
    await home.move(HOUR - 60)
    assert await home.idle()
    (row,) = (await home.queue.ask("explain", what=id))["rows"]
    assert 0 < row["reasons"][0]["until_ms"] - home.clock.ms() <= 61_000
    await home.move(120)
    assert len(await home.leases()) == 1


@pytest.mark.parametrize("set_s", [-DAY, DAY])
async def test_the_clock_is_set_while_mail_comes_in(house: Make, set_s: float) -> None:
    """Between MAIL and the end of its data: BY and HOLDFOR count from MAIL on, and the step is no part of them."""
    home = await house()
    now_ms, ahead_ms = home.clock.ms(), round(home.clock.ms() - home.clock.monotonic() * 1000)
    home.clock.set_s = set_s
    await home.put("a@x.test", hold_until_ms=now_ms + 60_000, hold_for=True, clock_ahead_ms=ahead_ms)
    await home.put("b@x.test", deadline_ms=now_ms + 3_600_000, deadline_mode="R", clock_ahead_ms=ahead_ms)
    (first,) = await home.leases()
    assert first.recipients[0].address == "b@x.test"
    await home.settle(first, DEFERRED, delay_s=100_000)
    await home.move(70)
    assert [one.recipients[0].address for one in await home.leases()] == ["a@x.test"]
    before = (await home.sizes())["messages"]
    await home.move(HOUR + 60)
    await swept(home)
    assert before == 2
    assert "b@x.test" not in str(await home.queue.ask("list", state="deferred", limit=10))


# -- a machine that was off


async def test_after_a_long_gap_mail_is_tried_before_it_is_given_up(house: Make) -> None:
    home = await house(retry={"down_s": 60.0})
    await home.put("a@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, down_s=60, stage="connect")
    await home.put("b@x.test", sender="")
    await home.rest()
    home.clock.now_s += 5 * DAY
    home.clock.started = "second"
    await home.crash()
    await swept(home)
    assert (await home.sizes())["messages"] == 2
    assert await home.leases()
    await home.crash()
    await home.move(HOUR + 60)
    for _ in range(3):
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED, down_s=60, stage="connect")
        await home.move(600)
        await swept(home)
    assert (await home.sizes())["messages"] == 0


async def test_a_clock_that_was_wrong_at_the_start_of_the_machine(house: Make) -> None:
    """It was two days ahead, and is set right ten minutes later: nobody is two days older for it."""
    home = await house(retry={"down_s": 60.0})
    await home.put("a@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, down_s=60, stage="connect")
    await home.rest()
    home.clock.started, home.clock.set_s = "second", 2 * DAY
    await home.crash()
    await home.move(600)
    home.clock.set_s = 0
    home.clock.ms()
    for _ in range(20):
        await home.move(HOUR)
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED, down_s=60, stage="connect")
        await swept(home)
    assert (await home.sizes())["messages"] == 1


@pytest.mark.parametrize("written", [True, False])
async def test_a_crash_in_the_first_hour_after_a_long_gap_takes_no_time_from_it(house: Make, written: bool) -> None:
    """Down for five days, up for a minute, down again: what fails in the hour after the gap is tried again."""
    home = await house(retry={"down_s": 60.0, "schedule_min": [5]})
    await home.put("a@x.test", sender="")
    await home.rest()
    home.clock.now_s += 5 * DAY
    home.clock.started = "second"
    await home.crash()
    for _ in range(3):
        await home.move(400)
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED)
        await swept(home)
        assert (await home.sizes())["messages"] == 1
        if written:
            await home.queue.position()
        await home.crash()


@pytest.mark.parametrize("restart", ["second", "third"])
async def test_a_clock_that_was_wrong_is_set_right_while_the_queue_is_down(house: Make, restart: str) -> None:
    """Two days ahead when the machine started, right when the queue, or the machine, starts the next time."""
    home = await house(retry={"down_s": 60.0})
    await home.put("a@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED, down_s=60, stage="connect")
    await home.rest()
    home.clock.started, home.clock.set_s = "second", 2 * DAY
    await home.crash()
    await home.move(600)
    await home.queue.position()
    home.clock.started, home.clock.set_s = restart, 0
    await home.crash()
    for _ in range(20):
        await home.move(HOUR)
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED, down_s=60, stage="connect")
        await swept(home)
    assert (await home.sizes())["messages"] == 1


# -- what is chosen is no part of a life


@pytest.mark.parametrize(
    ("kind", "name"), [("zone", "default"), ("destination", "x.test"), ("tenant", "shop"), ("campaign", "spring")]
)
async def test_what_an_operator_stops_does_not_grow_older(house: Make, kind: str, name: str) -> None:
    """Stopped for 49 hours, also over a crash, then lifted: it goes, and what fails is tried again for its 48 hours."""
    home = await house()
    await home.put("a@x.test", sender="", tenant="shop", campaign="spring")
    await home.queue.ask("stop", kind=kind, name=name, seconds=None, cause="wait")
    await lived(home, 30)
    await home.queue.position()
    await home.crash()
    await lived(home, 19)
    assert (await home.sizes())["messages"] == 1
    await home.queue.ask("lift", kind=kind, name=name)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    assert (await home.sizes())["messages"] == 1
    await home.queue.position()
    await home.crash()
    await lived(home, 47)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    assert (await home.sizes())["deferred"] == 1
    await lived(home, 3)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    assert (await home.sizes())["messages"] == 0


async def test_what_a_rule_rests_does(house: Make) -> None:
    home = await house()
    await home.put("a@x.test", sender="")
    home.queue.core.schedule.policy.stop("destination", "x.test", 10 * DAY, "a rule's answer")
    assert await home.idle()
    await lived(home, 49)
    assert (await home.sizes())["messages"] == 0


async def test_what_is_held_does_not_grow_older(house: Make) -> None:
    home = await house()
    id = await home.put("a@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, HELD)
    await home.rest()
    await lived(home, 60)
    await home.crash()
    await home.queue.ask("release", id=id)
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    assert (await home.sizes())["messages"] == 1


# -- the clock itself


class Set(Clock):
    def __init__(self) -> None:
        self.passed, self.shown, self.started = 0.0, 1_700_000_000_000, "first"

    def ms(self) -> int:
        return self.shown + round(self.passed * 1000)

    def monotonic(self) -> float:
        return 500 + self.passed

    def boot(self) -> str:
        return self.started


def test_how_old_a_message_is_over_steps() -> None:
    """By its id, never more than it is; also where the clock was set back and ids stand."""
    clock = Set()
    ids, truth = keys.Ids(), list[tuple[str, float]]()
    steady = Steady(clock, next_id=ids.following)
    for shift in (0, 3_600_000, -7_200_000, 86_400_000 * 2, -86_400_000 * 4, 1_000, 60_000):
        clock.shown += shift
        for _ in range(5):
            clock.passed += 100
            truth.append((ids.next(steady.ms()), clock.passed))
    born = [steady.born_ms(id) - 1_700_000_000_000 for id, _ in truth]
    assert born == sorted(born)
    for (_, passed), found in zip(truth, born, strict=True):
        assert found <= passed * 1000 + 1001
        assert found > passed * 1000 - 1_100_000  # where ids stand: since the clock was set back
    again = Steady(clock, steady.state(), steady.ms(), next_id=ids.following)
    assert [again.born_ms(id) - 1_700_000_000_000 for id, _ in truth] == born
    assert again.steady_ms() == pytest.approx(steady.steady_ms(), abs=2)


async def test_explain_tells_how_long_it_is_tried(house: Make) -> None:
    """48 hours after it came; and what it was stopped by choice comes on top."""
    home = await house()
    id, came = await home.put("a@x.test"), home.clock.ms()
    await home.queue.ask("stop", kind="zone", name="default", seconds=None, cause="wait")
    await home.move(10 * HOUR)
    (row,) = (await home.queue.ask("explain", what=id))["rows"]
    assert row["life"] == {"until_ms": came + 58 * 3_600_000, "chosen_ms": 10 * 3_600_000, "life_h": 48}
