"""Turns for clients with much work: between two of them small requests are served, and new clients are accepted.

All of them together get SLICE_S in each round of the event loop, in the order in which they asked. Time is never asked
of the loop: its own stands still during a round.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

SLICE_S = 0.002


class Turns:
    """The turns of messages in one process."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False
        self._until = 0.0

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls go_on when its turn comes; its exceptions affect no other."""
        self._waiting.append(go_on)
        self._come()

    def spent(self) -> bool:
        """Whether this round's slice is used up; the first who asks in a round begins it. Then `wait`, unless what is
        left to do is little."""
        now = time.monotonic()
        if not self._due:
            self._until = now + SLICE_S
            self._come()
        return now >= self._until

    def _come(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._until = time.monotonic() + SLICE_S
        try:
            while self._waiting and not self.spent():
                self._waiting.popleft()()
        finally:
            self._due = False
            if self._waiting:
                self._come()
