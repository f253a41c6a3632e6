"""The roles of the MTA's processes, one row each: how many there are, what they import before the fork, which listeners
they serve, what they do, and how they end. `generations.py` starts them from this table.

What a role does is called in a fresh fork, and none returns by plan but the reporter, once it has reported, and events
and reports at SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from zonemta_py.config import (
    Config,
    ConfigError,
    Listener,
    is_shared,
    processes,
    queue_count,
    queue_numbers,
    sender_count,
)
from zonemta_py.logs import setup
from zonemta_py.logs.causes import cause
from zonemta_py.metrics import report
from zonemta_py.metrics.connections import CONNECTIONS, REQUESTS, STREAMS
from zonemta_py.plugin.arguments import Process
from zonemta_py.plugin.host import Host
from zonemta_py.processes import queue_process
from zonemta_py.processes.pipe import ASKED
from zonemta_py.processes.plugin_services import QueueServices
from zonemta_py.processes.ports import SMTP
from zonemta_py.processes.queue_process import Given

if TYPE_CHECKING:
    from zonemta_py.processes.pipe import Pipe
    from zonemta_py.queues.client import Queues
    from zonemta_py.reception.feedback.proof import Lookups
    from zonemta_py.wire.client import RemoteQueue

log = logging.getLogger(__name__)

SWITCH_S = 0.0005
"""How long a thread that comes back from the disk may wait for the interpreter."""
BACKGROUND_NICE = 10
"""How far the event feed and reports of campaigns stand back behind processes that move mail."""
FILES_BESIDES_LEASES = 600
"""Descriptors of a sender that are not a delivery under way: idle connections, DNS queries, the queue's socket."""
_M_ARENA_MAX = -8


class Child(NamedTuple):
    """A process that is to begin. name: its role's, with a number if there may be several. sockets: that it serves, and
    their listeners. clock: UNIX time."""

    name: str
    given: Given
    host: Host
    sockets: list[tuple[Listener, socket.socket]]
    clock: Callable[[], float]

    @property
    def config(self) -> Config:
        return self.given.config


@dataclass(frozen=True)
class Role:
    """A kind of process.

    work: what it does; the queue's has more arguments (`queue`). loads: modules imported before the fork, to be
    shared by all; warm: what else is done then. count: how many a configuration wants; 0: none. begin: called before
    anything is accepted, with the time in ms. heeds_sigterm: it ends what it has begun, then itself, and a drain waits
    for that. kept: those that run when a drain is canceled go on. alone: the one before must have ended. stays: over a
    reload, too. due_s: it ends by itself, and is due in so many seconds from that UNIX time.
    """

    name: str
    work: Callable[[Child], None]
    loads: tuple[str, ...] = ()
    count: Callable[[Config], int] = lambda config: 1
    numbered: bool = False
    warm: Callable[[Config], None] | None = None
    begin: Callable[[Config, int], None] | None = None
    heeds_sigterm: bool = False
    kept: bool = False
    alone: bool = False
    stays: bool = False
    due_s: Callable[[Config, float], float] | None = None

    def names(self, config: Config) -> list[str]:
        """Of its processes."""
        count = self.count(config)
        if self.name == QUEUE.name:  # with one, and with several: the first goes on when others come or go
            return [QUEUE.name, *(f"{QUEUE.name}-{number}" for number in queue_numbers(config)[1:])]
        return [f"{self.name}-{number + 1}" for number in range(count)] if self.numbered else [self.name] * count

    def has(self, name: str) -> bool:
        """Whether that process is one of these."""
        return name.partition("-")[0] == self.name

    def listeners(self, config: Config) -> list[Listener]:
        """That it serves."""
        return config.listeners if self.name == SMTP else [one for one in config.services if one.name == self.name]

    def load(self, config: Config) -> None:
        """Imports what its processes need, if there are to be any."""
        if not self.count(config):
            return
        for module in self.loads:
            import_module(f"zonemta_py.{module}")
        if self.warm is not None:
            self.warm(config)


def _enabled(name: str) -> Callable[[Config], int]:
    return lambda config: int(getattr(config, name).enabled)


def _begin(child: Child, files: int = 0) -> None:
    """What processes begin with: their log, the plugins that may die of mail, and how many files they may open."""
    listen_to_log(child.config, child.host)
    child.host.watch_over(child.config.folder, child.name)
    open_files(files)


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


def queue_client(config: Config, kind: str, lease_s: float = 0) -> RemoteQueue | Queues:
    """The queue, or all queues as one, for a process that survives them."""
    if not is_shared(config):
        from zonemta_py.wire.client import RemoteQueue

        return RemoteQueue.lasting(config.folder, kind, lease_s)
    from zonemta_py.queues.client import lasting

    return lasting(config, kind, lease_s)


