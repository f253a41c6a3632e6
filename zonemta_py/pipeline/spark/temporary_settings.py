"""A session's settings for the length of some work.

Sessions of their own would not do: whatever last made a DataFrame is the thread's active session, and Spark looks data
sources up there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
