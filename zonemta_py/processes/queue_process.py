"""The process that owns the disk, and what the supervisor says to it.

The two are connected by a pipe of messages (`pipe.py`), which ends with either. The queue passes on what operators
ask of the supervisor, and wakes it by `pipe.ASKED`; the supervisor hands over another one, which is taken whole or
refused (`queue/reload/apply.py`). Senders of earlier configurations get no more leases from that moment on
(`wire.server.retire`).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.config import Config, ConfigError, Source, is_shared
from zonemta_py.config.file import SourceFile
from zonemta_py.logs import mail, setup
from zonemta_py.logs.causes import cause
from zonemta_py.metrics import report
from zonemta_py.metrics.meter import Labels
from zonemta_py.plugin.arguments import Process
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.services import PluginServices
from zonemta_py.processes.pipe import ASKED, Pipe
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import Refused

if TYPE_CHECKING:
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver
    from zonemta_py.queue.queue import LocalQueue
    from zonemta_py.zones.site import Site

log = logging.getLogger(__name__)

RULES_AFTER_S, RULES_BEFORE_S = 3.0, 60.0
"""When the rules are loaded that judge replies: once the queue has little to do, between these."""
_LITTLE = 0.25
"""Of a core."""
_NOTING = asyncio.Lock()
LOAD_S = 30.0
"""How long plugins may take to load in a process that has other things to do."""
LOADS_TWICE = "a plugin is loaded several times, and must let that be"
GOODBYE_S = 0.02
"""Between the last word to senders and the end."""
SENDERS_S = 5.5
"""How long senders have for the end of their plugins, where these want to hear of it."""
READY_S = 60.0
"""How long a new configuration waits for recovery."""


class Given(NamedTuple):
    """A configuration, and who gave it. generation: a number that grows with each."""

    config: Config
    origin: SourceFile
    by: str
    generation: int


FIRST, HERE = Process("queue"), Path()


class Plugged:
    """The plugins of this process; their counts go on when others take their place."""

    def __init__(
        self, host: Host, process: Process = FIRST, folder: Path = HERE, services: PluginServices | None = None
    ) -> None:  # fmt: skip
        """folder: the MTA's. services: as of `Host.begin`."""
        self._host, self._process, self._folder, self._services = host, process, folder, services
        self._begun: asyncio.Future[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._before: dict[tuple[str, Labels], float] = {}

    def totals(self) -> report.Values:
        found = dict(self._before)
        for metric, labels, value in self._host.totals():
            found[metric, labels] = found.get((metric, labels), 0) + value
        return [(metric, labels, value) for (metric, labels), value in found.items()]

    def gauges(self) -> report.Values:
        return self._host.gauges()

    def instead(self, host: Host, config: Config) -> None:
        self._before = {(metric, labels): value for metric, labels, value in self.totals()}
        self._host, before = host, self._host
        self._ending = asyncio.ensure_future(before.end())
        if self._services is not None:
            self._services.use(config)
        host.watch_over(config.folder, str(self._process))
        self.begin()

    # -- their life

    def begin(self) -> None:
        """They live in this process from now on; it does not wait for them."""
        self._begun = asyncio.ensure_future(self._host.begin(self._process, self._folder, self._services))

    async def end(self) -> None:
        await self._host.end()

    @property
    def stops(self) -> bool:
        """Whether any of them wants to be told of the end of a process."""
        return self._host.listens("stop")


class Supervision:
    """The queue's end of the pipe."""

    def __init__(
        self, queue: LocalQueue, pipe: Pipe, plugged: Plugged, stay: Callable[[], None], leave: Callable[[], None]
    ) -> None:  # fmt: skip
        """stay: called when the supervisor wants no end any more. leave: when it is to end while clients stay."""
        self._queue, self._pipe, self._plugged, self._stay, self._leave = queue, pipe, plugged, stay, leave
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._heard)

    async def ask(self, question: str, **arguments: Any) -> Any:
        """As `Supervising.ask`."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._pipe.send(("ask", number, question, arguments))
            os.kill(os.getppid(), ASKED)
        except OSError:
            raise Refused("the supervisor has ended; start the MTA again") from None
        kind, payload = await answer
        if kind == "wrong":
            raise Refused(payload)
        return payload

    def _heard(self) -> None:
        try:
            kind, number, payload = self._pipe.recv()
        except (EOFError, OSError):  # the supervisor has died, and this process dies with it
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            return
        if kind == "take":
            self._queue.core.keep(asyncio.ensure_future(self._take(*payload)))
        elif kind == "stay":
            self._stay()
        elif kind == "leave":
            self._leave()
        elif (answer := self._asked.pop(number, None)) is not None and not answer.done():
            answer.set_result((kind, payload))

    async def _take(self, given: Given, check: bool) -> None:
        """Tells the supervisor why not; an empty list: it is taken, or (check) would be."""
        from zonemta_py.queue.reload import apply

        queue = self._queue
        try:
            await asyncio.wait_for(queue.core.when_ready.wait(), READY_S)
            queue.remarks = apply.remarks(queue, given.config)
            refused = apply.faults(queue, given.config) if check else await _taken(queue, self._plugged, given)
        except (ConfigError, TimeoutError) as error:
            refused = str(error).splitlines() or ["the queue is still being recovered; try again when it is ready"]
        except Exception as error:
            log.exception("the configuration could not be taken over")
            refused = [f"the queue failed on it ({type(error).__name__}: {error}), see the log; restart the MTA"]
        self._pipe.send(("taken", 0, refused))


async def _taken(queue: LocalQueue, plugged: Plugged, given: Given) -> list[str]:
    """Why it is not taken; an empty list: it is. Whatever may fail comes first. Raises ConfigError."""
    from zonemta_py.plugin.queue_hooks import PluginHooks
    from zonemta_py.queue.reload import apply
    from zonemta_py.wire import server

    config = given.config
    host, resolver = await _loaded(config), resolver_of(config)
    hooks = PluginHooks(host)
    mail_log, handler = mail.of(config, host.entries), setup.handler_of(config, host.entries)
    prepared = await asyncio.to_thread(apply.prepare, config, hooks, resolver, mail_log)
    if refused := apply.faults(queue, config):  # after the last wait: mail may have come meanwhile
        return refused
    server.retire(queue, given.generation)
    apply.take(queue, prepared)
    setup.use(config, handler)
    plugged.instead(host, config)
    await note(queue, given, f"reloaded by {given.by}")
    return []


async def _loaded(config: Config) -> Host:
    """Its plugins. Raises ConfigError."""
    try:
        async with asyncio.timeout(LOAD_S):
            return await asyncio.to_thread(plugins, config)
    except TimeoutError:
        raise ConfigError(
            f"loading its plugins in the queue's process took more than {LOAD_S:g} s; {LOADS_TWICE}"
        ) from None


def plugins(config: Config, unused: bool = True) -> Host:
    """Loads and checks the plugins. unused: as of `Host.load`. Raises ConfigError."""
    host = Host.of(config, unused)
    if host.listens("event") or any(sink.kind == "plugin" for sink in config.event_sinks):
        from zonemta_py.events.sinks import plugin

        plugin.check(config, host)
    return host


class _LazyResolver:
    """DNS for the schedule, loaded on first use: accepting mail need not wait for it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loaded: asyncio.Task[DnsDestinationResolver] | None = None

    async def site(self, domain: str, now: float) -> Site:
        if self._loaded is None:
            self._loaded = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            resolver = await asyncio.shield(self._loaded)
        except Exception:
            self._loaded = None  # the next lookup tries again
            raise
        return await resolver.site(domain, now)

    def _load(self) -> DnsDestinationResolver:
        from zonemta_py.delivery.dns import query  # noqa: F401 (else the first lookup would load it, in the loop)
        from zonemta_py.delivery.dns.destination import DnsDestinationResolver

        return DnsDestinationResolver(self._config)


