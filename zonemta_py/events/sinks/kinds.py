"""Which module a kind of sink is in; each is loaded when a sink needs it, with the library made for it."""

from __future__ import annotations

from zonemta_py.config import ConfigError
from zonemta_py.config.services.events import BROKERS, EventSink
from zonemta_py.events.sinks.base import SinkClient


def client(settings: EventSink, source: str) -> SinkClient:
    """source: the queue's, as in CloudEvents. Raises ConfigError."""
    if settings.kind in BROKERS:
        return _broker(settings, source)
    from zonemta_py.events.sinks.webhook import WebhookSink

    return WebhookSink(settings, source)


def _broker(settings: EventSink, source: str) -> SinkClient:
    try:
        if settings.kind == "amqp":
            from zonemta_py.events.sinks.amqp import AmqpSink

            return AmqpSink(settings, source)
        if settings.kind == "nats":
            from zonemta_py.events.sinks.nats import NatsSink

            return NatsSink(settings, source)
        from zonemta_py.events.sinks.redis import RedisSink

        return RedisSink(settings, source)
    except ModuleNotFoundError as error:
        what = f"{settings.kind} needs the Python package {error.name}, which is not installed"
        raise ConfigError(f"event sink {settings.name!r}: {what}; run: pip install 'zonemta-py[events]'") from None
