"""OpenSSL contexts: one for each kind of verification, created on first use and kept for the process.

A context that validates loads the CA certificates, which costs milliseconds and megabytes: once, not for each
connection. Our own files that change (renewed certificates) are read again, at most CHECK_S later; if they become
unusable, the existing context stays in force, and the log says so. A context that does not validate accepts old ciphers
and versions, since the alternative is no encryption at all.

Failures: `of` raises TlsFailed with one sentence for a file that cannot be used; `check` raises ConfigError.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.section import every
from zonemta_py.logs.causes import cause
from zonemta_py.mail.classify import TLS_POLICY, TlsFailed

log = logging.getLogger(__name__)

CHECK_S = 10.0
Kind = tuple[bool, str, str, str]
"""The arguments of `of`."""
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(slots=True)
class _Made:
    """state: of its files when it was created. checked: when the files were last looked at."""

    context: ssl.SSLContext
    state: tuple[tuple[int, ...], ...]
    checked: float


class TlsContexts:
    """ca_file: PEM of the CA certificates, None for the system's."""

    def __init__(self, ca_file: Path | None = None) -> None:
        self._ca_file = ca_file
        self._made: dict[Kind, _Made] = {}

    def of(self, validate: bool, newest: str = "1.3", least: str = "1.2", certificate: str = "") -> ssl.SSLContext:
        """newest, least: "1.2" or "1.3". certificate: PEM file of a client certificate, or "". Raises TlsFailed."""
        key = (validate, newest, least, certificate)
        made, now = self._made.get(key), time.monotonic()
        if made is None:
            made = self._made[key] = _Made(self._make(*key), self._state(*key), now)
        elif now >= made.checked + CHECK_S and (self._ca_file or certificate):
            made.checked = now
            self._look_again(key, made)
        return made.context

    def _look_again(self, key: Kind, made: _Made) -> None:
        state = self._state(*key)
        if state == made.state:
            return
        made.state = state
        try:
            made.context = self._make(*key)
        except TlsFailed as error:
            log.error("%s; the previous one stays in force", error.reply.text)

    def _state(self, validate: bool, newest: str, least: str, certificate: str) -> tuple[tuple[int, ...], ...]:
        """Modification time, size and inode of its files, to notice changes."""
        authorities = str(self._ca_file) if validate and self._ca_file else ""
        return tuple(map(_state, filter(None, (authorities, certificate))))

    def _make(self, validate: bool, newest: str, least: str, certificate: str) -> ssl.SSLContext:
        context = self._validating() if validate else _lax()
        context.minimum_version, context.maximum_version = _VERSIONS[least], _VERSIONS[newest]
        if certificate:
            try:
                context.load_cert_chain(certificate)
            except OSError as error:  # includes ssl.SSLError
                raise TlsFailed(
                    TLS_POLICY, f"client_certificate {certificate} cannot be used ({cause(error)})"
                ) from None
        return context

    def _validating(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
        except OSError as error:
            raise TlsFailed(TLS_POLICY, f"tls.ca_file {self._ca_file} cannot be used ({cause(error)})") from None


def _state(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _lax() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=1")
    return context


def check(config: Config) -> None:
    """Checks that the files for TLS can be used. Raises ConfigError."""
    contexts = TlsContexts(config.tls.ca_file)

    def tried(where: str, certificate: str) -> None:
        try:
            contexts.of(not certificate, certificate=certificate)
        except TlsFailed as error:
            text = error.reply.text.removeprefix("TLS failed: ")
            raise ConfigError(
                f"{where}: {text}; name a PEM file with the certificate (and its key, if it is ours)"
            ) from None

    files = [("tls.ca_file", "")] if config.tls.ca_file is not None else []
    for kind in ("zones", "destinations"):
        for one in getattr(config, kind):
            if one.client_certificate is not None:
                files.append((f"{kind}[{one.name}].client_certificate", str(one.client_certificate)))
    every(*(partial(tried, *file) for file in files))
