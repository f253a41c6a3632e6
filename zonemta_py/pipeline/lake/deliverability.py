"""Table `deliverability`: results of attempts, per window and kind of mail, in rows that can be aggregated further.

A row is a window of five minutes (`grain` "5min"), an hour ("hour") or a day ("day") × zone × source × provider ×
campaign × tenant × node. All in it are counts, sums or sketches, so `rolled` makes any coarser view without the
attempts. Latency is the time from acceptance to delivery in ms, of delivered attempts whose envelope is known (`timed`
of them); its distribution is kept as a KLL sketch (`kll`), whose quantiles are within 2 % of rank; `exact` takes them
from the attempts. Rows of five minutes have none (null): they hold a handful of attempts each, of which a mean and a
maximum say as much.

Attempts are grouped once, by five minutes, with numpy; hours are added up of these, and days of hours. All rows of a
kind of mail can be counted without those of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from zonemta_py.pipeline.lake.deliveries import among
from zonemta_py.pipeline.lake.kll import sketches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MANY = 1 << 31
_BITS = 40
NEVER = int(np.iinfo(np.int64).min)
LATEST = "latency_max_ms"

Numbers = dict[str, np.ndarray]


class Groups(NamedTuple):
    """Groups in the order of `code`. row: one of the attempts in each. numbers: sums, but of `latest` the greatest."""

    code: np.ndarray
    row: np.ndarray
    numbers: Numbers

    def where(self, codes: np.ndarray) -> np.ndarray:
        """Which groups have these codes."""
        return np.searchsorted(self.code, codes)


def grouped(code: np.ndarray, row: np.ndarray, numbers: Numbers) -> Groups:
    """Rows of the same code as one group. Groups, whose `row` is of an attempt, can be grouped again."""
    order = np.argsort(code)
    ordered = code[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    if not len(starts):
        return Groups(code, row, numbers)
    sums = {
        name: (np.maximum if name == LATEST else np.add).reduceat(column[order], starts, dtype=np.int64)
        for name, column in numbers.items()
    }
    return Groups(ordered[starts], row[order[starts]], sums)


def kinds(rows: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, int]:
    """A number for the values of these columns, the same for the same, and how many numbers there may be."""
    code, size = np.zeros(len(rows), dtype=np.int64), 1
    for name in names:
        column = _dictionary(rows[name])
        width = len(column.dictionary) + 1
        code, size = code * width + column.indices.fill_null(width - 1).to_numpy(), size * width
        if size > _MANY:
            there, code = np.unique(code, return_inverse=True)
            size = len(there)
    return code, size


def maps(groups: Groups, code: np.ndarray, names: pa.ChunkedArray) -> pa.Array:
    """For each group its names with how often they occur, in their order; each name has its group's code."""
    texts = pc.unique(names).sort()
    width = max(1, len(texts))
    entries, counts = np.unique(code * width + pc.index_in(names, texts).to_numpy(), return_counts=True)
    sizes = np.bincount(groups.where(entries // width), minlength=len(groups.code))
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    return pa.MapArray.from_arrays(offsets, texts.take(pa.array(entries % width)), pa.array(counts, pa.int64()))


def drawn(groups: Groups, code: np.ndarray, values: np.ndarray) -> pa.Array:
    """The sketch of each group's values, null where it has none; a value has its group's code."""
    if not len(values):
        return pa.nulls(len(groups.code), pa.binary())
    least = values.min()
    # One sort of numbers does for both: groups are fewer than 2^23, and milliseconds of 34 years have 40 bits.
    both = np.sort(groups.where(code) << _BITS | (values - least))
    place = both >> _BITS
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    found = np.full(len(groups.code), -1)
    found[place[starts]] = np.arange(len(starts))
    made = sketches((both & (1 << _BITS) - 1) + least, starts)
    return made.take(pa.array(found, mask=found < 0))


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    whole = column.combine_chunks()
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()


KEYS = ("zone", "source", "provider", "campaign", "tenant", "node")
"""What the rows are split by, besides `grain` and `since`."""

COUNTS = ("attempts", "delivered", "deferred", "bounced", "held", "retries", "encrypted", "timed", "latency_sum_ms")
"""retries: attempts after a recipient's first. encrypted: those of `delivered` that went over TLS."""

MAPS = ("deferred_by", "bounced_by")
"""Attempts per class of reply, as map; class "" where no rule was asked."""

COLUMNS = ("grain", "since", *KEYS, *COUNTS, "latency_max_ms", *MAPS, "latency", "day")

QUANTILES = (0.5, 0.95, 0.99)
GRAINS = {"5min": 300, "hour": 3600, "day": 86_400}
"""Seconds in a window of each, every one a multiple of the one before."""
NAMES = ("p50_ms", "p95_ms", "p99_ms")

READ = (*KEYS, "at", "received_at", "verdict", "class", "attempt", "tls")
"""Columns of `deliveries` that are looked at."""

_TYPES = (
    dict.fromkeys(("grain", *KEYS), pa.string())
    | dict.fromkeys((*COUNTS, "latency_max_ms"), pa.int64())
    | dict.fromkeys(MAPS, pa.map_(pa.string(), pa.int64()))
    | {"since": pa.timestamp("us", "UTC"), "latency": pa.binary(), "day": pa.date32()}
)
SCHEMA = pa.schema([(name, _TYPES[name]) for name in COLUMNS])


def deliverability(attempts: pa.Table) -> pa.Table:
    """The table's rows (SCHEMA; texts may be dictionaries), all grains, of rows of `deliveries` (READ).

    These are all attempts of their days, or all of some kinds of mail among them.
    """
    kind, size = kinds(attempts, KEYS)
    at_s = _ms(attempts, "at") // 1000
    latency = np.where(
        among(attempts["verdict"], "delivered"), _ms(attempts, "at") - _ms(attempts, "received_at"), NEVER
    )
    latency[~attempts["received_at"].is_valid().to_numpy()] = NEVER
    groups, made = Groups(kind, np.arange(len(attempts)), _numbers(attempts, latency)), []
    for grain, seconds in GRAINS.items():
        window = at_s // seconds
        code = (window - window.min(initial=0)) * size + kind
        groups = grouped(code[groups.row], groups.row, groups.numbers)
        columns = _columns(attempts, groups, code, latency, grain)
        since = window[groups.row] * seconds
        columns |= {"since": pa.array(since * 1_000_000, _TYPES["since"]), "day": _days(since)}
        made.append(pa.table([columns[name] for name in COLUMNS], COLUMNS))
    return pa.concat_tables(made)


def rolled(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Rows of one grain added up: one row for each `by`, with COUNTS, MAPS and a sketch that can be added up again.

    Do not mix grains: filter on one before (`grain = 'day'`).
    """
    sums = [F.sum(name).alias(name) for name in COUNTS]
    latest = F.max("latency_max_ms").alias("latency_max_ms")
    maps = [_added(name).alias(name) for name in MAPS]
    return rows.groupBy(*by).agg(*sums, latest, *maps, F.kll_merge_agg_bigint("latency").alias("latency"))


def shown(rows: DataFrame) -> DataFrame:
    """In place of the sketch its quantiles (NAMES, in ms), and the shares of what was tried or delivered (0 to 1)."""
    known = (F.col("timed") > 0) & F.col("latency").isNotNull()
    quantiles = {
        name: F.when(known, F.kll_sketch_get_quantile_bigint("latency", F.lit(at)))
        for name, at in zip(NAMES, QUANTILES, strict=True)
    }
    shares = {
        "delivered_share": _share("delivered", "attempts"),
        "deferred_share": _share("deferred", "attempts"),
        "bounced_share": _share("bounced", "attempts"),
        "tls_share": _share("encrypted", "delivered"),
        "latency_mean_ms": _share("latency_sum_ms", "timed"),
    }
    return rows.withColumns(quantiles | shares).drop("latency", "latency_sum_ms")


def exact(deliveries: DataFrame, by: Sequence[str]) -> DataFrame:
    """For each `by` the quantiles (NAMES) from all attempts: the reference for the sketches, and their expensive
    alternative."""
    values = F.percentile(_latency(), F.array(*map(F.lit, QUANTILES)))
    rows = deliveries.groupBy(*by).agg(values.alias("values"))
    picked = [F.col("values")[index].alias(name) for index, name in enumerate(NAMES)]
    return rows.select(*by, *picked)


def _columns(attempts: pa.Table, groups: Groups, code: np.ndarray, latency: np.ndarray, grain: str) -> dict[str, Any]:
    """Of the rows of a grain all but their time. code, latency: of each attempt."""
    timed = np.flatnonzero(latency != NEVER) if grain != "5min" else np.arange(0)
    latest = groups.numbers[LATEST]
    columns: dict[str, Any] = {name: groups.numbers[name] for name in COUNTS}
    columns |= dict(zip(KEYS, attempts.select(KEYS).take(pa.array(groups.row)).columns, strict=True))
    for name in MAPS:
        failed = np.flatnonzero(among(attempts["verdict"], name.removesuffix("_by")))
        classes = pc.cast(attempts["class"].take(pa.array(failed)), pa.string())
        columns[name] = maps(groups, code[failed], pc.fill_null(classes, ""))
    columns["grain"] = pa.array([grain], pa.string()).take(pa.array(np.zeros(len(latest), dtype=int)))
    columns[LATEST] = pa.array(latest, mask=latest == NEVER)
    columns["latency"] = drawn(groups, code[timed], latency[timed])
    return columns


def _numbers(attempts: pa.Table, latency: np.ndarray) -> dict[str, np.ndarray]:
    """What is added up, of each attempt."""
    timed = latency != NEVER
    verdicts = {name: among(attempts["verdict"], name) for name in ("delivered", "deferred", "bounced", "held")}
    secure = attempts["tls"].is_valid().to_numpy() & ~among(attempts["tls"], "")
    return verdicts | {
        "attempts": np.ones(len(attempts), dtype=bool),
        "retries": attempts["attempt"].to_numpy() > 1,
        "encrypted": verdicts["delivered"] & secure,
        "timed": timed,
        "latency_sum_ms": np.where(timed, latency, 0),
        LATEST: latency,
    }


def _ms(attempts: pa.Table, name: str) -> np.ndarray:
    """UNIX milliseconds, 0 where there is no time."""
    return np.asarray(pc.fill_null(pc.cast(attempts[name], pa.int64()), 0)) // 1000


def _days(seconds: np.ndarray) -> pa.Array:
    return pa.array((seconds // 86_400).astype(np.int32)).view(pa.date32())


def _latency() -> Column:
    """Milliseconds from acceptance to delivery; null for what was not delivered, or whose envelope is unknown."""
    return F.when(F.col("verdict") == "delivered", F.unix_millis("at") - F.unix_millis("received_at"))


def _added(name: str) -> Column:
    """Maps of counts as one map of sums."""
    nothing = F.create_map().cast("map<string,bigint>")
    maps = F.filter(F.collect_list(name), lambda one: F.size(one) > 0)
    return F.aggregate(maps, nothing, lambda all_, one: F.map_zip_with(all_, one, lambda _, a, b: _plus(a, b)))


def _plus(one: Column, other: Column) -> Column:
    return F.coalesce(one, F.lit(0)) + F.coalesce(other, F.lit(0))


def _share(part: str, whole: str) -> Column:
    return F.when(F.col(whole) > 0, F.col(part) / F.col(whole))
