"""Events to RabbitMQ, or another server of AMQP 0-9-1. The only module with aio-pika.

Persistent messages on one channel, in order; an event has arrived when the server has confirmed it. One that no queue
takes comes back and is rejected for good, unless `mandatory = false`. A server that is full, blocked by an alarm of
memory or disk, or lacks the exchange is down. The message's id is the event's, so a repetition is known by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import aio_pika
from aio_pika import exceptions

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks import broker, tls
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown

_PORT, _PORT_TLS = 5672, 5671
_CLOSE_S = 1.0
for _name in ("aio_pika", "aiormq"):  # what they say of every failure, the sink says once
    logging.getLogger(_name).setLevel(logging.CRITICAL)
_LOST = (exceptions.AMQPError, exceptions.ChannelInvalidStateError, OSError, asyncio.CancelledError)
"""What a confirmation fails with when the connection is lost."""


class AmqpSink:
    """One connection, one channel; nothing is declared, for exchanges and queues are the operator's."""

    def __init__(self, settings: EventSink, source: str) -> None:
        self._settings, self._source = settings, source
        self._key = broker.EventAddress(settings.routing_key)
        self._connection: aio_pika.abc.AbstractConnection | None = None
        self._exchange: aio_pika.abc.AbstractExchange | None = None
        if broker.encrypted(settings):
            tls.context(settings)

    async def open(self) -> None:
        settings = self._settings
        try:
            async with asyncio.timeout(settings.timeout_s):
                await self._connect()
        except (exceptions.ProbableAuthenticationError, exceptions.AuthenticationError):
            raise SinkDown(broker.login_refused(settings)) from None
        except exceptions.ChannelNotFoundEntity:
            vhost = broker.path(settings) or "/"
            raise SinkDown(f"virtual host {vhost!r} has no exchange {settings.exchange!r}: declare it there") from None
        except exceptions.InvalidFrameError:  # what the library makes of a refused virtual host
            vhost = broker.path(settings) or "/"
            raise SinkDown(f"it refuses virtual host {vhost!r}: see that it is there, and open to the user") from None
        except (exceptions.AMQPChannelError, exceptions.ConnectionClosed) as error:
            raise SinkDown(f"it refuses: {_said(error)}") from None
        except (exceptions.AMQPError, OSError) as error:
            raise SinkDown(broker.unreachable(error)) from None

    async def _connect(self) -> None:
        settings, encrypted = self._settings, broker.encrypted(self._settings)
        self._connection = await aio_pika.connect(
            host=broker.host(settings), port=broker.port(settings, _PORT_TLS if encrypted else _PORT),
            login=settings.username or "guest", password=settings.password or "guest",
            virtualhost=broker.path(settings) or "/", ssl=encrypted,
            ssl_context=tls.context(settings) if encrypted else None,
            client_properties={"connection_name": f"zonemta {settings.name}"},
        )  # fmt: skip
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        self._exchange = (
            await channel.get_exchange(settings.exchange) if settings.exchange else channel.default_exchange
        )

    async def send(self, batch: Sequence[Ready]) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answers = await asyncio.gather(*map(self._publish, batch), return_exceptions=True)
        except TimeoutError:
            raise SinkDown("it took too long to confirm: see whether an alarm of memory or disk blocks it") from None
        returned = [i for i, answer in enumerate(answers) if isinstance(answer, exceptions.PublishError)]
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, exceptions.PublishError):
                raise SinkDown(_phrase(answer)) from None
        if returned:
            where = f"exchange {self._settings.exchange!r}, routing key {self._key.of(batch[returned[-1]])!r}"
            raise Rejected(f"no queue is bound to {where}", returned)

    async def _publish(self, ready: Ready) -> None:
        assert self._exchange is not None
        message = aio_pika.Message(
            ready.body, content_type=broker.CONTENT_TYPE, delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=ready.id, type=f"zonemta.{ready.type}", timestamp=datetime.fromtimestamp(ready.ms / 1000, UTC),
        )  # fmt: skip
        await self._exchange.publish(message, self._key.of(ready), mandatory=self._settings.mandatory)

    async def close(self) -> None:
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with suppress(*_LOST):
                async with asyncio.timeout(_CLOSE_S):
                    await connection.close()


def _phrase(error: BaseException) -> str:
    """Of a publication that was not confirmed. Raises what is no failure of the other side."""
    if isinstance(error, exceptions.DeliveryError):
        return "it refuses to take more: a queue is full"
    if isinstance(error, exceptions.ChannelClosed):
        return f"it refuses: {_said(error)}"
    if isinstance(error, _LOST):
        return "it broke the connection"
    raise error


def _said(error: Exception) -> str:
    """The server's own words, such as ACCESS_REFUSED - access to exchange …"""
    return next((arg for arg in reversed(error.args) if isinstance(arg, str)), "") or type(error).__name__