def resolver_of(config: Config) -> _LazyResolver | None:
    """None where nothing is ever looked up."""
    return None if all(zone.smart or zone.pulled for zone in config.zones) else _LazyResolver(config)


async def run(
    given: Given, host: Host, pipe: Pipe, senders: Collection[int], folder: Path, services: PluginServices
) -> None:  # fmt: skip
    """For ever. pipe: to the supervisor. senders: the processes of those that run already. folder: the MTA's."""
    from zonemta_py.disk import identity
    from zonemta_py.disk.leveldb.store import StoreError
    from zonemta_py.plugin.queue_hooks import PluginHooks
    from zonemta_py.queue.admin import metrics
    from zonemta_py.queue.maintenance.garbage import Garbage
    from zonemta_py.queue.recovery.start import begin
    from zonemta_py.wire import peer_process, reporting, server

    config = given.config
    hooks = PluginHooks(host)
    replica = None
    if config.cluster.enabled:
        from zonemta_py.cluster.queue_log import opened

        replica = await opened(config)
    while True:
        try:
            opening = await begin(config, hooks, resolver=resolver_of(config), replica=replica)
            break
        except (StoreError, OSError) as error:
            gc.enable()
            print(f"zonemta: the queue cannot be opened: {cause(error)}; trying again", file=sys.stderr, flush=True)
            await asyncio.sleep(0.5)
    queue = opening.queue
    plugged = Plugged(host, Process("queue", config.queue_number), folder, services)
    if is_shared(config) and not config.cluster.enabled:  # there, who asks knows before we do which queues there are
        queue.plugin_store.mine = _names_of(config)
    ending = Ending(queue, plugged)
    queue.generation, queue.supervisor = (
        given.generation,
        Supervision(queue, pipe, plugged, ending.cancel, partial(ending.begin, alone=True)),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.begin)
    queue.core.mail_log = mail.of(config, host.entries)
    queue.core.copied = identity.copied(config.folder, identity.this_machine())
    if queue.core.copied:
        print(f"zonemta: {queue.core.copied}", file=sys.stderr, flush=True)
    peer_process.outlive(queue, senders)
    if is_shared(config):
        from zonemta_py.queues.member import Member

        queue.core.membership = Member(queue)
    if replica is not None:
        spooling = _spooling(queue)
    listening = await server.serve(queue, config.folder)
    plugged.begin()
    Garbage()
    await opening.finish()
    if replica is not None:
        spooling()
    noting = asyncio.ensure_future(note(queue, given, "the MTA was started with them"))
    queue.start()
    reporting.begin("queue", queue, plugged.totals)
    report.measure(plugged.gauges)
    total = (await queue.ask(questions.size))["total"]
    counts = ", ".join(f"{total[state]:,} {state}" for state in ("queued", "deferred", "held"))
    which = f"queue {config.queue_number} is " if is_shared(config) else ""
    print(f"zonemta: {which}ready; recipients: {counts}", file=sys.stderr, flush=True)
    health = queue.core.schedule.source_health
    await asyncio.gather(
        _rules_soon(config), noting, metrics.watch(queue), health.watch(_probe), listening.serve_forever()
    )