def _of_the_mta(config: Config) -> Config:
    """config: of one of its queues."""
    if not is_shared(config):
        return config
    from zonemta_py.queues import layout

    return config.for_queue(config.queue_number, layout.node_folder(config))


async def begin_plugins(host: Host, name: str, config: Config) -> None:
    """They live in this process from now on. name: of the process."""
    report.measure(host.gauges)
    await host.begin(Process.named(name), config.folder, QueueServices(config, queue_client))


def _serve(
    child: Child,
    kind: str,
    serve: Callable[[RemoteQueue | Queues], Awaitable[None]],
    files: int = 0,
    lease_s: float = 0,
) -> None:
    """A process that survives the queue's: its clients wait until that is back, or hear 503 after a while."""
    _begin(child, files)

    async def work() -> None:
        from zonemta_py.wire import reporting

        queue = queue_client(child.config, kind, lease_s)
        reporting.begin(kind, queue, child.host.totals)
        await begin_plugins(child.host, child.name, child.config)
        await serve(queue)
        await child.host.end()
        await report.end()

    uvloop.run(work())


# -- the queue


def queue(child: Child, pipe: Pipe, senders: Collection[int] = ()) -> None:
    """The process that owns the disk. pipe: to the supervisor. senders: the processes of those that run."""
    gc.disable()  # until it accepts mail: among imports and recovery's rows there is nothing to collect
    _begin(child)
    # One arena for LevelDB's threads and ours: memory freed by one is reused by the other, instead of fresh pages.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    sys.setswitchinterval(SWITCH_S)
    mta = _of_the_mta(child.config)
    uvloop.run(queue_process.run(child.given, child.host, pipe, senders, mta.folder, QueueServices(mta, queue_client)))


def _never(child: Child) -> None:
    raise AssertionError(f"{child.name} is started with a pipe")


QUEUE = Role(
    "queue",
    _never,
    ("plugin.queue_hooks", "queue.recovery.start", "wire.server"),
    count=queue_count,
    heeds_sigterm=True,
)


def _authority(child: Child) -> None:
    """What several queues share; on a node of a cluster, its agent."""
    listen_to_log(child.config, child.host)
    if child.config.cluster.enabled:
        from zonemta_py.cluster import agent

        uvloop.run(agent.run(child.config, lambda: os.kill(os.getppid(), ASKED)))
        return
    from zonemta_py.queues import authority

    uvloop.run(authority.run(child.config))


AUTHORITY = Role(
    "authority",
    _authority,
    ("queues.authority",),
    count=lambda config: int(is_shared(config)),
    kept=True,
    stays=True,
)


def queue_number(name: str, config: Config) -> int:
    """Of the process of a queue with that name."""
    return int(name.partition("-")[2] or config.queue_number)


def queue_of(sender: str, config: Config) -> int:
    """The number of the queue that the sender of that name belongs to."""
    numbers = queue_numbers(config)
    return numbers[(int(sender.partition("-")[2]) - 1) % len(numbers)]


# -- mail in


def _receiver(child: Child) -> None:
    config, host = child.config, child.host

    async def serve(queue: RemoteQueue | Queues) -> None:
        from zonemta_py.reception import listeners
        from zonemta_py.reception.smtp.failures import SHARED

        await listeners.serve(
            config, child.sockets, queue, host, CONNECTIONS.mine(), SHARED, queue.ask, lambda: _lookups(config)
        )

    _serve(child, "receiver", serve, config.limits.connections + FILES_BESIDES_LEASES)


def _lookups(config: Config) -> Lookups:
    """What a receiver asks DNS: that is loaded where reports have to prove whose they are."""
    from zonemta_py.delivery.dns import spf
    from zonemta_py.reception.feedback.proof import Lookups

    return Lookups(*spf.lookups(config))


def _warm_receiver(config: Config) -> None:
    if any(listener.feedback for listener in config.listeners):
        import_module("zonemta_py.mail.feedback.read")
        import_module("zonemta_py.reception.feedback.rows")


RECEIVER = Role(
    SMTP, _receiver, ("reception.listeners", "wire.client"), warm=_warm_receiver,
    count=lambda config: processes(config.server.receivers), numbered=True, heeds_sigterm=True,
)  # fmt: skip


# -- mail out


