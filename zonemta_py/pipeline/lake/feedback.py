"""Table `feedback`: one row for each FEEDBACK record, beside the attempt that had delivered the message.

Each record is one recipient's news (`FeedbackRecord`). provider, source and site are those of the recipient's last
attempt before it, where the message is known and its attempt is in the lake, received_at (when the message came in) and
campaign, tenant and zone too; without it, these three are what the record says, the others null. An attempt that comes
later into the lake is seen when the day is made again. A record that only repeats one (`again`) is no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

from zonemta_py.journal.records.people import AGGREGATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATEST_DAYS = 100
"""How long a return path can hold (`return_path.verp_days`)."""
_TOLD = "form string, tied string, scope string, message_id string, agreed boolean, again boolean"
_MESSAGE = ("campaign", "tenant", "zone")
_ATTEMPT = ("id", "recipient", "at", "attempt", "verdict", "provider", "source", "site", "received_at", *_MESSAGE)


def attempts_of(days: Sequence[date]) -> list[date]:
    """The days of `deliveries` that such rows may go back to."""
    return sorted({day - timedelta(days=number) for day in days for number in range(LATEST_DAYS + 1)})


def rows(bronze: DataFrame, deliveries: DataFrame, days: Sequence[date] | None) -> DataFrame:
    """The table's rows of these days (None: of all)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    told = bronze.where("type = 'FEEDBACK'").where(~f.col("kind").isin(*AGGREGATES))
    if days is not None:
        told = told.where(f.col("day").isin(list(days)))
    told = told.dropDuplicates(["seq"]).withColumn("told", f.from_json("value", _TOLD)).where("not told.again")
    attempts = deliveries.select(*_ATTEMPT).alias("d")
    found = told.alias("t").join(attempts, f.expr("t.id = d.id and t.recipient = d.recipient and d.at <= t.at"), "left")
    latest = Window.partitionBy("t.seq").orderBy(f.col("d.at").desc_nulls_last(), f.col("d.attempt").desc_nulls_last())
    found = found.withColumn("place", f.row_number().over(latest)).where("place = 1")
    campaign, tenant, zone = (f.expr(f"coalesce(nullif(d.{name}, ''), t.{name})").alias(name) for name in _MESSAGE)
    return found.select(
        "t.at", "t.kind", "t.recipient", f.expr("lower(substring_index(t.recipient, '@', -1))").alias("domain"), "t.id",
        campaign, tenant, zone, "t.code", "t.enhanced", "t.reply", "t.class", "t.rule",
        f.col("t.remote").alias("reporter"), f.col("t.what").alias("via"), f.col("t.name").alias("genuine"),
        "told.form", "told.tied", "told.scope", "told.message_id", "told.agreed", "d.provider", "d.source", "d.site",
        f.expr("case when d.verdict = 'delivered' then d.at end").alias("delivered_at"), "d.received_at",
        "t.seq", f.expr("coalesce(t.node, '')").alias("node"), "t.metadata", "t.headers", "t.day",
    )  # fmt: skip


def touched(bronze: DataFrame, new: DataFrame) -> list[date]:
    """Days of new records, and of those whose message's envelope or attempts are new. new: what has come of the
    journal."""
    mine = "type = 'FEEDBACK'"
    attempts = new.where("type in ('DELIVERY', 'ENVELOPE')").select("id").distinct()
    late = bronze.where(mine).join(attempts, "id", "left_semi").select("day")
    return [row.day for row in new.where(mine).select("day").union(late).distinct().collect()]
