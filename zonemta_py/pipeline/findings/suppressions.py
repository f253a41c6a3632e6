"""Addresses to suppress: hard bounces and complaints, found by a table of standards, each row with its evidence.

A standard names classes of replies (`mail.rules.classes.CLASSES`) that are about the recipient. It is met by enough
different messages over enough days, without a delivery between: a later delivery clears what was before it, and so does
an operator who takes the address off the list (UNSUPPRESS). Replies about us (blocks, policy, spam, rates, TLS,
network) are in no standard, so they never stop a person's mail. Complaints and unsubscribes count at once and nothing
but an operator clears them.

A provider that breaks down may refuse all recipients as unknown. So where STORM_LEAST people of a domain who received
mail before are refused in one day, one refusal of them does not count: it takes a second one STORM_DAYS later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.pipeline.erasure.person import ERASED_DOMAIN
from zonemta_py.pipeline.prepare.normalise import NEEDLESS_QUOTES

EVIDENCE_MAX = 5
"""Replies kept with a row: the first one and the latest ones."""
REASON_CHARACTERS_MAX = 300
STORM_LEAST = 20
STORM_DAYS = 2
_DAY_S = 86_400


class Standard(NamedTuple):
    """messages: different ones that were refused so, at least. days: between the first and the last refusal, at least.

    verdicts: of the attempts that count. why: in words.
    """

    name: str
    classes: tuple[str, ...]
    verdicts: tuple[str, ...]
    messages: int
    days: float
    why: str


def _of(group: str, but: str = "") -> tuple[str, ...]:
    """The classes that suppress so."""
    return tuple(name for name, one in CLASSES.items() if one.suppresses == group and name != but)


STANDARDS = (
    Standard("address-unknown", _of("unknown", but="moved"), ("bounced",), 1, 0, "the address does not exist"),
    Standard("address-moved", ("moved",), ("bounced",), 1, 0, "the recipient has a new address"),
    Standard("mailbox-inactive", _of("inactive"), ("bounced", "deferred"), 3, 7, "the mailbox is not used any more"),
    Standard("mailbox-full", _of("full"), ("bounced", "deferred"), 5, 14, "the mailbox has been full for a long time"),
    Standard("domain-gone", _of("domain"), ("bounced", "deferred"), 3, 7, "the domain no longer accepts mail"),
)
"""Asked in this order: of several that are met, the first is the row's."""

EVENT_KINDS = ("complaint", "unsubscribe")
"""Events (`engagement`) that stop a person's mail at once; the second that of campaigns only."""

COLUMNS = ("address", "kind", "since", "until", "reason", "rule", "messages", "attempts", "evidence")
_EVIDENCE = ("at", "id", "campaign", "code", "enhanced", "reply", "stage", "class", "provider", "source")
_EVIDENCE_DDL = (
    "struct<at: timestamp, id: string, campaign: string, code: int, enhanced: string, reply: string, stage: string,"
    " class: string, provider: string, source: string>"
)


def suppressions(deliveries: DataFrame, events: DataFrame, lifted: DataFrame | None = None) -> DataFrame:
    """One row for each person and kind: COLUMNS. deliveries: the lake's table. events: `engagement.EVENTS`. lifted:
    address, at: when an operator took it off the list. kind: as the node's list has it, where each stops other mail;
    rule: the standard's name, or the kind.
    """
    found = bounces(deliveries, lifted).unionByName(complaints(events, lifted))
    forgotten = F.col("address").endswith(f"@{ERASED_DOMAIN}")  # nobody: stands in for somebody
    return found.where(~forgotten)


def bounces(
    deliveries: DataFrame, lifted: DataFrame | None = None, standards: Sequence[Standard] = STANDARDS
) -> DataFrame:
    """COLUMNS of those who meet a standard. Needs one pass over `deliveries`."""
    met = _measured(_since_cleared(deliveries, lifted, standards), standards)
    storm = Window.partitionBy("domain", "day")
    struck = F.count_if(F.col("known")).over(storm) >= STORM_LEAST
    doubtful = F.col("known") & struck & (F.col("lasted_s") < STORM_DAYS * _DAY_S)
    standing = met.withColumn("doubtful", doubtful & (F.col("days") == 0)).where(~F.col("doubtful"))
    order = F.min_by(F.struct(*COLUMNS[1:]), "rank").alias("row")
    return standing.groupBy("address").agg(order).select("address", "row.*")


