"""Makes connections take turns in parsing and reading: many small chunks, or a long header section, cost as much as
large mail, and no client may monopolise the loop.

h11 continues from event to event as long as it has bytes; this parser stops when the time that all connections share is
used up. The client is then not read from until its turn comes, so that buffered data are bounded.
"""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl

from zonemta_py.reception.turns import Turns

LITTLE_BYTES = 2 * 1024
_LITTLE_EVENTS = 8
"""Events of an ordinary request, which need no turn."""
_EVENTS_MAX = 64
"""Events per turn, so that the next connection's turn comes soon."""


class Parser(h11.Connection):
    """more: it stopped although there may be more events."""

    def __init__(self, turns: Turns, head_bytes_max: int) -> None:
        super().__init__(h11.SERVER, head_bytes_max)
        self._turns, self._free, self._left, self.more = turns, 0, 0, False

    def begin(self, at_least: int) -> None:
        """At least that many events are returned, and more if few bytes wait."""
        self._free, self._left, self.more = at_least, _EVENTS_MAX, False
        if len(self.trailing_data[0]) <= LITTLE_BYTES:
            self._free = _LITTLE_EVENTS

    def next_event(self) -> Any:
        self._left -= 1
        if self._free > 0:
            self._free -= 1
        elif self._left < 0 or self._turns.spent():
            self.more = True
            return h11.NEED_DATA
        return super().next_event()


class TurnTaking(FlowControl):
    """held: paused by us, whatever the request wants."""

    held = False

    def pause_reading(self) -> None:
        if self.held:
            self.read_paused = True
        else:
            super().pause_reading()

    def resume_reading(self) -> None:
        if self.held:
            self.read_paused = False
        else:
            super().resume_reading()

    def hold(self) -> None:
        self.held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.held = False
        if not self.read_paused:
            self._transport.resume_reading()
