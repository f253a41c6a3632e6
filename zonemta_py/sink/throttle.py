"""A provider's patience: messages per second that each client address may begin, and the reply to those above it.

One token bucket per address (as GCRA: the time at which the bucket will be full again). Refused messages take nothing
from it, so a client that never slows down still gets its rate through. The clock is an argument (`now`, seconds).
"""

from __future__ import annotations

from zonemta_py.sink.options import SinkOptions


class Throttle:
    """code: of the reply to what is above the rate; 421 hangs up. A changed rate counts from the next message on."""

    __slots__ = ("_burst", "_full", "_interval_s", "code")

    def __init__(self, options: SinkOptions) -> None:
        self._full: dict[str, float] = {}
        self.change(options)

    def change(self, options: SinkOptions) -> None:
        """Other limits; what each client has used remains used."""
        self._interval_s = 1 / options.rate_limit if options.rate_limit else 0.0
        self._burst = options.rate_burst or max(options.rate_limit, 1.0)
        self.code = options.rate_code

    def allows(self, client: str, now: float) -> bool:
        """Whether it may send one message now; if so, it has."""
        interval_s = self._interval_s
        if not interval_s:
            return True
        full = self._full.get(client, now)
        if full < now:
            full = now
        if full + interval_s > now + self._burst * interval_s + 1e-9:
            return False
        self._full[client] = full + interval_s
        return True

    def reply(self, client: str) -> str:
        return f"{self.code} 4.7.28 {client} sends too much too fast, slow down and try again later"
