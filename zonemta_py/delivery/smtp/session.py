"""A connection to one server, from connect until it is ready for MAIL: the only module that imports aiosmtplib.

aiosmtplib connects, greets, starts TLS and authenticates; then a `Dialogue` takes over its transport for pipelined
transactions. A `TlsPlan` says how much TLS is needed; if a handshake fails, the next step of its `Ladder` is tried on a
fresh connection. Nothing received before the handshake is used after it (RFC 3207 4.2): EHLO is repeated, and bytes
that came along with the 220 are discarded.

Failures: `open_session` raises DeliveryError with stage connect, banner, ehlo, tls, tls-policy, auth, proxy or source,
and nothing else.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from socket import socket
from typing import Literal, cast

import aiosmtplib
from aiosmtplib.typing import Default

from zonemta_py.delivery.dns.egress import Egress
from zonemta_py.delivery.smtp.dialogue import Dialogue, shut
from zonemta_py.delivery.tls import dane
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.failures import CERTIFICATE, HANDSHAKE, NOT_OFFERED, STARTTLS, TlsTrouble, of_handshake
from zonemta_py.delivery.tls.ladder import PLAIN, Ladder, Step, TlsMemory
from zonemta_py.delivery.tls.plan import TlsPlan, Trial
from zonemta_py.logs.causes import cause
from zonemta_py.mail.classify import (
    AuthFailed,
    ConnectionLost,
    DeliveryError,
    ReplyGarbled,
    ReplyRefused,
    ReplyTimeout,
    TlsFailed,
    Unreachable,
)
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Connection

TlsFallback = Callable[[TlsFailed], Awaitable[str]]
DIRECT, ANY = Egress(), TlsPlan()


@dataclass(slots=True)
class Route:
    """How to reach a server. host: its name (for the certificate). address: IP, or the path of a unix socket. hostname:
    for EHLO. auth: (user, password) or None. socket: already connected, or None: `egress` opens the connection. lmtp:
    LHLO instead of EHLO, and a final reply for each recipient (RFC 2033)."""

    host: str
    address: str
    port: int
    hostname: str = "localhost"
    tls: TlsPlan = ANY
    auth: tuple[str, str] | None = None
    connect_timeout_s: float = 30
    reply_timeout_s: float = 300
    dot_timeout_s: float = 600
    socket: socket | None = None
    egress: Egress = DIRECT
    lmtp: bool = False


_NOTHING = ("", "", "", "", "", "")
LOGIN_QUESTIONS_MAX = 4


class SmtpSession:
    """Greeted and ready for MAIL. keywords: lower-case EHLO keyword → parameters. sent: messages tried over it. name:
    the lease that opened it; 0: none has used it. used_for: zone, source, site, provider, tenant and campaign of the
    last one.

    unfinished: the server has an open transaction. forgotten: extensions that it offers and does not know. tls: "" or
    "TLSv1.3 TLS_AES_256_GCM_SHA384 verified=pkix" (or none, dane, mta-sts). local: our IP address. remote:
    name[ip]:port, as in `Result.remote`.
    """

    __slots__ = (
        "address", "dialogue", "dot_timeout_s", "forgotten", "host", "keywords", "lmtp", "local", "name", "port",
        "remote", "reply_timeout_s", "sent", "tls", "unfinished", "used_for",
    )  # fmt: skip

    def __init__(self, route: Route, dialogue: Dialogue, keywords: dict[str, str], verified: str) -> None:
        self.dialogue, self.keywords = dialogue, keywords
        self.host, self.address, self.port = route.host, route.address, route.port
        self.remote = self.host if self.host.startswith("/") else f"{self.host}[{self.address}]:{self.port}"
        self.reply_timeout_s, self.dot_timeout_s = route.reply_timeout_s, route.dot_timeout_s
        local = str((dialogue.transport.get_extra_info("sockname") or ("",))[0])
        self.local = local if route.socket else route.egress.seen(local)
        self.tls = _tls_name(dialogue.transport, verified)
        self.lmtp = route.lmtp
        self.sent = self.name = 0
        self.unfinished = False
        self.forgotten: frozenset[str] = frozenset()
        self.used_for: tuple[str, str, str, str, str, str] = _NOTHING

    @property
    def usable(self) -> bool:
        return self.dialogue.broken is None

    def shown(self) -> Connection:
        """What plugins see of it."""
        capabilities = frozenset(keyword.upper() for keyword in self.keywords)
        return Connection(self.host, self.address, self.port, self.local, self.tls, capabilities, self.command)

    def forget(self, keywords: Iterable[str]) -> None:
        """Uses these extensions no more."""
        for keyword in keywords:
            if self.keywords.pop(keyword, None) is not None:
                self.forgotten |= {keyword}

    async def command(self, line: str) -> Reply:
        """Sends a plugin's command. Raises ValueError for more than one line, OSError if the connection is lost."""
        if "\r" in line or "\n" in line:
            raise ValueError("a command is one line")
        self.dialogue.begin()
        self.dialogue.write(line.encode() + b"\r\n")
        replies = await self.dialogue.replies(1, self.reply_timeout_s)
        if not replies:
            raise ConnectionLost("mail", f"command {line.split(' ')[0]} of a plugin")
        return replies[0]


