"""What parts of the queue call that are made after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zonemta_py.queue.api import Result


class Callbacks(NamedTuple):
    """Given when the queue is made, and never changed.

    pump(): lets the schedule read on, and serves who waits. before_batch(): submits what had to wait until the store
    could be read. settle(result, done): ends a lease that no sender has had. serve_pullers(now_ms): as
    `Leases._serve`, for those who take from pull zones.
    """

    pump: Callable[[], None]
    before_batch: Callable[[], None]
    settle: Callable[[Result, Callable[[], None]], None]
    serve_pullers: Callable[[int], tuple[list[Any], bool]]
