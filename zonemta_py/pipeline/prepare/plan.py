"""The plan of a campaign: who gets it, in which requests and in which order, written before the first is sent.

The list is read once: one row of each mailbox, and every row that is none, are written, and all else is made of these.

`<name>.plan/` holds Parquet rows (chunks.PLAN), report.json with the counts of every step and rejects.csv with the rows
that were none. It has personal data, so only its owner can read it. It appears whole, by one rename, or not at all. The
same list and settings give it again, byte for byte in every body; another list, or other settings, under a campaign's
name that has a plan are refused, or someone might get the campaign twice or never.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.disk.files import sync, sync_tree, write_file
from zonemta_py.pipeline.prepare.assign import assign, within_caps
from zonemta_py.pipeline.prepare.best_hour import with_best_hour
from zonemta_py.pipeline.prepare.chunks import PLAN, chunks
from zonemta_py.pipeline.prepare.count import Counts, count, engaged, followed, in_segment, proposals
from zonemta_py.pipeline.prepare.normalise import normalise
from zonemta_py.pipeline.prepare.settings import PlanRefused, Settings
from zonemta_py.pipeline.prepare.source.dialect import files
from zonemta_py.pipeline.prepare.source.lines import locate, write_rejects
from zonemta_py.pipeline.prepare.source.read import fingerprint, read
from zonemta_py.pipeline.prepare.suppressed import without_suppressed
from zonemta_py.pipeline.prepare.validate import REASONS, propose, validate
from zonemta_py.pipeline.spark.little_data import tuned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPORT = "report.json"
REJECTED = "rejects.csv"
_OWNERS = 0o700
_SETTINGS = {
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
    "spark.sql.shuffle.partitions": "64",
}

_PARQUET = {f"parquet.enable.dictionary#{name}": "false" for name in ("key", "h", "recipient", "chunk", "body")}
"""Their values hardly ever repeat, and a dictionary of them would be a third of the writing."""
_PARQUET |= {"parquet.compression.codec.zstd.level": "1", "parquet.size.statistics.enabled": "false"}


@dataclass(frozen=True, slots=True)
class Plan:
    """folder: where it is. report: what report.json says. made: by this call, not found there."""

    folder: Path
    report: dict[str, Any]
    made: bool


def people(
    rows: DataFrame, settings: Settings, suppressed: DataFrame | None = None, engagement: DataFrame | None = None,
    those: DataFrame | None = None,
) -> DataFrame:  # fmt: skip
    """All steps but the caps: what `read.shape` gives → one row per mailbox, with reason, way and hash.

    Rows that `validate` rejects stay as they are in the list: `raw` and `row` are theirs, and null in all others.
    """
    from pyspark.sql import functions as F

    found = propose(unique(validate(normalise(rows), settings)))
    found = followed(in_segment(without_suppressed(found, suppressed)), those)
    found = engaged(found, engagement, settings)
    found = with_best_hour(found, engagement, settings)
    ordinary = ~F.col("address").contains('"') & ~F.col("address").contains("\\")
    escaped = F.expr("substring(to_json(array(address)), 2, length(to_json(array(address))) - 2)")
    end = F.when(F.col("row") == "", F.lit("]")).otherwise(F.concat(F.lit(","), "row", F.lit("]")))
    recipient = F.when(ordinary, F.concat(F.lit('["'), "address", F.lit('"'), end)).otherwise(
        F.concat(F.lit("["), escaped, end)
    )
    rejected = F.coalesce(F.col("reason").isin(*REASONS), F.lit(False))
    found = assign(found, settings).withColumn("recipient", F.when(~rejected, recipient)).drop("address")
    found = found.withColumn("row", F.when(rejected, F.col("row")))
    return found.withColumn("bytes", F.octet_length("recipient"))


def plan(
    spark: SparkSession, settings: Settings, list_: str, folder: Path,
    suppressed: Callable[[SparkSession], DataFrame | None] = lambda spark: None,
    engagement: Callable[[SparkSession], DataFrame | None] = lambda spark: None,
    say: Callable[[str], object] = lambda step: None, name: Callable[[str], str] = lambda text: text,
    those: Callable[[SparkSession], DataFrame | None] = lambda spark: None,
) -> Plan:  # fmt: skip
    """list_: as `read.read` takes it. suppressed, engagement and those (see `count.followed`): give tables, or None.
    name: a path as shown to users.

    Raises PlanRefused, OSError.
    """
    say("read the list")
    mark = {"list": fingerprint(spark, list_, settings), "settings": settings.digest()}
    found = existing(folder)
    if found is not None:
        folder.chmod(_OWNERS)
        return Plan(folder, _same(found, mark, folder), made=False)
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh.mkdir(_OWNERS)
    try:
        with tuned(spark, _SETTINGS):
            report = mark | _make(
                spark, settings, list_, fresh, suppressed(spark), engagement(spark), say, name, those(spark)
            )
        write_file(fresh / REPORT, json.dumps(report, indent=1, ensure_ascii=False).encode())
        sync_tree(fresh)
        os.rename(fresh, folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Plan(folder, report, made=True)


def existing(folder: Path) -> dict[str, Any] | None:
    """The report of the plan that is there, None without one."""
    try:
        report: dict[str, Any] = json.loads((folder / REPORT).read_text("utf-8"))
    except FileNotFoundError:
        return None
    return report


def rows(spark: SparkSession, folder: Path) -> DataFrame:
    """The plan's rows (chunks.PLAN)."""
    return spark.read.schema(PLAN).parquet(str(folder / "chunks"))


