"""A client of the stream of events that reads it in a thread."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx

PATIENCE_S = 60
WATCH = "zmta_watch"
"""A key that may follow events, and nothing else."""


class Follower:
    """rows: (event, id, data) as they come."""

    def __init__(self, url: str, key: str, last: str = "", local: str | None = None, **filters: Any) -> None:
        self.rows: list[tuple[str, str, Any]] = []
        self.last, self.comments, self.status = last, 0, 0
        self.url, self.filters = url, filters
        self.headers = {"authorization": f"Bearer {key}"} | ({"last-event-id": last} if last else {})
        self.over, self.whole = threading.Event(), False
        self.client = httpx.Client(timeout=PATIENCE_S, transport=httpx.HTTPTransport(local_address=local))
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            with self.client.stream("GET", self.url, headers=self.headers, params=self.filters) as answer:
                self.wire = answer.extensions["network_stream"].get_extra_info("socket")
                self.status = answer.status_code
                self._take(answer.iter_lines())
                self.whole = True
        except (httpx.HTTPError, RuntimeError):
            pass  # it was closed
        self.over.set()

    def _take(self, lines: Iterator[str]) -> None:
        kind, id, data = "", "", ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                id = self.last = value
            elif name == "data":
                data += value
            elif line.startswith(":"):
                self.comments += 1
            elif not line and data:
                self.rows.append((kind, id, json.loads(data)))
                kind, id, data = "", "", ""

    def hang_up(self) -> None:
        with suppress(OSError):  # it has ended already
            self.wire.shutdown(socket.SHUT_RDWR)
        self.over.wait(PATIENCE_S)
        self.client.close()

    def until(self, count: int) -> list[str]:
        """Their types, once there are so many."""
        end = time.monotonic() + PATIENCE_S
        while len(self.rows) < count:
            assert time.monotonic() < end, f"{count} have not come: {self.rows}"
            time.sleep(0.01)
        return [kind for kind, _, _ in self.rows]

    def answered(self) -> int:
        end = time.monotonic() + PATIENCE_S
        while not (self.status and (self.comments or self.over.is_set())):
            assert time.monotonic() < end
            time.sleep(0.01)
        return self.status
