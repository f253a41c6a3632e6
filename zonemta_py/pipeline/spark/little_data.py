"""What makes Spark quick on little data: settings for the length of some work, and tables of a few rows, made here:
part of the plan, so that no Python worker has to be started to read them.

Sessions of their own would not do: whatever last made a DataFrame is the thread's active session, and Spark looks data
sources up there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


@contextmanager
def tuned(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets them, and restores the previous ones."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
