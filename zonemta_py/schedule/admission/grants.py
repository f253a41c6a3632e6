"""Limits that this queue shares with others, as admission sees them. One queue alone has none of this."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from zonemta_py.config import Throttle
from zonemta_py.zones.admittance import Charge
from zonemta_py.zones.throttle import Level, Limit


class Slots(Protocol):
    """Connections of a zone. most: how many of them this queue may have now."""

    @property
    def most(self) -> int: ...

    def take(self, count: int = 1) -> None:
        """They are in use."""

    def release(self, count: int = 1) -> None:
        """They are free."""


class Grants(Protocol):
    """Where shares of limits come from."""

    def anew(self) -> None:
        """All limits are made anew, and connections are counted out again."""

    def limit(
        self, throttle: Throttle, key: tuple[str, ...], label: str, level: Level, kept: deque[Limit]
    ) -> Limit:  # fmt: skip
        """As `Limit`."""
        ...

    def slots(self, zone: str, connections: int, allow: Callable[[int], None]) -> Slots:
        """The zone's connections. allow: called with how many there are, as that changes."""
        ...

    def need(
        self, limits: tuple[Limit, ...], charge: Charge, now: float, zone: str = "", connected: bool = False
    ) -> None:  # fmt: skip
        """Mail waits that these limits would be charged with. zone: and that takes a connection of that zone.
        connected: it has an idle one to go over, which they count already."""

    def need_slot(self, zone: str, now: float) -> None:
        """Mail waits for a connection of the zone."""

    def served(self, limits: tuple[Limit, ...], charge: Charge, zone: str) -> None:
        """Mail of the zone has gone that they were charged with."""
