"""Work on templates that others have written, in processes of their own (`merge.trial`): only requests that bring a
template wait for it.

Two such processes run at once, and one key has at most one of them, so that no key's work makes another's wait while
there is a place. Of the keys that wait, that goes next which has had the least of late. What is expensive is counted:
a key whose templates have used up its budget gets 429 until some of it has grown back; ordinary work costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from zonemta_py.web.documents.problem import RequestProblem

TRIAL_S = 20.0
"""How long the work on one template may take."""
TOO_MUCH = "the template takes too long or too much memory; make it simpler"
AT_ONCE = 2
FREE_S = 2.0
"""Of each piece of work, this much is ordinary."""
BUDGET_S = 60.0
"""What one key may use beyond that, in seconds; it grows back at REGROWTH seconds a second."""
REGROWTH = 0.1
_HOLDERS_MAX = 10_000


class Turns:
    """Who works next, by the names of keys. now: seconds of a clock that only goes forward."""

    def __init__(self, at_once: int = AT_ONCE, now: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._now = at_once, now
        self._working = set[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._used = OrderedDict[str, tuple[float, float]]()
        """By key: seconds, when they were counted."""

    @asynccontextmanager
    async def one(self, holder: str) -> AsyncIterator[None]:
        """Waits for a turn, and counts the time until the end of the block. Raises RequestProblem (429)."""
        self._check(holder)
        if holder in self._working or len(self._working) >= self._at_once:
            await self._wait(holder)
        else:
            self._working.add(holder)
        begun = self._now()
        try:
            yield
        finally:
            self._count(holder, self._now() - begun)
            self._working.discard(holder)
            self._go_on()

    def used_s(self, holder: str) -> float:
        """What is left to regrow of its budget."""
        used, at = self._used.get(holder, (0.0, 0.0))
        return max(0.0, used - REGROWTH * (self._now() - at))

    def _check(self, holder: str) -> None:
        over = self.used_s(holder) - BUDGET_S
        if over >= 0:
            retry_s = max(1, round(over / REGROWTH))
            sentence = f"the templates of the key {holder!r} have taken too much time; make them simpler, and try again"
            raise RequestProblem("share", f"{sentence} in {retry_s} seconds", retry_s=retry_s)

    def _count(self, holder: str, took_s: float) -> None:
        if took_s > FREE_S:
            self._used[holder] = self.used_s(holder) + took_s - FREE_S, self._now()
            self._used.move_to_end(holder)
            while len(self._used) > _HOLDERS_MAX:
                self._used.popitem(last=False)

    async def _wait(self, holder: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came, and whoever waited has gone
                self._working.discard(holder)
                self._go_on()
            raise

    def _go_on(self) -> None:
        while len(self._working) < self._at_once:
            ready = [name for name in self._waiting if name not in self._working]
            if not ready:
                return
            holder = min(ready, key=self.used_s)  # of equals, who has waited longest
            line = self._waiting.pop(holder)
            turn = line.popleft()
            if line:
                self._waiting[holder] = line  # behind the others
            if not turn.done():
                self._working.add(holder)
                turn.set_result(None)


class Workshop:
    """Runs such processes."""

    def __init__(self) -> None:
        self._turns = Turns()

    async def run(self, what: Literal["look", "prepare", "render"], given: bytes, holder: str) -> bytes | None:
        """What the process says; None: it took too much, or died. holder: the name of the key whose work it is. Raises
        RequestProblem (429)."""
        async with self._turns.one(holder):
            working = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "zonemta_py.merge.trial", what,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                said, _ = await asyncio.wait_for(working.communicate(given), TRIAL_S)
            except TimeoutError:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    working.kill()
            return said if said and working.returncode == 0 else None
