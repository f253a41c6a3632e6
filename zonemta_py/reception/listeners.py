"""Runs all SMTP listeners of one receiver process on sockets that are already bound.

Failures: a certificate or password hash that cannot be used is a ConfigError before anything is accepted. A connection
that fails while it is being accepted affects no other.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import threading

from zonemta_py.config import Config, Listener
from zonemta_py.metrics import report
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Submission
from zonemta_py.reception.connection_limits import ConnectionLimits, plain_ip
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.login import Login
from zonemta_py.reception.smtp.proxy import Origin, read_origin
from zonemta_py.reception.smtp.session import HANDSHAKE_S_MAX, ServerSession

log = logging.getLogger(__name__)

_HEADER_S_MAX = 10.0
_SHORT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REST_S = 0.2
_LEAVE_S = 0.05


async def serve(
    config: Config, sockets: list[tuple[Listener, socket.socket]], submission: Submission, host: Host, share: int
) -> None:
    """Serves until SIGTERM, and then until no message is in progress.

    sockets: bound and listening. share: receiver processes that divide the limits.

    Raises ConfigError.
    """
    gate = ConnectionLimits(config.limits, share)
    login = Login(config.users)
    notes = LogThrottle(log)
    sites = [ListenerSettings(config, listener, submission, host, gate, login, notes) for listener, _ in sockets]
    for site in sites:
        await site.init()
    gate.watch(asyncio.get_running_loop())
    report.measure(lambda: [("zonemta_smtp_sessions_open", (), len(gate))])
    loop = asyncio.get_running_loop()
    opened = [loop.create_task(_open(site, bound)) for site, (_, bound) in zip(sites, sockets, strict=True)]
    stopping = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
    stop = loop.create_task(stopping.wait())
    try:
        await asyncio.wait([*opened, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in opened:
            if task.done():
                task.result()
    finally:
        stop.cancel()
        for task in opened:
            task.cancel()
    while len(gate):
        for guest in gate.guests():
            if isinstance(guest, ServerSession):
                guest.leave()
        await asyncio.sleep(_LEAVE_S)


async def _open(site: ListenerSettings, bound: socket.socket) -> None:
    bound.setblocking(False)
    if site.listener.proxy_protocol or site.listener.tls == "implicit":
        await _accept_by_hand(site, bound)
        return
    server = await site.loop.create_server(lambda: ServerSession(site), sock=bound, backlog=1024)
    await server.serve_forever()


async def _accept_by_hand(site: ListenerSettings, bound: socket.socket) -> None:
    """Where a PROXY header or a TLS handshake comes first: a client that has yet to finish one already counts."""
    running: set[asyncio.Task[None]] = set()
    while True:
        try:
            connection, _ = await site.loop.sock_accept(bound)
        except OSError as error:
            if error.errno in _SHORT_OF_FILES:
                message = "listener %s: %s; raise the limit of open files"
                site.notes.warn("files", "", message, site.listener.name, error.strerror)
                await asyncio.sleep(_REST_S)
            continue
        if len(running) >= site.gate.most:
            connection.close()
            continue
        task = site.loop.create_task(_introduce(site, connection))
        running.add(task)
        task.add_done_callback(running.discard)


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
