"""Table `deliverability`: what became of attempts, per window and kind of mail, in rows that can be added up further.

A row is a window of five minutes (`grain` "5min"), an hour ("hour") or a day ("day") × zone × source × provider ×
campaign × tenant. All in it are counts, sums or sketches, so `rolled` makes any coarser view without the attempts.
Latency is the time from acceptance to delivery in ms, of delivered attempts whose envelope is known (`timed` of them);
its distribution is kept as a KLL sketch (Karnin, Lang, Liberty 2016), whose quantiles are within 2 % of rank; `exact`
takes them from the attempts. Rows of five minutes have none (null): they hold a handful of attempts each, of which a
mean and a maximum say as much, and sketches of them took more time than everything else. A sketch of more than some
200 values depends on chance: its bytes, never its counts, differ from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("zone", "source", "provider", "campaign", "tenant")
"""What the rows are split by, besides `grain` and `since`."""

COUNTS = ("attempts", "delivered", "deferred", "bounced", "held", "retries", "encrypted", "timed", "latency_sum_ms")
"""retries: attempts after a recipient's first. encrypted: those of `delivered` that went over TLS."""

MAPS = ("deferred_by", "bounced_by")
"""Attempts per class of reply, as map; class "" where no rule was asked."""

COLUMNS = ("grain", "since", *KEYS, *COUNTS, "latency_max_ms", *MAPS, "latency", "day")

QUANTILES = (0.5, 0.95, 0.99)
GRAINS = ("5min", "hour", "day")
NAMES = ("p50_ms", "p95_ms", "p99_ms")
_WINDOW_S = 300


def deliverability(deliveries: DataFrame) -> DataFrame:
    """The table's rows (COLUMNS), all grains, from rows of table `deliveries`; two passes over few of their columns."""
    counted, drawn = _counted(deliveries), _drawn(deliveries)
    hour, day = F.date_trunc("hour", "since"), F.col("day").cast("timestamp")
    hours = _added_up(counted.withColumn("since", hour)).unionByName(drawn, allowMissingColumns=True)
    merged = (
        drawn.withColumn("since", day)
        .groupBy("day", "since", *KEYS)
        .agg(F.kll_merge_agg_bigint("latency").alias("latency"))
    )
    days = _added_up(counted.withColumn("since", day)).unionByName(merged, allowMissingColumns=True)
    grains = zip(GRAINS, (counted, hours, days), strict=True)
    return reduce(
        lambda one, other: one.unionByName(other),
        (_packed(rows).withColumn("grain", F.lit(name)).select(*COLUMNS) for name, rows in grains),
    )