def _sender(child: Child) -> None:
    """It ends with the queue process: its deliveries are in doubt then; and when the queue has nothing more for this
    generation of the configuration. SIGTERM is left to the queue, which then leases nothing more to it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    from zonemta_py.queue.api import QueueRefusal

    listen_to_log(child.config, child.host)
    try:
        uvloop.run(deliver(child.config, child.host, child.name, child.given.generation))
    except QueueRefusal as error:
        print(f"zonemta: {child.name} has no queue to deliver from: {error}", file=sys.stderr, flush=True)
        os._exit(os.EX_TEMPFAIL)


async def deliver(config: Config, host: Host, name: str, generation: int) -> None:
    """What a sender does. Raises QueueRefusal, OSError: there is no queue."""
    from zonemta_py.delivery.worker import run
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    mta = config
    if (number := queue_of(name, config)) != config.queue_number:
        from zonemta_py.queues import layout

        config = layout.config_of(config, number)
    dispatch = await RemoteQueue.connect(config.folder, name, lease_s=config.queue.lease_s, generation=generation)
    reporting.begin("sender", dispatch, host.totals)
    host.watch_over(config.folder, name, counted=False)  # the queue counts what a sender has died of
    await begin_plugins(host, name, mta)
    work = asyncio.ensure_future(run(config, dispatch, host, places(config)))
    await asyncio.wait([work, dispatch.gone], return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        await host.end()
        await report.end()
    work.cancel()  # then wait for deliveries in progress: `run` knows that their results cannot be reported
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await host.end()


def places(config: Config) -> int:
    """Deliveries a sender may have in progress: its share of what all zones allow, so that no zone can starve another.

    Raises the process's limit of open files as far as possible, and logs it if that is not enough.
    """
    share = sum(zone.connections for zone in config.zones if not zone.pulled) // sender_count(config) + 1
    wanted = share + FILES_BESIDES_LEASES
    soft = open_files(wanted)
    if soft < wanted:
        log.warning(
            "%d connections are configured for a sender process, but it may open only %d files: a busy zone can hold "
            "up others; raise the limit (LimitNOFILE=, ulimit -n) or server.senders", share, soft,
        )  # fmt: skip
    return min(share, max(100, soft - FILES_BESIDES_LEASES))


def _warm_sender(config: Config) -> None:
    if not all(zone.smart or zone.pulled for zone in config.zones):
        import_module("zonemta_py.delivery.dns.query")


SENDER = Role(
    "sender",
    _sender,
    ("delivery.worker",),
    warm=_warm_sender,
    count=sender_count,
    numbered=True,
    kept=True,
)


# -- services, each with a listener of its own


def _http(child: Child) -> None:
    config = child.config

    async def serve(queue: RemoteQueue | Queues) -> None:
        from zonemta_py.web import outbound, server
        from zonemta_py.web.shares import HttpCounts

        opened = HttpCounts(CONNECTIONS.mine(), REQUESTS.mine(), STREAMS.mine())
        terms, fetch = outbound.tls_terms(config), outbound.fetching(config)
        await server.serve(config, _bound(child), queue, child.host, terms, opened, fetch)

    _serve(child, "http", serve)


def _warm_http(config: Config) -> None:
    from zonemta_py.web import app

    app.warm()
    if config.http.dashboard:
        import_module("zonemta_py.web.dashboard.app")


def _pull(child: Child) -> None:
    config = child.config

    async def serve(queue: RemoteQueue | Queues) -> None:
        from zonemta_py.pull import server

        await server.serve(config, _bound(child), queue, child.host, CONNECTIONS.mine())

    _serve(child, "pull", serve, config.pull.connections + FILES_BESIDES_LEASES, config.queue.lease_s)


def _links(child: Child) -> None:
    config = child.config

    async def serve(queue: RemoteQueue | Queues) -> None:
        from zonemta_py.web.links.app import serve as serve_links

        await serve_links(config, _bound(child), queue, child.host, CONNECTIONS.mine())

    _serve(child, "links", serve, config.limits.connections + FILES_BESIDES_LEASES)


def _bound(child: Child) -> socket.socket:
    return child.sockets[0][1]


HTTP = Role("http", _http, ("web.app", "web.server"), count=_enabled("http"), warm=_warm_http, heeds_sigterm=True)
PULL = Role("pull", _pull, ("pull.server",), count=_enabled("pull"), heeds_sigterm=True)
LINKS = Role("links", _links, ("web.links.app",), count=_enabled("links"), heeds_sigterm=True)


# -- in the background


def _events(child: Child) -> None:
    """It survives the queue process, and waits for it."""
    for module in ("events.feed", "wire.client"):  # at full priority: it is soon there on a busy machine too
        import_module(f"zonemta_py.{module}")
    os.nice(BACKGROUND_NICE)
    listen_to_log(child.config, child.host)
    uvloop.run(_feed(child.config, child.host))


async def _feed(config: Config, host: Host) -> None:
    from zonemta_py.events.feed import Feed, Still
    from zonemta_py.events.sink import RingUnreadable
    from zonemta_py.events.sinks.plugin import wanted
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    reporting.begin("events", queue_client(config, "events"), host.totals)
    if (called := host.only(wanted(config))).names:
        called.watch_over(config.folder, "events")
        await begin_plugins(called, "events", config)
    feeds = [Feed(one, RemoteQueue.lasting(one.folder, "events"), called) for one in each_queue(config)]
    mta = RemoteQueue.lasting(config.folder, "events")
    feeds += [Feed(config.for_queue(number, place), Still(place, mta), called) for number, place in gone_queues(config)]

    def stop() -> None:
        for feed in feeds:
            feed.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        await asyncio.gather(*(feed.run() for feed in feeds))
        await called.end()
    except (ConfigError, RingUnreadable) as error:  # ConfigError: a file was there at the start, and is not now
        print(f"zonemta: {error}", file=sys.stderr, flush=True)
        os._exit(os.EX_CONFIG)


def _begin_events(config: Config, _: int) -> None:
    """Cursors of new sinks, in queues too that have yet to be made. What cannot be written now the process writes
    later, if it can."""
    from zonemta_py.events import cursor
    from zonemta_py.queues import layout

    for number in queue_numbers(config):
        with contextlib.suppress(OSError):
            cursor.begin(layout.config_of(config, number).folder, [sink.name for sink in config.event_sinks])


def each_queue(config: Config) -> list[Config]:
    """The configuration of each queue."""
    if queue_count(config) == 1:
        return [config]
    from zonemta_py.queues import layout

    return layout.each(config)


def gone_queues(config: Config) -> list[tuple[int, Path]]:
    """Numbers and folders of queues that there are no more, and whose event sinks had a place in their journals."""
    from zonemta_py.events.cursor import FOLDER
    from zonemta_py.journal import folders

    found = folders.every(config.folder).items()
    return [
        (folders.queue_of(source), place)
        for source, place in found
        if folders.is_gone(place) and (place / FOLDER).is_dir()
    ]


def _reports(child: Child) -> None:
    """Makes reports of campaigns that have ended. It survives the queue process, and waits for it."""
    os.nice(BACKGROUND_NICE)
    listen_to_log(child.config, child.host)
    asyncio.run(_make_reports(child.config))


async def _make_reports(config: Config) -> None:
    from zonemta_py.reports.maker import ReportMaker

    maker = ReportMaker(config, queue_client(config, "reports"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, maker.stop)
    await maker.run()


def _begin_reports(config: Config, now_ms: int) -> None:
    """Campaigns that end from now on get a report."""
    from zonemta_py.reports.folder import ReportShelf

    with contextlib.suppress(OSError):
        ReportShelf(config).begin(now_ms)


def _summaries(child: Child) -> None:
    """Keeps the summaries of the archive. It survives the queue process, which it does not know."""
    os.nice(BACKGROUND_NICE)
    listen_to_log(child.config, child.host)
    from zonemta_py.summary.keeper import SummaryKeeper

    SummaryKeeper(child.config.folder).run()


def _reporter(child: Child) -> None:
    """Sends the TLS reports for past days (RFC 8460)."""
    listen_to_log(child.config, child.host)
    asyncio.run(_report_tls(child.config, child.clock()))


async def _report_tls(config: Config, now: float) -> None:
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver
    from zonemta_py.delivery.tls import daily_reports
    from zonemta_py.queue.api import QueueRefusal
    from zonemta_py.wire.client import RemoteQueue

    try:
        one = await RemoteQueue.connect(config.folder, "reporter")
        submission = queue_client(config, "reporter") if is_shared(config) else one
        await daily_reports.run(config, DnsDestinationResolver(config), submission, now)
    except (QueueRefusal, OSError) as error:
        print(f"zonemta: TLS reports cannot be sent now: {cause(error)}", file=sys.stderr, flush=True)
        os._exit(os.EX_TEMPFAIL)


def _report_wait_s(config: Config, now: float) -> float:
    from zonemta_py.delivery.tls import daily_reports

    return daily_reports.wait_s(config, now)


EVENTS = Role(
    "events",
    _events,
    count=lambda config: int(bool(config.event_sinks)),
    begin=_begin_events,
    heeds_sigterm=True,
    alone=True,
)
REPORTS = Role(
    "reports", _reports, count=lambda config: int(config.reports.folder is not None), begin=_begin_reports, alone=True
)
SUMMARIES = Role("summaries", _summaries, count=lambda config: int(config.queue.summaries), alone=True)
REPORTER = Role("reporter", _reporter, count=lambda config: int(config.tls.reports), due_s=_report_wait_s)

ROLES = (QUEUE, AUTHORITY, RECEIVER, SENDER, HTTP, PULL, LINKS, EVENTS, REPORTS, SUMMARIES, REPORTER)
"""In the order of their start."""


def heeds_sigterm(name: str) -> bool:
    """Whether that process ends what it has begun at SIGTERM, and then itself."""
    return any(role.has(name) and role.heeds_sigterm for role in ROLES)


def begin(config: Config, now_ms: int) -> None:
    """Of all roles that the configuration wants."""
    for role in ROLES:
        if role.begin is not None and role.count(config):
            role.begin(config, now_ms)
