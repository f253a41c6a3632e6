"""Events to a stream of Redis or Valkey: XADD, a batch in one go. The only module with redis-py.

An entry has the fields id, type, subject and event (the CloudEvent). A batch has arrived when the server has answered
to all of it, and as many replicas as wanted have it (WAIT). What an answer is worth when the server dies is its own
configuration: `appendonly yes` survives the process, `appendfsync always` the machine. Full memory (`noeviction`), a
replica that is read-only, a key that is no stream: down, until somebody mends it.

No transaction: started again, Redis 7.0 drops those in its append-only file if its default user is switched off.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks import broker, tls
from zonemta_py.events.sinks.base import Ready, SinkDown

_PORT = 6379
_CLOSE_S = 1.0


class RedisSink:
    """One connection; connecting again is left to the sink's own backoff."""

    def __init__(self, settings: EventSink, source: str) -> None:
        self._settings, self._source = settings, source
        self._stream = broker.EventAddress(settings.stream)
        self._client: Redis | None = None
        if broker.encrypted(settings):
            tls.context(settings)

    async def open(self) -> None:
        settings = self._settings
        self._client = Redis(
            host=broker.host(settings), port=broker.port(settings, _PORT), db=broker.path(settings) or "0",
            username=settings.username or None, password=settings.password or None, protocol=2,
            client_name=f"zonemta-{settings.name}", max_connections=1, retry=Retry(NoBackoff(), 0),
            socket_timeout=None, ssl=broker.encrypted(settings), ssl_min_version=ssl.TLSVersion.TLSv1_2,
            ssl_ca_certs=str(settings.ca_file) if settings.ca_file else None,
            ssl_certfile=str(settings.client_certificate) if settings.client_certificate else None,
        )  # fmt: skip
        await self._told(self._client.ping())

    async def send(self, batch: Sequence[Ready]) -> None:
        await self._told(self._add(batch))

    async def _add(self, batch: Sequence[Ready]) -> None:
        assert self._client is not None
        settings = self._settings
        pipeline = self._client.pipeline(transaction=False)
        for ready in batch:
            fields: dict[Any, Any] = {"id": ready.id, "type": ready.type, "subject": ready.subject, "event": ready.body}
            pipeline.xadd(self._stream.of(ready), fields, maxlen=settings.stream_max or None, approximate=True)
        if settings.replicas:  # WAIT is about what its own connection wrote
            pipeline.execute_command("WAIT", settings.replicas, int(settings.timeout_s * 500))
        answers = await pipeline.execute()
        if settings.replicas:
            have = int(answers[-1])
            if have < settings.replicas:
                raise SinkDown(f"{have} of {settings.replicas} replicas have the events")

    async def _told(self, doing: Awaitable[object]) -> None:
        """Raises SinkDown with words for what goes wrong."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await doing
        except (exceptions.AuthenticationError, exceptions.NoPermissionError):
            raise SinkDown(broker.login_refused(self._settings)) from None
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise SinkDown(broker.unreachable(error)) from None
        except exceptions.RedisError as error:
            raise SinkDown(_phrase(error)) from None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(exceptions.RedisError, OSError):
                async with asyncio.timeout(_CLOSE_S):
                    await client.aclose()


def _phrase(error: exceptions.RedisError) -> str:
    if isinstance(error, exceptions.OutOfMemoryError):
        return "its memory is full (maxmemory with noeviction): raise maxmemory, or lower stream_max"
    if isinstance(error, exceptions.ReadOnlyError):
        return "it is a replica, which takes nothing: name its primary in url"
    said = str(error)
    if "WRONGTYPE" in said:
        return "the key named by `stream` is there and no stream: name another"
    return f"it refuses: {said.partition('caused error: ')[2] or said}"
