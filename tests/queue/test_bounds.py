"""Bounds and courses of campaigns: the pure parts, over whatever figures there may be."""

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.queue.campaigns import thresholds
from zonemta_py.queue.campaigns.history import POINTS_MAX, CampaignHistory
from zonemta_py.queue.campaigns.thresholds import counted, passed, perhaps_passed
from zonemta_py.queue.core.campaign_counters import CampaignCounts

counts = st.integers(0, 10_000)
shares = st.floats(0, 1)
counters = st.builds(CampaignCounts, *(counts for _ in range(7)))


@given(counters, st.dictionaries(st.sampled_from(thresholds.SHARES), shares), st.integers(0, 1000))
def test_a_bound_is_passed_only_above_its_share_and_from_least_on(
    tally: CampaignCounts, limits: dict[str, float], n: int
) -> None:
    """And what is said names one that is."""
    cause = passed({**limits, "least": n}, counted(tally, []))
    of = dict.fromkeys(thresholds.SHARES, tally.attempts) | {"complaints": tally.delivered}
    over = [
        name for name in limits
        if of[name] >= max(n, 1) and getattr(tally, name) / of[name] > limits[name]
    ]  # fmt: skip
    assert bool(cause) == bool(over)
    assert "the bound is" in cause or not cause


@given(counters, st.dictionaries(st.sampled_from(thresholds.SHARES), shares))
def test_nothing_is_passed_right_after_it_was_resumed(tally: CampaignCounts, limits: dict[str, float]) -> None:
    """What went wrong before counts no more."""
    assert passed({**limits, "least": 0}, counted(tally, thresholds.figures(tally))) == ""


@given(st.lists(counters, min_size=1, max_size=4), st.dictionaries(st.sampled_from(thresholds.SHARES), shares))
def test_what_a_sum_has_passed_one_of_its_parts_may_have(
    tallies: list[CampaignCounts], limits: dict[str, float]
) -> None:
    """So a queue that sees nothing need not have all asked."""
    parts = [counted(tally, []) for tally in tallies]
    total = [sum(figures) for figures in zip(*parts, strict=True)]
    if passed({**limits, "least": 0}, total):
        assert any(perhaps_passed(limits, part) for part in parts)


def test_a_cause_names_figure_and_bound() -> None:
    """With numbers that can be checked."""
    tally = CampaignCounts(accepted=5000, delivered=900, deferred=100, complaints=9)
    assert passed({"deferred": 0.05}, counted(tally, [])) == (
        "100 of 1,000 attempts were deferred (10.0%), the bound is 5.0%"
    )  # fmt: skip
    assert passed({"complaints": 0.001}, counted(tally, [])) == (
        "9 of 900 delivered messages drew complaints (1.0%), the bound is 0.1%"
    )
    assert passed({"deferred": 0.05, "least": 2000}, counted(tally, [])) == ""


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 5)), min_size=1, max_size=1500))
def test_a_course_is_bounded_ordered_and_ends_where_it_is(steps: list[tuple[int, int]]) -> None:
    """However long it takes: its points never go back in time, and what was delivered never shrinks."""
    course, tally, ms = CampaignHistory(), CampaignCounts(accepted=10_000), 0
    for wait_ms, delivered in steps:
        ms += wait_ms
        tally.delivered += delivered
        course.look(ms, tally)
    assert len(course.points) < POINTS_MAX
    assert course.points == sorted(course.points, key=lambda point: (point[0], point[2]))
    assert all(waiting + delivered == 10_000 for _, waiting, delivered in course.points)
    again = CampaignHistory(course.saved())
    assert again.points == course.points


def test_the_rate_is_that_of_the_last_two_minutes() -> None:
    """What was before is forgotten, and nothing is known at the start."""
    course, tally = CampaignHistory(), CampaignCounts(accepted=10_000)
    assert course.rate_per_s(0, tally) == 0.0
    for second in range(600):
        tally.delivered += 10 if second < 300 else 2
        course.look(second * 1000, tally)
    assert course.rate_per_s(599_000, tally) == 2.0
