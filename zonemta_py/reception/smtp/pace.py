"""How long a client may take: one that sends a byte now and then must not stay for ever (RFC 5321 4.5.3.2.7).

A whole command has to arrive within the time limit after the last reply, however it trickles in. During DATA every byte
earns time, at the minimum rate, but never more than the limit in all. Our own time does not count.
"""

from __future__ import annotations


class ClientPace:
    """Times are the loop's, in seconds. late_at: when the client will be too slow."""

    __slots__ = ("_bytes_s", "_left_s", "late_at", "timeout_s")

    def __init__(self, timeout_s: float, bytes_s: float, now: float) -> None:
        self.timeout_s, self._bytes_s = timeout_s, bytes_s
        self._left_s = timeout_s
        self.late_at = now + timeout_s

    def ask(self, now: float) -> None:
        """The client has been answered: its time for what comes next begins."""
        self.late_at = now + self.timeout_s

    def receive(self, count: int, now: float) -> None:
        """So many bytes of a message have come."""
        self.late_at = min(now + self.timeout_s, self.late_at + count / self._bytes_s)

    def stop(self, now: float) -> None:
        """Now the client waits for us."""
        self._left_s = max(0.0, self.late_at - now)

    def go_on(self, now: float) -> None:
        """The client's remaining time counts down again."""
        self.late_at = now + self._left_s
