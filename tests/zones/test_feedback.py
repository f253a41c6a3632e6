"""Concurrency that learns: rounds of successes and failures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config import Learning
from zonemta_py.zones.feedback import Concurrency

replies = st.lists(st.booleans(), max_size=300)


def play(concurrency: Concurrency, good: list[bool]) -> None:
    for success in good:
        if success:
            concurrency.succeeded()
        else:
            concurrency.failed()


def test_it_starts_at_the_initial_size_or_the_bound() -> None:
    """5 connections, fewer where fewer are allowed."""
    assert Concurrency(Learning(), 20).window == 5
    assert Concurrency(Learning(), 2).window == 2
    assert not Concurrency(Learning(), 20).learnt


def test_a_round_of_successes_adds_one() -> None:
    """Five successes at five connections make six, six more make seven."""
    concurrency = Concurrency(Learning(), 20)
    changes = [concurrency.succeeded() for _ in range(11)]
    assert changes == [False] * 4 + [True] + [False] * 5 + [True]
    assert concurrency.window == 7
    assert concurrency.cause == "6 → 7: successes"


def test_the_first_failure_counts_at_once_and_then_whole_rounds() -> None:
    """After a growth one failure takes one away; the next is taken by a whole round more."""
    concurrency = Concurrency(Learning(dead_after=100), 20)
    concurrency.failed("421 busy")
    assert concurrency.window == 4
    assert concurrency.cause == "5 → 4: 421 busy"
    for _ in range(3):
        concurrency.failed()
    assert concurrency.window == 4
    concurrency.failed()
    assert concurrency.window == 3


def test_single_failures_among_successes_do_not_stop_the_growth() -> None:
    """One failure in fifty: it still grows to the bound and stays near it."""
    concurrency = Concurrency(Learning(), 20)
    play(concurrency, ([True] * 49 + [False]) * 60)
    assert concurrency.window >= 18
    assert not concurrency.dead


def test_a_round_of_failures_is_dead_and_one_success_opens_it() -> None:
    """Five failures in a row at five connections; failures while it rests change nothing; a success makes it new."""
    concurrency = Concurrency(Learning(), 20)
    assert [concurrency.failed("no banner") for _ in range(5)] == [False] * 4 + [True]
    assert concurrency.dead
    assert concurrency.window == 1
    assert "no banner" in concurrency.cause
    assert concurrency.failed()
    assert concurrency.succeeded()
    assert not concurrency.dead
    assert concurrency.window == 5


def test_dead_after_counts_whole_rounds_without_a_success() -> None:
    """With dead_after = 3 a success in between starts the count again."""
    concurrency = Concurrency(Learning(dead_after=3, initial=1), 1)
    assert [concurrency.failed(), concurrency.failed(), concurrency.succeeded()] == [False, False, False]
    assert [concurrency.failed() for _ in range(3)] == [False, False, True]


def test_it_grows_no_further_than_what_is_used() -> None:
    """A destination that gets one message at a time has not shown that it bears twenty."""
    concurrency = Concurrency(Learning(), 20)
    for _ in range(1000):
        concurrency.succeeded(busy=2)
    assert concurrency.window == 7


@pytest.mark.parametrize(("success", "window"), [(0.5, 6), (1, 7), (2, 8)])
def test_the_feedback_is_configured(success: float, window: int) -> None:
    """What a round adds; eleven successes."""
    concurrency = Concurrency(Learning(success=success), 20)
    play(concurrency, [True] * 11)
    assert concurrency.window == window


@given(replies, st.integers(1, 30), st.integers(1, 10))
def test_the_window_is_always_between_one_and_the_bound(good: list[bool], most: int, initial: int) -> None:
    """Whatever the replies, something may go, and never more than allowed."""
    concurrency = Concurrency(Learning(initial=initial, success=3, failure=3), most)
    for success in good:
        play(concurrency, [success])
        assert 1 <= concurrency.window <= most


@given(replies, replies)
def test_a_restart_goes_on_where_it_was(before: list[bool], after: list[bool]) -> None:
    """With its state, another one does the same as the first would have."""
    first, second = Concurrency(Learning(), 20), Concurrency(Learning(), 20)
    play(first, before)
    second.restore(first.state())
    assert second.learnt == first.learnt
    play(first, after)
    play(second, after)
    assert first.state() == second.state()


def test_a_lower_bound_holds_after_a_restart() -> None:
    """The configuration of today counts."""
    first, second = Concurrency(Learning(), 20), Concurrency(Learning(), 3)
    play(first, [True] * 200)
    second.restore(first.state())
    assert second.window == 3


def test_an_operator_can_undo_it() -> None:
    """clear makes it new, and says who did."""
    concurrency = Concurrency(Learning(), 20)
    play(concurrency, [False] * 5)
    concurrency.clear("an operator's order")
    assert (concurrency.window, concurrency.dead, concurrency.learnt) == (5, False, False)
    assert concurrency.cause == "1 → 5: an operator's order"