async def _probe(source: Source, route_to: str) -> str:
    """As of `SourceProbe`. What it needs is loaded when the first one fails."""
    from zonemta_py.delivery.dns.egress import Egress
    from zonemta_py.mail.classify import DeliveryError

    try:
        await Egress(source).check(route_to)
    except DeliveryError as error:
        return error.reply.text
    return ""


def _names_of(config: Config) -> Callable[[str, str], bool]:
    """Whether what a plugin keeps under a name is that queue's. Receivers of before the number of queues has changed
    ask the wrong one."""
    from zonemta_py.queues import placement

    place = placement.of(config)
    return lambda plugin, name: place.of_plugin(plugin, name) == config.queue_number


def _spooling(queue: LocalQueue) -> Callable[[], None]:
    """What this node has accepted before the others had it. Returns what hands it over, once recovery is done."""
    from zonemta_py.queue.lifecycle import spooled
    from zonemta_py.queues import layout
    from zonemta_py.wire import AUTHORITY
    from zonemta_py.wire.blocking_client import QueueGone, ask_at

    core, acceptance, folder = queue.core, queue.acceptance, layout.node_folder(queue.core.config)
    spooled.opened(core, folder)

    async def known(ids: list[str]) -> list[str]:
        try:  # of all queues of the cluster, and not of this one alone
            found: list[str] = await asyncio.to_thread(ask_at, folder / AUTHORITY, questions.spooled, ids=ids)
        except QueueGone as error:
            raise Refused(str(error)) from None
        return found

    def begin() -> None:
        core.keep(asyncio.ensure_future(spooled.take_up(core, acceptance, folder)))
        if core.config.queue_number == layout.home_of(folder):
            numbers = partial(layout.numbers, folder)
            core.keep(asyncio.ensure_future(spooled.take_up_left(core, acceptance, folder, numbers, known)))

    return begin


