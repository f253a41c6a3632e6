"""Which module a kind of sink is in; each is loaded when a sink needs it, with the library made for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

from zonemta_py.config import ConfigError
from zonemta_py.config.section import every
from zonemta_py.config.services.events import BROKERS, EventSink
from zonemta_py.events.sinks import tls
from zonemta_py.events.sinks.base import SinkClient
from zonemta_py.plugin.host import Host

_LIBRARIES = {"amqp": "aio_pika", "nats": "nats", "redis": "redis", "kafka": "aiokafka"}


def check(sinks: Sequence[EventSink]) -> None:
    """What would make a sink fail for ever: files that cannot be used, libraries that are missing. Raises ConfigError.
    Loads no library."""
    every(*(partial(_check, settings) for settings in sinks))


def _check(settings: EventSink) -> None:
    if settings.ca_file or settings.client_certificate:
        tls.context(settings)
    library = _LIBRARIES.get(settings.kind)
    if library and find_spec(library) is None:
        raise _missing(settings, library)
    if settings.kind == "file" and settings.path is not None and settings.path.is_dir():
        raise ConfigError(f"event_sinks[{settings.name}].path: {settings.path} is a folder; name a file in it")


def client(settings: EventSink, source: str, host: Host | None = None) -> SinkClient:
    """source: the queue's name. host: plugins that sinks are for. Raises ConfigError."""
    if settings.kind == "plugin":
        from zonemta_py.events.sinks.plugin import PluginSink

        return PluginSink(settings, source, host or Host.empty())
    if settings.kind == "file":
        from zonemta_py.events.sinks.file import FileSink

        return FileSink(settings, source)
    if settings.kind == "syslog":
        from zonemta_py.events.sinks.syslog import SyslogSink

        return SyslogSink(settings, source)
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
        if settings.kind == "kafka":
            from zonemta_py.events.sinks.kafka import KafkaSink

            return KafkaSink(settings, source)
        from zonemta_py.events.sinks.redis import RedisSink

        return RedisSink(settings, source)
    except ModuleNotFoundError as error:
        raise _missing(settings, error.name or "") from None


def _missing(settings: EventSink, library: str) -> ConfigError:
    what = f"{settings.kind} needs the Python package {library}, which is not installed"
    return ConfigError(f"event sink {settings.name!r}: {what}; run: pip install 'zonemta-py[events]'")
