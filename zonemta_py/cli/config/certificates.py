"""Whether the certificates that a configuration names are valid today, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from zonemta_py.config import Config, ConfigError, DestinationTable, EventSink, Listener, Zone
from zonemta_py.logs.causes import cause

SOON = timedelta(days=14)


def spans(config: Config) -> Iterator[tuple[str, Path, Callable[[], tuple[datetime, datetime]]]]:
    """The key that names it, its file, and what reads from when until when it is valid (OSError, ValueError,
    ConfigError)."""
    for door in config.all_listeners:
        if door.certificate is not None and door.tls != "none":
            yield f"listeners.{door.name}.certificate", door.certificate, partial(_usable, door)
    own: list[tuple[str, Zone | DestinationTable | EventSink]] = [("zones", one) for one in config.zones]
    own += [("destinations", one) for one in config.destinations]
    own += [("event_sinks", one) for one in config.event_sinks]
    for kind, one in own:
        if (path := one.client_certificate) is not None:
            yield f"{kind}.{one.name}.client_certificate", path, partial(_valid, path.expanduser())


def doubts(config: Config, now: datetime, unusable: bool = True) -> Iterator[str]:
    """A warning for each that ends soon. Raises ConfigError for those that are not valid now. unusable: also for those
    that cannot be read at all, which `checks.check` names too."""
    wrong: list[str] = []
    for where, path, read in spans(config):
        try:
            begins, ends = read()
        except (ConfigError, OSError, ValueError) as error:
            said = str(error) if isinstance(error, ConfigError) else f"{where}: {path} cannot be used ({cause(error)})"
            wrong += [said] if unusable else []
            continue
        if now >= ends:
            wrong.append(f"{where}: {path} has expired on {ends:%Y-%m-%d}; replace it")
        elif now < begins:
            wrong.append(f"{where}: {path} is not valid before {begins:%Y-%m-%d}; use the current one")
        elif ends - now < SOON:
            yield f"warning: {where}: {path} expires on {ends:%Y-%m-%d %H:%M} UTC; renew it"
    if wrong:
        raise ConfigError(*wrong)


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
