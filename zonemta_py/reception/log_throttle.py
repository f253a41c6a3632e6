"""Log lines about what strangers do: enough to see what happens, too few to fill the disk.

Of one kind there are at most CLIENT_LINES a minute about one client and KIND_LINES about all; the next line of
that kind says how many were omitted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from zonemta_py.reception.connection_limits import network_of

CLIENT_LINES = 5
KIND_LINES = 30
_MINUTE_S = 60.0


@dataclass(slots=True)
class _Minute:
    began: float
    lines: int = 0
    suppressed_by: int = 0
    clients: dict[str, int] = field(default_factory=dict)


class LogThrottle:
    """A throttle for the lines of one logger. clock: seconds of a steady clock."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._kinds: dict[str, _Minute] = {}

    def warn(self, kind: str, client: str, message: str, *arguments: object) -> None:
        self.line(logging.WARNING, kind, client, message, *arguments)

    def line(self, level: int, kind: str, client: str, message: str, *arguments: object) -> None:
        """Writes the line if there is room for it. kind: one of a few words. client: an IP address."""
        now = self._clock()
        minute = self._kinds.get(kind)
        if minute is None or now >= minute.began + _MINUTE_S:
            suppressed_by = minute.suppressed_by if minute else 0
            minute = self._kinds[kind] = _Minute(now, suppressed_by=suppressed_by)
        client = network_of(client)
        lines = minute.clients.get(client, 0)
        if minute.lines >= KIND_LINES or lines >= CLIENT_LINES:
            minute.suppressed_by += 1
            return
        minute.lines += 1
        minute.clients[client] = lines + 1
        if minute.suppressed_by:
            message, arguments = message + " (and %d similar lines before)", (*arguments, minute.suppressed_by)
            minute.suppressed_by = 0
        self._log.log(level, message, *arguments)
