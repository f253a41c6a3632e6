"""The end of a sender's process: only then is everything closed that it had open.

Its connection to the queue ends a little before that, as the kernel closes one file after another; on a busy machine,
some time before. A process that has lost that connection has nothing left to do: after KILL_S it is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from zonemta_py.queue.queue import LocalQueue

KILL_S = 5.0


class PeerProcess:
    """pid: 0 for one of which nothing is known: it counts as ended."""

    def __init__(self, pid: int) -> None:
        self.pid, self._file = pid, -1
        with suppress(OSError):
            self._file = os.pidfd_open(pid) if pid else -1
        self._kill: asyncio.TimerHandle | None = None

    def when_over(self, then: Callable[[], None], idle: Callable[[], bool] = lambda: True) -> None:
        """Calls it once the process has ended; at once if it has. idle: whether it is killed after KILL_S."""
        if self._file < 0:
            then()
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(self._file, self._over, then)
        self._kill = loop.call_later(KILL_S, self._end, idle)

    def kill(self) -> bool:
        """False: there is none, or not any more."""
        try:
            signal.pidfd_send_signal(self._file, signal.SIGKILL)
        except OSError:
            return False
        return True

    def _end(self, idle: Callable[[], bool]) -> None:
        if idle():
            self.kill()

    def _over(self, then: Callable[[], None]) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)
        self._file = -1
        if self._kill is not None:
            self._kill.cancel()
        then()


def outlive(queue: LocalQueue, pids: Collection[int]) -> None:
    """Nothing is leased while senders of an earlier queue's process have connections open. pids: of all that run; who
    greets this queue has never had another."""
    for pid in pids:
        queue.leases.before.add(pid)
        PeerProcess(pid).when_over(partial(queue.outlived, pid), partial(queue.leases.before.__contains__, pid))
