"""The lake's tables: Parquet, one folder a day, replaced day by day, atomically.

    <lake>/<table>/manifest.json         which version of each day is live, the schema, what has been read to make it
    <lake>/<table>/v=<n>/day=<date>/     the files of one version

A writer fills a folder that no reader knows, puts it on stable storage, and then replaces the manifest
(`os.replace`): that is the commit. Readers see what the manifest names and nothing else, so never half a
write, and never new rows with an old checkpoint: both are in that file. A writer that is killed leaves a folder which
the next one removes. Versions that were replaced are removed an hour later, so that active readers can
finish.

The lake is a folder that driver and workers all see under the same path; one process at a time changes it (`locked`).
Failures: `Missing` (no such table), `Busy` (another process changes the lake), OSError of the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.disk.files import replace_file, sync_tree
from zonemta_py.pipeline.spark.little_data import tuned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEPT_S = 3600
_UNIQUE = ("recipient", "sender", "reply", "at")
"""Columns whose values hardly ever repeat: a dictionary of them costs a third of the writing, and saves nothing."""
_OPTIONS = {f"parquet.enable.dictionary#{name}": "false" for name in _UNIQUE}
_OPTIONS |= {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
_OPTIONS |= {"parquet.size.statistics.enabled": "false"}  # histograms of nulls, kept for each value, which nobody reads
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"  # by default 12 bytes without statistics, which nothing can skip
_MANIFEST = "manifest.json"


class Missing(Exception):
    """There is no such table in the lake; says so in one sentence."""


class Busy(Exception):
    """Another process changes the lake; says so in one sentence."""


@dataclass(frozen=True)
class Manifest:
    """What is live. days: date in ISO form → version. seen: what the rows were made of, as the table's job notes it.

    schema: Spark's JSON of the columns, `day` among them. old: [version, day, when it was replaced in UNIX seconds].
    """

    version: int = 0
    days: dict[str, int] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    old: list[tuple[int, str, float]] = field(default_factory=list)


def manifest(lake: Path, name: str) -> Manifest:
    """The table's manifest, an empty one where there is no table yet."""
    try:
        return Manifest(**json.loads((lake / name / _MANIFEST).read_bytes()))
    except FileNotFoundError:
        return Manifest()


def names(lake: Path) -> list[str]:
    """The tables of the lake that have been written."""
    return sorted(path.parent.name for path in lake.glob(f"*/{_MANIFEST}"))


def folders(lake: Path, name: str, days: Iterable[str | date] | None = None) -> list[Path]:
    """The live folders, oldest day first; for readers other than Spark. `days`: only these."""
    live = manifest(lake, name).days
    wanted = set(live) if days is None else {str(day) for day in days}
    return [_folder(lake / name, live[day], day) for day in sorted(wanted & live.keys())]


def files(lake: Path, name: str, days: Iterable[str | date] | None = None) -> list[Path]:
    """The live Parquet files."""
    return [file for folder in folders(lake, name, days) for file in sorted(folder.glob("*.parquet"))]


def read(spark: SparkSession, lake: Path, name: str, days: Iterable[str | date] | None = None) -> DataFrame:
    """The rows of the table, with `day` as last column; `days`: only these. Raises Missing."""
    from pyspark.sql.types import StructType

    now = manifest(lake, name)
    if not now.schema:
        raise Missing(f"{lake}: there is no table {name} yet; create it with `zonemta lake update {name}`")
    schema = StructType.fromJson(now.schema)
    paths = [str(folder) for folder in folders(lake, name, days)]
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", str(lake / name))
    rows = reader.parquet(*paths).select(*schema.names)
    return rows.fillna("", ["node"]) if "node" in schema.names else rows  # days of a version that knew of no nodes


