"""The processes of services, each with a listener of its own: HTTP, named queues, links in mail. Called in a fresh
fork; none returns by plan. Also what every process begins with: its log, and how many files it may open."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import uvloop

from zonemta_py.config import Config, Zone
from zonemta_py.logs import setup
from zonemta_py.metrics import report
from zonemta_py.metrics.connections import CONNECTIONS, REQUESTS, STREAMS
from zonemta_py.plugin.host import Host

if TYPE_CHECKING:
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver
    from zonemta_py.delivery.tls_explain import TlsExplainer
    from zonemta_py.web.api.feedback.webhooks import Fetch

FETCHED_BYTES_MAX = 64 * 1024
FILES_BESIDES_LEASES = 600
"""Descriptors of a sender that are not a delivery under way: idle connections, DNS queries, the queue's socket."""


def listen_to_log(config: Config, host: Host) -> None:
    """Logs to standard error, from `server.log_level` on, through plugins that listen to `log_entry`."""
    setup.begin(config, host.entries)


def open_files(wanted: int) -> int:
    """Raises the process's limit of open files as far as possible; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def load_services(config: Config) -> None:
    """The same for the processes of services, which are to be there at once when they follow others, and cost a reload
    nothing then."""
    if config.http.enabled:
        from zonemta_py.web import app, server

        _loaded(server)
        app.warm()
        if config.http.dashboard:
            from zonemta_py.web.dashboard import app as pages

            _loaded(pages)
    if config.pull.enabled:
        from zonemta_py.pull import server as pull_server

        _loaded(pull_server)
    if config.links.enabled:
        from zonemta_py.web.links import server as links_server

        _loaded(links_server)


def _loaded(*_: object) -> None:
    """Nothing to do: the import was the purpose."""


def http(config: Config, host: Host, bound: socket.socket) -> None:
    """A process that takes requests over HTTP. It survives the queue process: requests wait, then get a 503."""
    listen_to_log(config, host)
    host.watch_over(config.folder, "http")
    uvloop.run(_http(config, host, bound))


async def _http(config: Config, host: Host, bound: socket.socket) -> None:
    from zonemta_py.web.server import serve
    from zonemta_py.web.shares import HttpCounts
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    queue = RemoteQueue.lasting(config.folder, "http")
    reporting.begin("http", queue, host.totals)
    opened = HttpCounts(CONNECTIONS.mine(), REQUESTS.mine(), STREAMS.mine())
    await serve(config, bound, queue, host, tls_terms(config), opened, fetching(config))
    await report.end()


def tls_terms(config: Config) -> Callable[[Zone, str], Awaitable[dict[str, Any]]]:
    """Which TLS mail of a zone for a domain gets. What senders need for that is loaded when somebody asks."""

    @cache
    def explainer() -> TlsExplainer:
        from zonemta_py.delivery.tls_explain import TlsExplainer

        return TlsExplainer(config)

    async def asked(zone: Zone, domain: str) -> dict[str, Any]:
        return (await explainer().of(zone, domain)).row()

    return asked


def fetching(config: Config) -> Fetch:
    """Gets what proves webhooks. What senders need for that is loaded when it is needed."""

    @cache
    def names() -> DnsDestinationResolver:
        from zonemta_py.delivery.dns.destination import DnsDestinationResolver

        return DnsDestinationResolver(config)

    async def fetched(host: str, path: str) -> bytes:
        from zonemta_py.delivery.tls import https
        from zonemta_py.mail.classify import NoRoute
        from zonemta_py.web.api.feedback.webhooks import FetchFailed

        context = ssl.create_default_context(cafile=config.tls.ca_file)
        try:
            addresses = await names().addresses(host, asyncio.get_running_loop().time())
            most, barred = FETCHED_BYTES_MAX, https.barred_by(config)
            return await https.get(host, 443, path, addresses, context, kind="", bytes_max=most, barred=barred)
        except (https.HttpsFailed, NoRoute) as error:
            raise FetchFailed(str(error)) from None

    return fetched


def pull(config: Config, host: Host, bound: socket.socket) -> None:
    """A process that serves named queues. It survives the queue process: clients wait until that is back."""
    listen_to_log(config, host)
    host.watch_over(config.folder, "pull")
    open_files(config.pull.connections + FILES_BESIDES_LEASES)
    uvloop.run(_pull(config, host, bound))


async def _pull(config: Config, host: Host, bound: socket.socket) -> None:
    from zonemta_py.pull.server import serve
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    queue = RemoteQueue.lasting(config.folder, "pull", config.queue.lease_s)
    reporting.begin("pull", queue, host.totals)
    await serve(config, bound, queue, host, CONNECTIONS.mine())
    await report.end()


def links(config: Config, host: Host, bound: socket.socket) -> None:
    """A process that answers links in mail. It survives the queue process: requests wait, then get a 503."""
    listen_to_log(config, host)
    host.watch_over(config.folder, "links")
    open_files(config.limits.connections + FILES_BESIDES_LEASES)
    uvloop.run(_links(config, host, bound))


async def _links(config: Config, host: Host, bound: socket.socket) -> None:
    from zonemta_py.web.links.server import serve
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    queue = RemoteQueue.lasting(config.folder, "links")
    reporting.begin("links", queue, host.totals)
    await serve(config, bound, queue, host, CONNECTIONS.mine())
    await report.end()


SERVICES = {"http": http, "pull": pull, "links": links}
"""What the listeners do that have a process of their own (`Config.services`)."""
