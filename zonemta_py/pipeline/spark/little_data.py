"""Tables of a few rows, made here: part of the plan, so that no Python worker has to be started to read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def small(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """rows: tuples. schema: DDL, such as "domain string, n int"."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kinds = to_arrow_schema(cast(StructType, StructType.fromDDL(schema)))
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=kinds))
