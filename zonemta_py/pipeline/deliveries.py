"""Table `deliveries`: one row per attempt and recipient, with what the envelope says of the message.

An attempt is a result that counts as one in the queue: delivered, deferred, bounced or held by a plugin (the queue's
own bounce of what has become too old among them). "released" and "postponed" were not tried, and are no rows here.
Attempts of a recipient of a message are numbered in the order of the journal (`seq`), over all days.

What an envelope says of the message (sender, size, campaign …) is the same for all its recipients; so the join is by
id with one row per id, the first recipient's, and a campaign's batch of 500 recipients costs one row. An envelope
that has not reached the archive yet leaves these columns null; when it comes, `touched` names the days to be made
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ATTEMPTS = ("delivered", "deferred", "bounced", "held")
"""Verdicts that count as an attempt."""

ENDS = ("delivered", "bounced")
"""Verdicts after which there is no further attempt."""

_KEY = ("seq", "part", "id", "recipient", "day")
_RESULT = (
    "at", "zone", "source", "site", "provider", "started_at", "took_ms", "verdict", "code", "enhanced", "reply",
    "stage", "class", "rule", "tls", "remote",
)  # fmt: skip
_MESSAGE = ("sender", "size", "received_at", "campaign", "tenant")

COLUMNS = (
    "id", "recipient", "domain", "zone", "sender", "campaign", "tenant", "source", "site", "provider",
    "started_at", "at", "took_ms", "attempt", "verdict", "code", "enhanced", "reply", "stage", "class", "rule",
    "tls", "remote", "size", "received_at", "first_at", "final", "seq", "part", "day",
)  # fmt: skip
"""first_at: when the recipient's first attempt began. final: this attempt ended the recipient. seq, part: journal's."""


def deliveries(bronze: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """The table's rows (COLUMNS) for all attempts among `bronze`, rows of the journal with `day`.

    earlier: `keys` of attempts that shall count in the numbering but have no rows of their own in the result.
    """
    rows = attempts(bronze).withColumn("wanted", F.lit(True))
    if earlier is not None:
        rows = rows.unionByName(earlier.withColumn("wanted", F.lit(False)), allowMissingColumns=True)
    joined = numbered(rows).filter("wanted").join(messages(bronze), "id", "left")
    domain = F.lower(F.substring_index("recipient", "@", -1))
    return joined.withColumn("domain", domain).select(*COLUMNS)


def attempts(bronze: DataFrame) -> DataFrame:
    """The rows of `bronze` that are attempts, with the columns a result has."""
    return bronze.filter(is_attempt()).select(*_KEY, *_RESULT)


def keys(bronze: DataFrame) -> DataFrame:
    """Of the attempts in `bronze` what their numbering needs."""
    return bronze.filter(is_attempt()).select(*_KEY, "verdict", "started_at")


def is_attempt() -> Column:
    return (F.col("type") == "DELIVERY") & F.col("verdict").isin(*ATTEMPTS)


def numbered(rows: DataFrame) -> DataFrame:
    """Adds `attempt` (from 1), `first_at` and `final`, all of which depend on earlier attempts only.

    Spread by id alone, so that the join by id that follows needs no second shuffle and no second sort.
    """
    order = Window.partitionBy("id", "recipient").orderBy("seq", "part")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ends = F.col("verdict").isin(*ENDS)
    return (
        rows.repartition("id")
        .withColumn("attempt", F.row_number().over(order))
        .withColumn("first_at", F.first("started_at", ignorenulls=True).over(so_far))
        .withColumn("final", ends & (F.sum(ends.cast("int")).over(so_far) == 1))
    )


def messages(bronze: DataFrame) -> DataFrame:
    """One row per id: what the envelope says of the message. A start that writes an envelope again changes nothing."""
    first = Window.partitionBy("id").orderBy("seq")
    envelopes = bronze.filter((F.col("type") == "ENVELOPE") & (F.col("part") == 0))
    ranked = envelopes.select("id", "seq", *_MESSAGE).withColumn("rank", F.row_number().over(first))
    return ranked.filter("rank = 1").drop("rank", "seq")


def touched(bronze: DataFrame, new: DataFrame) -> DataFrame:
    """Days (column `day`) whose rows change when `new` joins the others in `bronze` (which holds `new` already).

    These are the days of the new attempts, of later attempts of the same messages (their numbers change), and of all
    attempts of messages whose envelope is new.
    """
    relevant = new.filter(is_attempt() | ((F.col("type") == "ENVELOPE") & (F.col("part") == 0)))
    since = F.min(F.when(F.col("type") == "ENVELOPE", F.lit(-1)).otherwise(F.col("seq")))
    changed = relevant.groupBy("id").agg(since.alias("since"))
    known = bronze.filter(is_attempt()).select("id", "seq", "day")
    again = known.join(changed, "id").filter(F.col("seq") >= F.col("since"))
    return again.select("day").union(new.filter(is_attempt()).select("day")).distinct()