def rolled(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Rows of one grain added up: one row for each `by`, with COUNTS, MAPS and a sketch that can be added up again.

    Do not mix grains: filter on one before (`grain = 'day'`).
    """
    sums = [F.sum(name).alias(name) for name in COUNTS]
    latest = F.max("latency_max_ms").alias("latency_max_ms")
    maps = [_added(name).alias(name) for name in MAPS]
    return rows.groupBy(*by).agg(*sums, latest, *maps, F.kll_merge_agg_bigint("latency").alias("latency"))


def shown(rows: DataFrame) -> DataFrame:
    """In place of the sketch its quantiles (NAMES, in ms), and the shares of what was tried or delivered (0 to 1)."""
    known = (F.col("timed") > 0) & F.col("latency").isNotNull()
    quantiles = {
        name: F.when(known, F.kll_sketch_get_quantile_bigint("latency", F.lit(at)))
        for name, at in zip(NAMES, QUANTILES, strict=True)
    }
    shares = {
        "delivered_share": _share("delivered", "attempts"),
        "deferred_share": _share("deferred", "attempts"),
        "bounced_share": _share("bounced", "attempts"),
        "tls_share": _share("encrypted", "delivered"),
        "latency_mean_ms": _share("latency_sum_ms", "timed"),
    }
    return rows.withColumns(quantiles | shares).drop("latency", "latency_sum_ms")


def exact(deliveries: DataFrame, by: Sequence[str]) -> DataFrame:
    """For each `by` the quantiles (NAMES) from all attempts: the sketches' measure, and their dear alternative."""
    values = F.percentile(_latency(), F.array(*map(F.lit, QUANTILES)))
    rows = deliveries.groupBy(*by).agg(values.alias("values"))
    picked = [F.col("values")[index].alias(name) for index, name in enumerate(NAMES)]
    return rows.select(*by, *picked)


def _counted(deliveries: DataFrame) -> DataFrame:
    """Five-minute counts, those of each verdict and class (_SPLIT) still apart: few, and kept in flat hash tables."""
    failed = F.col("verdict").isin("deferred", "bounced")
    kind = F.when(failed, F.coalesce("class", F.lit("")))
    sums = [
        F.count("*").alias("attempts"),
        F.count_if(F.col("attempt") > 1).alias("retries"),
        F.count_if(F.col("tls") != "").alias("encrypted"),
        F.count("ms").alias("timed"),
        F.sum("ms").alias("latency_sum_ms"),
        F.max("ms").alias("latency_max_ms"),
    ]
    columns = {"since": _since(_WINDOW_S), "class": kind, "ms": _latency()}
    return deliveries.withColumns(columns).groupBy(*_SPLIT).agg(*sums).withColumn("latency", F.lit(None).cast("binary"))


def _drawn(deliveries: DataFrame) -> DataFrame:
    """The sketch of each hour and kind of mail, in a row without counts."""
    delivered = deliveries.filter(_latency().isNotNull()).withColumn("since", _since(3600))
    return delivered.groupBy("day", "since", *KEYS).agg(F.kll_sketch_agg_bigint(_latency()).alias("latency"))


def _since(seconds: int) -> Column:
    return F.timestamp_seconds(F.floor(F.unix_seconds("at") / seconds) * seconds)


_SPLIT = ("day", "since", *KEYS, "verdict", "class")
_SUMS = ("attempts", "retries", "encrypted", "timed", "latency_sum_ms")


def _added_up(counted: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return counted.groupBy(*_SPLIT).agg(*sums, F.max("latency_max_ms").alias("latency_max_ms"))


def _packed(rows: DataFrame) -> DataFrame:
    """One row for each window and kind of mail: verdicts as columns, classes as maps, and the sketch, if any."""
    columns = [
        _sum(F.col("attempts")).alias("attempts"),
        *(_sum(_of(verdict, "attempts")).alias(verdict) for verdict in ("delivered", "deferred", "bounced", "held")),
        _sum(F.col("retries")).alias("retries"),
        _sum(_of("delivered", "encrypted")).alias("encrypted"),
        _sum(F.col("timed")).alias("timed"),
        _sum(F.col("latency_sum_ms")).alias("latency_sum_ms"),
        F.max("latency_max_ms").alias("latency_max_ms"),
        *(_classes(name.removesuffix("_by")).alias(name) for name in MAPS),
        F.get(F.collect_list("latency"), F.lit(0)).alias("latency"),
    ]
    return rows.groupBy("day", "since", *KEYS).agg(*columns)


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def _of(verdict: str, name: str) -> Column:
    return F.when(F.col("verdict") == verdict, F.col(name))


def _latency() -> Column:
    """Milliseconds from acceptance to delivery; null for what was not delivered, or whose envelope is unknown."""
    return F.when(F.col("verdict") == "delivered", F.unix_millis("at") - F.unix_millis("received_at"))


def _classes(verdict: str) -> Column:
    """class → attempts; each class is in one row."""
    return F.map_from_entries(F.collect_list(F.when(F.col("verdict") == verdict, F.struct("class", "attempts"))))


def _added(name: str) -> Column:
    """Maps of counts as one map of sums."""
    nothing = F.create_map().cast("map<string,bigint>")
    maps = F.filter(F.collect_list(name), lambda one: F.size(one) > 0)
    return F.aggregate(maps, nothing, lambda all_, one: F.map_zip_with(all_, one, lambda _, a, b: _plus(a, b)))


def _plus(one: Column, other: Column) -> Column:
    return F.coalesce(one, F.lit(0)) + F.coalesce(other, F.lit(0))


def _share(part: str, whole: str) -> Column:
    return F.when(F.col(whole) > 0, F.col(part) / F.col(whole))
