"""Facts of a lake whose every row is known: 40 recipients on one day, 60 on the next."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark.sql.functions as F
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.metrics.quantities import QUANTITIES
from zonemta_py.pipeline.findings.baseline import shares
from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.report import facts, queries, warmups
from zonemta_py.pipeline.report.feedback.rows import ReturnCounts
from zonemta_py.pipeline.report.headline import RECIPIENTS, headline_table
from zonemta_py.pipeline.report.page import page
from zonemta_py.pipeline.report.rows import NO_PROVIDER, AttemptCounts, Bin, Facts, Left
from zonemta_py.pipeline.report.scope import DAY_S, Kind, ReportScope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_headline_counts_recipients_and_attempts_of_the_day_and_the_one_before(found: Facts) -> None:
    """Each recipient once, each attempt once; blocked attempts are no deferred ones."""
    assert found.now[:4] == (60, 48, 6, 6)
    assert found.now.attempts == AttemptCounts(48, 6, 6, 6)
    assert found.before[:4] == (40, 32, 4, 4)
    assert found.before.attempts == AttemptCounts(32, 4, 4, 4)


def test_every_accepted_recipient_is_in_one_column(spark: "SparkSession", day: ReportScope) -> None:
    """Delivered, bounced, removed, deleted or waiting (the held ones too) add up to the accepted ones; who was left out
    at acceptance is told apart. The same by domain, and in what the page says."""
    at, ends = (
        datetime.fromtimestamp(day.start, UTC),
        {"delivered": 2, "bounced": 1, "removed": 3, "deleted": 2, "held": 1},
    )
    states = [state for state, n in (ends | {"waiting": 4, "suppressed": 5}).items() for _ in range(n)]
    rows = [(at, at.date(), state, "x.test", 1, 2.0 if state == "delivered" else None) for state in states]
    columns = "received_at timestamp, day date, state string, domain string, attempts int, to_delivery_s double"
    table_ = spark.createDataFrame(rows, columns)
    accepted = facts.Accepted(queries.recipients(table_, day).collect())
    totals = accepted.totals(True, AttemptCounts())
    assert totals.recipients == 13 == sum(totals[1:4]) + totals.removed + totals.deleted
    assert (totals.removed, totals.deleted, totals.waiting, totals.held, totals.suppressed) == (3, 2, 5, 1, 5)
    assert sum(row.n for row in accepted.tried()) == 13
    (domain,) = queries.domains(table_, day).collect()
    assert tuple(domain) == ("x.test", 13, 2, 1, 3, 5, 2)
    shown = dict(row[:2] for row in headline_table(Facts(now=totals), day).rows)
    assert {name: shown[f"recipients {name}"] for name in RECIPIENTS} == {
        "accepted": 13, "delivered": 2, "bounced": 1, "removed": 3, "deleted": 2, "waiting": 5, "held": 1,
        "suppressed": 5,
    }  # fmt: skip
    assert RECIPIENTS.keys() <= QUANTITIES.keys()


def test_blocked_is_what_the_queue_counts_as_blocked(spark: "SparkSession", day: ReportScope) -> None:
    """The same classes pause a campaign; a reverse name, a signature or a virus is trouble of another kind."""
    at, others = datetime.fromtimestamp(day.start, UTC), {"reverse-dns", "authentication", "virus"}
    rows = [(at, how, name, 550, "", name) for name in others | BLOCKED_CLASSES for how in ("deferred", "bounced")]
    columns = "at timestamp, verdict string, class string, code int, enhanced string, reply string"
    said = queries.replies(spark.createDataFrame(rows, columns), day).groupBy("kind")
    found = {row.kind: set(row.names) for row in said.agg(F.collect_set("class").alias("names")).collect()}
    assert found == {"blocked": BLOCKED_CLASSES, "deferred": others, "bounced": others}


def test_what_is_usual_in_the_lake(spark: "SparkSession", lake: Path) -> None:
    """Shares of attempts, for bounds; those blocked are among the deferred, as in the queue's counts."""
    assert shares(spark, lake) == {"deferred": 20 / 110, "bounced": 10 / 110, "blocked": 10 / 110}


