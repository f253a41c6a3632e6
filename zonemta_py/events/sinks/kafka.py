"""Events to a topic of Kafka, or another server of its protocol. The only module with aiokafka.

The record's value is the whole event (CloudEvents' Kafka binding 1.0.2, structured mode), its key the message's id, so
that one partition has a message's events in their order. An event has arrived when all in-sync replicas have it
(acks=all); the producer is idempotent, so what the library repeats is there once. A topic that is missing, or not ours
to write to, is down; an event larger than the topic takes is rejected for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer, errors
from aiokafka.conn import create_conn

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks import broker, tls
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown

_PORT, _PORT_TLS = 9092, 9093
_CLOSE_S = 1.0
_BATCH_BYTES = 64 * 1024
"""Of records for one partition, which the broker takes or refuses together."""
_NO_LIMIT = 2**31 - 1
_TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_TOO_LATE = (TimeoutError, errors.KafkaTimeoutError, errors.RequestTimedOutError)
_LOGIN = (errors.SaslAuthenticationFailed, errors.AuthenticationFailedError, KeyError, ValueError)
"""The library raises the last two for a refusal within SCRAM."""
_FORBIDDEN = (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError)
_MECHANISM = (errors.UnsupportedSaslMechanismError, errors.AuthenticationMethodNotSupported)
_NO_CONNECTION = (errors.KafkaConnectionError, errors.NodeNotReadyError)
_ANY = (errors.KafkaError, OSError, KeyError, ValueError)
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it says of every failure, the sink says once


class KafkaSink:
    """One producer; beginning again is left to the sink's own backoff."""

    def __init__(self, settings: EventSink, source: str) -> None:
        self._settings, self._source = settings, source
        self._topic = broker.EventAddress(settings.topic)
        self._encrypted = broker.encrypted(settings)
        self._producer: AIOKafkaProducer | None = None
        if self._encrypted:
            tls.context(settings)

    async def open(self) -> None:
        settings = self._settings
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._servers(), client_id=f"zonemta-{settings.name}", acks="all",
            enable_idempotence=settings.idempotent, max_batch_size=_BATCH_BYTES, max_request_size=_NO_LIMIT,
            **self._connection(),
        )  # fmt: skip
        try:
            async with asyncio.timeout(settings.timeout_s):
                await self._producer.start()
        except _ANY as error:
            raise await self._down(error) from None

    def _servers(self) -> list[str]:
        host = broker.host(self._settings)
        port = broker.port(self._settings, _PORT_TLS if self._encrypted else _PORT)
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}", *self._settings.bootstrap]

    def _connection(self) -> dict[str, Any]:
        """How any connection is made. Half of the time, so that the library sees a hanging broker before we give up."""
        settings = self._settings
        protocol = "SSL" if self._encrypted else "PLAINTEXT"
        keys: dict[str, Any] = {"request_timeout_ms": max(1, int(settings.timeout_s * 500))}
        if self._encrypted:
            keys["ssl_context"] = tls.context(settings)
        if settings.username:
            protocol = f"SASL_{protocol}"
            keys |= {"sasl_mechanism": settings.sasl_mechanism}
            keys |= {"sasl_plain_username": settings.username, "sasl_plain_password": settings.password}
        return {**keys, "security_protocol": protocol}

    async def _down(self, error: BaseException) -> SinkDown:
        if isinstance(error, _NO_CONNECTION):
            error = await self._cause(error)
        return SinkDown(self._phrase(error))

    async def _cause(self, error: BaseException) -> BaseException:
        """Why no server answers: the library only logs it, so the first one is tried once more."""
        host = broker.host(self._settings)
        port = broker.port(self._settings, _PORT_TLS if self._encrypted else _PORT)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                (await create_conn(host, port, **self._connection())).close()
        except _ANY as cause:
            return cause
        return error

    async def send(self, batch: Sequence[Ready]) -> None:
        answers = await self._answers(batch)
        failures = {i: answer for i, answer in enumerate(answers) if answer is not None}
        if any(isinstance(answer, _TOO_LARGE) for answer in answers):
            await self._separately(batch, list(failures))
        elif failures:
            raise await self._down(next(iter(failures.values())))

    async def _answers(self, batch: Sequence[Ready]) -> list[BaseException | None]:
        """None: it has arrived."""
        assert self._producer is not None
        waiting: list[asyncio.Future[Any]] = []
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                for ready in batch:
                    waiting.append(await self._hand_over(self._producer, ready))
                answers = await asyncio.gather(*waiting, return_exceptions=True)
        except _ANY as error:
            raise await self._down(error) from None
        finally:
            for future in waiting:
                future.cancel()
        return [answer if isinstance(answer, BaseException) else None for answer in answers]

    async def _hand_over(self, producer: AIOKafkaProducer, ready: Ready) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = await producer.send(
            self._topic.of(ready), ready.body, ready.subject.encode() or None, timestamp_ms=ready.ms,
            headers=[("content-type", broker.CONTENT_TYPE.encode())],
        )  # fmt: skip
        return future

    async def _separately(self, batch: Sequence[Ready], indices: Sequence[int]) -> None:
        """A record that is too large takes those down that it was sent with. After each refusal the producer begins
        anew, for the sequence numbers of the old one have a gap, at which the broker would refuse all that follows."""
        rejected: list[int] = []
        anew = True
        for index in indices:
            if anew:
                await self.close()
                await self.open()
            answer = (await self._answers([batch[index]]))[0]
            anew = isinstance(answer, _TOO_LARGE)
            if anew:
                rejected.append(index)
            elif answer is not None:
                raise await self._down(answer)
        if anew:
            await self.close()
            await self.open()
        if rejected:
            raise Rejected("it is larger than the topic's max.message.bytes", rejected)

    async def close(self) -> None:
        """`stop` would wait until all that is on the way has arrived: nothing may be on the way."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer._message_accumulator.fail_all(errors.ProducerClosed())
        for batches in producer._message_accumulator._batches.values():
            for batch in batches:
                batch._drain_waiter.exception()  # else asyncio logs that nobody asked
        for connection in list(producer.client._conns.values()):
            connection.close()
        stopping = asyncio.ensure_future(producer.stop())
        await asyncio.wait((stopping,), timeout=max(_CLOSE_S, self._settings.timeout_s))
        stopping.cancel()
        with suppress(asyncio.CancelledError, *_ANY):
            await stopping

    def _phrase(self, error: BaseException) -> str:
        settings = self._settings
        if isinstance(error, _LOGIN) and not isinstance(error, OSError):  # a certificate's error is a ValueError, too
            return broker.login_refused(settings)
        if isinstance(error, _MECHANISM):
            return f"it takes no {settings.sasl_mechanism}: write another sasl_mechanism"
        if isinstance(error, _FORBIDDEN):
            who = f"user {settings.username!r}" if settings.username else "a client without username"
            return f"it does not permit {who} to write to topic {settings.topic!r}: add that right there"
        if isinstance(error, errors.UnknownTopicOrPartitionError | errors.InvalidTopicError):
            return f"it has no topic {settings.topic!r}: create it there"
        if isinstance(error, _TOO_LATE):
            return "it took too long to answer"
        if isinstance(error, (*_NO_CONNECTION, OSError)):
            return broker.unreachable(error)
        if isinstance(error, errors.KafkaError):
            return f"it refuses: {type(error).__name__}"
        raise error
