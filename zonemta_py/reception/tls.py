"""TLS contexts of listeners, built once at start so that a bad certificate is reported then and not to the first
client.

A certificate that is renewed is taken for new connections, within LOOK_S and without a reload; one that cannot be used
leaves the one before in force, and the log says so. What is reported is the end of the one in force, whatever its file
says by now.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import Any

from zonemta_py.config import ConfigError, Listener
from zonemta_py.disk.files import changed
from zonemta_py.metrics import report
from zonemta_py.plugin.arguments import Sni
from zonemta_py.plugin.host import Host

log = logging.getLogger(__name__)

LOOK_S = 30.0


def context(listener: Listener, host: Host) -> ssl.SSLContext | None:
    """None where tls = "none". Raises ConfigError for files that cannot be used."""
    if listener.tls == "none" or listener.certificate is None:
        return None
    where = f"listeners.{listener.name}"
    for key, path in (("certificate", listener.certificate), ("key", listener.key)):
        if path is not None and not path.expanduser().is_file():
            raise ConfigError(f"{where}.{key}: there is no file {path}; name a PEM file")
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    _load(made, listener)
    if host.listens("smtp_sni"):
        _ask_plugins(made, listener, host)
    return made


def _load(context: ssl.SSLContext, listener: Listener) -> None:
    """Raises ConfigError."""
    assert listener.certificate is not None
    try:
        for file in _files(listener):  # OpenSSL does not say which of them it may not read
            file.open("rb").close()
        own_key = listener.key.expanduser() if listener.key else None
        context.load_cert_chain(listener.certificate.expanduser(), own_key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, OSError) and error.filename:
            reason = f"{error.filename}: {(error.strerror or '').lower()}"
        of_key = f" (key: {listener.key})" if listener.key else ""
        raise ConfigError(
            f"listeners.{listener.name}.certificate: {listener.certificate} cannot be used ({reason});"
            f" give a PEM file with the chain, and the key that belongs to it without a password{of_key}"
        ) from None


def check(listener: Listener) -> None:
    """Whether its certificate and key can be used as they are now. Raises ConfigError."""
    if listener.certificate is not None:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), listener)


def _files(listener: Listener) -> list[Path]:
    return [path.expanduser() for path in (listener.certificate, listener.key) if path]


def end_of(chain: Path) -> float | None:
    """When the server's own certificate ends, the first of the file, as UNIX time; None if it cannot be read."""
    from cryptography import x509  # only where there is TLS

    try:
        return x509.load_pem_x509_certificates(chain.expanduser().read_bytes())[0].not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None


class Renewal:
    """Looks after the certificate of one listener's context, which has just been made. ends: when the one in force
    does, as UNIX time; None: not known."""

    def __init__(self, listener: Listener, context: ssl.SSLContext) -> None:
        self._listener, self._context = listener, context
        self._seen = self._look()
        assert listener.certificate is not None
        self._file = listener.certificate
        self.ends = end_of(self._file)
        report.measure(self._measured)

    def _measured(self) -> report.Values:
        if self.ends is not None:
            yield "zonemta_certificate_expiry_timestamp_seconds", (self._listener.name,), self.ends

    def _look(self) -> list[tuple[tuple[int, ...], bool]]:
        """What differs once a file is another one, or can be read at last."""
        return [(changed(path), os.access(path, os.R_OK, effective_ids=True)) for path in _files(self._listener)]

    def look(self) -> None:
        """Takes what has changed. Tried on a context of its own first: half a change would break the one in use."""
        if (found := self._look()) == self._seen:
            return
        self._seen = found
        try:
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._context):
                _load(context, self._listener)
        except ConfigError as error:
            log.error("%s; the previous one stays in force", error)
        else:
            self.ends = end_of(self._file)
            log.info("listener %s: new connections get the renewed certificate", self._listener.name)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, as long as the loop runs."""
        loop.call_later(LOOK_S, self._again, loop)

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look()
        self.watch(loop)


def _no_password() -> str:
    raise ValueError("the key is locked with a password")


def _ask_plugins(own: ssl.SSLContext, listener: Listener, host: Host) -> None:
    def choose(connection: Any, server_name: str | None, _context: ssl.SSLContext) -> None:
        data = Sni(listener.name)
        host.call_now("smtp_sni", server_name=server_name or "", data=data)
        if data.context is not None:
            connection.context = data.context

    own.sni_callback = choose


def described(connection: Any) -> str:
    """ "TLSv1.3 TLS_AES_256_GCM_SHA384" of an SSL object, "" of None."""
    if connection is None:
        return ""
    cipher = connection.cipher()
    return f"{connection.version()} {cipher[0]}" if cipher else str(connection.version())
