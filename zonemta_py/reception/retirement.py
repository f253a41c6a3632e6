"""How a process that accepts connections ends: at SIGTERM soon, at SIGUSR1 when its clients have finished.

SIGUSR1 comes when another process, with another configuration, has begun to accept on the same sockets. Clients then go
on as if nothing had happened, for PATIENCE_S; after that they are told to come again as soon as they are idle. But a
right that the other configuration has taken away ends at once: the queue is asked for those that it gives, and again
when SIGUSR1 comes again, with yet another one.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

from zonemta_py.config.senders import Rights
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import Ask

PATIENCE_S = 60.0
"""A client that sends one message after another over one connection is sent to the new process after that."""
_LOOK_S = 0.05
_AGAIN_S = 0.5


class Retirement:
    """Of this process. ask: of the queue, what rights there are. revise: takes away what is not among them. told:
    called when nothing more is to be begun."""

    def __init__(
        self, ask: Ask | None = None, revise: Callable[[Rights], None] | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._ask, self._revise, self._told = ask, revise, told
        self._asking: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._over, self._since = asyncio.Event(), 0.0
        self.hurried = False
        """Idle clients are sent away from now on."""
        if threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGUSR1, self._replaced)
            self._loop.add_signal_handler(signal.SIGTERM, self._hurry)

    def _replaced(self) -> None:
        self._over.set()
        self._told()
        if self._asking is not None:
            self._asking.cancel()
        self._asking = self._loop.create_task(self._take_away())

    async def _take_away(self) -> None:
        """Without the queue nobody hands in anything, so it may be waited for."""
        while self._ask is not None and self._revise is not None:
            try:
                self._revise(await self._ask(questions.rights))
                return
            except QueueRefusal:
                await asyncio.sleep(_AGAIN_S)

    def _hurry(self) -> None:
        self.hurried = True
        self._over.set()
        self._told()

    async def begins(self) -> None:
        """Returns when nothing more is to be accepted."""
        await self._over.wait()
        self._since = self._loop.time()

    async def look(self) -> None:
        """Waits a moment."""
        await asyncio.sleep(_LOOK_S)
        self.hurried = self.hurried or self._loop.time() - self._since >= PATIENCE_S
