"""What is usual: shares of attempts that were deferred, bounced and blocked, from the lake's roll-ups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKED = ("blocked", "spam", "reputation")


def shares(spark: SparkSession, lake: Path) -> dict[str, float]:
    """Shares (0 to 1) of all attempts that table deliverability knows; empty without any."""
    from pyspark.sql import functions as F

    from zonemta_py.pipeline.table import read

    days = read(spark, lake, "deliverability").where("grain = 'day'")
    row = days.agg(F.sum("attempts"), F.sum("deferred"), F.sum("bounced")).first()
    if row is None or not row[0]:
        return {}
    return {"deferred": row[1] / row[0], "bounced": row[2] / row[0]}
