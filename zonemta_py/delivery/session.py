"""A connection to one server, from connect to ready for MAIL: the only door to aiosmtplib.

aiosmtplib connects, greets, starts TLS and authenticates; then a `Dialogue` takes over its transport for pipelined
transactions. TLS is "none"; "opportunistic": STARTTLS if offered, certificate not looked at, and if the handshake
fails once more in plain, since mail in the clear is what we would have sent anyway; or "required": validated, or not
at all.

Failures: `open_session` raises DeliveryError with stage connect, banner, ehlo, tls or auth, and nothing else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from socket import socket
from typing import cast

import aiosmtplib

from zonemta_py.delivery.dialogue import Dialogue
from zonemta_py.mail.classify import (
    AuthFailed,
    ConnectionLost,
    DeliveryError,
    Refused,
    ReplyGarbled,
    ReplyTimeout,
    TlsFailed,
    Unreachable,
)
from zonemta_py.mail.reply import Reply

TlsFallback = Callable[[TlsFailed], Awaitable[str]]


@dataclass(slots=True)
class Route:
    """How to reach a server. host: its name (for the certificate). address: IP. source: local IP or "". hostname: for
    EHLO. tls: "none", "opportunistic", "required". auth: (user, password) or None. socket: connected already, or None.
    """

    host: str
    address: str
    port: int
    source: str = ""
    hostname: str = "localhost"
    tls: str = "opportunistic"
    auth: tuple[str, str] | None = None
    connect_timeout_s: float = 30
    reply_timeout_s: float = 300
    dot_timeout_s: float = 600
    socket: socket | None = None


class TlsContexts:
    """Both made at most once for a process, when first needed: the system's certificates cost time and memory."""

    def __init__(self, trusted: ssl.SSLContext | None = None) -> None:
        self._trusted = trusted
        self._lax: ssl.SSLContext | None = None

    def of(self, mode: str) -> ssl.SSLContext:
        """For "required" one that validates, else one that does not look."""
        if mode == "required":
            self._trusted = self._trusted or ssl.create_default_context()
            return self._trusted
        if self._lax is None:
            self._lax = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._lax.check_hostname = False
            self._lax.verify_mode = ssl.CERT_NONE
        return self._lax


class Session:
    """Greeted and ready for MAIL. keywords: lower-case EHLO keyword → parameters. sent: messages tried over it.

    unfinished: a transaction is open at the server. tls: "" or "TLSv1.3 TLS_AES_256_GCM_SHA384". local: our IP address.
    """

    __slots__ = (
        "address", "dialogue", "dot_timeout_s", "host", "keywords", "local", "port", "reply_timeout_s", "sent", "tls",
        "unfinished",
    )  # fmt: skip

    def __init__(self, route: Route, dialogue: Dialogue, keywords: dict[str, str]) -> None:
        self.dialogue, self.keywords = dialogue, keywords
        self.host, self.address, self.port = route.host, route.address, route.port
        self.reply_timeout_s, self.dot_timeout_s = route.reply_timeout_s, route.dot_timeout_s
        self.local = str((dialogue.transport.get_extra_info("sockname") or ("",))[0])
        self.tls = _tls_name(dialogue.transport)
        self.sent = 0
        self.unfinished = False

    @property
    def usable(self) -> bool:
        return self.dialogue.broken is None

    @property
    def remote(self) -> str:
        """name[ip]:port, as in `Result.remote`."""
        return f"{self.host}[{self.address}]:{self.port}"

    @property
    def capabilities(self) -> set[str]:
        """EHLO keywords in upper case, as plugins know them."""
        return {keyword.upper() for keyword in self.keywords}

    async def command(self, line: str) -> Reply:
        """One command of a plugin. Raises ValueError for more than one line, OSError if the connection is lost."""
        if "\r" in line or "\n" in line:
            raise ValueError("a command is one line")
        self.dialogue.begin()
        self.dialogue.write(line.encode() + b"\r\n")
        replies = await self.dialogue.replies(1, self.reply_timeout_s)
        if not replies:
            raise ConnectionLost("mail", f"command {line.split(' ')[0]} of a plugin")
        return replies[0]


def _tls_name(transport: asyncio.Transport) -> str:
    wrapped = transport.get_extra_info("ssl_object")
    return f"{wrapped.version()} {wrapped.cipher()[0]}" if wrapped else ""


