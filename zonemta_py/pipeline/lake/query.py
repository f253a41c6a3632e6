"""Queries of one table of the lake, for `zonemta lake show`: readable rows, with quantiles for sketches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
    SparkRuntimeException,
)

from zonemta_py.pipeline.lake import deliverability, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_THE_QUESTION = (
    AnalysisException, ParseException, ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException,
    IllegalArgumentException, NumberFormatException, SparkRuntimeException,
)  # fmt: skip
"""What a condition brings about that cannot be read, or not be worked out for a row (1/0, a text that is no number)."""
_PATTERN = "java.util.regex.PatternSyntaxException"


class QueryRefused(Exception):
    """Spark does not understand the condition, cannot evaluate it, or does not know a column; its sentence."""


def ask(
    spark: SparkSession, lake: Path, name: str, where: str, columns: Sequence[str], limit: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """At most `limit` rows for which the SQL condition `where` ("" for all) is true: names of their columns, and rows.

    columns: which, in their order; all if there are none. Raises QueryRefused, table.Missing.
    """
    rows = table.read(spark, lake, name)
    rows = deliverability.shown(rows) if "latency" in rows.columns else rows
    try:
        rows = rows.filter(where) if where else rows
        rows = rows.select(*columns) if columns else rows
        return rows.columns, [row.asDict(recursive=True) for row in rows.limit(limit).collect()]
    except _OF_THE_QUESTION as error:
        raise QueryRefused(str(error).strip().splitlines()[0]) from None
    except Py4JJavaError as error:
        if _PATTERN not in str(error):
            raise
        raise QueryRefused("a pattern in it is not a regular expression; correct its brackets and asterisks") from None
