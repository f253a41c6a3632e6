"""One row per mailbox: the first of the list. Rows that were refused are put together by reason, with some examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = 20
_KEPT = ("raw", "address", "domain", "row", "marks", "inside", "reason", "line")


def unique(rows: DataFrame) -> DataFrame:
    """Adds `n`: how many rows stand behind this one. Which row stays depends on its place in the list alone."""
    from pyspark.sql import functions as F

    example = F.pmod(F.xxhash64(F.coalesce("raw", "broken")), F.lit(EXAMPLES)).cast("string")
    refused = F.concat(F.lit("\0"), F.col("reason"), F.lit("\0"), F.coalesce(example, F.lit("")))
    rows = rows.withColumn("key", F.when(F.col("reason").isNotNull(), refused).otherwise(F.col("key")))
    rows = rows.withColumn("raw", F.when(F.col("reason").isNotNull(), F.coalesce("broken", "raw")))
    first = F.min_by(F.struct(*_KEPT), "line").alias("first")
    return rows.groupBy("key").agg(first, F.count("*").alias("n")).select("key", "n", "first.*")
