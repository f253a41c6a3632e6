"""The only way in: runs all listeners of one receiver process on sockets that somebody else has bound.

Failures: a certificate or password hash that cannot be used is a ConfigError before anything is accepted. A connection
that fails while it is being accepted costs nobody else anything.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

from zonemta_py.config import Config, Listener
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Intake
from zonemta_py.reception.gate import Gate, plain_ip
from zonemta_py.reception.login import Login
from zonemta_py.reception.proxy import read_origin
from zonemta_py.reception.site import Site
from zonemta_py.reception.smtp_door import Door

log = logging.getLogger(__name__)

_HEADER_S_MAX = 10.0
_HANDSHAKE_S_MAX = 60.0
_SHORT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REST_S = 0.2


async def serve(
    config: Config, sockets: list[tuple[Listener, socket.socket]], intake: Intake, host: Host, share: int
) -> None:
    """Serves for ever. sockets: bound and listening. share: receiver processes that divide the limits.

    Raises ConfigError.
    """
    gate = Gate(config.limits, share)
    login = Login(config.users)
    sites = [Site(config, listener, intake, host, gate, login) for listener, _ in sockets]
    for site in sites:
        await site.init()
    gate.watch(asyncio.get_running_loop())
    await asyncio.gather(*(_open(site, bound) for site, (_, bound) in zip(sites, sockets, strict=True)))


async def _open(site: Site, bound: socket.socket) -> None:
    bound.setblocking(False)
    if site.listener.proxy_protocol:
        await _accept_proxied(site, bound)
        return
    implicit = site.tls if site.listener.tls == "implicit" else None
    timeout_s = min(_HANDSHAKE_S_MAX, site.limits.timeout_s) if implicit else None
    server = await site.loop.create_server(
        lambda: Door(site), sock=bound, ssl=implicit, ssl_handshake_timeout=timeout_s, backlog=1024
    )
    await server.serve_forever()


async def _accept_proxied(site: Site, bound: socket.socket) -> None:
    """Accepts by hand: the PROXY header must be read before a protocol or TLS sees the connection."""
    running: set[asyncio.Task[None]] = set()
    while True:
        try:
            connection, _ = await site.loop.sock_accept(bound)
        except OSError as error:
            if error.errno in _SHORT_OF_FILES:
                log.warning("listener %s: %s; raise the limit of open files", site.listener.name, error.strerror)
                await asyncio.sleep(_REST_S)
            continue
        task = site.loop.create_task(_introduce(site, connection))
        running.add(task)
        task.add_done_callback(running.discard)


async def _introduce(site: Site, connection: socket.socket) -> None:
    connection.setblocking(False)
    try:
        peer = plain_ip(connection.getpeername()[0])
        timeout_s = min(_HEADER_S_MAX, site.limits.timeout_s)
        origin = await read_origin(connection, timeout_s) if site.may_proxy(peer) else None
        if origin is None:
            log.warning("listener %s: %s sent no PROXY header it may send, cut off", site.listener.name, peer)
            connection.close()
            return
        implicit = site.tls if site.listener.tls == "implicit" else None
        await site.loop.connect_accepted_socket(lambda: Door(site, origin), connection, ssl=implicit)
    except OSError as error:
        log.info("listener %s: a connection failed (%s)", site.listener.name, error)
        connection.close()
