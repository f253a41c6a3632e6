"""Events as messages of syslog (RFC 5424): over UDP, a unix socket, TCP with counted octets (RFC 6587), TLS (RFC 5425).

Syslog confirms nothing: a batch counts as arrived when this machine's network has taken it, and what is lost on the way
is lost. That a server has gone away is seen with TCP when it closes the connection, with UDP when this machine's or its
host answers that nobody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from typing import Any

from zonemta_py.config.services.events import EventSink, split
from zonemta_py.events.event import time_of
from zonemta_py.events.sinks import tls
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown

FACILITIES = {"user": 1, "mail": 2, "daemon": 3} | {f"local{number}": 16 + number for number in range(8)}
WARNING, INFO = 4, 6
_WARNINGS = frozenset({"bounced", "expired", "in_doubt", "suspended", "feedback", "records_lost"})
_PORTS = {"udp": 514, "tcp": 601, "tls": 6514}


class SyslogSink:
    """One connection or socket. source is not needed: it is in every event."""

    def __init__(self, settings: EventSink, source: str) -> None:
        parts = split(settings.url)
        assert parts is not None
        self._settings, self._parts = settings, parts
        self._name = _printable(socket.gethostname())
        self._datagrams: socket.socket | None = None
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        if parts.scheme == "tls":
            tls.context(settings)

    async def open(self) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await self._connect()
        except TimeoutError:
            raise SinkDown("it took too long to connect") from None
        except OSError as error:
            raise SinkDown(f"it cannot be reached: {error.strerror or error}") from None

    async def _connect(self) -> None:
        scheme, host, port = self._parts.scheme, self._parts.hostname or "", self._parts.port
        if scheme == "unix":
            await self._connect_unix(self._parts.path)
            return
        port = port or _PORTS[scheme]
        if scheme == "udp":
            loop = asyncio.get_running_loop()
            family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM))[0]
            await self._connect_datagrams(family, address)
            return
        context = tls.context(self._settings) if scheme == "tls" else None
        self._stream = await asyncio.open_connection(host, port, ssl=context)
        self._stream[1].transport.set_write_buffer_limits(0)

    async def _connect_unix(self, path: str) -> None:
        try:
            await self._connect_datagrams(socket.AF_UNIX, path)
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:
                raise
            self._stream = await asyncio.open_unix_connection(path)
            self._stream[1].transport.set_write_buffer_limits(0)

    async def _connect_datagrams(self, family: int, address: str | tuple[Any, ...]) -> None:
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.connect(address)  # of a datagram: waits for nothing
        except OSError:
            made.close()
            raise
        self._datagrams = made

    async def send(self, batch: Sequence[Ready]) -> None:
        messages = [self._message(ready) for ready in batch]
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                if self._stream is not None:
                    await self._send_stream(*self._stream, messages)
                else:
                    await self._send_datagrams(messages)
        except TimeoutError:
            raise SinkDown("it took too long to take them") from None
        except OSError as error:
            raise SinkDown(f"it cannot be reached: {error.strerror or error}") from None

    async def _send_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: list[bytes]
    ) -> None:
        if reader.at_eof():
            raise SinkDown("it closed the connection")
        writer.write(b"".join(b"%d %b" % (len(message), message) for message in messages))
        await writer.drain()

    async def _send_datagrams(self, messages: list[bytes]) -> None:
        assert self._datagrams is not None
        loop, large = asyncio.get_running_loop(), list[int]()
        for number, message in enumerate(messages):
            try:
                await loop.sock_sendall(self._datagrams, message)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                large.append(number)
        if large:
            raise Rejected("it is too large for a datagram", large)

    def _message(self, ready: Ready) -> bytes:
        severity = WARNING if ready.type in _WARNINGS else INFO
        priority = FACILITIES[self._settings.facility] * 8 + severity
        head = f"<{priority}>1 {time_of(ready.ms)} {self._name} zonemta {os.getpid()} {ready.type[:32]} - "
        return head.encode() + ready.body

    async def close(self) -> None:
        datagrams, self._datagrams = self._datagrams, None
        stream, self._stream = self._stream, None
        if datagrams is not None:
            datagrams.close()
        if stream is not None:
            stream[1].close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(stream[1].wait_closed(), 1)


def _printable(text: str) -> str:
    """As HOSTNAME has to be."""
    return "".join(one for one in text if "!" <= one <= "~")[:255] or "-"
