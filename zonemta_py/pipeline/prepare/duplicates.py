"""One row per mailbox: the first of the list. Rows that were refused are put together by reason, with some examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = 20
_KEPT = ("raw", "address", "row", "marks", "inside", "reason", "line")


def unique(rows: DataFrame) -> DataFrame:
    """Adds `n`: how many rows stand behind this one. Which row stays depends on its place in the list alone.

    Rows go to their mailbox's partition first: the aggregation sorts, and before the shuffle it would do so in vain.
    """
    from pyspark.sql import functions as F

    example = F.pmod(F.xxhash64(F.coalesce("raw", "broken")), F.lit(EXAMPLES)).cast("string")
    refused = F.concat(F.lit("\0"), F.col("reason"), F.lit("\0"), F.coalesce(example, F.lit("")))
    rows = rows.withColumn("key", F.when(F.col("reason").isNotNull(), refused).otherwise(F.col("key")))
    rows = rows.withColumn("raw", F.when(F.col("reason").isNotNull(), F.coalesce("broken", "raw")))
    rows = rows.withColumn("address", F.nullif("address", "key"))  # mostly the same, and all of this is shuffled
    rows = rows.select("key", *_KEPT).repartition("key")
    first = F.min_by(F.struct(*_KEPT), "line").alias("first")
    found = rows.groupBy("key").agg(first, F.count("*").alias("n")).select("key", "n", "first.*")
    whole = F.coalesce("address", F.when(F.col("reason").isNull(), F.col("key")))
    return found.withColumn("address", whole).withColumn("domain", F.substring_index("address", "@", -1))
