"""Tables of the lake: days, versions, and the one instant in which they change."""

import multiprocessing
from datetime import date

import pytest

from zonemta_py.pipeline.lake import table

ONE, TWO = date(2026, 3, 1), date(2026, 3, 2)


@pytest.fixture
def rows(spark):
    """rows((day, value) …) as a DataFrame."""
    return lambda *values: spark.createDataFrame(list(values), "day date, value string")


def content(spark, lake, days=None):
    return sorted((row.day, row.value) for row in table.read(spark, lake, "t", days).collect())


def test_a_day_is_replaced_and_the_others_stay(spark, rows, tmp_path):
    """Writing one day leaves the rows of the others; a day without rows is gone."""
    table.write(tmp_path, "t", rows((ONE, "a"), (TWO, "b")))
    table.write(tmp_path, "t", rows((TWO, "c"), (TWO, "d")), [TWO], {"bronze": 1})
    assert content(spark, tmp_path) == [(ONE, "a"), (TWO, "c"), (TWO, "d")]
    assert content(spark, tmp_path, [ONE]) == [(ONE, "a")]
    assert table.manifest(tmp_path, "t").seen == {"bronze": 1}
    table.write(tmp_path, "t", rows().limit(0), [TWO])
    assert content(spark, tmp_path) == [(ONE, "a")]
    assert table.manifest(tmp_path, "t").seen == {"bronze": 1}
    assert content(spark, tmp_path, [TWO]) == []


def test_a_table_can_be_empty(spark, rows, tmp_path):
    """A table without a row is a table all the same, with its columns."""
    table.write(tmp_path, "t", rows().limit(0))
    assert content(spark, tmp_path) == []
    assert table.names(tmp_path) == ["t"]


def test_what_no_manifest_names_is_not_read(spark, rows, tmp_path):
    """A writer killed before its commit leaves files that nobody reads, and the next writer removes."""
    table.write(tmp_path, "t", rows((ONE, "a")))
    left = tmp_path / "t" / "v=2" / f"day={ONE}"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"half a fi")
    assert content(spark, tmp_path) == [(ONE, "a")]
    table.write(tmp_path, "t", rows((ONE, "b")))
    assert content(spark, tmp_path) == [(ONE, "b")]


def test_a_reader_comes_to_its_end_while_a_day_is_replaced(spark, rows, tmp_path):
    """Rows that are being read stay on disk when others take their place."""
    table.write(tmp_path, "t", rows((ONE, "a")))
    reading = table.read(spark, tmp_path, "t")
    table.write(tmp_path, "t", rows((ONE, "b")), [ONE])
    table.write(tmp_path, "t", rows((ONE, "c")), [ONE])
    assert [row.value for row in reading.collect()] == ["a"]


def test_old_versions_go_when_their_time_has_come(rows, tmp_path, monkeypatch):
    """Replaced files are removed later, so that the lake does not grow for ever."""
    monkeypatch.setattr(table, "KEPT_S", -1)
    for value in "abc":
        table.write(tmp_path, "t", rows((ONE, value)), [ONE] if value > "a" else None)
    table.note(tmp_path, "t", {})
    table.write(tmp_path, "t", rows((TWO, "d")), [TWO])
    folders = {str(path.relative_to(tmp_path / "t")) for path in (tmp_path / "t").glob("v=*/day=*")}
    assert folders == {f"v=3/day={ONE}", f"v=4/day={TWO}"}


def test_rows_of_another_day_are_refused(spark, rows, tmp_path):
    """A job that hands over rows of a day it was not to replace changes nothing."""
    table.write(tmp_path, "t", rows((ONE, "a")))
    with pytest.raises(ValueError, match="2026-03-02"):
        table.write(tmp_path, "t", rows((TWO, "b")), [ONE])
    assert content(spark, tmp_path) == [(ONE, "a")]


def test_a_missing_table_says_how_to_make_it(spark, tmp_path):
    """Reading what is not there names the command that makes it."""
    with pytest.raises(table.Missing, match="zonemta lake update nothing"):
        table.read(spark, tmp_path, "nothing")


def _try_lock(lake, answer):
    try:
        with table.locked(lake):
            answer.put("locked")
    except table.Busy as error:
        answer.put(str(error))


def test_one_process_at_a_time_changes_the_lake(tmp_path):
    """The second to come is told so, at once."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    with table.locked(tmp_path):
        other = spawn.Process(target=_try_lock, args=(tmp_path, answers))
        other.start()
        assert "another process" in answers.get(timeout=60)
        other.join()
    _try_lock(tmp_path, answers)
    assert answers.get(timeout=60) == "locked"
