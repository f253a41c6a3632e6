"""What each child process does: queue, receiver, sender, events, reports, reporter; `services.py` has the others.

Called in a fresh fork; none returns by plan, except the reporter, which ends when it has reported, and events and
reports at SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from zonemta_py.config import Config, ConfigError, Listener, processes
from zonemta_py.config.section import Place, every, shipped
from zonemta_py.config.values import OnDisk, marked, written
from zonemta_py.logs.causes import cause
from zonemta_py.metrics import report
from zonemta_py.metrics.connections import CONNECTIONS
from zonemta_py.plugin.host import Host
from zonemta_py.processes import queue_process
from zonemta_py.processes.queue_process import Given
from zonemta_py.processes.services import FILES_BESIDES_LEASES, listen_to_log, open_files
from zonemta_py.wire import PATH_BYTES_MAX, SOCKET

if TYPE_CHECKING:
    from zonemta_py.processes.pipe import Pipe
    from zonemta_py.reception.feedback.proof import Lookups

log = logging.getLogger(__name__)

SWITCH_S = 0.0005
"""How long a thread that comes back from the disk may wait for the interpreter."""
EVENTS_NICE = 10
"""How far the event feed stands back behind processes that move mail, and reports of campaigns do."""
_M_ARENA_MAX = -8


plugins = queue_process.plugins


def load_receiver() -> None:
    """Imports what a receiver needs before the fork, so that all children share it."""
    from zonemta_py.reception import listeners
    from zonemta_py.wire import client

    _loaded(listeners, client)


def load_queue() -> None:
    """The same for the queue."""
    from zonemta_py.plugin import queue_hooks
    from zonemta_py.queue.recovery import start
    from zonemta_py.wire import server

    _loaded(queue_hooks, start, server)


def load_sender() -> None:
    """The same for a sender."""
    from zonemta_py.delivery import worker

    _loaded(worker)


def load_rules(config: Config) -> None:
    """The same for the rules that classify replies, and for the texts of notices. Raises ConfigError."""
    from zonemta_py.queue.lifecycle import files

    files.load(config)


def _loaded(*_: object) -> None:
    """Nothing to do: the import was the purpose."""


def check(config: Config, host: Host) -> None:
    """Checks what would make children fail repeatedly: certificates, passwords, keys. Raises ConfigError, with all that
    is wrong."""
    every(lambda: check_listeners(config, host), lambda: check_others(config))


def check_others(config: Config) -> None:
    """The part of it that concerns the queue and senders. Raises ConfigError."""
    missing = _missing(config, lambda place: place[0] not in _DOORS)

    def rules() -> None:
        if config.rules.file or config.rules.extra:
            load_rules(config)

    def texts() -> None:
        if "notices" in config.model_fields_set:
            from zonemta_py.queue.lifecycle.telling import notices

            notices.load(config)

    def keys() -> None:
        if config.dkim:
            from zonemta_py.delivery.message import dkim_keys

            dkim_keys.check(config)

    def tls() -> None:
        own = [*(one.client_certificate for one in config.zones), *(t.client_certificate for t in config.destinations)]
        if config.tls.ca_file or any(own):
            from zonemta_py.delivery.tls import contexts as tls_contexts

            tls_contexts.check(config)

    def sinks() -> None:
        if config.event_sinks:
            from zonemta_py.events.sinks import kinds

            kinds.check(config.event_sinks)

    _besides(missing, lambda: _check_folder(config), rules, texts, keys, tls, sinks, lambda: _check_providers(config))


_DOORS = ("listeners", "http", "pull", "links")


def _missing(config: Config, wanted: Callable[[Place], bool]) -> dict[str, str]:
    """Path → sentence, of files and folders that the configuration names and that are not there. What is not enabled
    needs none."""
    off = {kind for kind in ("http", "pull", "links") if not getattr(config, kind).enabled}
    found: dict[str, str] = {}
    for place, value, mark in marked(config, OnDisk):
        if place[0] in off or not wanted(place):
            continue
        path = Path(os.path.expanduser(value))
        there, what = (os.path.isdir, "folder") if mark.folder else (os.path.isfile, "file")
        if not there(path) and (not os.path.exists(path) or there is os.path.isdir or os.path.isdir(path)):
            other = f" ({path.name} is a {'file' if mark.folder else 'folder'})" if os.path.exists(path) else ""
            found[str(value)] = (
                f"{written(config, place)}: there is no {what} {value}{other}; name a {what} that is there"
            )
    return found


def _besides(missing: dict[str, str], *checks: Callable[[], object]) -> None:
    """The checks, but for what they say of files that are missing. Raises ConfigError."""
    sentences = list(missing.values())
    try:
        every(*checks)
    except ConfigError as error:
        sentences += [one for one in error.sentences if not any(path in one for path in missing)]
    if sentences:
        raise ConfigError(*sentences)


def _check_providers(config: Config) -> None:
    """The file, and the names that other tables have from it: one that is misspelt would be for nobody, in silence."""
    named = [(f"destinations[{one.name}].providers: ", name) for one in config.destinations for name in one.providers]
    only = [(f"throttles[{one.name}].only.provider: ", one.only.get("provider", "")) for one in config.throttles]
    named += [(where, name) for where, name in only if name and "*" not in name and "?" not in name]
    if not (named or config.dns.providers):
        return
    from zonemta_py.zones.site import Providers

    try:
        providers = Providers.load(config.dns.providers or shipped("providers.toml"))
    except ConfigError as error:
        raise ConfigError(f"dns.providers: {error}") from None
    wrong = []
    for where, name in named:
        if fault := providers.unknown(name):
            more = "; a site that is no provider's is named by site (in destinations: sites)" if "." in name else ""
            wrong.append(f"{where}{fault}{more}")
    if wrong:
        raise ConfigError(*wrong)


def _check_folder(config: Config) -> None:
    there = next(path for path in (config.folder, *config.folder.parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"server.folder: {there} is a file; name a folder, which is made if it is not there")
    if (more := len(os.fsencode(config.folder / SOCKET)) - PATH_BYTES_MAX) > 0:
        sentence = (
            f"{config.folder}: is too long by {more} bytes for the path of a socket; name a shorter server.folder"
        )
        raise ConfigError(sentence)


def check_listeners(config: Config, host: Host) -> None:
    """The part of it that concerns receivers. Raises ConfigError."""

    def users() -> None:
        if config.users:
            from zonemta_py.reception.login import Login

            Login(config.users)

    def doors() -> None:
        if any(listener.tls != "none" for listener in config.all_listeners):
            from zonemta_py.reception import tls

            every(*(partial(tls.context, listener, host) for listener in config.all_listeners))

    def dress() -> None:
        if config.links.enabled and config.links.pages is not None:
            from zonemta_py.web.links import pages

            pages.check(config)

    def hooks() -> None:
        if any(hook.certificates for hook in config.http.webhooks):
            from zonemta_py.web.api.feedback import webhooks

            every(*(partial(webhooks.read_certificates, hook) for hook in config.http.webhooks))

    _besides(_missing(config, lambda place: place[0] in _DOORS), users, doors, dress, hooks)


def queue(given: Given, host: Host, pipe: Pipe, senders: Collection[int] = ()) -> None:
    """The process that owns the disk. pipe: to the supervisor. senders: the processes of those that run."""
    gc.disable()  # until it accepts mail: among imports and recovery's rows there is nothing to collect
    listen_to_log(given.config, host)
    host.watch_over(given.config.folder, "queue")
    # One arena for LevelDB's threads and ours: memory freed by one is reused by the other, instead of fresh pages.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    sys.setswitchinterval(SWITCH_S)
    uvloop.run(queue_process.run(given, host, pipe, senders))


def receiver(config: Config, host: Host, name: str, sockets: list[tuple[Listener, socket.socket]]) -> None:
    """A process that accepts mail. It survives the queue process: clients wait until that is back."""
    listen_to_log(config, host)
    host.watch_over(config.folder, name)
    open_files(config.limits.connections + FILES_BESIDES_LEASES)
    uvloop.run(_receiver(config, host, sockets))


async def _receiver(config: Config, host: Host, sockets: list[tuple[Listener, socket.socket]]) -> None:
    from zonemta_py.reception.listeners import serve
    from zonemta_py.reception.smtp.failures import SHARED
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    queue = RemoteQueue.lasting(config.folder, "receiver")
    reporting.begin("receiver", queue, host.totals)
    await serve(config, sockets, queue, host, CONNECTIONS.mine(), SHARED, queue.ask, lambda: _lookups(config))
    await report.end()


def _lookups(config: Config) -> Lookups:
    """What a receiver asks DNS: that is loaded where reports have to prove whose they are."""
    from zonemta_py.delivery.dns import spf
    from zonemta_py.reception.feedback.proof import Lookups

    return Lookups(*spf.lookups(config))


def sender(config: Config, host: Host, name: str, generation: int) -> None:
    """A process that delivers. It ends with the queue process: its deliveries are in doubt then; and when the queue has
    nothing more for this generation of the configuration.

    SIGTERM is left to the queue, which then leases nothing more to it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    listen_to_log(config, host)
    uvloop.run(_sender(config, host, name, generation))


