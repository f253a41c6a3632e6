"""A question to one table of the lake, as `zonemta lake show` puts it: rows for people, with quantiles for sketches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException

from zonemta_py.pipeline import deliverability, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Refused(Exception):
    """Spark does not understand the condition, or does not know a column; its sentence."""


def ask(
    spark: SparkSession, lake: Path, name: str, where: str, columns: Sequence[str], limit: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """At most `limit` rows for which the SQL condition `where` ("" for all) is true: names of their columns, and rows.

    columns: which, in their order; all if there are none. Raises Refused, table.Missing.
    """
    rows = table.read(spark, lake, name)
    rows = deliverability.shown(rows) if "latency" in rows.columns else rows
    try:
        rows = rows.filter(where) if where else rows
        rows = rows.select(*columns) if columns else rows
        return rows.columns, [row.asDict(recursive=True) for row in rows.limit(limit).collect()]
    except (AnalysisException, ParseException) as error:
        raise Refused(str(error).strip().splitlines()[0]) from None