def test_times_to_delivery_are_within_their_bin(found: Facts) -> None:
    """42 of 48 recipients had their mail in 2 s, the greylisted ones in 301 s."""
    assert found.now.median_s == pytest.approx(2, rel=0.03)
    assert found.now.p95_s == pytest.approx(301, rel=0.03)
    assert sum(row.n for row in found.latency) == 48


def test_every_view_adds_up_to_the_same_attempts(found: Facts, day: ReportScope) -> None:
    """Over time, by provider and hour, by source and provider, and by class: all of them, and none twice."""
    for rows in (found.moments, found.cells, found.pairs):
        assert AttemptCounts(*map(sum, zip(*(row.attempts for row in rows), strict=True))) == found.now.attempts
    assert sum(row.n for row in found.causes) == found.now.attempts.trouble
    assert [row.at for row in found.moments] == list(range(day.start, day.end, 300))
    assert {row.provider for row in found.pairs} == {"google", "microsoft", NO_PROVIDER}


def test_domains_are_the_recipients_own(found: Facts, campaigns: dict[str, tuple[ReportScope, Facts]]) -> None:
    """Whatever the provider of the attempt: 60 recipients at two domains, the larger first; a campaign has its own."""
    assert [(row.name, row.recipients) for row in found.domains] == [("example.com", 45), ("www.example.com", 15)]
    assert [sum(one) for one in list(zip(*found.domains, strict=True))[1:]] == [60, 48, 6, 0, 6, 0]
    assert [row.recipients for row in campaigns["winter"][1].domains] == [30, 10]


def test_encrypted_deliveries_are_counted_per_pair(found: Facts) -> None:
    """Of 48 deliveries those with n % 10 == 3 went in the clear."""
    assert sum(row.secure for row in found.pairs) == 42


def test_classes_say_why(found: Facts) -> None:
    """One row for each class and kind; a block is one whatever its verdict."""
    assert sorted(found.causes) == [
        ("blocked-ip", "blocked", 6),
        ("greylisting", "deferred", 6),
        ("user-unknown", "bounced", 6),
    ]


def test_replies_that_differ_in_addresses_only_are_one(found: Facts) -> None:
    """Six recipients, six texts, one shape, and an example as it came."""
    bounced = [row for row in found.said if row.kind == "bounced"]
    assert [row.n for row in bounced] == [6]
    assert "@example.com" not in bounced[0].shape
    assert bounced[0].example.startswith("550 5.1.1 <u")


def test_retries_are_recipients_by_attempts(found: Facts) -> None:
    """Greylisted ones took two."""
    assert ("delivered", 6) in [(row.state, row.n) for row in found.tried if row.attempts == 2]
    assert sum(row.n for row in found.tried) == 60


def test_warm_up_knows_the_caps_that_the_journal_tells(found: Facts) -> None:
    """The cap of a day is the last one told on it or before; only pairs that are warmed up are shown."""
    assert {(row.source, row.provider) for row in found.warm} == {("192.0.2.1", "google")}
    assert [row.cap for row in found.warm] == [100, 200]


def test_a_campaign_is_found_with_its_time_and_its_rival(campaigns: dict[str, tuple[ReportScope, Facts]]) -> None:
    """It is compared with the campaign that began before it, and its burn-down ends with those who wait."""
    assert list(campaigns) == ["winter", "spring"]
    scope, found = campaigns["spring"]
    assert (scope.rival, scope.end - scope.start) == ("winter", 2 * 3600)
    assert (found.now.recipients, found.before.recipients) == (60, 40)
    assert (found.left[0][1:], found.left[1].accepted > 0, found.left[-1][1:]) == ((0, 0, 0), True, (60, 48, 6))
    assert found.left[0].at < found.left[1].at
    assert found.ends is not None
    assert facts.of_campaign([facts.Span("spring", 0, 1)], "sprig") is None
    first, alone = campaigns["winter"]
    assert first.rival == ""
    assert alone.before.recipients == 0


