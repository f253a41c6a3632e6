"""A lake that an earlier version made: read as it is, made again with the same rows, and reported."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="NOT TESTED: without pyspark there are no lakes")

CHANGING = {"latency", "node", "metadata", "headers"}
"""Columns whose bytes depend on the order of merging; and those that earlier versions did not have."""
LEFT_OUT = "'suppressed'"
"""State of who was left out at acceptance; earlier versions said "removed"."""


def rows(spark: "SparkSession", lake: Path) -> dict[str, list[str]]:
    """All of all tables, in one order."""
    from zonemta_py.pipeline.lake import table

    found = {}
    for name in table.names(lake):
        content = table.read(spark, lake, name)
        kept = sorted(set(content.columns) - CHANGING)
        said = [repr(tuple(row)) for row in content.select(*kept).collect()]
        found[name] = sorted(one.replace(LEFT_OUT, "'removed'") for one in said)
    return found


def test_its_tables_are_the_same_when_made_again(spark: "SparkSession", left: Path) -> None:
    """From the bronze of then, and from the archive of then."""
    from zonemta_py.pipeline.findings import tables
    from zonemta_py.pipeline.lake import bronze, update
    from zonemta_py.pipeline.report import facts, page
    from zonemta_py.pipeline.report.scope import of_day

    lake = left / "lake"
    before = rows(spark, lake)
    update.update(spark, lake, full=True, jobs=tables.EVERY)
    assert {name: content for name, content in rows(spark, lake).items() if name in before} == before
    anew = left / "anew"
    entries = bronze.ingest(spark, left / "queue" / "archive", anew)
    assert [entry.damages for entry in entries if entry.damages] == []
    update.update(spark, anew, jobs=tables.EVERY)
    assert {name: content for name, content in rows(spark, anew).items() if name in before} == before
    assert {name for name, content in before.items() if content} >= {"deliveries", "outcomes"}
    assert json.loads((left / "owed.json").read_text())["rows"]
    day = facts.last_day(lake)
    assert day is not None
    scope = of_day(datetime.fromtimestamp(day, UTC).date())
    found = facts.gather(spark, lake, scope)
    assert found.now.recipients + found.now.suppressed == len(before["outcomes"])
    assert f"Day {scope.name}" in page.page(found, scope)