async def _rules_soon(config: Config) -> None:
    """Loads the rules when there is time for it; a reply that comes earlier loads them at once."""
    from zonemta_py.queue.lifecycle import settle

    for _ in range(int(RULES_BEFORE_S / RULES_AFTER_S)):
        used_s = time.process_time()
        await asyncio.sleep(RULES_AFTER_S)
        if time.process_time() - used_s < _LITTLE * RULES_AFTER_S:
            break
    await asyncio.to_thread(settle.load, config)


async def note(queue: LocalQueue, given: Given, why: str) -> None:
    """Records which of its keys have changed since the last configuration, and keeps this one."""
    from zonemta_py.queue.maintenance import configuration
    from zonemta_py.queue.reload import history

    core = queue.core
    try:
        async with _NOTING:
            await configuration.note(core, why)
            row = (core.config.folder, given.config, given.origin, given.by, core.clock.ms())
            queue.configuration = await asyncio.to_thread(history.add, *row)
    except OSError as error:
        queue.configuration = 0
        print(
            f"zonemta: what has changed in the configuration cannot be noted: {cause(error)}",
            file=sys.stderr,
            flush=True,
        )


class Ending:
    """At SIGTERM: grants no more leases, and ends when all leases have their results and no receiver is left."""

    def __init__(self, queue: LocalQueue, plugged: Plugged) -> None:
        self._queue, self._plugged = queue, plugged
        self._waiting: asyncio.Task[None] | None = None
        self._over = False

    def begin(self, alone: bool = False) -> None:
        """alone: receivers stay, and wait for the next process."""
        self._queue.core.stopping = True
        self._queue.pulls.give_up()
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._until_drained(alone))

    def cancel(self) -> None:
        """It goes on; too late once senders know: then the next process does."""
        if self._over:
            return
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._queue.core.stopping, self._queue.ends_at = False, None
        self._queue.core.changed()

    async def _until_drained(self, alone: bool) -> None:
        from zonemta_py.wire import server

        queue = self._queue
        while queue.leases.out.keys() - queue.pulls.reserved or (server.ClientConnection.receivers and not alone):  # noqa: ASYNC110 (it ends soon, or is killed)
            await asyncio.sleep(0.02)
        await queue.core.disk.journal.stable()
        await queue.core.disk.lines.stable()
        if queue.core.mail_log is not None:
            queue.core.mail_log.flush()
        self._over = True
        server.retire(queue, queue.generation + 1)  # they end as planned, and do not miss us
        await self._plugged.end()
        until = time.monotonic() + (SENDERS_S if self._plugged.stops else 0.0)
        while server.ClientConnection.pulsed and time.monotonic() < until:  # noqa: ASYNC110 (it ends soon)
            await asyncio.sleep(GOODBYE_S)
        await asyncio.sleep(GOODBYE_S)
        os._exit(os.EX_OK)
