"""The findings as tables of a lake, fed, made anew, and put on a node's list."""

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonemta_py.pipeline.erasure.lake import erase_lake
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym
from zonemta_py.pipeline.findings.apply_suppressions import note, noted
from zonemta_py.pipeline.findings.tables import FINDINGS, feed, make
from zonemta_py.pipeline.lake import table

UNKNOWN = {"verdict": "bounced", "class": "user-unknown", "code": 550, "enhanced": "5.1.1", "reply": "No such user"}


@pytest.fixture(scope="module")
def lake(spark: Any, attempts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    rows = [{"recipient": "gone@example.com", "days": 1, **UNKNOWN}, {"recipient": "here@example.com", "days": 1}]
    table.write(folder, "deliveries", attempts(rows))
    return folder


def test_events_are_fed_once(spark: Any, lake: Path, tmp_path: Path) -> None:
    """A file that repeats what another had leaves each event once; engagement follows."""
    lines = ["address,kind,at,campaign", "here@example.com,open,2026-03-05T10:00:00Z,spring", "x@example.com,glance,1,"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "b.csv").write_text("\n".join([*lines[:2], "left@example.com,unsubscribe,2026-03-05T11:00:00Z,"]))
    assert feed(spark, lake, tmp_path / "a.csv") == (2, 1)
    assert feed(spark, lake, tmp_path / "b.csv") == (2, 0)
    assert table.read(spark, lake, "events").where("kind = 'open'").count() == 1
    people = {row.address: row for row in table.read(spark, lake, "engagement").collect()}
    assert people.keys() == {"here@example.com", "left@example.com"}
    assert people["here@example.com"].last_open_at is not None


def test_findings_are_tables_made_anew(spark: Any, lake: Path) -> None:
    """Suppressions come from deliveries and events alike; a table that is made twice is the same; its day is no day."""
    for _ in range(2):
        found = {row.address: row.rule for row in make(spark, lake, "suppressions").collect()}
    assert found["gone@example.com"] == "address-unknown"
    assert list(table.manifest(lake, "suppressions").days) == ["1970-01-01"]
    assert {job.name for job in FINDINGS} == {"engagement", "suppressions", "blocks", "rates", "unknown"}
    view: Any = SimpleNamespace(days=())
    assert all(list(job.touched(view)) == [datetime.date(1970, 1, 1)] for job in FINDINGS)


def shown(spark: Any, lake: Path, name: str) -> str:
    return str(table.read(spark, lake, name).coalesce(1).sort("day").collect())


def test_a_lake_in_which_somebody_was_forgotten_is_read_as_before(spark: Any, lake: Path) -> None:
    """Spark reads the files that were written again, with their times and structures; only the person is another."""
    person = DataSubject("gone@example.com", pseudonym())
    names = ("deliveries", "suppressions")
    before = {name: shown(spark, lake, name) for name in names}
    assert {place.place for place in erase_lake(lake, person)} == {"lake"}
    for name in names:
        after = shown(spark, lake, name)
        assert person.stand_in in after
        assert after.replace(person.stand_in, "gone@example.com") == before[name]


def test_what_was_sent_is_noted_for_each_node(spark: Any, tmp_path: Path) -> None:
    """The latest evidence counts; nodes do not share their notes; without a note nobody was sent anything."""
    assert noted(spark, tmp_path, "http://a") == {}
    first, later = (
        datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC),
        datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC),
    )
    note(spark, tmp_path, "http://a", {"x@example.com": first})
    note(spark, tmp_path, "http://a", {"x@example.com": later, "it's@example.com": first})
    found = {address: until.timestamp() for address, until in noted(spark, tmp_path, "http://a").items()}
    assert found == {"x@example.com": later.timestamp(), "it's@example.com": first.timestamp()}
    assert noted(spark, tmp_path, "http://b") == {}
