"""Runs all SMTP listeners of one receiver process on sockets that are already bound.

Failures: a certificate or password hash that cannot be used is a ConfigError before anything is accepted. A connection
that fails while it is being accepted affects no other.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from zonemta_py.config import Config, Listener
from zonemta_py.config.senders import rights
from zonemta_py.metrics import report
from zonemta_py.metrics.connections import OpenConnections
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Reception
from zonemta_py.queue.questions.question import Ask
from zonemta_py.reception.connection_limits import ConnectionLimits, plain_ip
from zonemta_py.reception.feedback.proof import Lookups
from zonemta_py.reception.feedback.returns import Returns
from zonemta_py.reception.listener import ListenerSettings, unix_ms
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.login import Login
from zonemta_py.reception.retirement import Retirement
from zonemta_py.reception.smtp.failures import Failures
from zonemta_py.reception.smtp.proxy import Origin, read_origin
from zonemta_py.reception.smtp.revision import Revision
from zonemta_py.reception.smtp.session import HANDSHAKE_S_MAX, ServerSession

log = logging.getLogger(__name__)

_HEADER_S_MAX = 10.0
_SHORT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REST_S = 0.2
_WORDS_S = 2.0
"""After its start, a process that takes bounces reads the words of those that are written in words alone."""


async def serve(
    config: Config, sockets: list[tuple[Listener, socket.socket]], submission: Reception, host: Host,
    opened: OpenConnections | None = None, failures: Failures | None = None,
    ask: Ask | None = None, lookups: Callable[[], Lookups] | None = None,
) -> None:  # fmt: skip
    """Serves until SIGTERM, and then until no message is in progress; or until SIGUSR1, and then until no client is
    left (`retirement.py`).

    sockets: bound and listening. opened: what this process counts of the clients of all. failures: of all of them. ask:
    of the queue, what rights clients have, once another process has followed. lookups: what asks DNS about reporters;
    made if there are any.

    Raises ConfigError.
    """
    gate = ConnectionLimits(config.limits, opened)
    login = Login(config.users, failures)
    notes = LogThrottle(log)
    returns = _returns(config, submission, lookups)
    sites = [
        ListenerSettings(config, listener, submission, host, gate, login, notes, returns=returns)
        for listener, _ in sockets
    ]
    for site in sites:
        await site.init()
    gate.watch(asyncio.get_running_loop())
    report.measure(lambda: _open_sessions(config, gate))
    retirement = Retirement(ask, lambda now: _revise(gate, Revision(rights(config), now)), host.retire)
    serving = [await _open(site, bound) for site, (_, bound) in zip(sites, sockets, strict=True)]
    try:
        await retirement.begins()
    finally:
        for one in serving:
            one.close()
    await retirement.look()  # who has just been accepted is not among the guests yet
    while len(gate) or any(one.busy for one in serving) or any(site.telling for site in sites):
        for guest in gate.guests() if retirement.hurried else ():
            if isinstance(guest, ServerSession):
                guest.leave()
        await retirement.look()


def _returns(config: Config, queue: Reception, lookups: Callable[[], Lookups] | None) -> Returns | None:
    if not any(listener.feedback for listener in config.listeners):
        return None
    from zonemta_py.mail.vocabulary import matcher

    asks = lookups() if lookups and (config.return_path.reporters or config.return_path.reports) else None
    loop = asyncio.get_running_loop()
    loop.call_later(_WORDS_S, matcher.prepare)  # not while a start is to accept mail
    return Returns(config, queue, asks, unix_ms, loop.time)


def _revise(gate: ConnectionLimits, revision: Revision) -> None:
    for guest in gate.guests():
        if isinstance(guest, ServerSession):
            guest.revise(revision)


def _open_sessions(config: Config, gate: ConnectionLimits) -> Iterator[tuple[str, tuple[str], int]]:
    """By listener and by account, for metrics."""
    guests = [guest for guest in gate.guests() if isinstance(guest, ServerSession)]
    of_listeners = Counter(guest.site.listener.name for guest in guests)
    of_accounts = Counter(guest.session.account for guest in guests)
    for listener in config.listeners:
        yield "zonemta_smtp_sessions_open", (listener.name,), of_listeners[listener.name]
    for account in config.accounts:
        yield "zonemta_account_sessions_open", (account.name,), of_accounts[account.name]


class _Open(Protocol):
    """A listening socket that is served."""

    @property
    def busy(self) -> bool:
        """Whether a client has yet to be introduced."""

    def close(self) -> None:
        """Accepts no more."""


class _Plain:
    """One where clients are greeted at once."""

    busy = False

    def __init__(self, server: asyncio.AbstractServer) -> None:
        self.close = server.close


async def _open(site: ListenerSettings, bound: socket.socket) -> _Open:
    bound.setblocking(False)
    if site.listener.proxy_protocol or site.listener.tls == "implicit":
        return _ByHand(site, bound)
    return _Plain(await site.loop.create_server(lambda: ServerSession(site), sock=bound, backlog=1024))


class _ByHand:
    """One where a PROXY header or a TLS handshake comes first: a client that has yet to finish one already counts.

    Whatever is accepted is served: nothing can come between, as it could where `sock_accept` is cancelled.
    """

    def __init__(self, site: ListenerSettings, bound: socket.socket) -> None:
        self._site, self._bound = site, bound
        self._running: set[asyncio.Task[None]] = set()
        self._open = True
        self._listen()

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def close(self) -> None:
        self._open = False
        self._site.loop.remove_reader(self._bound)
        self._bound.close()

    def _listen(self) -> None:
        if self._open:
            self._site.loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        site = self._site
        try:
            connection, _ = self._bound.accept()
        except OSError as error:
            if error.errno in _SHORT_OF_FILES:
                message = "listener %s: %s; raise the limit of open files"
                site.notes.warn("files", "", message, site.listener.name, error.strerror)
                site.loop.remove_reader(self._bound)
                site.loop.call_later(_REST_S, self._listen)
            return
        if len(self._running) >= site.gate.most:
            connection.close()
            return
        task = site.loop.create_task(_introduce(site, connection))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


async def _introduce(site: ListenerSettings, connection: socket.socket) -> None:
    connection.setblocking(False)
    try:
        origin = None
        if site.listener.proxy_protocol:
            origin = await _origin(site, connection)
            if origin is None:
                connection.close()
                return
        await _connect(site, connection, ServerSession(site, origin))
    except OSError as error:
        message = "listener %s: a connection failed (%s)"
        site.notes.line(logging.INFO, "accept", "", message, site.listener.name, error)
        connection.close()


async def _origin(site: ListenerSettings, connection: socket.socket) -> Origin | None:
    peer = plain_ip(connection.getpeername()[0])
    timeout_s = min(_HEADER_S_MAX, site.limits.timeout_s)
    origin = await read_origin(connection, timeout_s) if site.may_proxy(peer) else None
    if origin is None:
        site.notes.warn(
            "proxy", peer, "listener %s: %s sent no permitted PROXY header; cut off", site.listener.name, peer
        )
    return origin


async def _connect(site: ListenerSettings, connection: socket.socket, session: ServerSession) -> None:
    """Raises OSError."""
    if site.listener.tls != "implicit":
        await site.loop.connect_accepted_socket(lambda: session, connection)
        return
    if not session.admit(connection.getpeername()[:2], connection.getsockname()[0]):
        connection.close()  # only a handshake, which it may not have, could say why
        return
    timeout_s = min(HANDSHAKE_S_MAX, site.limits.timeout_s)
    try:
        await site.loop.connect_accepted_socket(
            lambda: session, connection, ssl=site.tls, ssl_handshake_timeout=timeout_s
        )
    finally:
        if session.transport is None:
            site.gate.leave(session, session.session.client)