def _same(report: dict[str, Any], mark: dict[str, str], folder: Path) -> dict[str, Any]:
    for what, name in (("list", "the list has"), ("settings", "the settings have")):
        if report[what] != mark[what]:
            campaign = report["campaign"]
            raise PlanRefused(
                f"{folder}: {name} changed since campaign {campaign} was planned; give the campaign another name, or "
                f"continue that plan (`zonemta campaign send --resume --name {campaign}`)"
            )
    return report


def _make(
    spark: SparkSession, settings: Settings, list_: str, folder: Path, suppressed: DataFrame | None,
    engagement: DataFrame | None, say: Callable[[str], object], name: Callable[[str], str], those: DataFrame | None,
) -> dict[str, Any]:  # fmt: skip
    say("clean the list")
    listed = _staged(suppressed, folder / "listed") if suppressed is not None else None  # it is looked at twice
    found = people(read(spark, list_, settings), settings, listed, engagement, those)
    found = _staged(_needed(found, settings), folder / "people")
    say("count")
    counts = count(found, settings)
    if settings.all_caps:
        say("apply the warm-up caps")
        found = _staged(within_caps(found, counts.ways, settings), folder / "capped")
        counts = count(found, settings)
    if not counts.kept:
        _clear(folder)
        raise PlanRefused(f"{name(list_)}: none of {counts.read:,} rows is left to send to: {_why(counts)}")
    say("write the plan")
    chunks(found, counts.groups, settings).write.options(**_PARQUET).parquet(str(folder / "chunks"))
    typos, bad = proposals(found) if counts.typos else [], list[dict[str, Any]]()
    if counts.rejected:
        say("write the rejected rows")
        bad = write_rejects(found, counts.rejected, folder / REJECTED, settings, files(list_), name)
    _clear(folder)
    bad = [one | {"file": name(one["file"])} for one in locate(bad, files(list_))]
    return _report(counts, settings, bad, typos)


def _needed(people: DataFrame, settings: Settings) -> DataFrame:
    """Without what is not used later: most of what a row has beside its recipient."""
    from pyspark.sql import functions as F

    people = people.drop("since_ms").withColumn("line", F.when(F.col("reason").isin(*REASONS), F.col("line")))
    rejected = F.coalesce(F.col("reason").isin(*REASONS), F.lit(False))
    people = people.withColumn("meant", F.when(~rejected, F.col("meant")))
    people = people.withColumn("domain", F.when(F.col("meant").isNotNull(), F.col("domain")))
    if settings.all_caps:
        return people
    return people.withColumn("key", F.when(F.col("meant").isNotNull(), F.col("key")))


def _staged(frame: DataFrame, folder: Path) -> DataFrame:
    """Written and read again: what follows is computed once, and counted from what is written."""
    frame.write.options(**_PARQUET, compression="lz4").parquet(str(folder))
    return frame.sparkSession.read.schema(frame.schema).parquet(str(folder))


def _clear(folder: Path) -> None:
    for name in ("listed", "people", "capped"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("suppressed.parquet", "reached.parquet", "silent.parquet"):
        (folder / name).unlink(missing_ok=True)


def _why(counts: Counts) -> str:
    return ", ".join(f"{row['removed']:,} {row['step']}" for row in counts.steps() if row["removed"]) or "it is empty"


def _report(
    counts: Counts, settings: Settings, bad: list[dict[str, Any]], typos: list[dict[str, Any]]
) -> dict[str, Any]:
    lanes: dict[tuple[str, str, int], int] = {}
    for group in counts.groups:
        lane = settings.lanes[group.lane]
        lanes[lane.zone, lane.source, group.day] = lanes.get((lane.zone, lane.source, group.day), 0) + group.n
    return {
        "campaign": settings.campaign,
        "as_of": settings.as_of,
        "fields": list(settings.fields),
        "read": counts.read,
        "kept": counts.kept,
        "rejected": counts.rejected,
        "steps": counts.steps(),
        "suppressed": [{"kind": kind, "by": by, "n": n} for (kind, by), n in sorted(counts.suppressed.items())],
        "examples": bad,
        "typos": typos,
        "cleaned": counts.cleaned,
        "empty": {name: n for name, n in counts.empty.items() if n},
        "providers": dict(counts.providers.most_common(50)),
        "ways": [{"zone": zone, "source": source, "day": day, "n": n} for (zone, source, day), n in lanes.items()],
        "canary": sum(group.n for group in counts.groups if group.canary),
        "recent": sum(group.n for group in counts.groups if group.tier == 0),
        "own_hours": counts.own if settings.best else None,
        "chunks": sum(group.chunks(settings) for group in counts.groups),
    }


_KEPT = ("raw", "address", "row", "marks", "inside", "reason", "line")


def unique(rows: DataFrame) -> DataFrame:
    """Adds `n`: how many rows stand behind this one. Which row stays depends on its place in the list alone. Rejected
    rows stay, each for itself.

    Rows go to their mailbox's partition first: the aggregation sorts, and before the shuffle it would do so in vain.
    """
    from pyspark.sql import functions as F

    alone = F.concat_ws("\0", F.lit(""), "line.file", "line.block", "line.record")
    rows = rows.withColumn("key", F.when(F.col("reason").isNotNull(), alone).otherwise(F.col("key")))
    rows = rows.withColumn("raw", F.when(F.col("reason").isNotNull(), F.coalesce("broken", "raw")))
    rows = rows.withColumn("address", F.nullif("address", "key"))  # mostly the same, and all of this is shuffled
    rows = rows.select("key", *_KEPT).repartition("key")
    first = F.min_by(F.struct(*_KEPT), "line").alias("first")
    found = rows.groupBy("key").agg(first, F.count("*").alias("n")).select("key", "n", "first.*")
    whole = F.coalesce("address", F.when(F.col("reason").isNull(), F.col("key")))
    return found.withColumn("address", whole).withColumn("domain", F.substring_index("address", "@", -1))
