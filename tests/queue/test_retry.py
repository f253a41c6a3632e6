"""The retry schedule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config import Retry
from zonemta_py.queue.lifecycle.settlement import delay_s

SCHEDULE = Retry()


def test_the_default_schedule_is_the_documented_one() -> None:
    """5, 7, 8, 25, 75, 120 minutes, then every 240."""
    waits = [delay_s(attempts, SCHEDULE, 0.5) / 60 for attempts in range(1, 10)]
    assert waits == [5, 7, 8, 25, 75, 120, 240, 240, 240]


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), st.floats(0, 0.5))
def test_jitter_stays_within_its_share(attempts: int, random: float, jitter: float) -> None:
    """No wait is shorter or longer than the schedule's by more than the configured share."""
    retry = Retry(jitter=jitter)
    base = delay_s(attempts, retry, 0.5)
    assert base * (1 - jitter) * 0.999999 <= delay_s(attempts, retry, random) <= base * (1 + jitter) * 1.000001


def test_jitter_goes_both_ways() -> None:
    """The lowest throw shortens the wait, the highest lengthens it."""
    assert delay_s(1, SCHEDULE, 0) == pytest.approx(270)
    assert delay_s(1, SCHEDULE, 0.999999) == pytest.approx(330, abs=0.01)
