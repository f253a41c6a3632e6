"""Events to NATS: to a stream of JetStream, which acknowledges each, or to core NATS, which acknowledges nothing. The
only module with nats-py.

JetStream drops an event that it has taken already, by `Nats-Msg-Id`, the event's id, within the stream's
duplicate window. A stream that is full (`discard = new`) or missing is down; an event larger than stream or server take
is rejected for good. Core NATS (`acknowledged = false`): the server has read the batch, and that is all that is known.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks import broker, tls
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown

_PORT = 4222
_CLOSE_S = 1.0
_TOO_LARGE = 10054
"""JetStream's error code for a message above the stream's max_msg_size."""
_NO_STREAM = "503"
"""Status of the answer when nobody listens to a subject."""


class _Refused(NamedTuple):
    """JetStream's answer. code: one of its error codes, 0 where no stream has answered."""

    code: int
    said: str


class NatsSink:
    """One connection; connecting again is left to the sink's own backoff."""

    def __init__(self, settings: EventSink, source: str) -> None:
        self._settings, self._source = settings, source
        self._subject = broker.EventAddress(settings.subject)
        self._encrypted = broker.encrypted(settings)
        self._client: Client | None = None
        self._inbox = ""
        self._open: dict[str, asyncio.Future[_Refused | None]] = {}
        """Events on the way, by the subject of their answer. The library's own `publish_async` never ends for an event
        that a stream refuses."""
        self._noted: Exception | None = None
        """What the server, or the connection, said last."""
        if self._encrypted:
            tls.context(settings)

    async def open(self) -> None:
        settings = self._settings
        self._noted, self._client = None, Client()
        try:
            async with asyncio.timeout(settings.timeout_s):
                await self._client.connect(
                    f"nats://{broker.host(settings)}:{broker.port(settings, _PORT)}",
                    name=f"zonemta {settings.name}",
                    allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                    error_cb=self._note, closed_cb=self._lost,
                    connect_timeout=math.ceil(settings.timeout_s), **self._secured(self._client),
                )  # fmt: skip
                self._inbox = self._client.new_inbox()
                if settings.acknowledged:
                    await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
        except (errors.Error, OSError) as error:
            raise SinkDown(self._phrase(error)) from None

    def _secured(self, client: Client) -> Mapping[str, Any]:
        """TLS and login. The library goes on in the clear if the server offers no TLS, so each part of a login is
        handed over only when it is asked for, and never then."""

        def checked(value: str) -> str:
            if self._encrypted and not client._server_info.get("tls_required"):
                raise SinkDown("it offers no TLS: set up TLS there, or write nats:// with cleartext = true")
            return value

        settings = self._settings
        more: dict[str, Any] = {"user": lambda: checked(settings.username), "password": lambda: settings.password}
        if not settings.username:
            more = {"token": lambda: checked(settings.password)}
        return {**more, "tls": tls.context(settings)} if self._encrypted else more

    async def _note(self, error: Exception) -> None:
        """The server has refused something, or the connection broke; no acknowledgement may follow."""
        self._noted = error
        self._fail()

    async def _lost(self) -> None:
        self._fail()

    def _fail(self) -> None:
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(errors.ConnectionClosedError())

    async def _answered(self, message: Msg) -> None:
        answer = self._open.get(message.subject)
        if answer is not None and not answer.done():
            answer.set_result(_refusal(message))

    async def send(self, batch: Sequence[Ready]) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await (self._acknowledged(batch) if self._settings.acknowledged else self._passed_on(batch))
        except (errors.Error, OSError) as error:  # TimeoutError is an OSError
            raise SinkDown(self._phrase(error)) from None

    async def _acknowledged(self, batch: Sequence[Ready]) -> None:
        loop = asyncio.get_running_loop()
        self._open = {f"{self._inbox}.{i}": loop.create_future() for i in range(len(batch))}
        for ready, inbox in zip(batch, self._open, strict=True):
            await self._publish(ready, inbox)
        answers = await asyncio.gather(*self._open.values(), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            if answer is not None and answer.code != _TOO_LARGE:
                raise SinkDown(self._refused(answer))
        if too_large := [i for i, answer in enumerate(answers) if answer is not None]:
            raise Rejected("it is larger than the stream's max_msg_size", too_large)

    async def _passed_on(self, batch: Sequence[Ready]) -> None:
        assert self._client is not None
        for ready in batch:
            await self._publish(ready)
        read = asyncio.ensure_future(self._client.flush(math.ceil(self._settings.timeout_s)))
        broken = self._open[""] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((read, broken), return_when=asyncio.FIRST_COMPLETED)
            (broken if broken.done() else read).result()
            reading = self._client._reading_task
            if reading is None or reading.done():  # then `flush` says that all is well, whatever became of it
                raise errors.ConnectionClosedError
        finally:
            read.cancel()
            broken.cancel()
        if self._noted:
            raise self._noted

    async def _publish(self, ready: Ready, inbox: str = "") -> None:
        assert self._client is not None
        headers = {"Content-Type": broker.CONTENT_TYPE, "Nats-Msg-Id": ready.id}
        await self._client.publish(self._subject.of(ready), ready.body, inbox, headers)

    async def close(self) -> None:
        client, self._client, self._open = self._client, None, {}
        if client is not None:
            with suppress(errors.Error, OSError):
                async with asyncio.timeout(_CLOSE_S):
                    await client.close()

    def _phrase(self, error: Exception) -> str:
        cause = self._noted or error
        said = str(cause).removeprefix("nats: ")
        if isinstance(cause, errors.AuthorizationError) or "authorization violation" in said.lower():
            return broker.login_refused(self._settings)
        if isinstance(cause, errors.ConnectionClosedError | errors.UnexpectedEOF | errors.StaleConnectionError):
            return "it broke the connection"
        if isinstance(cause, OSError | errors.NoServersError):
            return broker.unreachable(cause)
        return f"it refuses: {said}"

    def _refused(self, answer: _Refused) -> str:
        if answer.code:
            return f"the stream refuses: {answer.said}"
        return f"no stream takes subject {self._settings.subject!r}: add one, or set acknowledged = false"


def _refusal(message: Msg) -> _Refused | None:
    """None: the stream has it."""
    if (message.headers or {}).get("Status") == _NO_STREAM:
        return _Refused(0, "")
    error = json.loads(message.data).get("error")
    return _Refused(error.get("err_code", 0), str(error.get("description"))) if error else None
