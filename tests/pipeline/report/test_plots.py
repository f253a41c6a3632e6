"""Figures show what their rows say, and nothing else."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.pipeline.report import plots, words
from zonemta_py.pipeline.report.facts import burnt
from zonemta_py.pipeline.report.feedback.plots import arrivals, complaints, later, rates
from zonemta_py.pipeline.report.feedback.rows import Delivered, RatedGroup, ReturnCounts
from zonemta_py.pipeline.report.rows import AttemptCounts, Bin, Cause, Cell, Facts, Left, Moment, Pair, Tried, WarmDay

NOTHING = (
    plots.over_time([], 300), plots.heat([], [], [], False), plots.latency([], []), plots.causes([], "others"),
    plots.secure([]), plots.tried([], 10), plots.warm([]), plots.burn_down([], None),
    arrivals([], ["complaints"], 0, 3600), rates([], "complaints", 3600), complaints([]), later([]),
)  # fmt: skip


@pytest.mark.parametrize("figure", NOTHING)
def test_nothing_makes_an_empty_figure(figure: object) -> None:
    """Not an error: what has no rows is left out by the page, not here."""
    assert json.loads(figure.to_json())["layout"]["height"] > 0


def test_bars_over_time_stack_up_to_the_attempts() -> None:
    """One series for each kind that occurs; a share only where there are attempts enough to have one."""
    figure = plots.over_time(
        [Moment(0, AttemptCounts(90, 10)), Moment(300, AttemptCounts(1, 1)), Moment(600, AttemptCounts())], 300
    )
    series = {one.name: list(one.y) for one in figure.data}
    assert series == {"delivered": [90, 1, 0, 0], "deferred": [10, 1, 0, 0], "not delivered": [10, 10, None]}


def test_one_step_among_many_is_seen() -> None:
    """A day on which mail went for five minutes only: the line of shares has that step's width, and gaps beside it."""
    moments = [Moment(300 * n, AttemptCounts(90, 10) if n in (2, 3, 6) else AttemptCounts()) for n in range(9)]
    share = plots.over_time(moments, 300).data[-1]
    drawn = [(x[-8:-3], y) for x, y in zip(share.x, share.y, strict=True)]
    ends = ["00:10", "00:15", "00:15", "00:20", "00:20", "00:30", "00:35", "00:35"]
    assert drawn == list(zip(ends, [10, 10, 10, 10, None, 10, 10, None], strict=True))
    assert share.line.shape is None


def test_an_axis_of_times_has_two_ticks() -> None:
    """Where only one round time is in sight, both ends are named instead."""
    figure = plots.latency([Bin(0.01, 0.018, 5)], [("median", 0.012)])
    assert list(figure.layout.xaxis.ticktext) == ["10 ms", "18 ms"]


def test_one_step_is_as_wide_as_any() -> None:
    """A campaign that was over within five minutes: areas have a width, no axis parts of a second."""
    figure = plots.over_time([Moment(1_800_000_000, AttemptCounts(90, 10))], 300)
    assert [list(one.x) for one in figure.data] == [["2027-01-15 08:00:00", "2027-01-15 08:05:00"]] * 3
    assert [list(one.y) for one in figure.data] == [[90, 90], [10, 10], [10, 10]]
    assert list(figure.layout.xaxis.range) == ["2027-01-15 08:00:00", "2027-01-15 08:05:00"]
    heat = plots.heat([Cell("p", 1_800_000_000, AttemptCounts(90, 10))], ["p"], [1_800_000_000], of_day=False)
    assert heat.layout.xaxis.type == "category"
    assert [(one.zmin, one.zmax) for one in heat.data] == [(0, 10), (0, 100)]
    times = plots.latency([Bin(2.0, 2.1, 5)], [("median", 2.05)])
    assert list(times.layout.xaxis.ticktext) == ["2.0 s", "2.1 s"]


def test_heat_map_has_two_layers_of_which_one_is_shown() -> None:
    """Share of what was not delivered, and attempts; hours with few attempts have no share."""
    cells = [Cell("google", 0, AttemptCounts(3, 1, 1)), Cell("yahoo", 3600, AttemptCounts(2))]
    share, attempts = plots.heat(cells, ["google", "yahoo"], [0, 3600], True).data
    assert (share.visible, attempts.visible) == (True, False)
    assert [list(row) for row in share.z] == [[40.0, None], [None, None]]
    assert [list(row) for row in attempts.z] == [[5, None], [None, 2]]
    assert list(share.x) == ["00:00", "01:00"]


def test_latency_bars_cover_their_bins_and_marks_stand_at_their_time(facts: Facts) -> None:
    """Bars are as wide as their bins, also on a logarithmic axis; each mark has its name and its figure."""
    figure = plots.latency(facts.latency, [("median", 2.5), ("p95", 340.0)])
    bar = figure.data[0]
    assert [(x - width / 2, x + width / 2) for x, width in zip(bar.x, bar.width, strict=True)] == [
        pytest.approx((row.low_s, row.high_s)) for row in facts.latency
    ]
    assert [shape.x0 for shape in figure.layout.shapes] == [2.5, 340.0]
    assert [note.text for note in figure.layout.annotations] == ["median 2.5 s", "p95 5.7 min"]


