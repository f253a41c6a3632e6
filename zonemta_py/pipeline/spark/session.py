"""The only place that makes a Spark session, the same for the command line, `spark-submit`, tests and notebooks.

Local ones bind to the loopback interface only, show no web page, count in UTC and start in 3 to 4 seconds (`java`).
With a named master ("spark://…") the package is shipped to the workers, so that data sources and functions unpickle
there. Raises `Unavailable` with one sentence where pyspark or Java is missing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from zonemta_py.pipeline.spark import java
from zonemta_py.pipeline.spark.java import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkSession", "Unavailable", "installed", "running", "session"]

_LOG = Path(__file__).parents[1] / "log4j2.properties"
_NEEDED = ("pyspark", "pandas", "pyarrow")
_NOISE = ("WARNING: Using incubator modules", "Setting default log level to", "To adjust logging level use")
_OPENED = "--add-opens=java.base/java.nio=ALL-UNNAMED"

_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
_SECOND = {
    "InvocationThreshold": 5000,
    "MinInvocationThreshold": 600,
    "CompileThreshold": 15_000,
    "BackEdgeThreshold": 40_000,
}
_LONG = ("-XX:+UseParallelGC", *(f"-XX:Tier4{name}={10 * usual}" for name, usual in _SECOND.items()))
"""Of the JVM's compilers the second makes code twice as fast, and takes 20 seconds of CPU time to do so. It takes
a third less with ten times its usual thresholds, which what rows go through passes at once anyway.

With the first alone a JVM has room for 48 MB of such code, which a session that makes all tables fills; what it then
drops is compiled again and again.
"""


def session(
    master: str | None = None,
    memory_gb: float = 2,
    name: str = "zonemta",
    settings: Mapping[str, str] | None = None,
    long: bool = False,
) -> SparkSession:
    """The running session, or a new one.

    master: "local[*]" if None, or what `spark-submit` was told. memory_gb: of the JVM that does the work here; Python
    workers come on top. settings: Spark's own, over those made here. long: for minutes of work rather than one quick
    answer; it starts some seconds later and then takes half the time. Raises Unavailable.
    """
    installed()
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is not None:
        return there
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # a JVM runs already, and has its settings
    rows = _common() | {"spark.app.name": name}
    if not submitted:
        rows |= {"spark.master": master or "local[*]"} | _launch(master or "local[*]", memory_gb, long)
    rows |= settings or {}
    if not submitted:
        _start(rows)
    builder = SparkSession.builder
    for key, value in rows.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")  # the launcher takes it for a shell, and makes it WARN
    if not _local(made.sparkContext.master or ""):
        made.sparkContext.addPyFile(str(package()))
    return made


def running() -> SparkSession | None:
    """The session that is there already. Raises ImportError without pyspark."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def installed() -> None:
    """Raises Unavailable where one of the libraries is missing."""
    import importlib.util

    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)}: not installed; `pip install 'zonemta-py[pipeline]'` installs it")


def _common() -> dict[str, str]:
    """What every session has."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.streaming.metricsEnabled": "false",
    }


def _launch(master: str, memory_gb: float, long: bool) -> dict[str, str]:
    """What must be known before the JVM starts."""
    home = java.home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    options = [f"-Dlog4j2.configurationFile={_LOG.as_uri()}", "-Duser.timezone=UTC", _OPENED]
    rows = {
        "spark.driver.memory": f"{int(memory_gb * 1024)}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(java.cache() / "warehouse"),
    }
    if _local(master):
        options += [*(_LONG if long else _QUICK), *_class_data(home, long)]
        rows |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return rows | {"spark.driver.extraJavaOptions": " ".join(options)}


def _class_data(home: Path, long: bool = False) -> list[str]:
    """Options to use the class-data archive, or to write it when the program ends; long ones leave that to others."""
    file, there = java.class_data(home)
    if " " in str(file) or not java.writable(file.parent):
        return []
    if there:
        return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if long:
        return []
    atexit.register(java.keep, file, _stop)
    return [f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+load=off"]


def _stop() -> Popen[bytes] | None:
    """Ends the session and its gateway; returns the JVM's process if it was started here."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running: Any = SparkSession.getActiveSession()
    if running is not None:
        running.stop()
    gateway = SparkContext._gateway
    return getattr(gateway, "proc", None) if gateway is not None else None


def _start(rows: Mapping[str, str]) -> None:
    """Starts the JVM, if none runs, with what it says on stderr passed on by `_pass_on`. Raises Unavailable."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    source, sink = os.pipe()
    last: list[str] = []
    listener = threading.Thread(target=_pass_on, args=(source, last), daemon=True)
    listener.start()
    conf = SparkConf(loadDefaults=False).setAll(list(rows.items()))
    try:
        gateway = launch_gateway(conf, {"stderr": sink})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        os.close(sink)
        listener.join()
        raise Unavailable(f"Spark did not start: {(last or [str(error)])[-1]}") from None
    os.close(sink)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(source: int, last: list[str]) -> None:
    """Copies the JVM's stderr to ours, but for its launcher's notes about itself, which no setting silences."""
    with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                last[:] = [line.strip()]
                with contextlib.suppress(OSError):  # the reader of our stderr has gone
                    os.write(2, line.encode())


def package(folder: Path | None = None) -> Path:
    """A zip of this package for a cluster's workers: its Python files and the tables beside them."""
    import zonemta_py

    root = Path(zonemta_py.__file__).parent
    target = (folder or Path(tempfile.mkdtemp(prefix="zonemta-"))) / "zonemta_py.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix in (".py", ".toml", ".properties"):
                file.write(path, Path("zonemta_py") / path.relative_to(root))
    return target
