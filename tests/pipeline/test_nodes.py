"""Archives of a cluster's nodes in one lake: whose each row is, and every record once, also of a queue taken over."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from zonemta_py.cli.app import main
from zonemta_py.cli.lake.close_segment import node_of, of_nodes
from zonemta_py.config.file import SourceFile, of_text
from zonemta_py.disk import identity
from zonemta_py.disk.frame import frame
from zonemta_py.journal import folders, segments
from zonemta_py.pipeline.journal import reader, source
from zonemta_py.pipeline.journal.reader import Archive
from zonemta_py.pipeline.lake import bronze, table
from zonemta_py.pipeline.lake.query import ask
from zonemta_py.pipeline.lake.update import update
from zonemta_py.queue.reload import history

TABLES = ("deliveries", "outcomes", "deliverability", "feedback")


def rows_of(lake: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(lake.glob("bronze/day=*/[!._]*.parquet")) for row in pq.read_table(path).to_pylist()]


def node(folder: Path, home: int, archive: Path) -> Path:
    """Whose queue at home is another one than 0."""
    (folder / "queues").mkdir(parents=True)
    (folder / "queues" / "layout").write_text(json.dumps({"queues": [home], "home": home}))
    assert identity.copied(folder, "") == ""
    shutil.copytree(archive, folder / "archive")
    return folder


def cut(archive: Path, first: int, last: int, to: Path) -> None:
    """These records of an archive in one segment of another one."""
    to.mkdir(parents=True, exist_ok=True)
    records = [
        one for path in segments.files(archive) for one in segments.read_file(path, []) if first <= one.seq <= last
    ]
    (to / f"{records[0].seq:016d}.journal").write_bytes(frame(records, 0))


@pytest.fixture
def cluster(real_archive: Path, make_archive: Callable[..., Any], tmp_path: Path) -> tuple[Path, Path]:
    """Two nodes: the first has queue 0, the second queue 5."""
    first = tmp_path / "first"
    shutil.copytree(real_archive, first / "archive")
    make_archive(tmp_path / "made", messages=200, days=1, seed=3, segment_records=500)
    return first, node(tmp_path / "second", 5, tmp_path / "made")


def test_rows_say_whose_they_are(spark: SparkSession, cluster: tuple[Path, Path], tmp_path: Path) -> None:
    """In bronze and in every table; as a stream, and by the command, the same."""
    first, second = cluster
    archives, lake = [Archive(first / "archive", "mta1"), Archive(second / "archive", "mta2")], tmp_path / "lake"
    entries = bronze.ingest(spark, archives, lake)
    assert {entry.node for entry in entries} == {"mta1", "mta2"}
    counts = Counter(row["node"] for row in rows_of(lake))
    for archive, name in archives:
        alone = tmp_path / name
        assert sum(one.rows for one in bronze.ingest(spark, archive, alone)) == counts[name] > 0
        assert {row["node"] for row in rows_of(alone)} == {""}
    keys = [(row["seq"], row["part"]) for row in rows_of(lake)]
    assert len(keys) == len(set(keys))
    assert bronze.ingest(spark, archives[::-1], lake) == []
    bronze.follow(spark, archives, tmp_path / "stream")
    assert Counter(row["node"] for row in rows_of(tmp_path / "stream")) == counts
    source.register(spark)
    found = spark.read.format("zonemta_journal").option("node", "mta2").load(str(second / "archive"))
    assert {row.node for row in found.select("node").distinct().collect()} == {"mta2"}
    update(spark, lake)
    for name in TABLES[:3]:
        assert {row.node for row in table.read(spark, lake, name).select("node").distinct().collect()} == {
            "mta1",
            "mta2",
        }
    _, answers = ask(spark, lake, "deliveries", "node = 'mta2'", ["node", "recipient"], 5)
    assert [row["node"] for row in answers] == ["mta2"] * 5
    words = [f"mta1={first / 'archive'}", f"mta2={second / 'archive'}"]
    options = [word for place in words for word in ("--archive", place)]
    assert main(["lake", "ingest", *options, "--lake", str(tmp_path / "command")]) == 0
    assert Counter(row["node"] for row in rows_of(tmp_path / "command")) == counts


@pytest.mark.parametrize("order", ["at once", "first node first", "second node first"])
def test_a_queue_that_was_taken_over_has_its_records_once(
    order: str, spark: SparkSession, cluster: tuple[Path, Path], real_archive: Path, tmp_path: Path
) -> None:
    """The second node goes on with its journal; what both have of it is one row, whichever archive comes first."""
    first, second = cluster
    whole = reader.segments(real_archive)
    last = whole[-1].last_seq
    assert last > 300
    shutil.rmtree(first / "archive")
    cut(real_archive, 1, last * 2 // 3, first / "archive")
    cut(real_archive, last // 3, last, second / "queues" / "0" / "archive")
    assert folders.beside(second / "archive")[0] == second / "queues" / "0" / "archive"
    mine, theirs, lake = Archive(first / "archive", "mta1"), Archive(second / "archive", "mta2"), tmp_path / "lake"
    turns = {
        "at once": [[mine, theirs]],
        "first node first": [[mine], [theirs]],
        "second node first": [[theirs], [mine]],
    }
    for archives in turns[order]:
        bronze.ingest(spark, archives, lake)
    alone = tmp_path / "alone"
    bronze.ingest(spark, [Archive(second / "archive")], alone)
    shutil.rmtree(second / "queues" / "0")
    found = Counter((row["seq"], row["part"], row["type"]) for row in rows_of(lake) if row["seq"] <= last)
    bronze.ingest(spark, real_archive, tmp_path / "real")
    assert found == Counter((row["seq"], row["part"], row["type"]) for row in rows_of(tmp_path / "real"))


def old(lake: Path) -> None:
    """As a version has left it that knew of no nodes."""
    for path in lake.glob("*/**/*.parquet"):
        rows = pq.ParquetFile(path).read()
        if "node" in rows.column_names:
            pq.write_table(rows.drop_columns(["node"]), path)
    for path in lake.glob("*/manifest.json"):
        said = json.loads(path.read_bytes())
        said["schema"]["fields"] = [one for one in said["schema"]["fields"] if one["name"] != "node"]
        path.write_text(json.dumps(said))
    for path in lake.glob("bronze/_ledger/*.json"):
        entry = json.loads(path.read_bytes())
        del entry["node"]
        path.write_text(json.dumps(entry))


def test_a_lake_of_an_earlier_version_goes_on(
    spark: SparkSession, cluster: tuple[Path, Path], real_archive: Path, tmp_path: Path
) -> None:
    """Its archive has a node's name now: nothing comes twice. Days that are not made again have "" for it."""
    first, second = cluster
    archives, lake = [Archive(first / "archive", "mta1"), Archive(second / "archive", "mta2")], tmp_path / "lake"
    bronze.ingest(spark, real_archive, lake)
    update(spark, lake)
    old(lake)
    before = Counter((row["seq"], row["part"]) for row in rows_of(lake))
    assert "node" not in table.read(spark, lake, "deliveries").columns
    bronze.ingest(spark, archives, lake)
    rows = rows_of(lake)
    assert Counter((row["seq"], row["part"]) for row in rows if "node" not in row) == before
    assert {row["node"] for row in rows if "node" in row} == {"mta2"}
    assert bronze.ingest(spark, archives, lake) == []
    update(spark, lake)
    for name in TABLES[:3]:
        assert {row.node for row in table.read(spark, lake, name).select("node").distinct().collect()} == {"", "mta2"}
    whole = Counter(row.node for row in table.read(spark, lake, "deliveries").select("node").collect())
    update(spark, lake, full=True)
    assert Counter(row.node for row in table.read(spark, lake, "deliveries").select("node").collect()) == whole
    assert "node" in table.read(spark, lake, "feedback").columns, "nothing had come for it before"


def test_the_node_is_the_one_of_its_cluster(tmp_path: Path) -> None:
    """By the configuration that the MTA had last; what a command line says goes before it."""
    archive = tmp_path / "archive"
    archive.mkdir()
    assert node_of(archive) == ""
    text = (
        '[server]\nhostname = "mta7.example.com"\n[[zones]]\nname = "default"\ndefault = true\n'
        '[cluster]\nname = "one"\n'
        'servers = ["nats://127.0.0.1:4222"]\nmonitor = ["http://127.0.0.1:8222"]\n'
    )
    history.add(
        tmp_path, of_text(tmp_path / "zonemta.toml", text), SourceFile(str(tmp_path / "zonemta.toml"), text), "", 1
    )
    assert node_of(archive) == "mta7"
    assert of_nodes([str(archive), f"mta9={archive}"]) == [Archive(archive, "mta7"), Archive(archive, "mta9")]


def test_a_folder_whose_name_has_an_equals_sign() -> None:
    assert Archive.read("/a=b/archive") == Archive(Path("/a=b/archive"))
    assert Archive.read("mta-1=/a=b") == Archive(Path("/a=b"), "mta-1")