def _tls_name(transport: asyncio.Transport, verified: str) -> str:
    wrapped = transport.get_extra_info("ssl_object")
    return f"{wrapped.version()} {wrapped.cipher()[0]} verified={verified}" if wrapped else ""


async def open_session(
    route: Route, contexts: TlsContexts, memory: TlsMemory | None = None, fallback: TlsFallback | None = None,
    trials: list[Trial] | None = None,
) -> SmtpSession:  # fmt: skip
    """Connects and greets. fallback: asked before TLS is given up; returns the mode of the last try, or raises.

    trials: the list to which TLS results are added. Raises DeliveryError.
    """
    opening = _Opening(route, contexts, [] if trials is None else trials)
    try:
        return await _down_the_ladder(opening, route, memory, fallback)
    except TlsTrouble as trouble:
        if route.tls.mode != "opportunistic" or trouble.kind == CERTIFICATE:
            trouble.demanded()
        raise


async def _down_the_ladder(
    opening: _Opening, route: Route, memory: TlsMemory | None, fallback: TlsFallback | None
) -> SmtpSession:
    ladder = Ladder(route.tls, TlsMemory(0) if memory is None else memory, (route.host, route.port), time.monotonic())
    while True:
        try:
            session = await opening.run(ladder.step)
        except TlsTrouble as trouble:
            opening.note(trouble)
            more = ladder.failed(trouble) and route.socket is None
            if fallback is not None and (not more or ladder.step == PLAIN):
                return await opening.run(_decided(await fallback(trouble), route.tls, trouble))
            if not more:
                raise
        else:
            ladder.worked()
            return session


def _decided(mode: str, plan: TlsPlan, trouble: TlsTrouble) -> Step:
    """The last step, as a plugin chose it. A plugin may not allow plain text if the recipient's domain forbids it."""
    if mode != "none":
        return Step(plan.least, plan.verify)
    if plan.source != "no-policy-found":
        raise trouble
    return PLAIN


class SmtpClient(aiosmtplib.SMTP):
    """What it does not hand over is closed when `close` returns: the next connection may be opened."""

    def close(self) -> None:
        if self.transport is not None:
            shut(self.transport)
        super().close()

    async def auth_login(
        self, username: str | bytes, password: str | bytes, /, *,
        timeout: float | Literal[Default.token] | None = Default.token,  # noqa: ASYNC109 (as the library has it)
    ) -> aiosmtplib.SMTPResponse:  # fmt: skip
        """LOGIN, in which each question is answered with what it asks for: a server that takes no name with the command
        would be sent the password for it. Raises SMTPAuthenticationError."""
        name, secret = (text.encode() if isinstance(text, str) else text for text in (username, password))
        response = await self.execute_command(b"AUTH", b"LOGIN", timeout=timeout)
        named = False
        for _ in range(LOGIN_QUESTIONS_MAX):
            if response.code != aiosmtplib.SMTPStatus.auth_continue:
                break
            wanted = secret if _asks_for_password(response.message, named) else name
            named = named or wanted is name
            response = await self.execute_command(b64encode(wanted), timeout=timeout)
        if response.code != aiosmtplib.SMTPStatus.auth_successful:
            raise aiosmtplib.SMTPAuthenticationError(response.code, response.message)
        return response


