"""Each recipient's own hour: that of their day in which they open and click most, by their own clocks.

A click counts three times as much as an open, and an event half as much after thirty days (`findings.engagement`). Who
has fewer than LEAST events has no hour of their own, and goes at the campaign's. Opens that a provider makes by itself
when mail comes say when mail came: of those who send at one hour only, the best hour will be that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.pipeline.prepare.settings import BestHour, Settings
from zonemta_py.pipeline.spark.little_data import small

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FIELD = "best_hour"
"""The column of batches that has it, "HH:00" or ""."""
LEAST = 3
HALF_LIFE_DAYS, CLICK = 30.0, 3.0
_DAY_S = 86_400


def with_best_hour(people: DataFrame, engagement: DataFrame | None, settings: Settings) -> DataFrame:
    """Adds it to `row` as the last value, and `own`, whether there is one. engagement: address, kind, at (events)."""
    from pyspark.sql import functions as F

    if settings.best is None:
        return people
    if engagement is None:
        found = people.withColumn("hour", F.lit(None).cast("int"))
    else:
        found = people.join(_hours(people, engagement, settings, settings.best), "key", "left")
    value = F.when(F.col("hour").isNotNull(), F.format_string('"%02d:00"', "hour")).otherwise('""')
    row = F.when(F.col("row") == "", value).otherwise(F.concat("row", F.lit(","), value))
    return found.withColumn("row", row).withColumn("own", F.col("hour").isNotNull()).drop("hour")


def _hours(people: DataFrame, engagement: DataFrame, settings: Settings, best: BestHour) -> DataFrame:
    """key, hour (0 to 23) of those who have enough events."""
    from pyspark.sql import functions as F

    where = people.where(F.col("reason").isNull()).select("key", _zone(settings, best).alias("value"))
    zones = small(people.sparkSession, sorted(best.zones.items()), "value string, zone string")
    where = where.join(F.broadcast(zones), "value", "left").select(
        "key", F.coalesce("zone", F.lit(best.zone)).alias("zone")
    )
    now = F.unix_timestamp(F.to_timestamp(F.lit(settings.as_of)))
    days = F.greatest(F.lit(0.0), (now - F.unix_timestamp("at")) / _DAY_S)
    weight = F.when(F.col("kind") == "click", CLICK).otherwise(1.0) * F.pow(F.lit(0.5), days / HALF_LIFE_DAYS)
    told = engagement.where(F.col("kind").isin("open", "click") & F.col("at").isNotNull())
    told = told.select(F.lower(F.trim("address")).alias("key"), "at", "kind", "campaign").distinct()
    told = told.join(where, "key").withColumn("hour", F.hour(F.from_utc_timestamp("at", F.col("zone"))))
    each = told.groupBy("key", "hour").agg(F.sum(weight).alias("weight"), F.count("*").alias("n"))
    most = F.max_by("hour", F.struct("weight", -F.col("hour"))).alias("hour")
    return each.groupBy("key").agg(most, F.sum("n").alias("n")).where(F.col("n") >= LEAST).drop("n")


def _zone(settings: Settings, best: BestHour) -> Column:
    """What the list has as the recipient's time zone."""
    from pyspark.sql import functions as F

    if not best.zone_field:
        return F.lit("")
    place = list(settings.fields).index(best.zone_field)
    return F.trim(F.coalesce(F.get_json_object(F.concat(F.lit("["), "row", F.lit("]")), f"$[{place}]"), F.lit("")))