async def open_session(route: Route, contexts: TlsContexts, fallback: TlsFallback | None = None) -> Session:
    """Connects and greets. fallback: asked when TLS failed; returns the mode of the second and last try, or raises.

    Raises DeliveryError.
    """
    try:
        return await _open(route, route.tls, contexts)
    except TlsFailed as error:
        if fallback is not None:
            mode = await fallback(error)
        elif route.tls == "opportunistic":
            mode = "none"
        else:
            raise
        return await _open(route, mode, contexts)


async def _open(route: Route, mode: str, contexts: TlsContexts) -> Session:
    client = aiosmtplib.SMTP(
        hostname=route.address,
        port=None if route.socket else route.port,
        sock=route.socket,
        local_hostname=route.hostname,
        source_address=(route.source, 0) if route.source else None,
        timeout=route.connect_timeout_s,
        start_tls=False,
    )
    try:
        await _connect(client)
        client.timeout = route.reply_timeout_s
        await _greet(client)
        if mode != "none" and await _start_tls(client, route, mode, contexts):
            await _greet(client)
        if route.auth is not None:
            await _authenticate(client, route.auth)
        transport = cast("asyncio.Transport | None", client.transport)
        if transport is None:
            raise ConnectionLost("ehlo")
        return Session(route, Dialogue(transport, asyncio.get_running_loop()), client.esmtp_extensions)
    except BaseException:
        client.close()
        raise


async def _connect(client: aiosmtplib.SMTP) -> None:
    try:
        await client.connect()
    except aiosmtplib.SMTPResponseException as error:
        raise _answered("banner", error) from error
    except (aiosmtplib.SMTPException, OSError) as error:
        # Connected but not greeted: then what lies beneath is an error of the protocol, not of the system.
        greeting = isinstance(error.__cause__, aiosmtplib.SMTPException)
        raise _unanswered("banner" if greeting else "connect", error) from error


async def _greet(client: aiosmtplib.SMTP) -> None:
    """EHLO; HELO where EHLO is refused for good (RFC 5321 3.2)."""
    try:
        try:
            await client.ehlo()
        except aiosmtplib.SMTPHeloError as error:
            if not 500 <= error.code < 600 or not client.is_connected:
                raise
            await client.helo()
    except aiosmtplib.SMTPResponseException as error:
        raise _answered("ehlo", error) from error
    except (aiosmtplib.SMTPException, OSError) as error:
        raise _unanswered("ehlo", error) from error


async def _start_tls(client: aiosmtplib.SMTP, route: Route, mode: str, contexts: TlsContexts) -> bool:
    """True if the connection is now under TLS; False if it goes on in plain. Raises TlsFailed."""
    if "starttls" not in client.esmtp_extensions:
        if mode == "required":
            raise TlsFailed("tls", "the server does not offer STARTTLS", Reply(451, "4.7.4", "TLS is not offered"))
        return False
    try:
        await client.starttls(server_hostname=route.host, tls_context=contexts.of(mode))
    except aiosmtplib.SMTPResponseException as error:
        refused = 400 <= error.code < 600 and error.code != 421
        if refused and mode != "required" and client.is_connected:
            return False
        raise TlsFailed("tls", str(error)) from error
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsFailed("tls", str(error)) from error
    return True


async def _authenticate(client: aiosmtplib.SMTP, auth: tuple[str, str]) -> None:
    if client.get_transport_info("sslcontext") is None:
        raise AuthFailed("auth", "passwords are not sent without TLS; set tls = 'required'")
    try:
        await client.login(*auth)
    except aiosmtplib.SMTPResponseException as error:
        raise _answered("auth", error) from error
    except (aiosmtplib.SMTPServerDisconnected, aiosmtplib.SMTPTimeoutError, OSError) as error:
        raise _unanswered("auth", error) from error
    except aiosmtplib.SMTPException as error:
        raise AuthFailed("auth", error.message) from error


def _answered(stage: str, error: aiosmtplib.SMTPResponseException) -> DeliveryError:
    """A reply that was not the wanted one."""
    if not 400 <= error.code < 600:
        return ReplyGarbled(stage, error.message[:200] if error.code < 0 else f"{error.code} {error.message[:200]}")
    return Refused(stage, reply=Reply.from_lines(error.code, error.message.split("\n")))


def _unanswered(stage: str, error: Exception) -> DeliveryError:
    if isinstance(error, (aiosmtplib.SMTPTimeoutError, TimeoutError)):
        return ReplyTimeout(stage)
    if stage == "connect":
        return Unreachable(stage, str(error.__cause__ or error))
    return ConnectionLost(stage)
