"""What all connections of a sink share."""

from __future__ import annotations

import asyncio
import ssl
from random import Random
from typing import Protocol

from zonemta_py.sink.options import SinkOptions
from zonemta_py.sink.record import Recorder
from zonemta_py.sink.rules import SinkRule, parse_rules
from zonemta_py.sink.throttle import SinkThrottle


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
