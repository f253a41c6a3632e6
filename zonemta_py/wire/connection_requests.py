"""The queue's end of the socket, as far as a sender's own connections are concerned, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from zonemta_py.queue.api import OpenConnection
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.wire.frames import Operation


class ConnectionRequests:
    """Of one sender."""

    def __init__(
        self, queue: LocalQueue, name: Callable[[], str], run: Callable[[int, Coroutine[Any, Any, Any]], object]
    ) -> None:
        self._queue, self._name, self._run = queue, name, run

    def handlers(self) -> dict[int, Callable[..., None]]:
        return {
            Operation.CLOSED: self._closed,
            Operation.LEFT_OPEN: self._left_open,
            Operation.PLACE: self._place,
        }

    def _closed(self, _: int, connections: list[int]) -> None:
        for connection in connections:
            self._queue.closed(connection)

    def _left_open(self, _: int, connections: list[OpenConnection]) -> None:
        self._queue.left_open(connections, self._name())

    def _place(self, number: int, lease: int, site: str, provider: str) -> None:
        self._run(number, self._queue.place(lease, str(site), str(provider)))
