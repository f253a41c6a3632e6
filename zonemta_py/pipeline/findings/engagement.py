"""What people did with their mail: opens, clicks, unsubscribes and complaints, and a score.

`events` reads a file of them (CSV with a heading, JSON lines or Parquet; columns address, kind, at, campaign); `told`
takes those that came back to the MTA itself; `engagement` makes one row for each person. The same event fed in twice
counts once.

Some providers' proxies load every picture as soon as the mail has come, whether a person reads it or not (Apple's Mail
Privacy Protection and the like): an open within `proxy_s` seconds of a delivery of that campaign to that address is
no engagement. A click is.
Failures: `events` raises ValueError with one sentence for a file that is not of this form.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

EVENTS = "address string, kind string, at timestamp, campaign string"
KINDS = ("open", "click", "unsubscribe", "complaint")
PROXY_S = 30.0
HALF_LIFE_DAYS = 30.0
WEIGHTS = {"open": 1.0, "click": 3.0}
"""What an open and a click of today are worth; after HALF_LIFE_DAYS half of it."""
_DAY_S = 86_400
_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


def events(spark: SparkSession, path: Path) -> DataFrame:
    """EVENTS of a file, or of a folder of such files. Raises ValueError."""
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        raise ValueError(f"{path}: its format is unknown; its name must end in .csv, .jsonl or .parquet")
    if not path.exists():
        raise ValueError(f"{path}: does not exist; name a file of events")
    # Everything as text first: a time may be ISO 8601 or UNIX seconds or milliseconds.
    reader = spark.read.option("header", True).option("primitivesAsString", True)
    found = reader.format(form).load(str(path))
    missing = sorted({"address", "kind", "at"} - set(found.columns))
    if missing:
        raise ValueError(
            f"{path}: has no column {missing[0]!r}; columns are address, kind, at and, optionally, campaign"
        )
    campaign = F.col("campaign").cast("string") if "campaign" in found.columns else F.lit("")
    at = F.col("at") if dict(found.dtypes)["at"].startswith("timestamp") else _moment(F.col("at").cast("string"))
    return found.select(
        F.lower(F.trim("address")).alias("address"), F.lower(F.trim("kind")).alias("kind"), at.alias("at"),
        F.coalesce(campaign, F.lit("")).alias("campaign"),
    )  # fmt: skip


def told(feedback: DataFrame) -> DataFrame:
    """EVENTS of what came back (the lake's table `feedback`): what is genuine."""
    rows = feedback.where(F.col("kind").isin(*KINDS) & (F.col("genuine") != ""))
    return rows.select(
        F.lower(F.trim("recipient")).alias("address"), "kind", "at", F.coalesce("campaign", F.lit("")).alias("campaign")
    )


def unusable(found: DataFrame) -> DataFrame:
    """Of EVENTS, those without an address or a time, or of a kind that is none of KINDS."""
    return found.where(~_usable())


def engagement(found: DataFrame, deliveries: DataFrame, now: datetime.datetime, proxy_s: float = PROXY_S) -> DataFrame:
    """One row for each person with an event: address, last_open_at, last_click_at, opens_30d, opens_90d, clicks_30d,
    clicks_90d, unsubscribed_at, complained_at, score (0 after an unsubscribe or a complaint). now: with time zone.
    """
    distinct = (
        found.where(_usable() & (F.col("at") <= F.lit(now))).select("address", "kind", "at", "campaign").distinct()
    )
    mine = _without_proxies(distinct, deliveries, proxy_s)
    days = (F.unix_timestamp(F.lit(now)) - F.unix_timestamp("at")) / _DAY_S
    columns = [
        _last("open").alias("last_open_at"),
        _last("click").alias("last_click_at"),
        *(_within(kind, days, span).alias(f"{kind}s_{span}d") for kind in WEIGHTS for span in (30, 90)),
        _last("unsubscribe").alias("unsubscribed_at"),
        _last("complaint").alias("complained_at"),
        F.sum(_worth(days)).alias("worth"),
    ]
    gone = F.col("unsubscribed_at").isNotNull() | F.col("complained_at").isNotNull()
    people = mine.groupBy("address").agg(*columns)
    return people.withColumn("score", F.when(gone, 0.0).otherwise(F.round("worth", 3))).drop("worth")


def _without_proxies(distinct: DataFrame, deliveries: DataFrame, proxy_s: float) -> DataFrame:
    got = deliveries.where("verdict = 'delivered'").select(
        F.lower(F.trim("recipient")).alias("to"),
        F.coalesce("campaign", F.lit("")).alias("of"),
        F.col("at").alias("came"),
    )
    since = F.col("at").cast("double") - F.col("came").cast("double")
    soon = since.between(0, proxy_s) & ((F.col("campaign") == "") | (F.col("of") == F.col("campaign")))
    opened = distinct.where("kind = 'open'").join(got, (F.col("address") == F.col("to")) & soon, "left_anti")
    return distinct.where("kind <> 'open'").unionByName(opened)


def _usable() -> Column:
    return F.col("address").contains("@") & F.col("at").isNotNull() & F.col("kind").isin(*KINDS)


def _moment(text: Column) -> Column:
    """ISO 8601, or UNIX time: of more than eleven digits it is milliseconds."""
    number = F.when(text.rlike(r"^\d{9,11}(\.\d+)?$"), text.cast("double"))
    number = number.when(text.rlike(r"^\d{12,14}$"), text.cast("double") / 1000)
    return F.coalesce(F.timestamp_micros((number * 1_000_000).cast("bigint")), F.try_to_timestamp(text))


def _last(kind: str) -> Column:
    return F.max(F.when(F.col("kind") == kind, F.col("at")))


def _within(kind: str, days: Column, span: int) -> Column:
    return F.count_if((F.col("kind") == kind) & (days <= span))


def _worth(days: Column) -> Column:
    weight = F.lit(0.0)
    for kind, value in WEIGHTS.items():
        weight = F.when(F.col("kind") == kind, value).otherwise(weight)
    return weight * F.pow(F.lit(0.5), days / HALF_LIFE_DAYS)