def complaints(events: DataFrame, lifted: DataFrame | None = None) -> DataFrame:
    """COLUMNS of those who complained or unsubscribed, and were not taken off the list since."""
    wanted = events.where(F.col("kind").isin(*EVENT_KINDS)).select(
        person("address").alias("address"), "kind", "at", "campaign"
    )
    if lifted is not None:
        wanted = wanted.join(_lifted(lifted), "address", "left").where("lifted_at is null or at > lifted_at")
    rows = wanted.groupBy("address", "kind").agg(
        F.min("at").alias("since"), F.max("at").alias("until"), F.count("*").alias("attempts"),
        F.min_by("campaign", "at").alias("campaign"),
    )  # fmt: skip
    reason = F.concat(F.col("kind"), F.lit(" of "), F.date_format("since", "yyyy-MM-dd HH:mm"))
    about = F.when(F.coalesce("campaign", F.lit("")) != "", F.concat(F.lit(", campaign "), "campaign"))
    evidence = F.from_json(F.lit("[]"), f"array<{_EVIDENCE_DDL}>")
    return rows.select(
        "address", "kind", "since", "until", F.concat(reason, F.coalesce(about, F.lit(""))).alias("reason"),
        F.col("kind").alias("rule"), F.lit(0).cast("bigint").alias("messages"), "attempts", evidence.alias("evidence"),
    )  # fmt: skip


def person(column: str) -> Column:
    """How an address is spelled as a key, as far as SQL can; domains beyond ASCII become A-labels in `suppressing`."""
    return F.regexp_replace(F.lower(F.trim(F.col(column))), NEEDLESS_QUOTES, "$1@")


def _since_cleared(deliveries: DataFrame, lifted: DataFrame | None, standards: Sequence[Standard]) -> DataFrame:
    """address, known (had mail before), standard, and the fields of the evidence: each refusal that nothing cleared."""
    delivered = F.col("verdict") == "delivered"
    rows = deliveries.select(
        person("recipient").alias("address"), "verdict", _standard(standards).alias("standard"), *_EVIDENCE
    ).where(delivered | F.col("standard").isNotNull())
    refusal = F.when(F.col("standard").isNotNull(), F.struct("standard", *_EVIDENCE))
    people = rows.groupBy("address").agg(
        F.max(F.when(delivered, F.col("at"))).alias("delivered_at"), F.collect_list(refusal).alias("refusals")
    )
    people = people.where(F.size("refusals") > 0)
    cleared = F.col("delivered_at")
    if lifted is not None:
        people = people.join(_lifted(lifted), "address", "left")
        cleared = F.greatest("delivered_at", "lifted_at")
    later = F.filter("refusals", lambda refusal: cleared.isNull() | (refusal["at"] > cleared))
    return people.select("address", F.col("delivered_at").isNotNull().alias("known"), F.inline(later))


def _measured(refusals: DataFrame, standards: Sequence[Standard]) -> DataFrame:
    """One row for each person and standard that is met, with what the storm and the ranking need."""
    counted = refusals.groupBy("address", "known", "standard").agg(
        F.min("at").alias("since"), F.max("at").alias("until"), F.count("*").alias("attempts"),
        F.size(F.collect_set("id")).cast("bigint").alias("messages"),
        F.array_sort(F.collect_list(F.struct(*_EVIDENCE))).alias("every"),
    )  # fmt: skip
    table = F.broadcast(_table(counted, standards))
    joined = counted.join(table, "standard").withColumn(
        "lasted_s", F.unix_timestamp("until") - F.unix_timestamp("since")
    )
    met = (F.col("messages") >= F.col("least")) & (F.col("lasted_s") >= F.col("days") * _DAY_S)
    last = F.element_at("every", -1)
    reply = F.concat_ws(" ", last["code"], F.nullif(last["enhanced"], F.lit("")), last["reply"])
    count = F.concat(
        F.lit(" ("), "messages", F.lit(" messages in "), F.ceil(F.col("lasted_s") / _DAY_S), F.lit(" days)")
    )
    many = F.when(F.col("messages") > 1, count).otherwise("")
    return joined.where(met).select(
        "address", "known", "days", "lasted_s", "rank", F.lit("hard-bounce").alias("kind"), "since", "until",
        F.concat("why", many, F.lit(": "), F.substring(reply, 1, REASON_CHARACTERS_MAX)).alias("reason"),
        F.col("standard").alias("rule"), "messages", "attempts", _shortened("every").alias("evidence"),
        F.substring_index("address", "@", -1).alias("domain"), F.to_date("since").alias("day"),
    )  # fmt: skip


def _shortened(name: str) -> Column:
    """The first one and the latest ones."""
    few = F.concat(F.slice(name, 1, 1), F.slice(name, -(EVIDENCE_MAX - 1), EVIDENCE_MAX - 1))
    return F.when(F.size(name) > EVIDENCE_MAX, few).otherwise(F.col(name))


def _standard(standards: Sequence[Standard]) -> Column:
    met = F.lit(None).cast("string")
    for standard in reversed(standards):
        asked = F.col("class").isin(*standard.classes) & F.col("verdict").isin(*standard.verdicts)
        met = F.when(asked, standard.name).otherwise(met)
    return met


def _table(frame: DataFrame, standards: Sequence[Standard]) -> DataFrame:
    rows = [(each.name, rank, each.messages, float(each.days), each.why) for rank, each in enumerate(standards)]
    return frame.sparkSession.createDataFrame(rows, "standard string, rank int, least int, days double, why string")


def _lifted(lifted: DataFrame) -> DataFrame:
    return lifted.groupBy(person("address").alias("address")).agg(F.max("at").alias("lifted_at"))
