"""Days in shares, and files that workers write."""

from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zonemta_py.pipeline.lake import dayfiles, deliverability, deliveries, partitions, scan

ONE, TWO = date(2026, 3, 1), date(2026, 3, 2)


@pytest.fixture
def day(tmp_path, table_of, drawn):
    """Files of `deliveries`, all in one folder."""
    said = scan.chosen(table_of(drawn(9, messages=40)), deliveries.SCANS)
    rows = deliveries.deliveries(deliveries.numbered(said["results"]), said["envelopes"])
    return [tmp_path / f"day={file.day}" / file.written for file in dayfiles.write(tmp_path, 0, rows)]


def test_a_common_day_is_one_share(day):
    """It has all rows."""
    (share,) = partitions.shares(day, deliverability.KEYS)
    assert len(share.read(deliverability.READ)) == sum(pq.read_metadata(path).num_rows for path in day)


def test_shares_of_a_large_day_make_the_same_rows(day, monkeypatch):
    """Each row of the table comes out of one share, as it does of the whole day."""
    (whole,) = partitions.shares(day, deliverability.KEYS)
    monkeypatch.setattr(partitions, "SHARE_BYTES", sum(path.stat().st_size for path in day) // 3)
    parts = list(partitions.shares(day, deliverability.KEYS))
    assert len(parts) > 2
    made = [deliverability.deliverability(share.read(deliverability.READ)).to_pylist() for share in parts]
    expected = deliverability.deliverability(whole.read(deliverability.READ)).to_pylist()
    assert sorted((row for rows in made for row in rows), key=repr) == sorted(expected, key=repr)


def test_only_files_that_a_task_told_of_get_a_name(tmp_path):
    """A task that was lost behind its first file leaves nothing that is read."""
    rows = pa.table({"value": ["a", "b"], "day": pa.array([ONE, TWO])})
    list(dayfiles.write(tmp_path, 7, rows))
    told = list(dayfiles.write(tmp_path, 7, rows))
    dayfiles.place(tmp_path, told)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        f"day={ONE}/part-00007.parquet", f"day={TWO}/part-00007.parquet",
    ]  # fmt: skip
    assert pq.read_table(tmp_path / f"day={TWO}" / "part-00007.parquet", partitioning=None).to_pylist() == [
        {"value": "b"}
    ]
