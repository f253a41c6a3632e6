"""A standalone Spark cluster on loopback, from the pyspark package: one master, two workers, each a JVM of its own.

    with Cluster(folder) as master:  # "spark://127.0.0.1:…"
        session(master)

Ends what it started, whatever happens. Raises RuntimeError with the end of a log where something does not come up.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from zonemta_py.pipeline.spark import java

_PATIENCE_S = 60.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """workers: how many; cores and memory_mb: of each. folder: for logs and what the workers write."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory_mb: int = 1024) -> None:
        self._folder, self._workers, self._cores, self._memory_mb = folder, workers, cores, memory_mb
        self._running: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> str:
        try:
            log = self._start(_MASTER, "master")
            master = self._said(log, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                given = ["--cores", str(self._cores), "--memory", f"{self._memory_mb}m", "--work-dir"]
                self._start(_WORKER, f"worker{number}", *given, str(self._folder / f"work{number}"), master)
            for number in range(self._workers):
                self._said(self._folder / f"worker{number}.log", r"Successfully registered with master (\S+)")
        except BaseException:
            self._end()
            raise
        return master

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def worker_pids(self) -> list[int]:
        return [process.pid for process in self._running[1:]]

    def _start(self, kind: str, name: str, *arguments: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        environment = os.environ | {
            "SPARK_HOME": str(home), "JAVA_HOME": str(java.home()), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1",
        }  # fmt: skip
        command = [str(home / "bin" / "spark-class"), kind, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        with log.open("wb") as out:
            self._running.append(
                subprocess.Popen(
                    [*command, *arguments],
                    stdout=out,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            if any(process.poll() is not None for process in self._running):
                break
            time.sleep(0.1)
        raise RuntimeError(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")

    def _end(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # executors are the workers' children, in their group
            process.wait()
        self._running.clear()
