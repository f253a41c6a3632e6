"""Buckets: never more than rate and burst allow, hardly less, and nothing twice."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config import Rate
from zonemta_py.zones.throttle import Bucket

NOW = 1_790_000_000.0
rates = st.builds(Rate, st.floats(0.1, 5000), st.sampled_from([1.0, 60.0, 3600.0, 86400.0]))
bursts = st.one_of(st.just(0.0), st.floats(1, 1000))


def excess(taken: list[tuple[float, float]], bucket: Bucket) -> float:
    """By how many units the worst of all intervals is above rate × time + the larger of burst and one cost."""
    worst = -math.inf
    for first in range(len(taken)):
        total = 0.0
        for moment, cost in taken[first:]:
            total += cost
            allowed = (moment - taken[first][0]) / bucket.interval_s + max(bucket.burst, *(c for _, c in taken))
            worst = max(worst, total - allowed)
    return worst


@settings(max_examples=100)
@given(rates, bursts, st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 50)), min_size=1, max_size=40))
def test_no_interval_exceeds_rate_and_burst(rate: Rate, burst: float, asks: list[tuple[float, float]]) -> None:
    """Whatever is asked for and when: what passes in any interval is within rate × time + burst."""
    bucket, now = Bucket(rate, burst), NOW
    taken = []
    for pause, cost in asks:
        now += pause
        if bucket.wait(now, cost) == 0:
            bucket.take(now, cost)
            taken.append((now, cost))
    assert taken
    assert excess(taken, bucket) < 1e-3 + 2e-6 / bucket.interval_s


@settings(max_examples=100)
@given(rates, bursts, st.lists(st.floats(0.1, 2000), min_size=30, max_size=60), st.floats(0, 0.002))
def test_who_waits_as_told_passes_and_the_rate_is_reached(
    rate: Rate, burst: float, costs: list[float], lateness: float
) -> None:
    """Under demand the whole rate passes; an asker who comes up to 2 ms late loses that only where the burst is one
    cost, or less than flows in meanwhile."""
    bucket, now, due = Bucket(rate, burst), NOW, 0.0
    for index, cost in enumerate(costs):
        due = max(due, (sum(costs[:index]) - max(0.0, bucket.burst - cost)) * bucket.interval_s)
        wait = bucket.wait(now, cost)
        now += wait + (lateness if wait else 0)
        assert bucket.wait(now, cost) <= math.ulp(now)  # in centuries to come a clock tells no millionths
        bucket.take(now, cost)
    spare_s = (bucket.burst - max(costs)) * bucket.interval_s
    assert now - NOW <= due + lateness * (1 if spare_s > lateness else len(costs)) + 1e-4


@pytest.mark.parametrize("rate", [Rate(2, 1), Rate(50, 1), Rate(5000, 60), Rate(1000, 1), Rate(10e6, 1)])
@pytest.mark.parametrize("cost", [0.003, 0.4])
def test_a_scheduler_that_looks_every_ten_milliseconds_reaches_97_percent(rate: Rate, cost: float) -> None:
    """A minute of demand, asked for at moments that do not fit the rate: hardly less than it passes, and not more."""
    bucket, now, sent = Bucket(rate), NOW, 0.0
    cost *= bucket.burst
    while now < NOW + 60:
        while bucket.wait(now, cost) == 0:
            bucket.take(now, cost)
            sent += cost
        now += 0.0103
    allowed = 60 / bucket.interval_s
    assert 0.97 * allowed <= sent <= allowed + bucket.burst


def test_a_burst_passes_at_once_after_a_pause_and_then_the_rate() -> None:
    """10/s with a burst of 3: three at once, then one each 100 ms."""
    bucket = Bucket(Rate(10, 1), 3)
    for _ in range(3):
        assert bucket.wait(NOW) == 0
        bucket.take(NOW)
    assert bucket.wait(NOW) == pytest.approx(0.1, abs=1e-5)
    assert bucket.wait(NOW, 2) == pytest.approx(0.2, abs=1e-5)
    assert bucket.wait(NOW + 0.1) == 0
    assert bucket.level(NOW + 100) == 3


@pytest.mark.parametrize(
    ("rate", "burst"), [(Rate(100, 1), 100), (Rate(600, 60), 10), (Rate(1, 60), 1), (Rate(50, 86400), 1)]
)
def test_without_a_configured_burst_it_is_what_one_second_allows(rate: Rate, burst: float) -> None:
    """And at least one, or nothing could ever go."""
    assert Bucket(rate).burst == burst


def test_a_cost_above_the_burst_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    """A transaction of 50 recipients passes a limit of 10/s, once in five seconds."""
    bucket = Bucket(Rate(10, 1))
    bucket.take(NOW, 5)
    assert bucket.wait(NOW, 50) == pytest.approx(0.5, abs=1e-5)
    bucket.take(NOW + 0.5, 50)
    assert bucket.level(NOW + 0.5) == pytest.approx(-40, abs=1e-3)
    assert bucket.wait(NOW + 0.5, 50) == pytest.approx(5, abs=1e-5)
    assert bucket.wait(NOW + 0.5) == pytest.approx(4.1, abs=1e-5)


def test_what_is_given_back_at_once_was_never_taken() -> None:
    """Taken and given back in the same moment, from a full bucket or a used one, changes nothing."""
    bucket = Bucket(Rate(10, 1))
    for used in (0, 4):
        bucket.take(NOW, used)
        bucket.take(NOW, 5)
        bucket.give(NOW, 5, NOW)
        assert bucket.level(NOW) == pytest.approx(10 - used, abs=1e-4)


def test_a_busy_bucket_gets_all_of_it_back_later() -> None:
    """Where demand kept the bucket near empty, what was not used can be used seconds later."""
    bucket, now = Bucket(Rate(10, 1)), NOW
    bucket.take(now, 10)
    unused = now + 0.5
    bucket.take(unused, 4)
    for _ in range(30):
        now += bucket.wait(now)
        bucket.take(now)
    before = bucket.level(now)
    bucket.give(now, 4, unused)
    assert bucket.level(now) - before == pytest.approx(4, abs=1e-3)


def test_what_would_have_flowed_over_is_not_given_back() -> None:
    """Two bursts do not follow each other: what was taken from a bucket that has been full since is gone."""
    bucket = Bucket(Rate(10, 1))
    bucket.take(NOW, 10)
    bucket.take(NOW + 1.5, 10)
    bucket.give(NOW + 1.5, 10, NOW)
    assert bucket.wait(NOW + 1.5) > 0.09


@settings(max_examples=200)
@given(
    rates,
    bursts,
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 50), st.booleans(), st.floats(0, 6)), min_size=5, max_size=40),
)
def test_refunds_never_let_more_pass(rate: Rate, burst: float, asks: list[tuple[float, float, bool, float]]) -> None:
    """However much is given back, and however late, what was really used stays within rate × time + burst."""
    bucket, now = Bucket(rate, burst), NOW
    used: list[tuple[float, float]] = []
    unused: list[tuple[float, float, float]] = []
    for pause, cost, use, after in asks:
        now += pause * bucket.interval_s * 10
        for back in [entry for entry in unused if entry[0] <= now]:
            unused.remove(back)
            bucket.give(now, back[2], back[1])
        if bucket.wait(now, cost) == 0:
            bucket.take(now, cost)
            if use:
                used.append((now, cost))
            else:
                unused.append((now + after * bucket.interval_s * 10, now, cost))
    cost_max = max(cost for _, cost, _, _ in asks)
    if used and cost_max <= bucket.burst:
        assert excess(used, bucket) < 1e-3 + 4e-6 * len(asks) / bucket.interval_s


def test_a_restored_bucket_grants_no_second_helping() -> None:
    """State saved at an empty bucket: after the restart there is only what flowed in meanwhile."""
    bucket = Bucket(Rate(10, 1))
    bucket.take(NOW, 10)
    again = Bucket(Rate(10, 1))
    again.restore(bucket.state(), NOW + 0.3)
    assert again.level(NOW + 0.3) == pytest.approx(3, abs=1e-3)
    again.give(NOW + 0.3, 5, NOW - 1)
    assert again.level(NOW + 0.3) == pytest.approx(3, abs=1e-3)


@settings(max_examples=100)
@given(rates, bursts, rates, bursts, st.floats(0, 3))
def test_a_change_of_rate_keeps_what_was_used(old: Rate, burst: float, new: Rate, later: float, used: float) -> None:
    """What is used stays used; an empty bucket does not fill by a change, nor does one get into debt by it."""
    bucket = Bucket(old, burst)
    bucket.take(NOW, used * bucket.burst)
    level, spent = bucket.level(NOW), bucket.burst - bucket.level(NOW)
    bucket.change(new, later, NOW)
    slack = 1e-3 + 1e-6 * spent + 1e-6 / bucket.interval_s
    spent_after = bucket.burst - bucket.level(NOW)
    assert min(spent, bucket.burst) - slack <= spent_after <= spent + slack
    assert bucket.level(NOW) >= min(0, level) - slack


def test_after_a_change_the_new_rate_holds() -> None:
    """Nothing of the old rate passes when it is lowered, nothing is held back when it is raised."""
    bucket = Bucket(Rate(100, 1))
    bucket.take(NOW, 100)
    bucket.change(Rate(10, 1), 0, NOW)
    assert bucket.wait(NOW) == pytest.approx(0.1, abs=1e-5)
    bucket.change(Rate(1000, 1), 0, NOW)
    assert bucket.wait(NOW + 0.011, 1) == 0
