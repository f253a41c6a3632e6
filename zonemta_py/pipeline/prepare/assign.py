"""Which way each recipient goes: zone and source by a stable hash, within the warm-up caps of source × provider.

A recipient keeps its source from campaign to campaign, as long as the lanes stay. What is over a cap goes to other
sources of the zone, then to later days, and the rest is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from zonemta_py.pipeline.prepare.settings import Lane, Settings
from zonemta_py.pipeline.spark.little_data import small

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CAPPED = "over the warm-up caps"
HASH_BITS = 53
"""As many as a double has, so that a hash times a share is exact on every machine."""


class Part(NamedTuple):
    """The next n recipients of a lane and provider, by rank, go this way. lane: index, -1 for left out."""

    n: int
    lane: int
    day: int


def assign(people: DataFrame, settings: Settings) -> DataFrame:
    """Adds `provider` ("" unknown), `lane` (index of settings.lanes), `canary`, `day` (0) and `h`, the order's hash."""
    from pyspark.sql import functions as F

    people = _with_provider(people, settings.providers)
    return people.select(
        "*",
        _lane("key", settings.lanes).alias("lane"),
        (share("key", "canary", settings.campaign) < settings.canary).alias("canary"),
        F.lit(0).alias("day"),
        _hash("key", "order", settings.campaign).alias("h"),
    )


def share(*salted: str) -> Column:
    """Uniform in [0, 1) and always the same for the same key (the first, a column) and salt (the others)."""
    return _hash(*salted) / float(1 << HASH_BITS)


def _hash(column: str, *salt: str) -> Column:
    from pyspark.sql import functions as F

    return F.shiftrightunsigned(F.xxhash64(F.col(column), *(F.lit(word) for word in salt)), 64 - HASH_BITS)


def _lane(column: str, lanes: tuple[Lane, ...]) -> Column:
    from pyspark.sql import functions as F

    drawn, whole, below = share(column, "lane"), sum(lane.weight for lane in lanes), 0.0
    chosen = F.lit(len(lanes) - 1)
    bounds = []
    for lane in lanes[:-1]:
        below += lane.weight / whole
        bounds.append(below)
    for number, bound in reversed(list(enumerate(bounds))):
        chosen = F.when(drawn < bound, F.lit(number)).otherwise(chosen)
    return chosen


def _with_provider(people: DataFrame, providers: Mapping[str, str]) -> DataFrame:
    """By the domain, else by its last two labels, as all hosts below a provider's domain are its own."""
    from pyspark.sql import functions as F

    if not providers:
        return people.withColumn("provider", F.lit(""))
    rows = sorted(providers.items())
    exact = small(people.sparkSession, rows, "domain string, provider string")
    below = small(people.sparkSession, rows, "above string, provider_above string")
    people = people.join(F.broadcast(exact), "domain", "left")
    people = people.withColumn("above", F.substring_index("domain", ".", -2)).join(F.broadcast(below), "above", "left")
    found = F.coalesce("provider", "provider_above", F.lit(""))
    return people.withColumn("provider", found).drop("above", "provider_above")


def within_caps(people: DataFrame, counts: Mapping[tuple[int, str], int], settings: Settings) -> DataFrame:
    """counts: (lane, provider) → recipients. Changes `lane` and `day`, or sets the reason. Canary and openers first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    over = overflow(counts, settings)
    if not over:
        return people
    rows = [(lane, provider, _upto(parts)) for (lane, provider), parts in sorted(over.items())]
    kinds = "lane int, provider string, ways array<struct<upto: bigint, lane: int, day: int>>"
    ways = small(people.sparkSession, rows, kinds)
    people = people.join(F.broadcast(ways), ["lane", "provider"], "left")
    touched = F.col("ways").isNotNull() & F.col("reason").isNull()
    rank = F.row_number().over(Window.partitionBy("lane", "provider").orderBy(F.desc("canary"), "tier", "h", "key"))
    moved = people.where(touched).withColumn("rank", rank)
    moved = moved.withColumn("way", F.expr("filter(ways, w -> rank <= w.upto)[0]"))
    moved = moved.withColumn("lane", F.col("way.lane")).withColumn("day", F.col("way.day"))
    moved = moved.withColumn("reason", F.when(F.col("lane") < 0, CAPPED)).drop("rank", "way", "ways")
    return people.where(~touched).drop("ways").unionByName(moved)


def _upto(parts: Iterable[Part]) -> list[tuple[int, int, int]]:
    total, rows = 0, []
    for part in parts:
        total += part.n
        rows.append((total, part.lane, part.day))
    return rows


def overflow(counts: Mapping[tuple[int, str], int], settings: Settings) -> dict[tuple[int, str], list[Part]]:
    """Which way the recipients go of every (lane, provider) that has more than its cap."""
    caps = {(cap.source, cap.provider): cap for cap in settings.all_caps}
    plans: dict[tuple[int, str], list[Part]] = {}
    for provider in sorted({cap.provider for cap in settings.all_caps}):
        for zone in sorted({lane.zone for lane in settings.lanes}):
            lanes = [number for number, lane in enumerate(settings.lanes) if lane.zone == zone]
            known = {number: caps.get((settings.lanes[number].source, provider)) for number in lanes}
            rooms = [
                {number: cap.on(day) if cap else None for number, cap in known.items()} for day in range(settings.days)
            ]
            wanted = {number: counts.get((number, provider), 0) for number in lanes}
            plans |= {(number, provider): parts for number, parts in _spread(wanted, rooms).items() if len(parts) > 1}
    return plans


def _spread(wanted: dict[int, int], rooms: list[dict[int, int | None]]) -> dict[int, list[Part]]:
    """rooms: per day, lane → how many it may have (None: any number)."""
    parts: dict[int, list[Part]] = {}
    left: dict[int, int] = {}
    for lane, n in wanted.items():
        room = rooms[0][lane]
        own = n if room is None else min(n, room)
        parts[lane], left[lane] = [Part(own, lane, 0)], n - own
        if room is not None:
            rooms[0][lane] = room - own
    for day, free in enumerate(rooms):
        for lane in left:
            left[lane] -= _take(parts[lane], left[lane], free, day)
    for lane, n in left.items():
        if n:
            parts[lane].append(Part(n, -1, 0))
    return parts


def _take(parts: list[Part], n: int, free: dict[int, int | None], day: int) -> int:
    """Places what of n there is room for on that day: limited lanes first, then those without a limit evenly."""
    taken = 0
    for lane, room in free.items():
        if room is not None and (k := min(n - taken, room)) > 0:
            parts.append(Part(k, lane, day))
            free[lane], taken = room - k, taken + k
    open_ = [lane for lane, room in free.items() if room is None]
    for number, lane in enumerate(open_):
        if (k := (n - taken) // (len(open_) - number)) > 0:
            parts.append(Part(k, lane, day))
            taken += k
    return taken
