"""A process's own numbers, on their way to the queue once a second (`metrics.report`)."""

from __future__ import annotations

from collections.abc import Callable

from zonemta_py.logs import setup
from zonemta_py.metrics import report
from zonemta_py.queue.api import Admin, QueueRefusal


def begin(process: str, queue: Admin, plugins: Callable[[], report.Values]) -> None:
    """As long as the process lives. plugins: what they count."""
    report.total(plugins)
    report.total(lambda: setup.totals(process))
    report.start(process, queue.ask, QueueRefusal)
