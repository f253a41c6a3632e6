"""The sink itself: `Sink` inside a running event loop, `run_sink` as a process of its own.

Failures: a port that is taken or an address this machine lacks is a SinkError of one sentence. A control
file (rates that change meanwhile) that cannot be read, or has invalid values, changes nothing and is logged.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import errno
import ipaddress
import json
import logging
import os
import signal
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from zonemta_py.logs.causes import cause
from zonemta_py.sink.options import SinkError, SinkOptions
from zonemta_py.sink.record import Counters, ReceivedMessage, Recorder
from zonemta_py.sink.service import Service
from zonemta_py.sink.session import SinkSession
from zonemta_py.sink.timeline import Timeline

log = logging.getLogger(__name__)

_KINDS: dict[str, tuple[type, ...]] = {"rate_limit": (int, float), "rate_burst": (int, float), "rate_code": (int,)}


def changed(options: SinkOptions, rates: Mapping[str, object]) -> SinkOptions:
    """With other rates. Raises SinkError."""
    for name, value in rates.items():
        if name not in _KINDS:
            raise SinkError(f"{name!r} cannot be changed while the sink runs; only {', '.join(_KINDS)} can")
        if type(value) not in _KINDS[name]:
            raise SinkError(f"{name} is {value!r}, but must be a number")
    coming = dataclasses.replace(options, **rates)  # type: ignore[arg-type]
    coming.check()
    return coming


class Control:
    """Watches the file, and calls `change` with its contents whenever they are new."""

    def __init__(self, path: Path | None, change: Callable[..., None]) -> None:
        self._path, self._change = path, change
        self._text = ""

    def look(self) -> None:
        """A missing file changes nothing."""
        try:
            text = self._path.read_text() if self._path is not None else ""
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            text = ""
            log.warning("%s cannot be read (%s)", self._path, cause(error))
        if not text or text == self._text:
            return
        self._text = text
        try:
            rates = json.loads(text)
            if not isinstance(rates, dict):
                raise SinkError('write an object, such as {"rate_limit": 20}')
            self._change(**rates)
        except (ValueError, TypeError) as error:  # SinkError and JSONDecodeError are ValueErrors
            log.warning("%s changes nothing: %s", self._path, error)


_FLUSH_S = 0.1
_BACKLOG = 4096


class Sink:
    """`async with Sink(options) as sink:` listens until the block ends, then cuts all connections."""

    def __init__(self, options: SinkOptions | None = None) -> None:
        """Without options: everything taken and kept, on a free port of 127.0.0.1. Raises SinkError."""
        self.options = options or SinkOptions(listen=("127.0.0.1:0",), keep=True)
        self.options.check()
        self._recorder = Recorder(self.options)
        self._service = Service(self.options, self._recorder, tls_context(self.options))
        self._servers: list[asyncio.Server] = []
        self._timers: list[asyncio.Task[None]] = []
        self.ports: list[int] = []
        """The ports in the order of `options.listen`."""

    @property
    def port(self) -> int:
        """The first port."""
        return self.ports[0]

    @property
    def counters(self) -> Counters:
        return self._recorder.counters

    @property
    def messages(self) -> list[ReceivedMessage]:
        """Every accepted message, oldest first. Raises RuntimeError unless `keep` is set."""
        if not self.options.keep:
            raise RuntimeError("this sink keeps no messages; give it SinkOptions(keep=True)")
        return self._recorder.messages

    @property
    def timeline(self) -> Timeline:
        """Counts by second. Raises RuntimeError unless `per_second` or `events` is set."""
        if self._recorder.timeline is None:
            raise RuntimeError("this sink keeps no times; give it SinkOptions(per_second=True)")
        return self._recorder.timeline

    def change(self, **rates: float) -> None:
        """Changes rate_limit, rate_burst or rate_code from now on. Raises SinkError; then nothing has changed."""
        self.options = changed(self.options, rates)
        self._service.change(self.options)

    def write_record(self) -> None:
        """Brings the record file and the log up to date now."""
        self._recorder.write()
        self._recorder.flush()

    async def __aenter__(self) -> Self:
        try:
            for address, port in self.options.addresses():
                self._servers.append(await self._listen(address, port))
        except SinkError:
            await self._close_servers()
            raise
        self.ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        self._recorder.write()
        control = Control(self.options.control, self.change)
        control.look()
        self._timers = [
            asyncio.create_task(_every(_FLUSH_S, self._recorder.flush)),
            asyncio.create_task(_every(_FLUSH_S, control.look)),
            asyncio.create_task(_every(self.options.record_every_s, self._recorder.write)),
        ]
        return self

    async def _listen(self, address: str, port: int) -> asyncio.Server:
        loop, implicit = asyncio.get_running_loop(), self._service.tls if self.options.implicit_tls else None
        try:
            return await loop.create_server(
                lambda: SinkSession(self._service), address, port, backlog=_BACKLOG, ssl=implicit
            )
        except OSError as error:
            raise SinkError(_cannot_listen(address, port, error)) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        await self._close_servers()
        self._recorder.close()

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        for session in list(self._service.sessions):
            session.abort()
        await asyncio.gather(*(server.wait_closed() for server in self._servers))


async def _every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        work()


def _cannot_listen(address: str, port: int, error: OSError) -> str:
    remedy = "name an address of this machine"
    if error.errno == errno.EADDRINUSE:
        remedy = "another process has this port: stop it, or choose another port"
    elif error.errno == errno.EACCES:
        remedy = "ports below 1024 need root: choose a higher one"
    return f"cannot listen on {address}:{port} ({os.strerror(error.errno or 0)}); {remedy}"


def run_sink(options: SinkOptions, on_start: Callable[[Sink], None] | None = None) -> Counters:
    """Runs a sink until SIGTERM or SIGINT and returns what came. SIGUSR1 writes the record now.

    on_start: called once, when all ports are open. Raises SinkError before that.
    """
    return uvloop.run(_run(options, on_start))


async def _run(options: SinkOptions, on_start: Callable[[Sink], None] | None) -> Counters:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with Sink(options) as sink:
        loop.add_signal_handler(signal.SIGUSR1, sink.write_record)
        if on_start is not None:
            on_start(sink)
        await ended.wait()
    return sink.counters


_LIFE = datetime.timedelta(days=30)


def tls_context(options: SinkOptions) -> ssl.SSLContext | None:
    """None where neither STARTTLS nor implicit TLS is wanted. Raises SinkError."""
    if not options.starttls and not options.implicit_tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if options.certificate is not None:
        try:
            context.load_cert_chain(options.certificate, options.key)
        except OSError as error:  # ssl.SSLError is one
            raise SinkError(
                f"{options.certificate}: is not a certificate with its key ({cause(error)}); name PEM files"
            ) from None
        return context
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(self_made(options.hostname))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def self_made(hostname: str) -> bytes:
    """PEM of a private key and a self-signed certificate for `hostname`, localhost and the loopback addresses."""
    # Only here: most sinks need no certificate, and the library takes longer to load than all the rest.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hostname)])
    loopback = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFE)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(hostname), x509.DNSName("localhost"), *loopback]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
