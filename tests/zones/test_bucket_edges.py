"""Buckets to the letter: moments and rates are binary fractions, so every number is exact."""

import pytest

from zonemta_py.config import Rate
from zonemta_py.zones.throttle import Bucket


def bucket() -> Bucket:
    """A quarter of a second for each, and eight at once."""
    return Bucket(Rate(4, 1), 8)


@pytest.mark.parametrize(
    ("rate", "burst", "made"),
    [
        (Rate(8, 2), 0, (0.25, 4.0)),
        (Rate(3, 2), 0, (2 / 3, 1.5)),
        (Rate(1, 4), 0, (4.0, 1.0)),
        (Rate(8, 2), 0.5, (0.25, 0.5)),
    ],
)
def test_a_bucket_is_full_when_it_is_made(rate: Rate, burst: float, made: tuple[float, float]) -> None:
    new = Bucket(rate, burst)
    assert (new.interval_s, new.burst) == made
    assert (new.state(), new.level(0.0), new.idle(0.0), new.idle(-1.0)) == (0.0, made[1], True, False)
    changed = bucket()
    changed.change(rate, burst, 5.0)
    assert (changed.interval_s, changed.burst, changed.tat) == (*made, 5.0)


@pytest.mark.parametrize(
    ("cost", "now", "wait"),
    [
        (1, 8.0, 0.25),
        (7, 8.0, 1.75),
        (8, 8.0, 2.0),
        (9, 8.0, 2.0),
        (20, 8.0, 2.0),
        (1, 8.25, 0.0),
        (8, 9.5, 0.5),
        (8, 10.0, 0.0),
        (20, 11.0, 0.0),
    ],
)
def test_an_empty_bucket_says_how_long_a_cost_must_wait(cost: float, now: float, wait: float) -> None:
    """What is above the burst waits until it is full."""
    empty = bucket()
    empty.take(8.0, 8)
    assert empty.wait(now, cost) == wait


def test_a_wait_within_the_slack_is_none() -> None:
    """A millionth of a second is let pass, two are not."""
    used = bucket()
    used.restore(1e-6, 0.0)
    assert [used.wait(0.0, cost) for cost in (1, 8, 9)] == [0, 0, 0]
    used.restore(2e-6, 0.0)
    assert [used.wait(0.0, cost) for cost in (1, 8, 9)] == [0, 2e-6, 2e-6]
    quick = Bucket(Rate(1e6, 1), 2)
    quick.restore(2e-6, 0.0)
    assert [quick.wait(0.0, cost) for cost in (1, 2)] == [0, 2e-6]


def test_a_cost_is_one_if_nothing_is_said() -> None:
    one = bucket()
    one.take(8.0, 8)
    one.take(8.0)
    assert one.tat == 10.25
    assert one.wait(8.0) == 0.5


@pytest.mark.parametrize(
    ("takes", "tat", "peaks"),
    [
        ([(10, 4)], 11, [(10, 0)]),
        ([(10, 4), (10, 2)], 11.5, [(10, 0)]),
        ([(10, 4), (10.5, 1)], 11.25, [(10, 0), (10.5, 0.5)]),
        ([(10, 4), (10.5, 2), (11, 1)], 11.75, [(10, 0), (11, 0.5)]),
        ([(10, 4), (10.5, 3), (11, 1), (11.5, 2)], 12.5, [(10, 0), (11.5, 0.5)]),
        ([(10, 4), (10.5, 1), (10.5, 1)], 11.5, [(10, 0), (10.5, 0.5)]),
        ([(10, 4), (11, 1)], 11.25, [(11, 0)]),
        ([(10, 4), (11.5, 1)], 11.75, [(11.5, 0)]),
        ([(10, 4), (13, 1)], 13.25, [(13, 0)]),
        ([(10, 8), (9, 1)], 12.25, [(10, 0)]),
    ],
)
def test_a_bucket_remembers_when_it_was_fullest(
    takes: list[tuple[float, float]], tat: float, peaks: list[tuple[float, float]]
) -> None:
    """Moments and how far it was ahead then, rising in both: an older one that was not fuller is of no use."""
    one = bucket()
    for now, cost in takes:
        one.take(now, cost)
    assert (one.tat, one._peaks) == (tat, peaks)


def test_it_remembers_so_many_moments() -> None:
    """Beyond those the two oldest become one that is not too generous: the later moment, as full as the older."""
    one = bucket()
    rising = [(100.0 + number, number / 2) for number in range(17)]
    for moment, _ in rising[:16]:
        one.take(moment, 6)
    assert one._peaks == rising[:16]
    one.take(116, 6)
    assert one._peaks == [(101, 0), *rising[2:]]


@pytest.mark.parametrize(
    ("now", "cost", "taken", "tat", "peaks"),
    [
        (12, 4, None, 12.5, [(10, 0), (11, 1), (11.5, 1.5)]),
        (12, 100, None, 12.0, [(10, 0), (11, 1), (11.5, 1.5)]),
        (20, 4, None, 13.5, [(10, 0), (11, 1), (11.5, 1.5)]),
        (12, 8, 9, 13.5, [(10, 0), (11, 0), (11.5, 0)]),
        (12, 8, 10, 12.5, [(10, 0), (11, 0), (11.5, 0)]),
        (12, 2, 10, 13.0, [(10, 0), (11, 0.5), (11.5, 1)]),
        (12, 6, 10.5, 12.5, [(10, 0), (11, 0), (11.5, 0)]),
        (12, 4, 11, 12.5, [(10, 0), (11, 1), (11.5, 0.5)]),
        (12, 5, 11.5, 12.25, [(10, 0), (11, 1), (11.5, 1.5)]),
        (13, 8, 11.5, 13.0, [(10, 0), (11, 1), (11.5, 1.5)]),
    ],
)
def test_what_is_given_back_is_what_would_be_there(
    now: float, cost: float, taken: float | None, tat: float, peaks: list[tuple[float, float]]
) -> None:
    """No more than the bucket was ahead, now and at the fullest moment since; moments since were fuller by as much."""
    one = bucket()
    for moment, units in ((10, 8), (11, 4), (11.5, 2)):
        one.take(moment, units)
    one.give(now, cost, taken)
    assert (one.tat, one._peaks) == (tat, peaks)


def test_the_level_is_never_above_the_burst() -> None:
    one = bucket()
    one.take(10, 10)
    assert [one.level(now) for now in (10, 10.5, 12, 12.5, 20)] == [-2, 0, 6, 8, 8]
    assert [one.idle(now) for now in (12.25, 12.5, 12.75)] == [False, True, True]


@pytest.mark.parametrize(
    ("used", "now", "tat"), [(0, 10, 10), (2, 10, 11), (4, 10, 11.5), (8, 10, 11.5), (12, 10, 13.5), (12, 20, 20)]
)
def test_a_change_keeps_what_is_used_and_what_is_owed(used: float, now: float, tat: float) -> None:
    """From eight at once to three, from a quarter of a second to a half: used is used up to the burst, a debt stays."""
    one = bucket()
    one.take(10, used)
    one.take(10, 0)
    one.change(Rate(2, 1), 3, now)
    assert (one.interval_s, one.burst, one.tat, one._peaks) == (0.5, 3, tat, [(now, 0.0)])


def test_what_was_taken_before_a_restart_is_not_given_back() -> None:
    one = bucket()
    one.restore(12.0, 10)
    assert (one.tat, one._peaks) == (12.0, [(10, 0.0)])
    one.give(10, 4, 9)
    assert one.tat == 12.0
