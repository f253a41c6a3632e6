"""Table `deliverability` and the views that are made of it."""

import bisect
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from zonemta_py.pipeline.lake import deliverability, deliveries, scan

DAY = datetime(2026, 3, 2, tzinfo=UTC)


def attempts_of(table):
    said = scan.chosen(table, deliveries.SCANS)
    return deliveries.deliveries(deliveries.numbered(said["results"]), said["envelopes"])


@pytest.fixture(scope="module")
def attempts(table_of, drawn):
    """Table `deliveries` of a drawn journal, as Arrow gives it."""
    return attempts_of(table_of(drawn(7, messages=40)))


@pytest.fixture
def made(spark):
    """made(attempts): the table that is made of them, as a DataFrame."""
    return lambda rows: spark.createDataFrame(
        deliverability.deliverability(rows.select(deliverability.READ)).cast(deliverability.SCHEMA)
    )


def plain(table):
    """Rows as Spark gives them, with attributes."""
    return [SimpleNamespace(**row) for row in table.to_pylist()]


def counted(rows, by):
    """COUNTS and MAPS in plain Python, for each value of `by`."""
    told = defaultdict(
        lambda: dict.fromkeys(deliverability.COUNTS, 0) | {"deferred_by": Counter(), "bounced_by": Counter()}
    )
    for row in rows:
        one = told[by(row)]
        verdict = row.verdict
        one["attempts"] += 1
        one[verdict] += 1
        one["retries"] += row.attempt > 1
        if verdict in ("deferred", "bounced"):
            classes = one[f"{verdict}_by"]
            classes[getattr(row, "class") or ""] = classes.get(getattr(row, "class") or "", 0) + 1
        if verdict == "delivered":
            one["encrypted"] += row.tls != ""
            one["timed"] += 1
            one["latency_sum_ms"] += round((row.at - row.received_at).total_seconds() * 1000)
    return dict(told)


def measures(row):
    return {name: row[name] for name in (*deliverability.COUNTS, *deliverability.MAPS)}


def of(row):
    """Its kind of mail."""
    return tuple(getattr(row, key) for key in deliverability.KEYS)


def utc(at):
    return at.replace(tzinfo=UTC)


def window(at):
    return at.replace(minute=at.minute // 5 * 5, second=0, microsecond=0)


def hour(at):
    return at.replace(minute=0, second=0, microsecond=0)


def test_each_window_counts_its_attempts(made, attempts):
    """Rows of five minutes and of days hold what a loop over the attempts counts."""
    rows, raw = made(attempts).collect(), plain(attempts)
    fine = {(utc(row.since), *of(row)): measures(row) for row in rows if row.grain == "5min"}
    assert fine == counted(raw, lambda row: (window(row.at), *of(row)))
    days = {(row.since.date(), row.day, *of(row)): measures(row) for row in rows if row.grain == "day"}
    assert days == counted(raw, lambda row: (row.day, row.day, *of(row)))


def test_rows_are_added_up_without_the_attempts(made, attempts):
    """By provider, from the days' rows: the same counts as from the attempts, null campaigns among them."""
    days = made(attempts).filter("grain = 'day'")
    for by in ("provider", "campaign"):
        rolled = {row[by]: measures(row) for row in deliverability.rolled(days, [by]).collect()}
        assert rolled == counted(plain(attempts), lambda row, by=by: getattr(row, by))


def test_shares_and_quantiles_are_shown(made, attempts):
    """What people read: shares between 0 and 1, ordered quantiles, null where nothing was delivered."""
    days = made(attempts).filter("grain = 'day'")
    rows = deliverability.shown(days).collect()
    assert rows
    for row in rows:
        assert row.delivered_share == pytest.approx(row.delivered / row.attempts)
        if row.timed:
            assert row.p50_ms <= row.p95_ms <= row.p99_ms <= row.latency_max_ms
            assert row.tls_share == pytest.approx(row.encrypted / row.delivered)
        else:
            assert (row.p50_ms, row.tls_share, row.latency_mean_ms) == (None, None, None)


def synthetic(values):
    """Table `deliveries` with one delivered attempt for each latency in ms, over a day, two providers."""
    at = [DAY + timedelta(seconds=index * 86_399 // len(values)) for index in range(len(values))]
    columns = {
        "at": at,
        "received_at": [one - timedelta(milliseconds=int(value)) for one, value in zip(at, values, strict=True)],
        "provider": ["google" if index % 3 else "yahoo" for index in range(len(values))],
        "verdict": ["delivered"] * len(values),
        "attempt": [1] * len(values),
    }
    rows = pa.table(columns)
    for name in deliveries.SCHEMA.names:
        if name not in columns:
            rows = rows.append_column(name, pa.nulls(len(values), deliveries.SCHEMA.field(name).type))
    return rows.select(deliveries.SCHEMA.names).cast(deliveries.SCHEMA)


def test_sketches_are_within_two_percent_of_rank(spark, made):
    """Merged from days and hours of two providers, a sketch's quantile is within 2 % of the asked rank."""
    die = random.Random(11)
    values = [die.lognormvariate(7, 1.5) for _ in range(20_000)]
    rows = synthetic(values)
    windows = made(rows).localCheckpoint()
    true = deliverability.exact(spark.createDataFrame(rows.select(["verdict", "at", "received_at"])), []).first()
    ordered = sorted(map(int, values))
    for grain in ("day", "hour"):
        merged = deliverability.shown(deliverability.rolled(windows.filter(F.col("grain") == grain), ["grain"])).first()
        for name, rank in zip(deliverability.NAMES, deliverability.QUANTILES, strict=True):
            assert bisect.bisect_left(ordered, true[name]) / len(ordered) == pytest.approx(rank, abs=0.001)
            assert bisect.bisect_left(ordered, merged[name]) / len(ordered) == pytest.approx(rank, abs=0.02)
        assert merged.timed == len(values)


def test_hours_and_days_have_sketches_and_five_minutes_have_none(made, attempts):
    """A window of five minutes shows no quantiles; an hour has the counts of its own, and shows them."""
    rows = deliverability.shown(made(attempts)).collect()
    assert {row.grain for row in rows if row.p50_ms is not None} == {"hour", "day"}
    assert all(row.p50_ms is not None for row in rows if row.timed and row.grain != "5min")
    hours = {(utc(row.since), *of(row)): measures(row) for row in made(attempts).filter("grain = 'hour'").collect()}
    assert hours == counted(plain(attempts), lambda row: (hour(row.at), *of(row)))


def test_what_has_no_envelope_has_no_latency(made, table_of, journal):
    """An attempt whose envelope has not come yet is counted, and leaves the distribution alone."""
    journal.result("00000000000000a1", ["a@x.example"], "delivered")
    rows = made(attempts_of(table_of(journal.rows)))
    told = deliverability.shown(rows.filter("grain = 'day'")).first()
    assert (told.delivered, told.timed, told.p50_ms, told.latency_max_ms) == (1, 0, None, None)


def test_every_attempt_is_in_one_row(made, attempts):
    """Nothing is lost between the grains."""
    sums = made(attempts).groupBy("grain").agg(F.sum("attempts").alias("n")).collect()
    assert Counter({row.grain: row.n for row in sums}) == dict.fromkeys(deliverability.GRAINS, len(attempts))
