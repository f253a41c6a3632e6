"""`zonemta lake update`, `show` and `tables`: what they print, and how they refuse."""

import json

import pytest

from zonemta_py.cli.app import main
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.pipeline.lake import query, table


@pytest.fixture
def lake(spark, tmp_path):
    """A lake with one table of two days."""
    rows = [("2026-03-01", "google", 3), ("2026-03-02", "yahoo", 4)]
    _write(spark, tmp_path, "counts", rows)
    return tmp_path


def _write(spark, lake, name, rows):
    made = spark.createDataFrame(rows, "day string, provider string, n long").withColumn("day", made_day())
    table.write(lake, name, made)


def made_day():
    from pyspark.sql import functions as F

    return F.to_date("day")


def test_tables_are_listed_with_their_size(lake, capsys):
    """Days, rows and bytes, from the manifest and the files alone: Spark is not started."""
    assert main(["lake", "tables", "--lake", str(lake), "--json"]) == Exit.OK
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["table"], row["days"], row["rows"]) == ("counts", 2, 2)
    assert (row["first"], row["last"]) == ("2026-03-01", "2026-03-02")


def test_a_table_as_a_whole_has_no_days(spark, lake, capsys):
    """What is kept under no day is counted, and no day is named for it."""
    _write(spark, lake, "whole", [("1970-01-01", "google", 3)])
    assert main(["lake", "tables", "--lake", str(lake), "--json"]) == Exit.OK
    row = json.loads(capsys.readouterr().out)[1]
    assert (row["table"], row["days"], row["first"], row["last"], row["rows"]) == ("whole", 0, "", "", 1)


def test_a_question_is_answered_with_its_columns(spark, lake):
    """The condition is SQL; columns come in the order asked for, all of them if none is named."""
    assert query.ask(spark, lake, "counts", "n > 3", ["n", "provider"], 9) == (
        ["n", "provider"],
        [{"n": 4, "provider": "yahoo"}],
    )
    names, rows = query.ask(spark, lake, "counts", "", [], 1)
    assert (names, len(rows)) == (["provider", "n", "day"], 1)


@pytest.mark.parametrize("columns", ["", "n,provider"])
def test_rows_are_shown_in_each_form(lake, capsys, columns):
    """All columns, or those that are asked for; JSON a line for each row."""
    names = columns.split(",") if columns else ["provider", "n", "day"]
    asked = ["lake", "show", "counts", "--lake", str(lake), *(["--columns", columns] if columns else [])]
    for form, read in (("--json", json.loads), ("--csv", None), ("--plain", None)):
        assert main([*asked, form]) == Exit.OK
        lines = capsys.readouterr().out.splitlines()
        if read:
            assert [[*read(line)] for line in lines] == [names] * 2
        else:
            assert len(lines) == (3 if form == "--csv" else 2)
            assert all(len(line.split("," if form == "--csv" else "\t")) == len(names) for line in lines)


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("n >", []), ("weather = 1", []), ("", ["weather"]), ("1 / (n - n) = 1", []), ("cast(provider as int) = 3", []),
        ("to_date(provider) = day", []), ("provider rlike '('", []), ("element_at(array(n), 5) = 1", []),
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_refused(spark, lake, where, columns):
    """Bad SQL, unknown columns and what cannot be worked out end in one line of Spark's, not in its trace."""
    with pytest.raises(query.QueryRefused) as refused:
        query.ask(spark, lake, "counts", where, columns, 9)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show", "weather"], Exit.NO_INPUT, "there are counts"),
        (["update", "--day", "yesterday"], Exit.USAGE, "2026-03-31"),
    ],
)
def test_mistakes_are_told_before_spark_starts(lake, capsys, arguments, code, said):
    """A table that is none, a date that is none: one sentence with the remedy."""
    assert main(["lake", *arguments, "--lake", str(lake)]) == code
    assert said in capsys.readouterr().err


def test_a_lake_that_is_none_is_told(tmp_path, capsys):
    """The remedy is the command that makes one."""
    assert main(["lake", "tables", "--lake", str(tmp_path / "none")]) == Exit.NO_INPUT
    assert "zonemta lake ingest" in capsys.readouterr().err