@pytest.mark.parametrize(
    ("kind", "name", "attempts"),
    [(Kind.PROVIDER, "google", 38), (Kind.ZONE, "default", 110), (Kind.IP, "192.0.2.1", 60)],
)
def test_other_scopes_count_their_own_only(
    spark: "SparkSession",
    lake: Path,
    scope_of: Callable[[Kind, str], ReportScope],
    kind: Kind,
    name: str,
    attempts: int,
) -> None:
    """A provider, a zone and a source over both days."""
    rows = queries.attempts(table.read(spark, lake, "deliverability"), scope_of(kind, name)).collect()
    assert facts.Counts(rows).attempts(True).total == attempts
    assert name in facts.names(spark, lake, kind)


def test_a_page_of_a_provider_is_about_it_alone(
    spark: "SparkSession", lake: Path, scope_of: Callable[[Kind, str], ReportScope]
) -> None:
    """Attempts, recipients, and what came back of its own mail: not what came of mail that is not known."""
    found = facts.gather(spark, lake, scope_of(Kind.PROVIDER, "google"))
    assert (found.now.attempts.total, found.now.recipients) == (38, 34)
    assert found.returned.now == ReturnCounts(complaints=2, bounced_later=1, opens=1)
    assert [row.name for row in found.returned.providers] == ["google"]
    assert found.returned.delivered.all == found.now.delivered


def test_days_that_the_lake_has_not_are_empty(spark: "SparkSession", lake: Path) -> None:
    """No row, no error; the page says so."""
    scope = ReportScope(Kind.DAY, "2020-01-01", 1577836800, 1577836800 + DAY_S)
    found = facts.gather(spark, lake, scope)
    assert found.empty
    assert "nothing to show" in page(found, scope)


def test_the_same_lake_makes_the_same_bytes(spark: "SparkSession", lake: Path, found: Facts, day: ReportScope) -> None:
    """Nothing depends on chance, on the clock, or on the order in which Spark's tasks end."""
    assert page(facts.gather(spark, lake, day), day) == page(found, day)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_lies_in_the_bin_that_holds_its_rank(counts: list[int], share: float) -> None:
    """As many recipients lie below its bin's end as the share asks for, and fewer below its start."""
    bins = [Bin(1.1**n, 1.1 ** (n + 1), count) for n, count in enumerate(counts)]
    value = facts.quantile(bins, share)
    assert value is not None
    rank = share * sum(counts)
    assert sum(row.n for row in bins if row.high_s <= value * (1 - 1e-9)) <= rank + 1e-6
    assert sum(row.n for row in bins if row.low_s <= value * (1 + 1e-9)) >= rank - 1e-6


def test_the_end_is_estimated_from_the_last_quarter() -> None:
    """100 left, 10 gone in each minute of late: ten minutes. Nobody left, or nothing moving: no estimate."""
    rows = [Left(60 * n, 200, 10 * n, 200 - 10 * n) for n in range(11)]
    assert facts.end_of(rows) == rows[-1].at + 600
    assert facts.end_of([*rows, Left(700, 200, 200, 0)]) is None
    assert facts.end_of([Left(60 * n, 200, 0, 200) for n in range(11)]) is None
    assert facts.end_of([]) is None


def test_caps_before_the_first_day_count_as_its_own() -> None:
    """The last one told before the curve begins holds at its start; "no limit" and orders end what was known."""
    told = [
        ("a", "g", 1 * DAY_S, "1970-01-01 was good; now 50 a day"),
        ("a", "g", 3 * DAY_S, "1970-01-03 was good; now 100 a day"),
        ("a", "g", 6 * DAY_S, "1970-01-06 was good; now no limit"),
    ]
    steps = warmups.caps(told, 4 * DAY_S)
    assert [(step.day, step.cap) for step in steps] == [(4 * DAY_S, 100), (6 * DAY_S, None)]
    rows = [("a", "g", day * DAY_S, 7) for day in (4, 5, 6)]
    assert [row.cap for row in warmups.curves(rows, steps)] == [100, 100, None]
    assert warmups.curves([("b", "g", 4 * DAY_S, 1)], []) == []
