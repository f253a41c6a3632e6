"""Whether the certificates that a configuration names are valid today, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from zonemta_py.config import Config, ConfigError, Listener

SOON = timedelta(days=14)


def spans(config: Config) -> Iterator[tuple[str, Path, Callable[[], tuple[datetime, datetime]]]]:
    """The key that names it, its file, and what reads from when until when it is valid (OSError, ValueError,
    ConfigError)."""
    for door in config.all_listeners:
        if door.certificate is not None and door.tls != "none":
            yield f"listeners.{door.name}.certificate", door.certificate, partial(_usable, door)
    for zone in config.zones:
        if zone.client_certificate is not None:
            path = zone.client_certificate
            yield f"zones.{zone.name}.client_certificate", path, partial(_valid, path.expanduser())


def doubts(config: Config, now: datetime) -> Iterator[str]:
    """A warning for each that ends soon. Raises ConfigError for one that is not valid now."""
    for where, path, read in spans(config):
        begins, ends = read()
        if now >= ends:
            raise ConfigError(f"{where}: {path} has expired on {ends:%Y-%m-%d}; replace it")
        if now < begins:
            raise ConfigError(f"{where}: {path} is not valid before {begins:%Y-%m-%d}; use the current one")
        if ends - now < SOON:
            yield f"warning: {where}: {path} expires on {ends:%Y-%m-%d %H:%M} UTC; renew it"


def _usable(listener: Listener) -> tuple[datetime, datetime]:
    """The same, with its key: else it is not the one in force. Raises ConfigError."""
    from zonemta_py.reception import tls

    assert listener.certificate is not None
    tls.check(listener)
    return _valid(listener.certificate.expanduser())


def _valid(path: Path) -> tuple[datetime, datetime]:
    """From when until when the server's own certificate is, the file's first. Those above it are left to
    clients: old chains end in roots that have expired, and are trusted by another path."""
    from cryptography import x509

    own = x509.load_pem_x509_certificates(path.read_bytes())[0]
    return own.not_valid_before_utc, own.not_valid_after_utc
