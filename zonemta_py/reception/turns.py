"""Turns of those who want much at once: between two of them whoever wants little is served, and new clients come in.

All of them together get SLICE_S in each round of the event loop, in the order in which they asked.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

SLICE_S = 0.002


class Turns:
    """For one process."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls go_on when it is its turn; what it raises ends nobody else's."""
        self._waiting.append(go_on)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until = time.monotonic() + SLICE_S  # the loop's own time stands still during a round
        try:
            while self._waiting and time.monotonic() < until:
                self._waiting.popleft()()
        finally:
            self._due = bool(self._waiting)
            if self._due:
                asyncio.get_running_loop().call_soon(self._run)
