"""Attempts counted in windows of time, per source IP and provider: the input of `blocks` and `rates`.

Only replies of other servers count: what failed on our own side (mail.classify.LOCAL) and what was not tried says
nothing about a provider. A site without a known provider counts as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from zonemta_py.mail.classify import LOCAL
from zonemta_py.mail.rules.classes import REFUSING, SUPPRESSING, THROTTLING

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_S = 300
KINDS = ("deferred", "blocked", "bounced")
"""What a window counts apart: deferred, but not because of the recipient or a block; refused by REFUSING; else
bounced."""


class Counted(NamedTuple):
    """A window of one pair. at: when it begins, UNIX s. first_at, reply: of the refusals of each of KINDS, or None."""

    at: int
    attempts: int
    delivered: int
    throttled: int
    deferred: int
    blocked: int
    bounced: int
    first_at: dict[str, float | None]
    reply: dict[str, str | None]


OfPair: TypeAlias = Callable[[list[Counted]], Iterable[tuple[Any, ...]]]


def windows(deliveries: DataFrame, seconds: int = WINDOW_S) -> DataFrame:
    """source, provider, window_s (UNIX), attempts, delivered, throttled, and for each of KINDS its count, first_KIND
    (UNIX s) and reply_KIND: when the first refusal came, and what the last one said."""
    kinds = {kind: F.col("kind") == kind for kind in KINDS}
    start = (F.floor(F.unix_timestamp("at") / seconds) * seconds).cast("bigint")
    return (
        answered(deliveries)
        .withColumn("kind", kind_of())
        .groupBy("source", "provider", start.alias("window_s"))
        .agg(
            F.count("*").alias("attempts"),
            F.count_if(F.col("verdict") == "delivered").alias("delivered"),
            F.count_if((F.col("verdict") != "delivered") & F.col("class").isin(*sorted(THROTTLING))).alias("throttled"),
            *(F.count_if(asked).alias(kind) for kind, asked in kinds.items()),
            *(F.min(F.when(asked, F.col("at").cast("double"))).alias(f"first_{kind}") for kind, asked in kinds.items()),
            *(F.max_by("said", F.when(asked, F.col("at"))).alias(f"reply_{kind}") for kind, asked in kinds.items()),
        )
    )


def answered(deliveries: DataFrame) -> DataFrame:
    """at, source, provider (or site), verdict, class, stage, said ("code enhanced reply") of attempts that count."""
    provider = F.coalesce(F.nullif("provider", F.lit("")), F.nullif("site", F.lit("")), F.lit("unknown"))
    said = F.concat_ws(" ", "code", F.nullif("enhanced", F.lit("")), "reply")
    tried = F.col("verdict").isin("delivered", "deferred", "bounced")
    return deliveries.where(tried & ~F.coalesce("stage", F.lit("")).isin(*LOCAL)).select(
        "at", F.coalesce("source", F.lit("")).alias("source"), provider.alias("provider"), "verdict",
        F.coalesce("class", F.lit("")).alias("class"), "stage", said.alias("said"),
    )  # fmt: skip


def kind_of() -> Column:
    """One of KINDS, or null: delivered, or deferred because of the recipient."""
    refused = F.col("verdict") != "delivered"
    blocked = F.when(refused & F.col("class").isin(*sorted(REFUSING)), "blocked")
    deferred = blocked.when((F.col("verdict") == "deferred") & ~F.col("class").isin(*sorted(SUPPRESSING)), "deferred")
    return deferred.when(F.col("verdict") == "bounced", "bounced")


def of_pairs(found: DataFrame, least: int, rows: OfPair, ddl: str) -> DataFrame:
    """Rows that plain Python makes of each pair's windows in their order; ddl: their columns, of _ARROW's types.

    found: `windows`. least: pairs with fewer attempts in all are left out. Pairs go to Python as lists, many at a time:
    most of a sender's pairs have few windows, and a call for each would cost more than what it does.
    """
    inner = F.struct(*(name for name in found.columns if name not in ("source", "provider")))
    pairs = found.groupBy("source", "provider").agg(
        F.collect_list(inner).alias("windows"), F.sum("attempts").alias("total")
    )
    columns = [part.split() for part in ddl.split(", ")]

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        schema = pyarrow.schema([(name, getattr(pyarrow, _ARROW[kind])()) for name, kind in columns])
        for batch in batches:
            every = [
                (pair["source"], pair["provider"], *row)
                for pair in batch.to_pylist()
                for row in rows(counted(pair["windows"]))
            ]
            values = list(zip(*every, strict=True)) or [()] * len(schema)
            arrays = [pyarrow.array(of, field.type) for of, field in zip(values, schema, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    return pairs.where(F.col("total") >= least).drop("total").mapInArrow(made, ddl)


def counted(rows: Iterable[dict[str, Any]]) -> list[Counted]:
    """Rows of `windows` of one pair, in the order of time."""
    made = [Counted._make([*map(row.get, _NUMBERS), _each("first", row), _each("reply", row)]) for row in rows]
    return sorted(made, key=lambda window: window.at)


def _each(what: str, row: dict[str, Any]) -> dict[str, Any]:
    return {kind: row[f"{what}_{kind}"] for kind in KINDS}


_NUMBERS = ("window_s", "attempts", "delivered", "throttled", *KINDS)
_ARROW = {"string": "string", "bigint": "int64", "double": "float64"}
