"""Sends a written plan to the nodes, in the plan's order; needs only the plan, so that it can be repeated."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.send.errors import InjectionFailed, InjectionStopped
from zonemta_py.pipeline.spark.little_data import tuned

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from zonemta_py.pipeline.send.writer import Injected

CHUNKS_PER_BATCH = 32
"""Chunks that go from Spark to Python at once: some megabytes."""
LOOK_S = 1.0


def inject(rows: DataFrame, target: NodeAccess, partitions: int = 0, stop: Callable[[], str] = lambda: "") -> Injected:
    """rows: of a plan (chunks.PLAN). stop: asked each second, a sentence ends the work.

    Raises InjectionFailed, InjectionStopped. In every case, repeating it is safe.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    from zonemta_py.pipeline.send.writer import ZonemtaDataSource, load

    spark = rows.sparkSession
    spark.dataSource.register(ZonemtaDataSource)
    tasks = partitions or spark.sparkContext.defaultParallelism
    ordered = rows.repartitionById(tasks, F.col("position") % tasks).sortWithinPartitions("position")
    with TemporaryDirectory(prefix="zonemta-") as folder, _Watch(spark.sparkContext, stop) as watch:
        report = Path(folder) / "report.json"
        writer = ordered.select("chunk", "body").write.format("zonemta").mode("append")
        options = {
            "nodes": ",".join(target.nodes), "key": target.key, "patience_s": str(target.patience_s),
            "requests": str(target.requests), "report": str(report),
            "key_file": target.key_file, "ca": target.verify if isinstance(target.verify, str) else "",
        }  # fmt: skip
        try:
            with tuned(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNKS_PER_BATCH)}):
                writer.options(**options).save()
        except (PySparkException, Py4JJavaError) as error:
            if watch.said:
                raise InjectionStopped(watch.said) from None
            if not report.exists():  # a task's process was lost, or Spark itself
                said = str(error).splitlines()[0][:300]
                raise InjectionFailed(
                    f"the Spark job failed ({said}); continue with --resume, nobody gets it twice"
                ) from error
        outcome = load(report)
    outcome.check()
    return outcome


class _Watch:
    """Asks `stop` in a thread of its own while the job runs, and ends the job when it returns a sentence."""

    def __init__(self, context: SparkContext, stop: Callable[[], str]) -> None:
        self._context, self._stop, self._group = context, stop, f"inject {uuid.uuid4()}"
        self._end, self.said = threading.Event(), ""

    def __enter__(self) -> _Watch:
        self._context.setJobGroup(self._group, "inject", interruptOnCancel=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._context.setLocalProperty("spark.jobGroup.id", "")

    def _run(self) -> None:
        while not self._end.wait(LOOK_S):
            if sentence := self._stop():
                self.said = sentence
                self._context.cancelJobGroup(self._group)
                return
