"""Table `deliverability` and the views that are made of it."""

import bisect
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from zonemta_py.pipeline import deliverability, deliveries

DAY = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def attempts(frame, drawn):
    """Table `deliveries` of a drawn journal."""
    return deliveries.deliveries(frame(drawn(7, messages=40))).localCheckpoint()


def counted(rows, by):
    """COUNTS and MAPS in plain Python, for each value of `by`."""
    told = defaultdict(lambda: dict.fromkeys(deliverability.COUNTS, 0) | {"deferred_by": {}, "bounced_by": {}})
    for row in rows:
        one = told[by(row)]
        verdict = row.verdict
        one["attempts"] += 1
        one[verdict] += 1
        one["retries"] += row.attempt > 1
        if verdict in ("deferred", "bounced"):
            classes = one[f"{verdict}_by"]
            classes[row["class"] or ""] = classes.get(row["class"] or "", 0) + 1
        if verdict == "delivered":
            one["encrypted"] += row.tls != ""
            one["timed"] += 1
            one["latency_sum_ms"] += round((row.at - row.received_at).total_seconds() * 1000)
    return dict(told)


def measures(row):
    return {name: row[name] for name in (*deliverability.COUNTS, *deliverability.MAPS)}


def window(at):
    return at.replace(minute=at.minute // 5 * 5, second=0, microsecond=0)


def hour(at):
    return at.replace(minute=0, second=0, microsecond=0)


def test_each_window_counts_its_attempts(attempts):
    """Rows of five minutes and of days hold what a loop over the attempts counts."""
    rows, raw = deliverability.deliverability(attempts).collect(), attempts.collect()
    keys = deliverability.KEYS
    fine = {(row.since, *(row[key] for key in keys)): measures(row) for row in rows if row.grain == "5min"}
    assert fine == counted(raw, lambda row: (window(row.at), *(row[key] for key in keys)))
    days = {
        (row.since.date(), row.day, *(row[key] for key in keys)): measures(row) for row in rows if row.grain == "day"
    }
    assert days == counted(raw, lambda row: (row.day, row.day, *(row[key] for key in keys)))


def test_rows_are_added_up_without_the_attempts(attempts):
    """By provider, from the days' rows: the same counts as from the attempts, null campaigns among them."""
    days = deliverability.deliverability(attempts).filter("grain = 'day'")
    for by in ("provider", "campaign"):
        rolled = {row[by]: measures(row) for row in deliverability.rolled(days, [by]).collect()}
        assert rolled == counted(attempts.collect(), lambda row, by=by: row[by])


def test_shares_and_quantiles_are_shown(attempts):
    """What people read: shares between 0 and 1, ordered quantiles, null where nothing was delivered."""
    days = deliverability.deliverability(attempts).filter("grain = 'day'")
    rows = deliverability.shown(days).collect()
    assert rows
    for row in rows:
        assert row.delivered_share == pytest.approx(row.delivered / row.attempts)
        if row.timed:
            assert row.p50_ms <= row.p95_ms <= row.p99_ms <= row.latency_max_ms
            assert row.tls_share == pytest.approx(row.encrypted / row.delivered)
        else:
            assert (row.p50_ms, row.tls_share, row.latency_mean_ms) == (None, None, None)


def synthetic(spark, values):
    """Table `deliveries` with one delivered attempt for each latency in ms, over a day, two providers."""
    rows = [
        (DAY + timedelta(seconds=index * 86_399 // len(values)), int(value), "google" if index % 3 else "yahoo")
        for index, value in enumerate(values)
    ]
    made = spark.createDataFrame(rows, "at timestamp, ms long, provider string")
    named = {name: F.lit(None).cast("string") for name in ("zone", "source", "campaign", "tenant", "class")}
    named |= {"verdict": F.lit("delivered"), "attempt": F.lit(1), "tls": F.lit(""), "day": F.to_date("at")}
    return made.withColumns(named).withColumn("received_at", F.timestamp_millis(F.unix_millis("at") - F.col("ms")))


def test_sketches_are_within_two_percent_of_rank(spark):
    """Merged from 288 windows and two providers, a sketch's quantile is within 2 % of the asked rank."""
    die = random.Random(11)
    values = [die.lognormvariate(7, 1.5) for _ in range(20_000)]
    rows = synthetic(spark, values).localCheckpoint()
    days = deliverability.deliverability(rows).filter("grain = 'day'")
    merged = deliverability.shown(deliverability.rolled(days, ["day"])).first()
    true = deliverability.exact(rows, ["day"]).first()
    ordered = sorted(map(int, values))
    for name, rank in zip(deliverability.NAMES, deliverability.QUANTILES, strict=True):
        assert bisect.bisect_left(ordered, true[name]) / len(ordered) == pytest.approx(rank, abs=0.001)
        assert bisect.bisect_left(ordered, merged[name]) / len(ordered) == pytest.approx(rank, abs=0.02)
    assert merged.timed == len(values)


def test_hours_and_days_have_sketches_and_five_minutes_have_none(attempts):
    """A window of five minutes shows no quantiles; an hour has the counts of its own, and shows them."""
    rows = deliverability.shown(deliverability.deliverability(attempts)).collect()
    assert {row.grain for row in rows if row.p50_ms is not None} == {"hour", "day"}
    assert all(row.p50_ms is not None for row in rows if row.timed and row.grain != "5min")
    keys, hours = deliverability.KEYS, deliverability.deliverability(attempts).filter("grain = 'hour'").collect()
    hours = {(row.since, *(row[key] for key in keys)): measures(row) for row in hours}
    told = counted(attempts.collect(), lambda row: (hour(row.at), *(row[key] for key in keys)))
    assert hours == told


def test_what_has_no_envelope_has_no_latency(frame, journal):
    """An attempt whose envelope has not come yet is counted, and leaves the distribution alone."""
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    rows = deliverability.deliverability(deliveries.deliveries(frame(journal.rows)))
    told = deliverability.shown(rows.filter("grain = 'day'")).first()
    assert (told.delivered, told.timed, told.p50_ms, told.latency_max_ms) == (1, 0, None, None)


def test_every_attempt_is_in_one_row(attempts):
    """Nothing is lost between the grains."""
    sums = deliverability.deliverability(attempts).groupBy("grain").agg(F.sum("attempts").alias("n")).collect()
    assert Counter({row.grain: row.n for row in sums}) == dict.fromkeys(deliverability.GRAINS, attempts.count())
