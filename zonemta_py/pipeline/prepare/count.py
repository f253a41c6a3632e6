"""The segment and its recent openers; then what became of every row, counted: one aggregation gives all sums, a small
one beside it gives domains that look like typos.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zonemta_py.pipeline.prepare.assign import CAPPED
from zonemta_py.pipeline.prepare.order import Group
from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.prepare.source.read import CLEANED
from zonemta_py.pipeline.prepare.suppressed import SUPPRESSED, folded
from zonemta_py.pipeline.prepare.validate import REASONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEGMENT, ENGAGEMENT, FOLLOWED = "not in the segment", "not engaged", "not to follow up"
RECENT, OTHERS = 0, 1


def in_segment(people: DataFrame) -> DataFrame:
    """`inside` was found when the list was read; here it becomes the reason."""
    from pyspark.sql import functions as F

    reason = F.when(F.col("reason").isNull() & ~F.col("inside"), SEGMENT).otherwise(F.col("reason"))
    return people.withColumn("reason", reason).drop("inside")


def followed(people: DataFrame, those: DataFrame | None) -> DataFrame:
    """those: `suppressed.COLUMNS`, whom alone it is for; None: for all."""
    from pyspark.sql import functions as F

    if those is None:
        return people
    wanted = those.select(folded("address").alias("key"), F.lit(True).alias("wanted")).distinct()
    people = people.join(wanted, "key", "left")
    away = F.col("reason").isNull() & F.col("wanted").isNull()
    return people.withColumn("reason", F.when(away, FOLLOWED).otherwise(F.col("reason"))).drop("wanted")


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


TYPOS_MAX = 50
_BY = ("reason", "kind", "by", "provider", "canary", "day", "tier", "lane")


@dataclass(slots=True)
class Counts:
    """read: rows of the list. reasons: why → rows that went. own: recipients with an hour of their own. typos:
    mailboxes whose domain looks like one. ways: (lane, provider) → recipients that stay."""

    read: int = 0
    duplicates: int = 0
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    suppressed: Counter[tuple[str, str]] = field(default_factory=Counter)
    providers: Counter[str] = field(default_factory=Counter)
    ways: Counter[tuple[int, str]] = field(default_factory=Counter)
    empty: Counter[str] = field(default_factory=Counter)
    cleaned: int = 0
    own: int = 0
    typos: int = 0
    groups: list[Group] = field(default_factory=list)

    @property
    def rejected(self) -> int:
        """Rows that are no recipients."""
        return sum(self.reasons[reason] for reason in REASONS)

    def steps(self) -> list[dict[str, Any]]:
        """Each step with how many rows it took out, and how many were left."""
        rows: list[dict[str, Any]] = [{"step": "read", "removed": 0, "left": self.read}]
        early = [(reason, self.reasons[reason]) for reason in REASONS]
        late = [(reason, self.reasons[reason]) for reason in (SUPPRESSED, SEGMENT, FOLLOWED, ENGAGEMENT, CAPPED)]
        for step, removed in [*early, ("duplicate", self.duplicates), *late]:
            rows.append({"step": step, "removed": removed, "left": rows[-1]["left"] - removed})
        return rows


def count(people: DataFrame, settings: Settings) -> Counts:
    """One pass over `people`, as `assign` leaves them."""
    from pyspark.sql import functions as F

    names = list(settings.fields)
    empty = [F.sum(F.shiftright("marks", i).bitwiseAND(1)).alias(f"empty_{i}") for i in range(len(names))]
    if settings.best:
        empty.append(F.count_if("own").alias("own"))
    empty.append(F.sum(F.shiftright("marks", CLEANED).bitwiseAND(1)).alias("cleaned"))
    empty.append(F.count("meant").alias("typos"))
    sums = people.groupBy(*_BY).agg(
        F.sum("n").alias("rows"), F.count("*").alias("people"), F.sum("bytes").alias("bytes"), *empty
    )
    found, groups = Counts(), Counter[tuple[bool, int, int, int]]()
    sizes = Counter[tuple[bool, int, int, int]]()
    for row in sums.collect():
        found.read += row.rows
        if row.reason in REASONS:
            found.reasons[row.reason] += row.rows
            continue
        found.typos += row.typos
        found.duplicates += row.rows - row.people
        if row.reason is not None:
            found.reasons[row.reason] += row.people
        if row.reason == SUPPRESSED:
            found.suppressed[row.kind or "", row.by or ""] += row.people
        if row.reason is None:
            found.kept += row.people
            found.providers[row.provider] += row.people
            found.ways[row.lane, row.provider] += row.people
            found.empty.update({name: row[f"empty_{i}"] for i, name in enumerate(names)})
            found.cleaned += row.cleaned
            found.own += row.own if settings.best else 0
            groups[row.canary, row.day, row.tier, row.lane] += row.people
            sizes[row.canary, row.day, row.tier, row.lane] += row.bytes
    found.groups = [Group(*group, n, sizes[group]) for group, n in sorted(groups.items())]
    return found


def proposals(people: DataFrame) -> list[dict[str, Any]]:
    """Domains that look like a slip of a large provider's, most frequent first."""
    from pyspark.sql import functions as F

    rows = people.where(F.col("meant").isNotNull()).groupBy("domain", "meant")
    found = rows.agg(F.count("*").alias("n"), F.min("key").alias("example")).collect()
    return [row.asDict() for row in sorted(found, key=lambda row: (-row.n, row.domain))[:TYPOS_MAX]]  # of few
