"""A report's queries of the lake's tables: DataFrame → DataFrame of few rows, whatever the table's size.

`attempts` reads the roll-ups of five minutes; `recipients`, `burn_down` and `campaigns` the outcomes; `replies` the
attempts that did not deliver. No sketch is used, as their bytes depend on chance: the same lake, the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from zonemta_py.mail.rules.classes import BLOCKED_CLASSES
from zonemta_py.pipeline.report.rows import NO_PROVIDER
from zonemta_py.pipeline.report.scope import DAY_S, HOUR_S, Kind, ReportScope

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BINS_PER_DECADE = 100
"""Times to delivery are counted in bins 2.3 % wide."""
SHORTEST_S = 0.01
ATTEMPTS_MAX = 10
REPLIES_MAX = 15
DOMAINS_MAX = 20
POINTS_MAX = 240
NO_SOURCE, NO_CLASS = "no source", "unclassified"
SETS: tuple[tuple[str, ...], ...] = ((), ("at",), ("provider", "hour"), ("source", "provider"), ("class",))
"""What `attempts` groups by; its column `set` is the place in this tuple."""
_SPLIT = ("now", "at", "hour", "source", "provider", "class", "kind")
_STEPS_S = (1, 10, 60, 300, 900, HOUR_S, 6 * HOUR_S)


def attempts(deliverability: DataFrame, scope: ReportScope) -> DataFrame:
    """set, now, at, hour, source, provider, class, kind, n, secure: one row per group of each of SETS, and kind.

    Rows of what it is compared with (`now` false) have null in place of everything but the kind. secure: those of n
    that were encrypted.
    """
    at = F.unix_seconds("since")
    rows = deliverability.filter("grain = '5min'").withColumn("now", is_now(scope, at)).filter("now is not null")
    split = {
        "at": F.floor(at / scope.step_s) * scope.step_s,
        "hour": F.floor((at % DAY_S if scope.by_hour_of_day else at) / HOUR_S) * HOUR_S,
        "source": named("source", NO_SOURCE),
        "provider": named("provider", NO_PROVIDER),
    }
    now = [F.when(F.col("now"), value).alias(name) for name, value in split.items()]
    ends = rows.select("now", *now, F.explode(_ends()).alias("end")).select("*", "end.*")
    fine = ends.groupBy(*_SPLIT).agg(_sum("n"), _sum("secure"))
    return in_sets(fine, ("now", "kind"), SETS, ("n", "secure")).filter("n > 0")


def recipients(outcomes: DataFrame, scope: ReportScope) -> DataFrame:
    """now, state, attempts (at most ATTEMPTS_MAX), bin, n: recipients accepted in the period, those left out then as
    they were suppressed (state "suppressed"), and those compared with.

    bin: of the time to delivery t, floor(log10(t) × BINS_PER_DECADE); null where there is none.
    """
    at = accepted_at()
    time = F.greatest("to_delivery_s", F.lit(SHORTEST_S))
    rows = outcomes.withColumn("now", is_now(scope, at)).filter("now is not null")
    bins = F.when(F.col("to_delivery_s").isNotNull(), F.floor(F.log10(time) * BINS_PER_DECADE))  # greatest() skips null
    tried = F.least("attempts", F.lit(ATTEMPTS_MAX)).alias("attempts")
    return rows.groupBy("now", "state", tried, bins.alias("bin")).agg(F.count("*").alias("n"))


def domains(outcomes: DataFrame, scope: ReportScope) -> DataFrame:
    """domain, n, delivered, bounced, removed, waiting, deleted: of the recipients accepted in the period, the
    DOMAINS_MAX largest first.

    Behind a smart host this is all that is known of where mail goes: its attempts have the smart host's provider.
    """
    rows = outcomes.filter(is_now(scope, accepted_at()) & (F.col("domain") != "") & _accepted())
    states = {name: [name] for name in ("delivered", "bounced", "removed")} | {"waiting": ["waiting", "held"]}
    states |= {"deleted": ["deleted"]}
    sums = [F.sum(F.col("state").isin(*some).cast("int")).alias(name) for name, some in states.items()]
    counted = rows.groupBy("domain").agg(F.count("*").alias("n"), *sums)
    return counted.orderBy(F.desc("n"), "domain").limit(DOMAINS_MAX)


def replies(deliveries: DataFrame, scope: ReportScope) -> DataFrame:
    """class, kind, shape, n, example: what was said most often, the most frequent first, REPLIES_MAX at most.

    Words of a reply with a digit or an @ in them do not count for its shape.
    """
    at = F.unix_seconds("at")
    rows = deliveries.filter(F.col("verdict").isin("deferred", "bounced") & (at >= scope.start) & (at < scope.end))
    text = F.concat_ws(" ", "code", F.nullif("enhanced", F.lit("")), "reply").alias("text")
    same = rows.filter(mine(scope)).groupBy("verdict", named("class", NO_CLASS).alias("class"), text)
    counted = same.agg(F.count("*").alias("n"))
    shape, kind = F.regexp_replace("text", r"\S*[0-9@]\S*", "#"), _kind(F.col("verdict"), F.col("class"))
    shaped = counted.withColumns({"shape": shape, "kind": kind}).groupBy("class", "kind", "shape")
    top = shaped.agg(_sum("n"), F.min("text").alias("example"))
    return top.orderBy(F.desc("n"), "class", "kind", "shape").limit(REPLIES_MAX)


def burn_down(outcomes: DataFrame, scope: ReportScope) -> DataFrame:
    """at, first, came, got, went: recipients accepted, delivered, ended until `at`, since the row before; first: when
    that began. Not sorted."""
    step = next((s for s in _STEPS_S if (scope.lasted_s or scope.end - scope.start) / s <= POINTS_MAX), DAY_S)
    got = (F.col("state") == "delivered").cast("int")
    came = F.struct(F.unix_seconds("received_at").alias("at"), *_named(came=F.lit(1), got=F.lit(0), went=F.lit(0)))
    went = F.struct(F.unix_seconds("ended_at").alias("at"), *_named(came=F.lit(0), got=got, went=F.lit(1)))
    rows = outcomes.filter(mine(scope) & F.col("received_at").isNotNull() & _accepted())
    events = rows.select(F.explode(F.array(came, went)).alias("event")).select("event.*").filter("at is not null")
    end = (F.floor(F.col("at") / step) * step + step).alias("at")
    return events.groupBy(end).agg(F.min("at").alias("first"), _sum("came"), _sum("got"), _sum("went"))


def campaigns(outcomes: DataFrame) -> DataFrame:
    """campaign, first, last: when its first recipient was accepted and when something happened last, UNIX seconds."""
    last = F.greatest(*map(F.unix_seconds, ("received_at", "first_attempt_at", "ended_at")))
    rows = outcomes.filter("campaign != '' and received_at is not null").groupBy("campaign")
    return rows.agg(F.min(F.unix_seconds("received_at")).alias("first"), F.max(last).alias("last"))


def mine(scope: ReportScope) -> Column:
    """Rows of a table with the columns of `deliveries` that belong to the scope, whatever their time."""
    return F.lit(True) if scope.kind is Kind.DAY else named(scope.kind.value, nobody(scope.kind)) == scope.name


def named(column: str, nobody: str) -> Column:
    """The column with a name for those that have none."""
    return F.coalesce(F.nullif(column, F.lit("")), F.lit(nobody))


def nobody(kind: Kind) -> str:
    """The name of those that have none."""
    return {Kind.PROVIDER: NO_PROVIDER, Kind.IP: NO_SOURCE}.get(kind, "")


def _accepted() -> Column:
    """Not left out at acceptance."""
    return F.col("state") != "suppressed"


def accepted_at() -> Column:
    """When the message of a row of outcomes came in, UNIX seconds."""
    return F.coalesce(F.unix_seconds("received_at"), F.unix_seconds(F.col("day").cast("timestamp")))


def is_now(scope: ReportScope, at: Column) -> Column:
    """True: of the scope; false: of what it is compared with; null: neither."""
    now = mine(scope) & (at >= scope.start) & (at < scope.end)
    if scope.kind is Kind.CAMPAIGN:
        return F.when(now, True).when(F.col("campaign") == F.lit(scope.rival or None), False)
    return F.when(now, True).when(mine(scope) & (at >= scope.before) & (at < scope.start), False)


def in_sets(rows: DataFrame, always: Sequence[str], sets: Sequence[Sequence[str]], sums: Sequence[str]) -> DataFrame:
    """Sums of these columns per group of `always` and each of the sets; column `set` is the set's place in `sets`, and
    columns that are not in it are null."""
    split = [*always, *dict.fromkeys(name for names in sets for name in names)]
    columns = [[F.col(name) for name in (*always, *names)] for names in sets]
    grouped = rows.groupingSets(columns, *map(F.col, split)).agg(F.grouping_id().alias("group"), *map(_sum, sums))
    numbers = {_group(split, {*always, *names}): at for at, names in enumerate(sets)}
    known = F.create_map(*(F.lit(value) for pair in numbers.items() for value in pair))
    return grouped.withColumn("set", known[F.col("group")]).drop("group")


def _ends() -> Column:
    """Array of {kind, class, n, secure}: a row of the roll-ups, its attempts by how they ended."""
    delivered = F.array(_end(F.lit("delivered"), F.lit(""), F.col("delivered"), F.col("encrypted")))
    return F.concat(delivered, *map(_failures, ("deferred", "bounced")))


def _failures(verdict: str) -> Column:
    """Of the map class → attempts."""

    def end(entry: Column) -> Column:
        name = F.coalesce(F.nullif(entry["key"], F.lit("")), F.lit(NO_CLASS))
        return _end(_kind(F.lit(verdict), name), name, entry["value"], F.lit(0))

    return F.transform(F.map_entries(f"{verdict}_by"), end)


def _end(kind: Column, name: Column, count: Column, secure: Column) -> Column:
    return F.struct(*_named(kind=kind, n=count.cast("bigint"), secure=secure.cast("bigint")), name.alias("class"))


def _kind(verdict: Column, name: Column) -> Column:
    return F.when(name.isin(*sorted(BLOCKED_CLASSES)), "blocked").otherwise(verdict)


def _named(**columns: Column) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _sum(name: str) -> Column:
    return F.sum(name).alias(name)


def _group(split: Sequence[str], names: Collection[str]) -> int:
    """What grouping_id() says of the set: a bit for each column of `split`, the last the lowest; 1: not in the set."""
    return int("".join("0" if name in names else "1" for name in split), 2)
