"""What came back of mail of which every row is known: 32 recipients delivered on one day, 48 on the next."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.report.conftest import MIDNIGHT
from zonemta_py.pipeline.report.feedback import plots, queries
from zonemta_py.pipeline.report.feedback.rows import Cohort, Delivered, KindCount, LaterBounce, ReturnCounts, Returned
from zonemta_py.pipeline.report.feedback.sections import returned
from zonemta_py.pipeline.report.headline import cards, headline_table
from zonemta_py.pipeline.report.rows import NO_PROVIDER, Facts, Totals
from zonemta_py.pipeline.report.scope import DAY_S, ReportScope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_HOUR = ReturnCounts(1, 2, 1, 1, 2, 1)


@pytest.fixture
def back(found: Facts) -> Returned:
    return found.returned


def test_recipients_count_once_however_often_and_late_it_is_said(back: Returned) -> None:
    """Two reports of one complaint, two links that one person followed; what came days later is of the day it was
    accepted on. Nothing that is unproven is counted, nor an open that a proxy made."""
    assert back.now == FIRST_HOUR
    assert back.delivered == Delivered(48, 48, 48)
    assert back.kinds[:2] == [KindCount("complaint", 1, 1), KindCount("bounce", 2, 0)]
    assert back.at_once == 1


def test_every_view_of_what_came_back_adds_up(back: Returned) -> None:
    """By provider, campaign and time of acceptance, and by the time at which it came; bounces by class."""
    for rows in (back.providers, back.campaigns, back.cohorts, back.arrivals):
        assert ReturnCounts(*map(sum, zip(*(row.came for row in rows), strict=True))) == back.now
    for shares in (back.providers, back.campaigns, back.cohorts):
        assert sum(row.delivered.all for row in shares) == 48
    assert [(row.name, row.delivered.all, row.came.complaints) for row in back.providers] == [
        ("google", 16, 1), ("microsoft", 16, 0), (NO_PROVIDER, 16, 0),
    ]  # fmt: skip
    assert [(row.at - MIDNIGHT, row.came) for row in back.cohorts] == [(32_400, FIRST_HOUR), (36_000, ReturnCounts())]
    assert [((row.at - MIDNIGHT) // 3600, row.came[:2]) for row in back.arrivals] == [
        (6, (0, 0)),
        (36, (0, 2)),
        (78, (1, 0)),
    ]
    assert back.bounces == [
        LaterBounce("mailbox-full", NO_PROVIDER, "spring", 1),
        LaterBounce("user-unknown", "google", "spring", 1),
    ]  # fmt: skip


def test_behind_a_smart_host_the_domain_says_the_provider(spark: "SparkSession") -> None:
    """And what is below it; the longest counts, and what an attempt knows holds."""
    domains = {"gmail.com": "google", "uk": "any", "live.co.uk": "microsoft"}
    rows = [
        ("gmail.com", None), ("x.gmail.com", ""), ("live.co.uk", ""), ("a.b.live.co.uk", ""), ("bbc.co.uk", ""),
        ("notgmail.com", ""), ("gmail.com", "yahoo"), ("com", ""), (None, ""),
    ]  # fmt: skip
    found = queries.at_home(spark.createDataFrame(rows, "domain string, provider string"), domains).collect()
    assert [row.provider for row in found] == [
        "google", "google", "microsoft", "microsoft", "any", None, "yahoo", None, None,
    ]  # fmt: skip


def test_what_it_is_compared_with_is_seen_at_the_same_age(back: Returned) -> None:
    """Of the day before, the complaint that came after five days is not counted: this day is only four days old."""
    assert back.before == ReturnCounts(complaints=1)


def test_what_names_a_campaign_alone_counts_for_it(campaigns: dict[str, tuple[ReportScope, Facts]]) -> None:
    """A complaint whose message is not in the lake is the campaign's, at a provider that is not known; its rival's are
    all that came at the same age."""
    found = campaigns["spring"][1].returned
    assert found.now == FIRST_HOUR._replace(complaints=2)
    assert found.providers[2][::2] == (queries.NO_DELIVERY, ReturnCounts(1))
    assert found.before == ReturnCounts(1)


def test_nothing_that_came_back_is_no_part(day: ReportScope) -> None:
    """No section, no plot; where the lake knows of no feedback at all, no card either."""
    assert returned(Returned(known=True, delivered=Delivered(500)), day) == []
    now = Totals(500, 500)
    assert [card.label for card in cards(Facts(now=now), day)][-1] == "p95 time"
    assert len(headline_table(Facts(now=now), day).rows) == 15
    quiet = cards(Facts(now=now, returned=Returned(known=True)), day)
    assert [(card.label, card.value) for card in quiet[-3:]] == [
        ("Complaints", "0%"), ("Unsubscribes", "0%"), ("Bounced later", "0%"),
    ]  # fmt: skip


def test_what_nothing_proves_is_told_apart(day: ReportScope) -> None:
    """Alone it is a number beside none; no rate, no plot."""
    parts = returned(Returned(True, delivered=Delivered(500), kinds=[KindCount("complaint", 0, 3)]), day)
    assert [part.id for part in parts] == ["came-back"]
    assert parts[0].table.rows == [("complaints", 0, 0.0, 3)]
    assert "Nothing proves 3 reports" in parts[0].says
    assert parts[0].plots == []


@pytest.mark.parametrize(
    ("complaints", "delivered", "alarm"),
    [(0, 1_000, ""), (1, 1_001, ""), (1, 1_000, "not below 0.1%"), (3, 1_000, "at or above 0.3%"), (1, 99, "")],
)
def test_the_headline_says_which_mark_complaints_have_passed(
    day: ReportScope, complaints: int, delivered: int, alarm: str
) -> None:
    """0.1% and 0.3% of what was delivered; one complaint of a few people passes none."""
    facts = Facts(now=Totals(delivered, delivered), returned=Returned(True, ReturnCounts(complaints)))
    card = next(card for card in cards(facts, day) if card.label == "Complaints")
    assert card.alarm == alarm


def test_a_rate_is_of_what_was_tracked(facts: Facts, day: ReportScope) -> None:
    """300 opens of the 1,000 that were delivered of tracked campaigns, not of all 1,900."""
    parts = {part.id: part for part in returned(facts.returned, day)}
    assert ("opens", 300, 30.0, 0) in parts["came-back"].table.rows
    assert "300 opened (30.0%)" in parts["came-back"].says
    untracked = replace(facts.returned, now=facts.returned.now._replace(opens=0, clicks=0))
    tables = [part.table.columns for part in returned(untracked, day)]
    assert not any("open" in name for columns in tables[1:] for name in columns)


def test_rates_of_few_are_blank_and_marks_are_in_sight() -> None:
    """Of 99 delivered one complaint is no rate; the axis reaches 0.3% where complaints are rarer."""
    rows = [
        Cohort(0, Delivered(99), ReturnCounts(1)),
        Cohort(DAY_S, Delivered(2_000), ReturnCounts(1)),
        Cohort(2 * DAY_S, Delivered(100)),
    ]
    figure = plots.rates(rows, "complaints", DAY_S)
    assert list(figure.data[0].y) == [0.05, 0]
    assert figure.layout.yaxis.range[1] > plots.MARKS[-1]
    assert [shape.y0 for shape in figure.layout.shapes] == [0.1, 0.3]
    assert len(plots.rates(rows, "unsubscribes", DAY_S).layout.shapes) == 0


def test_one_time_at_which_something_came_is_no_plot(facts: Facts, day: ReportScope) -> None:
    """It is a sentence and a row of the table."""
    once = replace(facts.returned, arrivals=facts.returned.arrivals[:1], cohorts=facts.returned.cohorts[:1])
    parts = {part.id: part for part in returned(once, day)}
    assert parts["came-back-when"].plots == []
    assert len(parts["came-back-when"].table.rows) == 1
    assert "came-back-rates" not in parts
