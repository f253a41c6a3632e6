"""The page SCHEMA.md, the Arrow schema, Spark's schema and the forms of the rows say the same."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from zonemta_py.disk.records import Type
from zonemta_py.pipeline.journal import rows, schema

PAGE = (Path(schema.__file__).parent / "SCHEMA.md").read_text("utf-8")
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


def test_spark_and_arrow_agree(spark: SparkSession) -> None:
    """The same columns, types and nullability, however one asks."""
    assert spark.createDataFrame([], schema.DDL).schema == schema.rows()
    assert [field.name for field in schema.rows()] == list(schema.NAMES)
    assert [field.nullable for field in schema.rows()] == [field.nullable for field in schema.ROWS]


@pytest.mark.parametrize("kind", list(Type))
def test_every_record_type_has_its_name(kind: Type) -> None:
    """The column `type` holds the names that the journal's own code uses."""
    assert rows.type_name(kind) == kind.name


def test_the_four_columns_that_are_never_null() -> None:
    """seq, part, at and type stand first, and are always there."""
    assert [field.name for field in schema.ROWS if not field.nullable] == ["seq", "part", "at", "type"]
    assert re.match(r"`seq` bigint not null, `part` int not null, `at` timestamp not null, ", schema.DDL)
