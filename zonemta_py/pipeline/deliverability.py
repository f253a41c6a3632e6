"""Table `deliverability`: what became of attempts, per window and kind of mail, in rows that can be added up further.

A row is a window of five minutes (`grain` "5min") or a day ("day") × zone × source × provider × campaign × tenant. All
in it are counts, sums or sketches, so `rolled` makes any coarser view without the attempts. Latency is the time from
acceptance to delivery in ms, of delivered attempts whose envelope is known (`timed` of them); its distribution is kept
as a KLL sketch (Karnin, Lang, Liberty 2016), whose quantiles are within 2 % of rank; `exact` takes them from the
attempts. A sketch of more than some 200 values depends on chance: its bytes, never its counts, differ from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
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
NAMES = ("p50_ms", "p95_ms", "p99_ms")
_WINDOW_S = 300


def deliverability(deliveries: DataFrame) -> DataFrame:
    """The table's rows (COLUMNS), both grains, from rows of table `deliveries`; one pass over these."""
    fine = _windows(deliveries)
    days = rolled(fine.withColumn("since", F.col("day").cast("timestamp")), ["day", "since", *KEYS])
    by_grain = fine.withColumn("grain", F.lit("5min")).select(*COLUMNS)
    return by_grain.unionByName(days.withColumn("grain", F.lit("day")).select(*COLUMNS))


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
    known = F.col("timed") > 0
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


def _windows(deliveries: DataFrame) -> DataFrame:
    """Five-minute rows. Classes are kept apart in a first step, and joined into maps in a second over few rows."""
    since = F.timestamp_seconds(F.floor(F.unix_seconds("at") / _WINDOW_S) * _WINDOW_S)
    failed = F.col("verdict").isin("deferred", "bounced")
    kind = F.when(failed, F.struct("verdict", F.coalesce("class", F.lit("")).alias("class")))
    split = ["day", "since", *KEYS, "kind"]
    counted = deliveries.withColumns({"since": since, "kind": kind}).groupBy(*split).agg(*_measures())
    maps = {name: _classes(verdict) for name, verdict in zip(MAPS, ("deferred", "bounced"), strict=True)}
    return rolled(counted.withColumns(maps), ["day", "since", *KEYS])


def _measures() -> list[Column]:
    delivered = F.col("verdict") == "delivered"
    conditions = {
        "attempts": F.lit(True),
        **{verdict: F.col("verdict") == verdict for verdict in ("delivered", "deferred", "bounced", "held")},
        "retries": F.col("attempt") > 1,
        "encrypted": delivered & (F.col("tls") != ""),
        "timed": _latency().isNotNull(),
    }
    counts = [F.count_if(condition).alias(name) for name, condition in conditions.items()]
    sums = [F.coalesce(F.sum(_latency()), F.lit(0)).alias("latency_sum_ms"), F.max(_latency()).alias("latency_max_ms")]
    return [*counts, *sums, F.kll_sketch_agg_bigint(_latency()).alias("latency")]


def _latency() -> Column:
    """Milliseconds from acceptance to delivery; null for what was not delivered, or whose envelope is unknown."""
    return F.when(F.col("verdict") == "delivered", F.unix_millis("at") - F.unix_millis("received_at"))


def _classes(verdict: str) -> Column:
    """The map of one row of one class."""
    mine = F.col("kind.verdict") == verdict
    one = F.create_map(F.col("kind.class"), F.col("attempts"))
    return F.when(mine, one).otherwise(F.create_map().cast("map<string,bigint>"))


def _added(name: str) -> Column:
    """Maps of counts as one map of sums."""
    nothing = F.create_map().cast("map<string,bigint>")
    maps = F.filter(F.collect_list(name), lambda one: F.size(one) > 0)
    return F.aggregate(maps, nothing, lambda all_, one: F.map_zip_with(all_, one, lambda _, a, b: _plus(a, b)))


def _plus(one: Column, other: Column) -> Column:
    return F.coalesce(one, F.lit(0)) + F.coalesce(other, F.lit(0))


def _share(part: str, whole: str) -> Column:
    return F.when(F.col(whole) > 0, F.col(part) / F.col(whole))
