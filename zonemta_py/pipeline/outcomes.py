"""Table `outcomes`: one row per recipient of a message: how it ended, or where it stands.

State: "delivered" or "bounced" once an attempt has ended it, else "removed" once a REMOVED record has, else "held" if
a plugin, or a loss of its sender, was the last to speak, else "waiting". Its day is the one in the message's id (44
bits of UNIX ms), so a row never moves from day to day, however late its records come; ids of another shape are of
1970-01-01.

Nearly all recipients end, and an attempt that is `final` says all there is: it becomes a row as it is, without a
shuffle. Only messages with fewer ends than recipients, with a REMOVED record (its recipients may be none of the
envelope's, suppressed as they came), or without an envelope, are looked at record by record.
Recipients whose envelope has not come yet have `received_at` and the times from it null.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from zonemta_py.pipeline.deliveries import is_attempt, messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_DAY = date(1970, 1, 1)

COLUMNS = (
    "id", "recipient", "state", "attempts", "received_at", "first_attempt_at", "ended_at", "to_first_s",
    "to_delivery_s", "code", "enhanced", "reply", "class", "reason", "zone", "source", "provider", "domain",
    "sender", "campaign", "tenant", "day",
)  # fmt: skip
"""code, enhanced, reply, class, source and provider are the last attempt's; reason is that of REMOVED or IN_DOUBT."""

_LAST = ("at", "attempt", "verdict", "code", "enhanced", "reply", "class", "zone", "source", "provider", "first_at")
_MESSAGE = ("sender", "received_at", "campaign", "tenant")


def outcomes(deliveries: DataFrame, bronze: DataFrame, open_ids: DataFrame | None = None) -> DataFrame:
    """The table's rows (COLUMNS) for all messages that `deliveries` (the table) and `bronze` (the journal) speak of.

    `bronze` holds at least the rows that `deliveries` was made of, and both hold whole messages. open_ids: `unfinished`
    of both, where the caller has it already and knows whether it is small enough to be broadcast.
    """
    ended = deliveries.filter("final")
    open_ids = unfinished(deliveries, bronze) if open_ids is None else open_ids
    waiting = _standing(deliveries, bronze, open_ids)
    return _rows(ended, F.col("verdict")).unionByName(waiting).withColumn("day", born("id")).select(*COLUMNS)


def born(name: str) -> Column:
    """The UTC day of an id (column of that name)."""
    shaped = F.col(name).rlike("^[0-9a-f]{16}$")
    ms = F.conv(F.substring(name, 1, 11), 16, 10).cast("bigint")
    return F.when(shaped, F.timestamp_millis(ms).cast("date")).otherwise(F.lit(NO_DAY))


def within(days: Iterable[date]) -> Column:
    """Ids of these days. As ranges of the column `id`, so that files and row groups with none of them are skipped."""
    wanted = sorted(days)
    exact = born("id").isin(wanted)
    if not wanted or wanted[0] == NO_DAY:
        return exact
    ranges = [F.col("id").between(_first_id(start), _first_id(end + timedelta(1))) for start, end in _spans(wanted)]
    return reduce(lambda one, other: one | other, ranges) & exact


def touched(new: DataFrame) -> DataFrame:
    """Days (column `day`) whose rows change when these rows of the journal arrive."""
    return new.filter(F.col("type").isin("ENVELOPE", "DELIVERY", *_EVENTS)).select(born("id").alias("day")).distinct()


_EVENTS = ("REMOVED", "MOVED", "IN_DOUBT")


def unfinished(deliveries: DataFrame, bronze: DataFrame) -> DataFrame:
    """Ids (column `id`) of messages that may have a recipient without an end; numbers only, so it is cheap."""
    envelopes = bronze.filter("type = 'ENVELOPE'").select(
        "id", (F.col("part") + 1).alias("total"), F.lit(0).alias("end"), F.lit(False).alias("removed")
    )
    removed = (F.col("type") == "REMOVED").alias("removed")
    others = bronze.filter(_untried()).select("id", F.lit(0).alias("total"), F.lit(0).alias("end"), removed)
    ended = F.col("final").cast("int").alias("end")
    tried = deliveries.select("id", F.lit(0).alias("total"), ended, F.lit(False).alias("removed"))
    counted = envelopes.union(others).union(tried).groupBy("id")
    sums = counted.agg(
        F.max("total").alias("total"),
        F.sum("end").alias("ended"),
        F.count("*").alias("rows"),
        F.max("removed").alias("removed"),
    )
    unknown = (F.col("total") == 0) & (F.col("ended") < F.col("rows"))
    return sums.filter(unknown | F.col("removed") | (F.col("ended") < F.col("total"))).select("id")