def _asks_for_password(challenge: str, named: bool) -> bool:
    """challenge: in base64. named: the name has been given. In an unknown language the name comes first."""
    try:
        text = b64decode(challenge.strip()).decode("utf-8", "replace").lower()
    except ValueError:
        text = ""
    if "pass" in text:
        return True
    return named and not any(word in text for word in ("user", "name", "login"))


class _Opening:
    """The attempts to open one session."""

    __slots__ = ("_contexts", "_route", "_trials")

    def __init__(self, route: Route, contexts: TlsContexts, trials: list[Trial]) -> None:
        self._route, self._contexts, self._trials = route, contexts, trials

    def note(self, trouble: TlsTrouble | None, local: str = "", verified: str = "none") -> None:
        route = self._route
        local = local or route.egress.address
        self._trials.append(Trial(route.tls, route.host, route.address, local, verified, trouble))

    async def run(self, step: Step) -> SmtpSession:
        """One connection. Raises DeliveryError; TlsTrouble if another step may help."""
        route = self._route
        client = await self._client(step)
        try:
            await _connect(client)
            client.timeout = route.reply_timeout_s
            if step.version and route.tls.mode == "implicit":
                self._check(client, step)
            await _greet(client, route.lmtp)
            if step.version and route.tls.mode != "implicit":
                await self._start_tls(client, step)
            if route.auth is not None:
                await _authenticate(client, route.auth)
            _in_step(client, "ehlo")
            transport = cast("asyncio.Transport | None", client.transport)
            if transport is None:
                raise ConnectionLost("ehlo")
            session = SmtpSession(
                route, Dialogue(transport, asyncio.get_running_loop()), client.esmtp_extensions, step.verify
            )
        except BaseException:
            client.close()
            raise
        if session.tls:
            self.note(None, session.local, step.verify)
        return session

    async def _client(self, step: Step) -> aiosmtplib.SMTP:
        route = self._route
        implicit = bool(step.version) and route.tls.mode == "implicit"
        opened = route.socket
        if opened is None and (implicit or not route.egress.direct(route.address)):
            opened = await route.egress.open(route.address, route.port, route.connect_timeout_s)
        return SmtpClient(
            hostname=route.host if implicit else route.address,
            port=None if opened else route.port,
            sock=opened,
            local_hostname=route.hostname,
            timeout=route.connect_timeout_s,
            start_tls=False,
            use_tls=implicit,
            tls_context=self._context(step) if implicit else None,
        )

    def _context(self, step: Step) -> ssl.SSLContext:
        plan = self._route.tls
        # DANE has its own trust anchors and name rules, which are checked after the handshake.
        validate = step.verify in ("pkix", "mta-sts")
        return self._contexts.of(validate, step.version, plan.least, plan.certificate)

    async def _start_tls(self, client: aiosmtplib.SMTP, step: Step) -> None:
        """STARTTLS, then EHLO again; or records the failure, if the plan lets the connection continue in plain text."""
        route = self._route
        refused = await _refused(client, route, self._context(step))
        if refused is None:
            self._check(client, step)
            await self._greet_again(client)
        elif route.tls.mode == "opportunistic" and client.is_connected:
            self.note(refused)
        else:
            raise refused

    async def _greet_again(self, client: aiosmtplib.SMTP) -> None:
        """A server that hangs up now rejected the handshake: with TLS 1.3 the client learns of that only afterwards."""
        try:
            await _greet(client, self._route.lmtp)
        except ConnectionLost as error:
            raise TlsTrouble(HANDSHAKE, "validation-failure", "connection lost after the handshake") from error

    def _check(self, client: aiosmtplib.SMTP, step: Step) -> None:
        """The DANE check, before anything is sent under TLS. Raises TlsTrouble."""
        if step.verify != "dane":
            return
        plan, now = self._route.tls, datetime.datetime.now(datetime.UTC)
        wrapped = client.get_transport_info("ssl_object")
        why = dane.refusal(plan.tlsa, dane.chain(wrapped), plan.names, now)
        if why:
            raise TlsTrouble(CERTIFICATE, "validation-failure", f"DANE: {why}")