def test_causes_are_sorted_and_others_come_last() -> None:
    """The most frequent on top, whatever kinds it is made of; "others" below all, however many they are."""
    rows = [
        Cause("a", "deferred", 5),
        Cause("b", "bounced", 4),
        Cause("b", "blocked", 4),
        Cause("others", "deferred", 99),
    ]
    figure = plots.causes(rows, "others")
    assert list(figure.data[0].y) == ["b", "a", "others"]
    assert [one.name for one in figure.data if one.name] == ["deferred", "bounced", "blocked"]


def test_encryption_is_a_share_of_deliveries_the_worst_on_top() -> None:
    """Sources are added up; a provider without deliveries is left out."""
    figure = plots.secure(
        [
            Pair("i", "good", AttemptCounts(10), 10),
            Pair("i", "bad", AttemptCounts(4), 1),
            Pair("i", "none", AttemptCounts(0, 3), 0),
        ]
    )
    assert (list(figure.data[0].y), list(figure.data[0].x)) == (["bad", "good"], [25.0, 100.0])


def test_retries_begin_with_the_second_attempt() -> None:
    """First attempts would leave no room for the others; the last bar is all that took as many or more."""
    figure = plots.tried([Tried(1, "delivered", 900), Tried(2, "delivered", 7), Tried(10, "bounced", 2)], 10)
    assert {one.name: list(one.y) for one in figure.data} == {
        "delivered": [7, *[0] * 8], "bounced": [*[0] * 8, 2],
    }  # fmt: skip
    assert figure.data[0].x[-1] == "10+"


def test_a_cap_is_a_line_where_it_is_known() -> None:
    """Without any, there is none; between known ones there is a gap."""
    days = [WarmDay("i", "p", 0, 5, None), WarmDay("i", "p", 86_400, 7, 10)]
    assert [one.name for one in plots.warm(days).data] == ["sent", "cap"]
    assert [one.name for one in plots.warm(days[:1]).data] == ["sent"]


def test_a_burn_down_fills_its_axis() -> None:
    """From its beginning to its end, however short it was."""
    rows = burnt([(110, 101, 10, 4, 5), (120, 112, 0, 5, 5)])
    assert rows == [Left(101, 0, 0, 0), Left(110, 10, 4, 5), Left(120, 10, 9, 0)]
    assert list(plots.burn_down(rows, None).layout.xaxis.range) == ["1970-01-01 00:01:41", "1970-01-01 00:02:00"]


def test_burn_down_goes_on_to_its_estimated_end() -> None:
    """Dotted from the last point to nobody."""
    figure = plots.burn_down([Left(0, 10, 0, 10), Left(60, 10, 5, 5)], 120)
    assert [one.name for one in figure.data] == ["delivered", "waiting", "estimated"]
    assert list(figure.data[2].y) == [5, 0]
    assert len(plots.burn_down([Left(0, 10, 10, 0)], None).data) == 2


@given(st.text())
def test_names_are_text_in_a_figure(name: str) -> None:
    """Plotly takes tags in labels as HTML, links among them; so no name has one."""
    label = plots.heat([Cell(name, 0, AttemptCounts(9))], [name], [0], True).data[0].y[0]
    assert not re.search("[<>]", label)


def test_names_are_text_in_figures_of_what_came_back() -> None:
    """A campaign and a class that are tags."""
    name = "<a href='x'>&"
    drawn = complaints([RatedGroup(name, Delivered(100), ReturnCounts(1))]), later([(name, 1)])
    assert [figure.data[0].y[0] for figure in drawn] == ["&lt;a href='x'&gt;&amp;"] * 2


@given(st.lists(st.text(max_size=60), unique=True, max_size=12))
def test_labels_are_short_and_different(names: list[str]) -> None:
    """Two long names that begin alike stay two bars."""
    labels = words.labels(names)
    assert len(set(labels)) == len(names)
    assert all(len(label) <= 26 for label in labels)


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_shares_are_0_or_100_only_if_they_are(part: int, whole: int) -> None:
    """One bounce in a million is not none."""
    text = words.percent(min(part, whole), whole)
    assert (text == "0%") == (part == 0)
    assert (text == "100%") == (part >= whole)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.04, "40 ms"),
        (0.8, "0.8 s"),
        (45, "45 s"),
        (340, "5.7 min"),
        (7_300, "2.0 h"),
        (400_000, "4.6 days"),
    ],
)
def test_spans_have_the_unit_that_fits(seconds: float | None, text: str) -> None:
    """Two or three digits, as much as anybody reads."""
    assert words.span(seconds) == text
