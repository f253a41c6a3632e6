"""TLS contexts of listeners, built once at start so that a bad certificate is reported then and not to the first
client."""

from __future__ import annotations

import ssl
from typing import Any

from zonemta_py.config import ConfigError, Listener
from zonemta_py.plugin.arguments import Sni
from zonemta_py.plugin.host import Host


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
    try:
        own_key = listener.key.expanduser() if listener.key else None
        made.load_cert_chain(listener.certificate.expanduser(), own_key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"{where}.certificate: {listener.certificate} cannot be used ({reason});"
            " give a PEM file with the chain, and the key that belongs to it without a password"
        ) from None
    if host.listens("smtp_sni"):
        _ask_plugins(made, listener, host)
    return made


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
