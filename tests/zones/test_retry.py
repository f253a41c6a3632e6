"""The retry schedule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config import Retry
from zonemta_py.zones.retry import delay_s, expired

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


@pytest.mark.parametrize(("age_h", "answer"), [(0, False), (47.99, False), (48, True), (1000, True)])
def test_life_ends_after_the_configured_hours(age_h: float, answer: bool) -> None:
    """48 hours unless configured otherwise; the last moment counts as the end."""
    assert expired(1_000, 1_000 + int(age_h * 3_600_000), SCHEDULE) is answer


def test_a_clock_set_back_does_not_expire_mail() -> None:
    """A message from the future is simply young."""
    assert not expired(10**13, 10**12, SCHEDULE)
