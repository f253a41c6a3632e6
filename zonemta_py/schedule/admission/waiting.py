"""Who waits at a limit: flow queues, by flow, so that each flow has its turn when there is room."""

from __future__ import annotations

import math

from zonemta_py.schedule.batch import Line, Turn
from zonemta_py.zones.throttle import Limit


class Waiting:
    """Flow queues that wait at a limit, by flow. when: of the timer that is set."""

    __slots__ = ("_blocking", "_cause", "flow_queues", "when")

    def __init__(self) -> None:
        self.flow_queues: dict[Turn, Line] = {}
        self.when = math.inf
        self._blocking = self._cause = ""

    def end(self) -> None:
        """None waits here any more."""
        for line in self.flow_queues.values():
            was_last = False
            while not was_last:
                flow_queue, was_last = line.pop()
                flow_queue.free()
                flow_queue.enlist()

    def cause(self, limit: Limit) -> str:
        """The reason given to those that begin to wait now: one text for all."""
        if limit.blocking != self._blocking:
            self._blocking, self._cause = limit.blocking, f"{limit.label} ({limit.blocking})"
        return self._cause
