"""A process's own numbers, on their way to the queue once a second (`metrics.report`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zonemta_py.logs import setup
from zonemta_py.metrics import report
from zonemta_py.queue import questions
from zonemta_py.queue.api import Admin, QueueRefusal


def begin(process: str, queue: Admin, plugins: Callable[[], report.Values]) -> None:
    """As long as the process lives. plugins: what they count."""
    report.total(plugins)
    report.total(lambda: setup.totals(process))

    async def tell(*, process: str, counts: list[list[Any]], gauges: list[list[Any]]) -> None:
        await queue.ask(questions.report, process=process, counts=counts, gauges=gauges)

    report.start(process, tell, QueueRefusal)
