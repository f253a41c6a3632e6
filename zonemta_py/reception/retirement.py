"""How a process that accepts connections ends: at SIGTERM soon, at SIGUSR1 when its clients have finished.

SIGUSR1 comes when another process, with another configuration, has begun to accept on the same sockets. Clients then go
on as if nothing had happened, for PATIENCE_S; after that they are told to come again as soon as they are idle.
"""

from __future__ import annotations

import asyncio
import signal
import threading

PATIENCE_S = 60.0
"""A client that sends one message after another over one connection is sent to the new process after that."""
_LOOK_S = 0.05


class Retirement:
    """Of this process. accepting: over, once it is to end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over, self._since = asyncio.Event(), 0.0
        self.hurried = False
        """Idle clients are sent away from now on."""
        if threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGUSR1, self._over.set)
            self._loop.add_signal_handler(signal.SIGTERM, self._hurry)

    def _hurry(self) -> None:
        self.hurried = True
        self._over.set()

    async def begins(self) -> None:
        """Returns when nothing more is to be accepted."""
        await self._over.wait()
        self._since = self._loop.time()

    async def look(self) -> None:
        """Waits a moment."""
        await asyncio.sleep(_LOOK_S)
        self.hurried = self.hurried or self._loop.time() - self._since >= PATIENCE_S
