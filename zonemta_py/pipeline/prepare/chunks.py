"""Chunks: about 500 recipients, one request each. Which chunk a recipient is in, and its key, come from the data alone.

The key names group and hash bucket, never a partition or position: the same list gives the same chunks on one core and
on a cluster. A changed list gives other bodies under the same keys, which the node refuses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zonemta_py.pipeline.prepare.assign import HASH_BITS
from zonemta_py.pipeline.prepare.best_hour import FIELD
from zonemta_py.pipeline.prepare.order import ChunkPosition, Group, bases, places
from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.spark.little_data import small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAN = "chunk string, n int, zone string, source string, canary boolean, day int, position int, body binary"
CHUNKS_AT_ONCE = 100
_END = "]}"


def key(place: ChunkPosition, settings: Settings) -> str:
    """ASCII, unique within the campaign."""
    group, lane = place.group, settings.lanes[place.group.lane]
    kind = "canary" if group.canary else "main"
    return f"{kind}-{group.day}-{group.tier}-{lane.zone or '_'}-{lane.source or '_'}-{place.bucket:06d}"


def head(place: ChunkPosition, settings: Settings) -> str:
    """The request's JSON up to the recipients."""
    lane = settings.lanes[place.group.lane]
    campaign = settings.campaign_of(place.group.canary, place.bucket)
    columns = [*settings.fields, *([FIELD] if settings.best else [])]
    fields = {"campaign": campaign, "columns": columns, "zone": lane.zone, "source": lane.source}
    return json.dumps(fields, ensure_ascii=False)[:-1] + ', "recipients": ['


def numbered(people: DataFrame, groups: Sequence[Group], settings: Settings) -> DataFrame:
    """Who is kept, with `number`, the chunk's: columns number, h, recipient (a JSON array)."""
    from pyspark.sql import functions as F

    rows = [(*group[:4], base, group.chunks(settings)) for group, base in bases(groups, settings)]
    kinds = "canary boolean, day int, tier int, lane int, base int, chunks int"
    table = F.broadcast(small(people.sparkSession, rows, kinds))
    people = people.where(F.col("reason").isNull()).join(table, ["canary", "day", "tier", "lane"])
    bucket = F.floor(F.col("h") / float(1 << HASH_BITS) * F.col("chunks")).cast("int")
    return people.select((F.col("base") + bucket).alias("number"), "h", "recipient")


def chunks(people: DataFrame, groups: Sequence[Group], settings: Settings) -> DataFrame:
    """The plan's rows (PLAN)."""
    from pyspark.sql import functions as F

    rows = [
        (place.number, key(place, settings), settings.lanes[place.group.lane].zone,
         settings.lanes[place.group.lane].source, place.group.canary, place.group.day, place.position,
         head(place, settings))
        for place in places(groups, settings)
    ]  # fmt: skip
    kinds = "number int, chunk string, zone string, source string, canary boolean, day int, position int, head string"
    table = F.broadcast(small(people.sparkSession, rows, kinds))
    recipient = F.struct("h", "recipient")
    # Lists are made after the shuffle only, and of few chunks at once, since they are objects on the heap.
    found = numbered(people, groups, settings).repartition(1 + len(rows) // CHUNKS_AT_ONCE, "number")
    made = found.groupBy("number").agg(F.sort_array(F.collect_list(recipient)).alias("all"))
    body = F.concat("head", F.array_join("all.recipient", ","), F.lit(_END)).cast("binary")
    return made.join(table, "number").select(
        "chunk", F.size("all").alias("n"), "zone", "source", "canary", "day", "position", body.alias("body")
    )
