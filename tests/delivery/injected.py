"""A fault at one await of a piece of work, found by counting: wherever the work waits there is a number.

`Faulty` runs a coroutine by hand, as `asyncio` does, and at its n-th suspension throws an error into it instead of what
it waits for. So no list of places has to be kept: a new await is a new number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


class Injected(Exception):
    """A bug of ours."""


def bug() -> BaseException:
    return Injected("injected")


def canceled() -> BaseException:
    """As a library lets it out that cancels something of its own; nobody has cancelled the task."""
    return asyncio.CancelledError()


FAULTS: dict[str, Callable[[], BaseException]] = {"bug": bug, "canceled": canceled}


class Faulty:
    """Awaits `work`; error: thrown at suspension number `place` (from 1 on), once; None: the call itself did
    what goes wrong. reached: how many there were."""

    def __init__(self, work: Coroutine[Any, Any, Any], place: int, error: Callable[[], BaseException | None]) -> None:
        self._work, self._place, self._error = work, place, error
        self.reached = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            self.reached += 1
            if self.reached == self._place and (thrown := self._error()) is not None:
                if hasattr(waited_for, "_asyncio_future_blocking"):
                    waited_for._asyncio_future_blocking = False  # nobody waits for it now
                step = partial(self._work.throw, thrown)
                continue
            try:
                step = partial(self._work.send, (yield waited_for))
            except BaseException as error:
                step = partial(self._work.throw, error)
