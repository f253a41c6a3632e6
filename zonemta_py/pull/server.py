"""The listener of `[pull]`, on a socket that is already bound, until SIGTERM or SIGUSR1
(`reception.retirement`); what has begun then comes to its end.

A client that is slow, silent or half-open is cut off by one timer that visits all connections (`connection_limits`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from functools import partial

from zonemta_py.config import Config
from zonemta_py.config.senders import Rights, rights
from zonemta_py.metrics import report
from zonemta_py.metrics.connections import OpenConnections
from zonemta_py.plugin.host import Host
from zonemta_py.pull.access import Tokens
from zonemta_py.pull.connection import PullConnection
from zonemta_py.pull.session import PullSite, serve_connection
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.pull import NamedQueues, PullFace
from zonemta_py.reception.retirement import Retirement

log = logging.getLogger(__name__)


async def serve(
    config: Config, bound: socket.socket, queue: PullFace, host: Host, opened: OpenConnections | None = None
) -> None:
    """Serves until SIGTERM or SIGUSR1, and then until no command is in progress. bound: listening.

    Raises ConfigError.
    """
    section = config.pull
    local = ipaddress.ip_address(section.address).is_loopback
    own = {
        "connections": section.connections, "timeout_s": section.timeout_s,
        "connections_per_client": section.connections if local else config.limits.connections_per_client,
    }  # fmt: skip
    gate = ConnectionLimits(config.limits.model_copy(update=own), opened)
    site = PullSite(NamedQueues(config, queue), Tokens(section), LogThrottle(log))
    context = tls.context(section.listener, host)
    loop = asyncio.get_running_loop()
    gate.watch(loop)
    if context is not None:
        tls.Renewal(section.listener, context).watch(loop)
    bound.setblocking(False)

    def connect() -> PullConnection:
        return PullConnection(gate, partial(serve_connection, site), context, least)

    least = config.limits.least_bytes_s
    report.measure(lambda: [("zonemta_pull_sessions_open", (), len(gate))])

    def revise(now: Rights) -> None:
        if site.tokens.revise(rights(config)["tokens"], now["tokens"]):
            for guest in gate.guests():
                if isinstance(guest, PullConnection):
                    guest.leave()

    retirement = Retirement(queue.ask, revise)
    server = await loop.create_server(connect, sock=bound, backlog=1024)
    try:
        await retirement.begins()
    finally:
        server.close()
    while len(gate):
        for guest in gate.guests() if retirement.hurried else ():
            if isinstance(guest, PullConnection):
                guest.leave()
        await retirement.look()