async def _sender(config: Config, host: Host, name: str, generation: int) -> None:
    from zonemta_py.delivery.worker import run
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    dispatch = await RemoteQueue.connect(config.folder, name, lease_s=config.queue.lease_s, generation=generation)
    reporting.begin("sender", dispatch, host.totals)
    host.watch_over(config.folder, name, counted=False)  # the queue counts what a sender has died of
    work = asyncio.ensure_future(run(config, dispatch, host, places(config)))
    await asyncio.wait([work, dispatch.gone], return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        await report.end()
    work.cancel()  # then wait for deliveries in progress: `run` knows that their results cannot be reported
    with contextlib.suppress(asyncio.CancelledError):
        await work


def begin_events(config: Config) -> None:
    """Before anything is accepted. What cannot be written now the process `events` writes later, if it can."""
    from zonemta_py.events import cursor

    with contextlib.suppress(OSError):
        cursor.begin(config.folder, [sink.name for sink in config.event_sinks])


def begin_reports(config: Config, now_ms: int) -> None:
    """The same for reports of campaigns: those that end from now on get one."""
    from zonemta_py.reports.shelf import ReportShelf

    with contextlib.suppress(OSError):
        ReportShelf(config).begin(now_ms)


def events(config: Config, host: Host) -> None:
    """A process that sends events to [[event_sinks]]. It survives the queue process, and waits for it."""
    from zonemta_py.events import feed
    from zonemta_py.wire import client

    _loaded(feed, client)  # at full priority, so that it is soon there on a busy machine too
    os.nice(EVENTS_NICE)
    listen_to_log(config, host)
    uvloop.run(_events(config, host))


async def _events(config: Config, host: Host) -> None:
    from zonemta_py.events.feed import Feed
    from zonemta_py.events.sink import RingUnreadable
    from zonemta_py.wire import reporting
    from zonemta_py.wire.client import RemoteQueue

    queue = RemoteQueue.lasting(config.folder, "events")
    reporting.begin("events", queue, host.totals)
    feed = Feed(config, queue)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, feed.stop)
    try:
        await feed.run()
    except (ConfigError, RingUnreadable) as error:  # ConfigError: a file was there at the start, and is not now
        print(f"zonemta: {error}", file=sys.stderr, flush=True)
        os._exit(os.EX_CONFIG)


