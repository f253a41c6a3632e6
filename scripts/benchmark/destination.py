"""The sink as a process of its own, seen through the record it writes ten times a second, or as often as asked."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.contenders import ROOT, BenchError
from benchmark.processes import cpu_of

RUN = """
import json, sys
from dataclasses import replace
from pathlib import Path
from zonemta_py.sink import SinkOptions, run_sink
given = json.loads(sys.argv[1])
options = SinkOptions(listen=(given["listen"],), rules=tuple(given["rules"]), record=Path(given["record"]),
                      record_every_s=given["every_s"])
if given["starttls"]:
    options = replace(options, capabilities=(*options.capabilities, "STARTTLS"))
run_sink(options, lambda sink: print("ready", flush=True))
"""


class Destination:
    """`with Destination(folder, port) as sink:`; times are those of time.monotonic()."""

    def __init__(
        self, folder: Path, port: int, host: str = "127.0.0.1", rules: tuple[str, ...] = (), starttls: bool = False,
        every_s: float = 0.1,
    ) -> None:  # fmt: skip
        self._look_s = every_s / 2
        self._record = folder / "sink.json"
        self._record.unlink(missing_ok=True)
        given = {"listen": f"{host}:{port}", "rules": rules, "record": str(self._record), "starttls": starttls,
                 "every_s": every_s}  # fmt: skip
        self._command = [sys.executable, "-c", RUN, json.dumps(given)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Destination:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise BenchError("the sink did not start; see the error above")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)

    def read(self) -> dict[str, Any]:
        counters: dict[str, Any] = json.loads(self._record.read_text())
        return counters

    def cpu_s(self) -> float:
        return cpu_of(self._process.pid) if self._process else 0.0

    def wait(
        self, recipients: int, idle_s: float, watch: Callable[[int], object] = lambda count: None
    ) -> dict[str, Any]:
        """Until so many recipients came, or none for `idle_s` seconds; `watch` is told the number now and then."""
        last, changed = -1, time.monotonic()
        while True:
            counters = self.read()
            watch(counters["recipients"])
            if counters["recipients"] != last:
                last, changed = counters["recipients"], time.monotonic()
            if last >= recipients or time.monotonic() - changed > idle_s:
                return counters
            time.sleep(self._look_s)