def _standing(deliveries: DataFrame, bronze: DataFrame, open_ids: DataFrame) -> DataFrame:
    """Rows of the recipients of these messages that no attempt has ended: from the last of their records."""
    tried = deliveries.join(open_ids, "id", "left_semi")
    events = bronze.filter(F.col("type").isin("ENVELOPE", "DELIVERY", *_EVENTS) & F.col("recipient").isNotNull())
    # A start may write an envelope again, late: that says nothing of how its recipients stand.
    order = F.when(F.col("type") != "ENVELOPE", F.col("seq")).otherwise(-1)
    said = (
        events.join(open_ids, "id", "left_semi")
        .groupBy("id", "recipient")
        .agg(
            F.max_by(_stand(), order).alias("stand"),
            F.min_by("zone", "seq").alias("first_zone"),
            F.min(F.when(F.col("type") == "REMOVED", F.struct("at", "reason"))).alias("removed"),
            F.max_by("reason", F.when(F.col("type") == "IN_DOUBT", F.col("seq"))).alias("doubt"),
        )
    )
    last = tried.groupBy("id", "recipient").agg(
        F.max_by(F.struct(*_LAST), "attempt").alias("last"), F.max("final").alias("over")
    )
    rows = said.join(last, ["id", "recipient"], "left").filter("over is null or not over")
    rows = rows.select("id", "recipient", "stand", "first_zone", "removed", "doubt", "last.*")
    whole = rows.join(messages(bronze.join(open_ids, "id", "left_semi")), "id", "left")
    whole = whole.withColumn("domain", F.lower(F.substring_index("recipient", "@", -1)))
    whole = whole.withColumn("zone", F.coalesce("zone", "first_zone"))
    state = F.when(F.col("removed").isNotNull(), "removed").otherwise(F.col("stand"))
    return _rows(whole, state, F.col("removed.at"), F.coalesce("removed.reason", "doubt"))


def _untried() -> Column:
    """Records of a recipient that are no attempt and no envelope."""
    return F.col("type").isin(*_EVENTS) | ((F.col("type") == "DELIVERY") & ~is_attempt())


def _stand() -> Column:
    """What a record leaves the recipient as, if it is the last."""
    held = (F.col("verdict") == "held") | ((F.col("type") == "IN_DOUBT") & (F.col("reason") == "hold"))
    return F.when(held, "held").otherwise("waiting")


def _rows(rows: DataFrame, state: Column, ended_at: Column | None = None, reason: Column | None = None) -> DataFrame:
    """Of an attempt's columns those of an outcome, but for `day`."""
    end = F.col("at") if ended_at is None else ended_at
    to_first, to_delivery = _seconds("first_at"), _seconds("at")
    made = {
        "state": state,
        "attempts": F.coalesce("attempt", F.lit(0)),
        "first_attempt_at": F.col("first_at"),
        "ended_at": end,
        "to_first_s": to_first,
        "to_delivery_s": F.when(state == "delivered", to_delivery),
        "reason": (F.lit(None) if reason is None else reason).cast("string"),
    }
    return rows.withColumns(made).select(*(column for column in COLUMNS if column != "day"))


def _seconds(name: str) -> Column:
    """From acceptance to then, in seconds with milliseconds."""
    return (F.unix_millis(name) - F.unix_millis("received_at")) / 1000


def _spans(days: list[date]) -> list[tuple[date, date]]:
    """Sorted days as runs of days on end, (first, last)."""
    runs: list[tuple[date, date]] = []
    for day in days:
        if runs and runs[-1][1] + timedelta(1) == day:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return runs


def _first_id(day: date) -> str:
    """The first id of that day."""
    ms = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    return f"{ms << 20:016x}"
