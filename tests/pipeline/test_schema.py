"""The page SCHEMA.md, the Arrow schema, Spark's schema and the forms of the rows say the same."""

from pathlib import Path

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from zonemta_py.journal.records import Type
from zonemta_py.pipeline.journal import rows, schema

PAGE = (Path(schema.__file__).parents[1] / "SCHEMA.md").read_text("utf-8")
TABLE = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]


def test_the_page_names_every_column_in_order() -> None:
    """Whoever reads the page finds the columns as they are, with their types."""
    kinds = {"int64": "bigint", "int32": "int", "string": "string", "bool": "boolean"}
    assert [(row[0].strip("`"), row[1]) for row in TABLE] == [
        (field.name, kinds.get(str(field.type), "timestamp")) for field in schema.ROWS
    ]


def test_the_page_says_which_records_fill_a_column() -> None:
    """A column that the code fills for a type is listed with that type, and no other."""
    for name, _, types, _ in TABLE:
        name = name.strip("`")
        if types != "all":
            filled = {rows.type_name(kind) for kind, form in rows._FORMS.items() if name in form.columns}
            assert filled == set(types.split()), name


def test_spark_and_arrow_agree() -> None:
    """The same columns, types and nullability, however one asks."""
    assert from_arrow_schema(schema.ROWS) == schema.rows()
    assert [field.name for field in schema.rows()] == list(schema.NAMES)
    assert [field.nullable for field in schema.rows()] == [field.nullable for field in schema.ROWS]


@pytest.mark.parametrize("kind", list(Type))
def test_every_record_type_has_its_name(kind: Type) -> None:
    """The column `type` holds the names that the journal's own code uses."""
    assert rows.type_name(kind) == kind.name


def test_the_four_columns_that_are_never_null() -> None:
    """seq, part, at and type stand first, and are always there."""
    assert [field.name for field in schema.ROWS if not field.nullable] == ["seq", "part", "at", "type"]
    assert [field.name for field in schema.ROWS][:4] == ["seq", "part", "at", "type"]
