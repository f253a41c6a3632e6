"""A worker for queues that nobody waits for: of an offline command, or a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Inline:
    """A worker that does the job at once; `then` is called in the loop's next iteration."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._ended = loop, False

    def end(self) -> None:
        self._ended = True

    def run(self, job: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        if self._ended:
            return
        error: Exception | None = None
        try:
            job()
        except Exception as caught:  # passed on, as from a thread
            error = caught
        self._loop.call_soon(then, error)
