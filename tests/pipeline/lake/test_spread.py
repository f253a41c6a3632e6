"""Bronze read by Arrow, and handed out by ranges of ids."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zonemta_py.pipeline.journal import schema
from zonemta_py.pipeline.lake import shuffle
from zonemta_py.pipeline.lake.scan import Scan, chosen, read
from zonemta_py.pipeline.lake.shuffle import ScanSource

SCANS = {
    "results": Scan(("DELIVERY",), ("id", "recipient", "verdict", "seq")),
    "envelopes": Scan(("ENVELOPE",), ("id", "sender", "seq"), first=True),
    "events": Scan(("REMOVED", "IN_DOUBT"), ("id", "type", "reason")),
}


@pytest.fixture
def files(tmp_path):
    """files(rows, group_rows): bronze of these rows, a file for each segment."""

    def made(rows, group_rows=10):
        by_segment = {}
        for row in rows:
            by_segment.setdefault(row["segment"], []).append({name: row.get(name) for name in schema.NAMES})
        paths = []
        for segment, content in sorted(by_segment.items()):
            paths.append(tmp_path / f"{segment}.parquet")
            pq.write_table(pa.Table.from_pylist(content, schema.ROWS), paths[-1], row_group_size=group_rows)
        return paths

    return made


def in_order(table):
    return sorted(table.to_pylist(), key=repr)


def of_types(rows, *types):
    return [row for row in rows if row["type"] in types and row.get("id")]


@pytest.mark.parametrize("group_rows", [1, 7, 1000])
def test_each_scan_has_its_rows_and_columns(files, drawn, group_rows):
    """Whether row groups hold one type or many, a scan has the rows of its types; of envelopes the first, if asked."""
    rows = drawn(1, messages=20)
    found = read(files(rows, group_rows), SCANS)
    told = [{name: row.get(name) for name in SCANS["results"].columns} for row in of_types(rows, "DELIVERY")]
    assert in_order(found["results"]) == sorted(told, key=repr)
    firsts = [row for row in of_types(rows, "ENVELOPE") if row["part"] == 0]
    assert sorted(found["envelopes"]["seq"].to_pylist()) == sorted(row["seq"] for row in firsts)
    assert len(found["events"]) == len(of_types(rows, "REMOVED", "IN_DOUBT"))


def test_rows_read_before_are_chosen_alike(files, drawn, table_of):
    """What is asked of a table in memory is what is read of the same rows in files."""
    rows = drawn(2, messages=20)
    there, memory = read(files(rows), SCANS), chosen(table_of(rows), SCANS)
    assert {name: in_order(table) for name, table in there.items()} == {
        name: in_order(table) for name, table in memory.items()
    }


def test_only_ids_that_are_near_are_read(files, drawn):
    """Both ends of a range are inside; several ranges add up; without a range there is no row."""
    rows = drawn(3, messages=20)
    ids = sorted({row["id"] for row in of_types(rows, "DELIVERY")})
    near = [(ids[1], ids[2]), (ids[5], ids[5])]
    paths = files(rows)
    assert set(read(paths, SCANS, near)["results"]["id"].to_pylist()) == {ids[1], ids[2], ids[5]}
    assert len(read(paths, SCANS, [])["results"]) == 0


def test_every_message_is_whole_in_one_range(spark, files, drawn, monkeypatch):
    """However small the ranges and the tasks: all rows come once, and those of a message together."""
    monkeypatch.setattr(shuffle, "RANGE_ROWS", 10)
    monkeypatch.setattr(shuffle, "_SAMPLED", 4)
    monkeypatch.setattr(shuffle, "_TASK_BYTES", 1)
    rows = drawn(4, messages=30)

    def work(number, tables):
        for name, table in tables.items():
            for row in table.to_pylist():
                yield number, name, row["id"], row.get("seq"), row.get("recipient")

    found = shuffle.spread(spark, [ScanSource(files(rows), SCANS)], None, work)
    results = sorted((row[3], row[4]) for row in found if row[1] == "results")
    assert results == sorted((row["seq"], row["recipient"]) for row in of_types(rows, "DELIVERY"))
    ranges = {}
    for number, _, id_, *_ in found:
        ranges.setdefault(id_, set()).add(number)
    assert all(len(numbers) == 1 for numbers in ranges.values())
    assert len({number for numbers in ranges.values() for number in numbers}) > 1


def test_the_ends_are_those_of_all_files(spark, files, drawn):
    """The least and the greatest id; nothing of no rows."""
    rows = drawn(5)
    ids = [row["id"] for row in of_types(rows, "DELIVERY", "REMOVED", "IN_DOUBT", "ENVELOPE")]
    assert shuffle.ends(spark, ScanSource(files(rows), SCANS)) == [(min(ids), max(ids))]
    assert shuffle.ends(spark, ScanSource([], SCANS)) == []
    assert shuffle.spread(spark, [ScanSource([], SCANS)], None, lambda number, tables: [number]) == []