async def _connect(client: aiosmtplib.SMTP) -> None:
    try:
        await client.connect()
    except aiosmtplib.SMTPResponseException as error:
        raise _answered("banner", error) from error
    except (aiosmtplib.SMTPException, OSError) as error:
        # Connected but not greeted: then the cause is a protocol error, not one of the system.
        greeting = isinstance(error.__cause__, aiosmtplib.SMTPException)
        if client.use_tls and not greeting:
            raise of_handshake(error.__cause__ or error) from error
        raise _unanswered("banner" if greeting else "connect", error) from error


def _in_step(client: aiosmtplib.SMTP, stage: str) -> None:
    """Raises ReplyGarbled if more came along with the last reply: aiosmtplib would take it for the next one."""
    if getattr(client.protocol, "_buffer", b""):
        raise ReplyGarbled(stage, "more replies than commands")


async def _greet(client: aiosmtplib.SMTP, lmtp: bool) -> None:
    """EHLO; HELO if EHLO is refused permanently (RFC 5321 3.2). Only LHLO for LMTP (RFC 2033 4.1)."""
    _in_step(client, "banner")
    try:
        try:
            await (_lhlo(client) if lmtp else client.ehlo())
        except aiosmtplib.SMTPHeloError as error:
            if lmtp or not 500 <= error.code < 600 or not client.is_connected:
                raise
            await client.helo()
    except aiosmtplib.SMTPResponseException as error:
        raise _answered("ehlo", error) from error
    except (aiosmtplib.SMTPException, OSError) as error:
        raise _unanswered("ehlo", error) from error


async def _lhlo(client: aiosmtplib.SMTP) -> None:
    """Sets the extensions on offer, as EHLO does. Raises SMTPHeloError."""
    response = await client.execute_command(b"LHLO", (client.local_hostname or "localhost").encode("ascii"))
    if response.code != aiosmtplib.SMTPStatus.completed:
        raise aiosmtplib.SMTPHeloError(response.code, response.message)
    client.last_ehlo_response = response


async def _refused(client: aiosmtplib.SMTP, route: Route, context: ssl.SSLContext) -> TlsTrouble | None:
    """Does the handshake. Returns the trouble if there is no STARTTLS; raises TlsTrouble if the handshake
    failed."""
    if "starttls" not in client.esmtp_extensions:
        return TlsTrouble(STARTTLS, "starttls-not-supported", "the server does not offer STARTTLS", NOT_OFFERED)
    try:
        await client.starttls(
            server_hostname=route.host.rstrip("."), tls_context=context, timeout=route.connect_timeout_s
        )
    except aiosmtplib.SMTPResponseException as error:
        trouble = TlsTrouble(STARTTLS, "starttls-not-supported", f"{error.code} {error.message[:200]}")
        if 400 <= error.code < 600 and error.code != 421:
            return trouble
        raise trouble from error
    except aiosmtplib.SMTPReadTimeoutError as error:
        raise TlsTrouble(STARTTLS, "starttls-not-supported", "no reply to STARTTLS") from error
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise of_handshake(error) from error
    return None


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
    """The error for a negative or unexpected reply."""
    if not 400 <= error.code < 600:
        return ReplyGarbled(stage, error.message[:200] if error.code < 0 else f"{error.code} {error.message[:200]}")
    return ReplyRefused(stage, reply=Reply.from_lines(error.code, error.message.split("\n")))


def _unanswered(stage: str, error: Exception) -> DeliveryError:
    if isinstance(error, (aiosmtplib.SMTPTimeoutError, TimeoutError)):
        return ReplyTimeout(stage)
    if stage == "connect":
        return Unreachable(stage, cause(error.__cause__ or error))
    return ConnectionLost(stage)
