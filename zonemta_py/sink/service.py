"""What all connections of a sink share, a provider's rate limit among it: messages per second that each client address
may begin, and the reply to those above it.

One bucket per address. Refused messages use none of it, so a client that never slows down still gets its rate through.
"""

from __future__ import annotations

import asyncio
import ssl
from random import Random
from typing import Protocol

from zonemta_py.config.limits import Rate
from zonemta_py.sink.options import SinkOptions
from zonemta_py.sink.record import Recorder
from zonemta_py.sink.rules import SinkRule, parse_rules
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


class Closable(Protocol):
    """A session, as far as the sink needs to know it to end."""

    def abort(self) -> None: ...


class Service:
    """Options, rules, recorder, randomness, TLS context, and the sessions there are."""

    def __init__(self, options: SinkOptions, recorder: Recorder, tls: ssl.SSLContext | None) -> None:
        self.options, self.recorder, self.tls = options, recorder, tls
        self.rules = parse_rules(options.rules, options.seed)
        self.jitter = Random(options.seed)
        self.size_max = options.size_max
        self.prompt = not self.rules and not options.latency_s and not options.dot_latency_s
        self.throttle: SinkThrottle | None = None
        self.change(options)
        self.sessions: set[Closable] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def change(self, options: SinkOptions) -> None:
        """Other rates, while it runs."""
        self.options = options
        if self.throttle is not None:
            self.throttle.change(options)
        elif options.rate_limit:
            self.throttle = SinkThrottle(options)

    def rule(self, stage: str, subjects: list[str]) -> SinkRule | None:
        return next((rule for rule in self.rules.get(stage, ()) if rule.applies(subjects)), None)

    def delay_s(self, stage: str, rule: SinkRule | None) -> float:
        options = self.options
        seconds = (stage == "dot" and options.dot_latency_s) or options.latency_s
        if rule is not None and rule.after_s is not None:
            seconds = rule.after_s
        if seconds and options.jitter:
            seconds *= 1 + options.jitter * self.jitter.uniform(-1, 1)
        return seconds
