"""A provider's rate limit: messages per second that each client address may begin, and the reply to those above it.

One bucket per address. Refused messages use none of it, so a client that never slows down still gets its rate
through. The clock is an argument (`now`, seconds).
"""

from __future__ import annotations

from zonemta_py.config.limits import Rate
from zonemta_py.sink.options import SinkOptions
from zonemta_py.zones.throttle import Bucket


class SinkThrottle:
    """code: of the reply to what is above the rate; 421 hangs up. A changed rate counts from the next message on."""

    __slots__ = ("_buckets", "_burst", "_rate", "code")

    def __init__(self, options: SinkOptions) -> None:
        self._buckets: dict[str, Bucket] = {}
        self.change(options)

    def change(self, options: SinkOptions) -> None:
        """Other limits; what each client has used remains used."""
        self.code = options.rate_code
        self._rate = Rate(options.rate_limit, 1) if options.rate_limit else None
        self._burst = options.rate_burst
        if self._rate is not None:
            used = {client: bucket.tat for client, bucket in self._buckets.items()}
            self._buckets = {client: self._bucket(tat) for client, tat in used.items()}

    def allows(self, client: str, now: float) -> bool:
        """Whether it may send one message now; if so, it has."""
        if self._rate is None:
            return True
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = self._bucket()
        if bucket.wait(now):
            return False
        bucket.take(now)
        return True

    def reply(self, client: str) -> str:
        return f"{self.code} 4.7.28 {client} sends too much too fast, slow down and try again later"

    def _bucket(self, tat: float = 0.0) -> Bucket:
        assert self._rate is not None
        bucket = Bucket(self._rate, self._burst)
        bucket.tat = tat
        return bucket
