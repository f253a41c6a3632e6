"""Serves links on a socket that is already bound, in a process of its own, until that is to end
(`reception.retirement`): a flood of requests here is nobody else's, and nothing of the other HTTP listener is here."""

from __future__ import annotations

import asyncio
import logging
import socket

from zonemta_py.config import Config
from zonemta_py.metrics.connections import OpenConnections
from zonemta_py.plugin.host import Host
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.retirement import Retirement
from zonemta_py.web.links.app import LinksApp
from zonemta_py.web.links.unsubscribe import LinksQueue
from zonemta_py.web.serving.connection import HttpServer, behind, settings


async def serve(
    config: Config, bound: socket.socket, queue: LinksQueue, host: Host, opened: OpenConnections | None = None
) -> None:
    """Serves until SIGTERM or SIGUSR1. bound: listening. opened: connections that this process counts; alone if not
    said. Raises ConfigError."""
    listener, loop = config.links.listener, asyncio.get_running_loop()
    gate = ConnectionLimits(config.limits, opened)
    gate.watch(loop)
    context = tls.context(listener, host)
    if context is not None:
        tls.Renewal(listener, context).watch(loop)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    connections = behind(gate)
    app = LinksApp(config, queue)
    server = HttpServer(settings(app, connections, context))
    await server.until_end(bound, connections, Retirement())
    await app.interest.end()
