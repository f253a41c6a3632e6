"""A place at a domain's own MX hosts, for which a sender asks when none of the smart hosts takes a message."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from zonemta_py.zones.rates import Learned
from zonemta_py.zones.throttle import Scope
from zonemta_py.zones.warmup import Days

Charge: TypeAlias = tuple[int, int, int, int]
"""What limits are charged with: messages, recipients, new connections, bytes."""


class Admittance(NamedTuple):
    """The queue's answer. limited: limits count it there, so it is for one message, and its connection ends with
    it. wait_s: if it is not granted, when to try again; 0: at once, as another lease. cause: why not."""

    granted: bool
    limited: bool = False
    wait_s: float = 0.0
    cause: str = ""


class Elsewhere:
    """Where a lease goes after all, and what counts it there besides limits. taken: since when, steady seconds."""

    __slots__ = ("_day", "_days", "_learned", "scope", "taken")

    def __init__(self, scope: Scope, taken: float, learned: Learned | None, days: Days | None) -> None:
        self.scope, self.taken, self._learned, self._days, self._day = scope, taken, learned, days, 0

    def take(self, recipients: int) -> None:
        if self._learned is not None:
            self._learned.take(self.taken)
        if self._days is not None:
            self._day = self._days.take(recipients)

    def give(self, now: float, recipients: int, tried: bool) -> None:
        """So many were not sent. tried: others were, or were refused."""
        if self._days is not None and recipients:
            self._days.give(recipients, self._day)
        if self._learned is not None and not tried:
            self._learned.give(now, 1, self.taken)
