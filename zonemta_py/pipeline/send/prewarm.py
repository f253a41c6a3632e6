"""Starts in the background what a campaign needs from Spark later: it takes seconds, and a core is idle meanwhile."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def warm(spark: SparkSession) -> None:
    """The Python workers that `normalise` needs, and what Spark wants to know before it takes a data source."""
    threading.Thread(target=_warm, args=(spark,), daemon=True).start()


def _warm(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    from zonemta_py.pipeline.prepare.spelling import judged
    from zonemta_py.pipeline.send.writer import ZonemtaDataSource

    tasks = spark.sparkContext.defaultParallelism
    unusual = F.concat(F.lit("\u00e4@\u00f6.test"), F.col("id"))
    with contextlib.suppress(Py4JError, PySparkException, OSError):  # the program has ended meanwhile
        rows = spark.range(0, tasks, 1, tasks)
        rows.select(arrow_udf(judged, "string")(unusual)).collect()  # type: ignore[call-overload]
        spark.dataSource.register(ZonemtaDataSource)
