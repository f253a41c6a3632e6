"""How slow a client may be: a time limit for the head of a request, a minimum rate for its body.

Pure: times are the loop's, in seconds.
"""

from __future__ import annotations

HEAD_S = 20.0
"""From a request's first byte to the end of its header section."""
WINDOW_S = 20.0
LEAST_BYTES_S = 500
"""Minimum rate of a body, over each WINDOW_S in which the server was ready to read."""


class RequestPace:
    """The pace of one connection. least_bytes_s, head_s, window_s: shorter in tests."""

    __slots__ = ("_bytes", "_head_s", "_least", "_since", "_window_s", "_within")

    def __init__(self, now: float, head_s: float, window_s: float, least_bytes_s: float) -> None:
        self._head_s, self._window_s, self._least = head_s, window_s, least_bytes_s
        self._since: float | None = now
        self._bytes = 0
        self._within: object = None

    def heard(self, size: int, now: float) -> None:
        self._bytes += size
        if self._since is None:
            self._since = now

    def idle(self) -> None:
        """Between requests, and while a response is being made: no time limit applies."""
        self._since, self._within, self._bytes = None, None, 0

    def late_with_head(self, now: float) -> bool:
        return self._since is not None and now - self._since > self._head_s

    def late_with_body(self, body: object, ready: bool, now: float) -> bool:
        """body: identifies the current body. ready: the server is reading; otherwise it is the slow one."""
        if body is not self._within or self._since is None or not ready:
            self._within, self._since, self._bytes = body, now, 0
            return False
        took_s = now - self._since
        if took_s < self._window_s:
            return False
        late = self._bytes < self._least * took_s
        self._since, self._bytes = now, 0
        return late
