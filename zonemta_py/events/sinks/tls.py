"""The TLS context of a sink's connection: certificates are always validated."""

from __future__ import annotations

import ssl

from zonemta_py.config import ConfigError
from zonemta_py.config.services.events import EventSink


def context(settings: EventSink) -> ssl.SSLContext:
    """Made anew for every connection, so that renewed files count. Raises ConfigError for files that cannot be used."""
    try:
        made = ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)
    except OSError as error:  # includes ssl.SSLError
        raise _unusable(settings, "ca_file", settings.ca_file, error) from None
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.client_certificate:
        try:
            made.load_cert_chain(settings.client_certificate)
        except OSError as error:
            raise _unusable(settings, "client_certificate", settings.client_certificate, error) from None
    return made


def _unusable(settings: EventSink, key: str, file: object, error: OSError) -> ConfigError:
    why = error.strerror or str(error)
    return ConfigError(f"event sink {settings.name!r}: {key} {file} cannot be used ({why}); name a readable PEM file")