def reports(config: Config, host: Host) -> None:
    """A process that makes reports of campaigns that have ended. It survives the queue process, and waits for it."""
    os.nice(EVENTS_NICE)
    listen_to_log(config, host)
    asyncio.run(_reports(config))


async def _reports(config: Config) -> None:
    from zonemta_py.reports.maker import ReportMaker
    from zonemta_py.wire.client import RemoteQueue

    maker = ReportMaker(config, RemoteQueue.lasting(config.folder, "reports"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, maker.stop)
    await maker.run()


def reporter(config: Config, host: Host, now: float) -> None:
    """A process that sends the TLS reports for past days (RFC 8460). now: UNIX time."""
    listen_to_log(config, host)
    asyncio.run(_reporter(config, now))


async def _reporter(config: Config, now: float) -> None:
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver
    from zonemta_py.delivery.tls import days as tls_days
    from zonemta_py.queue.api import QueueRefusal
    from zonemta_py.wire.client import RemoteQueue

    try:
        submission = await RemoteQueue.connect(config.folder, "reporter")
        await tls_days.run(config, DnsDestinationResolver(config), submission, now)
    except (QueueRefusal, OSError) as error:
        print(f"zonemta: TLS reports cannot be sent now: {cause(error)}", file=sys.stderr, flush=True)
        os._exit(os.EX_TEMPFAIL)


def report_wait_s(config: Config, now: float) -> float:
    """Seconds until the reporter has something to do. now: UNIX time."""
    from zonemta_py.delivery.tls import days as tls_days

    return tls_days.wait_s(config, now)


def places(config: Config) -> int:
    """Deliveries a sender may have in progress: its share of what all zones allow, so that no zone can starve another.

    Raises the process's limit of open files as far as possible, and logs it if that is not enough.
    """
    share = sum(zone.connections for zone in config.zones if not zone.pulled) // processes(config.server.senders) + 1
    wanted = share + FILES_BESIDES_LEASES
    soft = open_files(wanted)
    if soft < wanted:
        log.warning(
            "%d connections are configured for a sender process, but it may open only %d files: a busy zone can hold "
            "up others; raise the limit (LimitNOFILE=, ulimit -n) or server.senders", share, soft,
        )  # fmt: skip
    return min(share, max(100, soft - FILES_BESIDES_LEASES))
