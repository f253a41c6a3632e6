"""Serves HTTP with uvicorn on a socket that is already bound, until the process is killed, or is to end
(`reception.retirement`): then requests in progress are answered, each connection ends with its next response, and
streams of events in the end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator

from starlette.types import ASGIApp

from zonemta_py.config import Config
from zonemta_py.metrics import report
from zonemta_py.plugin.host import Host
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.retirement import Retirement
from zonemta_py.web.api.feedback.webhooks import Fetch
from zonemta_py.web.app import shared
from zonemta_py.web.authentication import AuthenticationMiddleware
from zonemta_py.web.keys import kept_token
from zonemta_py.web.request_context import QueueFace, RequestContext, TlsTerms
from zonemta_py.web.serving.connection import HttpServer, behind, settings
from zonemta_py.web.shares import HttpCounts


async def serve(
    config: Config, bound: socket.socket, queue: QueueFace, host: Host, tls_terms: TlsTerms,
    opened: HttpCounts | None = None, fetch: Fetch | None = None,
) -> None:  # fmt: skip
    """Serves until SIGTERM or SIGUSR1. bound: listening. tls_terms: which TLS mail of a zone for a domain gets. opened:
    what this process counts of all; alone if not said. fetch: gets what proves webhooks. Makes the token
    file if there is none. Raises ConfigError, OSError."""
    opened = opened or HttpCounts.alone()
    gate = ConnectionLimits(config.limits, opened.connections)
    request_context = RequestContext(config, queue, host, gate, kept_token(config.folder), tls_terms, opened, fetch)
    gate.watch(asyncio.get_running_loop())
    report.measure(lambda: _open_sessions(config, request_context))
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    context = request_context.site.tls
    connections = behind(gate)
    app = AuthenticationMiddleware(shared(), request_context, _dashboard(request_context))
    server = HttpServer(settings(app, connections, context))
    retirement = Retirement(queue.ask, request_context.revise, host.retire)
    work = [asyncio.create_task(request_context.attachments.tidy())]
    if config.server.sender_domains:
        from zonemta_py.web.domain_checks import keep_looking

        work.append(asyncio.create_task(keep_looking(config, queue.ask)))
    try:
        await server.until_end(bound, connections, retirement, request_context.streams.end)
    finally:
        for task in work:
            task.cancel()


def _open_sessions(config: Config, here: RequestContext) -> Iterator[tuple[str, tuple[str], int]]:
    """By account, for metrics."""
    for account in config.accounts:
        yield "zonemta_account_sessions_open", (account.name,), here.sessions.open[account.name]


def _dashboard(request_context: RequestContext) -> ASGIApp | None:
    """Loaded only where it is wanted. Raises OSError."""
    if not request_context.config.http.dashboard:
        return None
    from zonemta_py.web.dashboard.app import Dashboard

    return Dashboard(request_context)
