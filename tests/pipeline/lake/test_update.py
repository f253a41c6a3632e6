"""Updates of the lake: incremental equals full, whatever the order, the portions, or the moment of a death."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zonemta_py.pipeline.journal import schema
from zonemta_py.pipeline.lake import deliverability, table, update

CHANGING = {"latency"}
"""Columns whose bytes depend on chance where a sketch is large, or on the order of merging."""


def place(lake, rows):
    """Rows of the journal as files of bronze, one per segment and day."""
    files = defaultdict(list)
    for row in rows:
        files[row["day"], row["segment"]].append({name: row.get(name) for name in schema.NAMES})
    for (day, segment), content in files.items():
        folder = lake / "bronze" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.Table.from_pylist(content, schema.ROWS), folder / f"{segment.removesuffix('.journal')}.parquet"
        )


def content(spark, lake):
    """All rows of all tables in one order."""
    told = {}
    for job in update.JOBS:
        rows = table.read(spark, lake, job.name)
        names = [name for name in rows.columns if name not in CHANGING]
        told[job.name] = sorted((tuple(row) for row in rows.select(*names).collect()), key=repr)
    return told


def segments_of(rows):
    return sorted({row["segment"] for row in rows})


@pytest.mark.parametrize("seed", [21])
def test_in_any_order_and_portion_the_tables_are_the_same(
    spark, tmp_path, drawn, expected_deliveries, expected_outcomes, seed
):
    """Segments that arrive in random order and portions give the rows that one full update over all of them gives."""
    rows, die = drawn(seed, messages=25), random.Random(seed)
    segments = segments_of(rows)
    die.shuffle(segments)
    cuts = sorted(die.sample(range(1, len(segments)), 2))
    for portion in (segments[: cuts[0]], segments[cuts[0] : cuts[1]], segments[cuts[1] :]):
        place(tmp_path / "parts", [row for row in rows if row["segment"] in portion])
        update.update(spark, tmp_path / "parts")
    place(tmp_path / "whole", rows)
    update.update(spark, tmp_path / "whole", full=True)
    parts, whole = content(spark, tmp_path / "parts"), content(spark, tmp_path / "whole")
    assert parts == whole
    made = {(row.seq, row.part): row.attempt for row in table.read(spark, tmp_path / "parts", "deliveries").collect()}
    assert made == {(row["seq"], row["part"]): row["attempt"] for row in expected_deliveries(rows)}
    states = table.read(spark, tmp_path / "parts", "outcomes").collect()
    told = expected_outcomes(rows)
    assert {(row.id, row.recipient): row.state for row in states} == {key: row["state"] for key, row in told.items()}
    assert all(row.received_at.replace(tzinfo=UTC) == told[row.id, row.recipient]["received_at"] for row in states)


def test_only_days_that_change_are_made_again(spark, tmp_path, journal):
    """A new day leaves the files of the others; an update without news does nothing."""
    ids = []
    for _ in range(2):
        ids.append(journal.new_id(1))
        journal.envelope(ids[-1], ["a@x.example"])
        journal.result(ids[-1], ["a@x.example"], "delivered")
        journal.pass_time(days=1)
    first, second = sorted({row["day"] for row in journal.rows})
    place(tmp_path, [row for row in journal.rows if row["day"] == first])
    assert [done.days for done in update.update(spark, tmp_path)] == [None] * len(update.JOBS)
    later = [row | {"segment": "9.journal"} for row in journal.rows if row["day"] == second]
    place(tmp_path, later)
    assert [done.days for done in update.update(spark, tmp_path)] == [(second,)] * 3 + [()] * 2
    assert [done.days for done in update.update(spark, tmp_path)] == [()] * len(update.JOBS)
    assert table.manifest(tmp_path, "deliveries").days == {str(first): 1, str(second): 2}
    forced = update.update(spark, tmp_path, ["outcomes"], days=[first])
    assert [(done.name, done.days) for done in forced] == [("outcomes", (first,))]
    forced = update.update(spark, tmp_path, ["deliverability"], days=[first])
    assert [(done.name, done.days) for done in forced] == [("deliveries", (first,)), ("deliverability", (first,))]


def test_an_envelope_that_comes_late_completes_its_deliveries(spark, tmp_path, journal):
    """Its segment may be archived after the results': the days of the attempts are made again."""
    id_ = journal.new_id(1)
    journal.envelope(id_, ["a@x.example"], campaign="spring")
    journal.pass_time(days=1)
    journal.result(id_, ["a@x.example"], "delivered")
    envelope, result = journal.rows
    place(tmp_path, [result])
    update.update(spark, tmp_path)
    assert table.read(spark, tmp_path, "deliveries").first().campaign is None
    place(tmp_path, [envelope | {"segment": "9.journal"}])
    update.update(spark, tmp_path)
    assert table.read(spark, tmp_path, "deliveries").first().campaign == "spring"
    assert table.read(spark, tmp_path, "outcomes").first().to_delivery_s == 86_400
    days = table.read(spark, tmp_path, "deliverability").filter("grain = 'day'")
    assert deliverability.rolled(days, ["campaign"]).first().timed == 1


def test_what_cannot_be_updated_says_why(spark, tmp_path):
    """No bronze, and a table that is none, each end in a sentence."""
    with pytest.raises(update.NoBronze, match="zonemta lake ingest"):
        update.update(spark, tmp_path)
    with pytest.raises(ValueError, match="weather is not a table"):
        update.update(spark, tmp_path, ["weather"])


def test_an_update_that_is_killed_is_finished_by_the_next(
    spark, tmp_path, drawn, expected_deliveries, expected_outcomes
):
    """kill -9 of a real `zonemta lake update` in the middle of its work: the next one leaves each row there once."""
    rows = drawn(31, messages=25)
    segments = segments_of(rows)
    place(tmp_path, [row for row in rows if row["segment"] in segments[::2]])
    update.update(spark, tmp_path, ["deliveries", "outcomes"])
    place(tmp_path, rows)
    command = [
        sys.executable,
        "-m",
        "zonemta_py",
        "lake",
        "update",
        "deliveries",
        "outcomes",
        "--lake",
        str(tmp_path),
        "--memory",
        "1",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while running.poll() is None and not (tmp_path / "deliveries" / "v=2").exists():
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    update.update(spark, tmp_path, ["deliveries", "outcomes"])
    made = table.read(spark, tmp_path, "deliveries").collect()
    told = sorted((row["seq"], row["part"], row["attempt"]) for row in expected_deliveries(rows))
    assert sorted((row.seq, row.part, row.attempt) for row in made) == told
    states = table.read(spark, tmp_path, "outcomes").collect()
    told = sorted((*key, row["state"]) for key, row in expected_outcomes(rows).items())
    assert sorted((row.id, row.recipient, row.state) for row in states) == told
