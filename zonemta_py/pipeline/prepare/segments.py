"""The segment: its condition, and recent openers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.pipeline.prepare.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEGMENT, ENGAGEMENT = "not in the segment", "not engaged"
RECENT, OTHERS = 0, 1


def in_segment(people: DataFrame) -> DataFrame:
    """`inside` was found when the list was read; here it becomes the reason."""
    from pyspark.sql import functions as F

    reason = F.when(F.col("reason").isNull() & ~F.col("inside"), SEGMENT).otherwise(F.col("reason"))
    return people.withColumn("reason", reason).drop("inside")


def engaged(people: DataFrame, engagement: DataFrame | None, settings: Settings) -> DataFrame:
    """Adds `tier`: 0 for recent openers, who go first, 1 for others. engagement: address, kind, at (events)."""
    from pyspark.sql import functions as F

    if engagement is None or not settings.recent_days:
        return people.withColumn("tier", F.lit(OTHERS))
    since = F.date_sub(F.to_date(F.lit(settings.as_of)), settings.recent_days)
    openers = engagement.where(F.col("kind").isin("open", "click") & (F.to_date("at") >= since))
    openers = openers.select(F.lower(F.trim("address")).alias("key"), F.lit(True).alias("opened")).distinct()
    people = people.join(openers, "key", "left")
    people = people.withColumn("tier", F.when(F.col("opened"), RECENT).otherwise(OTHERS)).drop("opened")
    if not settings.engaged_only:
        return people
    away = F.col("reason").isNull() & (F.col("tier") == OTHERS)
    return people.withColumn("reason", F.when(away, ENGAGEMENT).otherwise(F.col("reason")))
