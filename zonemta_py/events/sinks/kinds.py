"""Which module a kind of sink is in; each is loaded when a sink needs it, with the library made for it."""

from __future__ import annotations

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import SinkClient


def client(settings: EventSink, source: str) -> SinkClient:
    """source: the queue's, as in CloudEvents. Raises ConfigError."""
    from zonemta_py.events.sinks.webhook import WebhookSink

    return WebhookSink(settings, source)
