"""What is usual: shares of attempts that were deferred, bounced and blocked, from the lake's roll-ups.

As the queue counts them for a campaign's bounds: what was blocked is among the deferred or the bounced too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.mail.rules.classes import BLOCKED_CLASSES

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def shares(spark: SparkSession, lake: Path) -> dict[str, float]:
    """Shares (0 to 1) of all attempts that table deliverability knows; empty without any."""
    from pyspark.sql import functions as F

    from zonemta_py.pipeline.lake.table import read

    days = read(spark, lake, "deliverability").where("grain = 'day'")
    blocked = F.sum(_blocked("deferred_by") + _blocked("bounced_by"))
    row = days.agg(F.sum("attempts"), F.sum("deferred"), F.sum("bounced"), blocked).first()
    if row is None or not row[0]:
        return {}
    return {"deferred": row[1] / row[0], "bounced": row[2] / row[0], "blocked": row[3] / row[0]}


def _blocked(by: str) -> Column:
    """Of a column with a map class → attempts."""
    from pyspark.sql import functions as F

    counts = F.map_values(F.map_filter(by, lambda name, _: name.isin(*sorted(BLOCKED_CLASSES))))
    return F.aggregate(counts, F.lit(0).cast("bigint"), lambda a, b: a + b)
