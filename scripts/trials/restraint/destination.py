"""The real sink as a process of its own, on as many loopback addresses as wanted, and its diary of what came when."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ports import free_port
from survival.rig import TOP

Event = dict[str, Any]
"""A line of the diary: t, kind, client, connection … (`zonemta_py.sink.timeline`)."""


class Destination:
    """port: the same on all addresses. events, log: its files, up to date within 0.1 s."""

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        self.port, self._folder = free_port(), folder
        self.addresses = addresses
        self.events_file, self.log_file, self.control = (folder / name for name in ("events", "log", "control.json"))
        self._read = 0
        self._events: list[Event] = []

    def command(self, *more: str) -> list[str]:
        listen = [word for address in self.addresses for word in ("--listen", f"{address}:{self.port}")]
        files = ["--events", str(self.events_file), "--control", str(self.control), "--quiet"]
        return [sys.executable, "-m", "zonemta_py", "sink", *listen, *files, *more]

    def change(self, **rates: float) -> None:
        """Another rate_limit, rate_burst, rate_code, within 0.1 s."""
        coming = self._folder / "control.coming"
        coming.write_text(json.dumps(rates))
        coming.rename(self.control)

    def events(self) -> list[Event]:
        """All until now, oldest first."""
        with self.events_file.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._events += [json.loads(line) for line in whole.splitlines()]
        return self._events

    def came(self) -> list[dict[str, Any]]:
        """Rows of the log of messages, if `--log` was asked for: time, message_id, recipients …"""
        return [json.loads(line) for line in self.log_file.read_bytes().splitlines() if line.endswith(b"}")]


@contextmanager
def destination(
    folder: Path, addresses: Sequence[str] = ("127.0.0.1",), *, dot_latency_s: float = 0.0, log: bool = False
) -> Iterator[Destination]:
    """Runs until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Destination(folder, addresses)
    more = ["--dot-latency", str(dot_latency_s), *(("--log", str(found.log_file)) if log else ())]
    process = subprocess.Popen(found.command(*more), cwd=TOP, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError("the sink has not started, see its message above")
        yield found
    finally:
        process.terminate()
        process.wait()
