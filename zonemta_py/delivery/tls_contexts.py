"""OpenSSL's contexts: one for each way of looking at a server, made when first needed and kept for the process.

A context that validates reads the authorities, which costs milliseconds and megabytes: once, not for each connection.
One that does not validate takes what old servers can still do, since the step below it is no encryption at all.

Failures: `of` raises TlsFailed with one sentence for a file that cannot be used; `check` ConfigError.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from zonemta_py.config import Config, ConfigError
from zonemta_py.mail.classify import TlsFailed

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    """ca_file: PEM of the authorities, None for the system's."""

    def __init__(self, ca_file: Path | None = None) -> None:
        self._ca_file = ca_file
        self._made: dict[tuple[bool, str, str, str], ssl.SSLContext] = {}

    def of(self, validate: bool, newest: str = "1.3", least: str = "1.2", certificate: str = "") -> ssl.SSLContext:
        """newest, least: "1.2" or "1.3". certificate: PEM file to show to servers that ask, or "". Raises TlsFailed."""
        key = (validate, newest, least, certificate)
        context = self._made.get(key)
        if context is None:
            context = self._made[key] = self._make(*key)
        return context

    def _make(self, validate: bool, newest: str, least: str, certificate: str) -> ssl.SSLContext:
        context = self._validating() if validate else _lax()
        context.minimum_version, context.maximum_version = _VERSIONS[least], _VERSIONS[newest]
        if certificate:
            try:
                context.load_cert_chain(certificate)
            except OSError as error:  # ssl.SSLError is one
                raise TlsFailed("tls", f"client_certificate {certificate} cannot be used ({error})") from None
        return context

    def _validating(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
        except OSError as error:
            raise TlsFailed("tls", f"tls.ca_file {self._ca_file} cannot be used ({error})") from None


def _lax() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=1")
    return context


def check(config: Config) -> None:
    """Whether the files that TLS needs can be used. Raises ConfigError."""
    contexts = TlsContexts(config.tls.ca_file)
    try:
        if config.tls.ca_file is not None:
            contexts.of(True)
        for zone in config.zones:
            if zone.client_certificate is not None:
                contexts.of(False, certificate=str(zone.client_certificate))
    except TlsFailed as error:
        raise ConfigError(
            f"{error.reply.text}; name a PEM file with the certificate (and its key, if it is ours)"
        ) from None