def write(
    lake: Path,
    name: str,
    rows: DataFrame,
    days: Iterable[str | date] | None = None,
    seen: dict[str, Any] | None = None,
) -> Manifest:
    """Puts `rows`, which have a column `day` (date), in place of these days of the table (None: of all of it).

    A day without rows is gone afterwards. `seen` None: what was noted stays. The caller holds `locked`.
    Raises ValueError if rows belong to a day that is not to be replaced; nothing has changed then.
    """
    made = draft(lake, name)
    ordered = rows.select(*(column for column in rows.columns if column != "day"), "day")
    with tuned(rows.sparkSession, {_TIMESTAMPS: "TIMESTAMP_MICROS"}):
        ordered.write.mode("append").options(**_OPTIONS).partitionBy("day").parquet(str(made.folder))
    return made.commit(ordered.schema, days, seen)


def draft(lake: Path, name: str) -> Draft:
    """A new version of the table, that has no readers yet. The caller holds `locked`."""
    before = manifest(lake, name)
    _remove_leftovers(lake / name, before)
    folder = lake / name / f"v={before.version + 1}"
    folder.mkdir(parents=True)
    return Draft(lake, name, before, folder)


@dataclass(frozen=True)
class Draft:
    """A version in the making: its files are put below `folder`, as day=…/….parquet."""

    lake: Path
    name: str
    before: Manifest
    folder: Path

    def commit(
        self, schema: StructType, days: Iterable[str | date] | None = None, seen: dict[str, Any] | None = None
    ) -> Manifest:
        """Puts what is in the folder in place of these days, as `write`. schema: `day` is last. Raises ValueError."""
        before, written = self.before, {path.name.removeprefix("day=") for path in self.folder.glob("day=*")}
        replaced = set(before.days) if days is None else {str(day) for day in days}
        if days is not None and written - replaced:
            foreign = ", ".join(sorted(written - replaced))
            raise ValueError(f"{self.name}: rows of {foreign} among those of other days")
        sync_tree(self.folder)
        version, kept = before.version + 1, {day: of for day, of in before.days.items() if day not in replaced}
        after = replace(
            before,
            version=version,
            days=kept | dict.fromkeys(written, version),
            seen=before.seen if seen is None else seen,
            schema=schema.jsonValue(),
            old=before.old + [(before.days[day], day, time.time()) for day in sorted(replaced & before.days.keys())],
        )
        return _commit(self.lake / self.name, after)


def note(lake: Path, name: str, seen: dict[str, Any]) -> Manifest:
    """Notes what has been read where it changed nothing in the rows. The caller holds `locked`."""
    return _commit(lake / name, replace(manifest(lake, name), seen=seen))


def unread(lake: Path, name: str | None) -> int:
    """Bytes of bronze that the table has not been made of yet; None: of all bronze."""
    seen = manifest(lake, name).seen.get("bronze", {}) if name else {}
    folder = lake / "bronze"
    there = {str(file.relative_to(folder)): file for file in folder.glob("day=*/[!._]*.parquet")}
    return sum(file.stat().st_size for path, file in there.items() if path not in seen)


@contextlib.contextmanager
def locked(lake: Path) -> Iterator[None]:
    """Keeps other processes from changing the lake. Raises Busy."""
    lake.mkdir(parents=True, exist_ok=True)
    lock = os.open(lake / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Busy(f"{lake}: another process is changing this lake; wait until it has finished") from None
    try:
        yield
    finally:
        os.close(lock)


def _folder(table: Path, version: int, day: str) -> Path:
    return table / f"v={version}" / f"day={day}"


def _commit(table: Path, after: Manifest) -> Manifest:
    """Drops expired old versions, then replaces the manifest."""
    due = [row for row in after.old if row[2] < time.time() - KEPT_S]
    for version, day, _ in due:
        shutil.rmtree(_folder(table, version, day), ignore_errors=True)
    after = replace(after, old=[row for row in after.old if row not in due])
    table.mkdir(parents=True, exist_ok=True)
    replace_file(table / _MANIFEST, json.dumps(asdict(after), indent=1).encode())
    return after


def _remove_leftovers(table: Path, live: Manifest) -> None:
    """Folders of writers that were killed before their commit, and those whose days are all gone."""
    used = set(live.days.values()) | {version for version, _, _ in live.old}
    for path in table.glob("v=*"):
        if int(path.name.removeprefix("v=")) not in used:
            shutil.rmtree(path)
