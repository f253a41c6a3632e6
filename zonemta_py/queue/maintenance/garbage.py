"""When the queue's process looks for garbage: objects that only refer to one another.

Python's collector walks over all that is alive whenever a quarter has been added: with full windows that is half a
second in which no mail is sent, and it comes often while a queue grows. Here it looks only at what is young as it goes
on, which takes some milliseconds, and at what has become old since the last time when the event loop has little to do;
at everything only when memory has doubled: there is little such garbage, since what is made for mail is given back as
soon as nothing refers to it. So nobody who asks an idle queue has to wait for that again and again.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from time import perf_counter, thread_time

YOUNG = (1_000, 10)
"""After so many new objects the youngest are looked at; every so many times those that were left over, too."""
NEVER = 1 << 30
LOOK_S = 10.0
IDLE = 0.02
"""With less of its time used, the event loop is idle."""
ROUNDS = 20
"""With fewer rounds among the young since the last time, there is nothing to look for."""
GROWN, GROWN_BLOCKS = 2, 2_000_000
"""Memory, in blocks, that is too much whatever else goes on: so many times what was left, and some."""


class Garbage:
    """Of this process, whose thread runs the event loop."""

    def __init__(self) -> None:
        gc.enable()
        gc.set_threshold(*YOUNG, NEVER)
        self.left = self.whole = sys.getallocatedblocks()
        """Memory after the last look, and after the last one at everything."""
        self._at, self._used = perf_counter(), thread_time()

    async def watch(self) -> None:
        """For ever, once it is ready."""
        gc.freeze()  # what a start has made, it keeps
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> bool:
        """Collects garbage, if it is time for it; whether it was."""
        now, used = perf_counter(), thread_time()
        idle = used - self._used < IDLE * (now - self._at)
        self._at, self._used = now, used
        due = idle and gc.get_count()[2] >= ROUNDS
        blocks = sys.getallocatedblocks()
        if not due and blocks < GROWN * self.left + GROWN_BLOCKS:
            return False
        whole = not due or blocks >= GROWN * self.whole + GROWN_BLOCKS
        if whole:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.left = sys.getallocatedblocks()
        if whole:
            self.whole = self.left
        return True
