"""The plugin host: loads what the configuration enables, and calls hooks in the configured order.

`listens(name)` is a set test made before anything is prepared for a call: a hook that nobody implements costs nothing.
pluggy is not used: its call loop is synchronous, and it lacks what the host is for: time limits, verdicts and
attribution of failures.

Failures: `Host.load` raises PluginError (a ConfigError). A call raises the verdicts its hook accepts, and PluginFailed
where a failing plugin must stop the mail; whatever else a plugin does is logged and counted, never raised.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from zonemta_py.config import Config, Plugins
from zonemta_py.plugin import checks
from zonemta_py.plugin.admin import AskAdmin
from zonemta_py.plugin.api import PluginApi, log
from zonemta_py.plugin.arguments import Process
from zonemta_py.plugin.calls import Call, CallLimits, Round
from zonemta_py.plugin.configured import ANYTHING, Configured
from zonemta_py.plugin.life import RUNS, PluginLife
from zonemta_py.plugin.loading import PluginError, PluginSource, digest, find, suggestion
from zonemta_py.plugin.routes import PluginRoutes, RouteCall
from zonemta_py.plugin.services import PluginServices
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.plugin.store import Ask
from zonemta_py.plugin.verdicts import Drop, PluginFailed
from zonemta_py.plugin.watchdog import WATCHDOG, keep_running
from zonemta_py.queue.poison import HOOK_DEATHS_MAX, UNDER_WAY

__all__ = ["Host", "PluginError"]


class Host:
    """All enabled plugins of one process. commands: `zonemta NAME` → function, of all plugins.

    listens: hook name → whether any plugin implements it.
    """

    listens: Callable[[str], bool]

    def __init__(self, calls: Iterable[Call], apis: Iterable[PluginApi], limit_s: float = 5.0) -> None:
        self._calls: dict[str, tuple[Call, ...]] = {}
        for call in calls:
            self._calls[call.hook.name] = (*self._calls.get(call.hook.name, ()), call)
        self.apis = tuple(apis)
        self.names = tuple(api.name for api in self.apis)
        self.commands = {name: function for api in self.apis for name, function in api.commands.items()}
        self.headers = frozenset(name for api in self.apis for name in api.headers)
        """Lower-case names of the header fields that plugins need in the envelope."""
        self.routes = PluginRoutes(
            RouteCall(api.name, api.file, route, api.timeout_s) for api in self.apis for route in api.routes
        )
        """Of HTTP, by plugin."""
        self.listens = frozenset(self._calls).__contains__  # bound here: a method of our own would double its cost
        self.entries = self.filter_log if self.listens("log_entry") else None
        """What log lines pass through; None: no plugin listens."""
        self.files: dict[str, str] = {}
        """Of its plugins: file → a digest of what was loaded."""
        self.life: PluginLife | None = None
        """Of its plugins in this process; None: there are none, or `begin` was not called."""
        self._limit_s = limit_s
        self._beginning: list[asyncio.Future[None]] = []
        """While `start` runs; the same list in all that `at` makes."""
        self._log_lock = threading.RLock()
        self._in_log = False

    @classmethod
    def empty(cls) -> Host:
        """No plugins."""
        return cls((), ())

    @classmethod
    def of(cls, config: Config, unused: bool = True) -> Host:
        """The plugins of a configuration. unused: as of `load`. Raises PluginError."""
        if not config.plugins.enabled:
            return cls.empty()
        return cls.load(config.plugins, Configured.of(config), unused)

    @classmethod
    def load(cls, plugins: Plugins, configured: Configured = ANYTHING, unused: bool = True) -> Host:
        """Imports, checks and sets up everything in `plugins.enabled`. Raises PluginError for the first fault.

        configured: what plugins that route may choose by name. unused: the log names options of plugins that are not
        enabled.
        """
        here = getattr(plugins.options, "folder", None)
        calls: list[Call] = []
        apis: dict[str, PluginApi] = {}
        files: dict[str, str] = {}
        for wanted in plugins.enabled:
            threads, instance = _threads(), plugins.instance(wanted)
            source = find(instance.plugin, plugins.folder, instance.name)
            if source.name in apis:
                raise _twice(source, apis[source.name])
            files[source.file] = digest(source.file)
            functions = checks.hooks(source)
            api = apis[source.name] = PluginApi(source.name, configured.zones, plugins.timeout_s, source.file)
            chosen = checks.options(source, plugins.options.get(source.name, {}), here)
            checks.set_up(source, api, chosen)
            api.provide(is_set_up=True)
            checks.limits(source, instance, functions)
            limits = CallLimits(
                frozenset(instance.listeners), frozenset(instance.zones), instance.failing == "open"
            )  # fmt: skip
            for name, function in functions.items():
                calls.append(
                    Call(
                        source.name, source.file, HOOKS[name], function, plugins.timeout_s, configured,
                        plugins.unknown_zone, limits,
                    )
                )  # fmt: skip
            _check_commands(source, api, apis)
            _refuse_threads(source, _threads() - threads)
        if unused:
            _warn_of_unused(plugins, apis)
        host = cls(calls, apis.values(), plugins.timeout_s)
        host.files = files
        return host

    def at(self, listener: str) -> Host:
        """The same for a listener, with what is called there."""
        calls = {
            name: tuple(call for call in all_ if not call.listeners or listener in call.listeners)
            for name, all_ in self._calls.items()
        }
        if calls == self._calls:
            return self
        made = copy.copy(self)
        made._calls = {name: some for name, some in calls.items() if some}
        made.listens = frozenset(made._calls).__contains__
        return made

    def watch_over(self, folder: Path, process: str, counted: bool = True) -> None:
        """Notes from now on, for whoever finds this process dead, what it was about; leaves out what has ended too many
        of them. counted: what the one before died of is counted here."""
        if counted and not self._calls and not self.routes:
            return
        if not UNDER_WAY.active:  # else these are the plugins of another configuration
            UNDER_WAY.open(folder, process, counted)
        for calls in (*self._calls.values(), *self.routes.by_plugin.values()):
            for call in calls:
                if UNDER_WAY.left_out(call.plugin, call.hook.name):
                    call.leave_out(f"has ended {HOOK_DEATHS_MAX} processes")

    def without(self, plugin: str) -> Host:
        """The hooks of the other plugins: for mail that this one hands in."""
        others = (call for calls in self._calls.values() for call in calls if call.plugin != plugin)
        return Host(others, self.apis, self._limit_s)

    def only(self, plugins: Collection[str]) -> Host:
        """These plugins alone: for a process that is nothing to the others."""
        calls = (call for calls in self._calls.values() for call in calls if call.plugin in plugins)
        return Host(calls, (api for api in self.apis if api.name in plugins), self._limit_s)

    # -- the life of a process

    async def begin(self, process: Process, folder: Path, services: PluginServices | None = None) -> None:
        """The process's event loop runs: `start`, then tasks. Other hooks wait for it. folder: the MTA's."""
        if not self.apis:
            return
        keep_running(asyncio.get_running_loop())
        if services is not None:
            self.ask(services.store, services.admin)
            for api in self.apis:
                api.provide(injects=partial(services.inject, self))
        self.life = PluginLife(
            self.calls("start"), self.calls("stop"), {api.name: api for api in self.apis}, self._limit_s
        )
        self._beginning.append(asyncio.ensure_future(self.life.begin(process, folder)))
        try:
            await asyncio.shield(self._beginning[0])
        finally:
            self._beginning.clear()

    def ask(self, ask: Ask, admin: AskAdmin | None = None) -> None:
        """Where what plugins keep is, and who answers their questions."""
        for api in self.apis:
            api.provide(ask=ask, ask_admin=admin)

    def retire(self) -> None:
        """Another process follows this one: its tasks end at once."""
        if self.life is not None:
            self.life.retire()

    async def end(self) -> None:
        """The process has nothing more to do for anybody: tasks end, then `stop` is called."""
        if self.life is not None:
            await self.life.end()

    # -- hooks

    async def call(self, name: str, /, **arguments: Any) -> None:
        """Calls one hook in every plugin that has it. Raises a Verdict: the first ends the round."""
        assert arguments.keys() == HOOKS[name].offered, f"{name} is called with {', '.join(arguments)}"
        if self._beginning:
            await asyncio.wait([*self._beginning])
        if not (calls := self._calls.get(name)):
            return
        round_ = Round(calls[0], arguments)
        for call in calls:
            if call.only and not call.concerns(arguments):
                continue
            try:
                await call.run(arguments, round_)
            except PluginFailed:
                if not call.passes:
                    raise

    def call_now(self, name: str, /, **arguments: Any) -> None:
        """The same for the hooks that must not wait (smtp_sni, log_entry)."""
        assert arguments.keys() == HOOKS[name].offered, f"{name} is called with {', '.join(arguments)}"
        if not (calls := self._calls.get(name)):
            return
        round_ = Round(calls[0], arguments)
        for call in calls:
            try:
                call.run_now(arguments, round_)
            except PluginFailed:
                if not call.passes:
                    raise

    def filter_log(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """What to log instead of entry; None: nothing. Thread-safe.

        The hook is `async def` like all, but lines are logged where nothing can wait, and in order: it runs to its end
        synchronously. What a plugin logs from inside it is not filtered again.
        """
        if not self.listens("log_entry"):
            return entry
        with self._log_lock:
            if self._in_log:
                return entry
            self._in_log = True
            try:
                self.call_now("log_entry", entry=entry)
            except Drop:
                return None
            finally:
                self._in_log = False
        return entry

    def calls(self, name: str) -> tuple[Call, ...]:
        """The calls of a hook that is driven block by block."""
        return self._calls.get(name, ())

    def statistics(self) -> list[dict[str, Any]]:
        """One row per plugin and hook (fields of `CallCounts`), one per route (the same), then one per counter (plugin,
        counter, value), then one per task (plugin, task, state, fields of `CallCounts`)."""
        rows: list[dict[str, Any]] = [
            {"plugin": call.plugin, "hook": name, **asdict(call.tally)}
            for name, calls in self._calls.items()
            for call in calls
        ]
        for routed in self.routes.by_plugin.values():
            rows += ({"plugin": call.plugin, "route": str(call.route), **asdict(call.tally)} for call in routed)
        for api in self.apis:
            counters = dict[str, float]()
            for (name, _), value in api.numbers.counted.items():
                counters[name] = counters.get(name, 0) + value
            rows += ({"plugin": api.name, "counter": name, "value": value} for name, value in counters.items())
        for task in self.life.tasks if self.life is not None else ():
            rows.append({"plugin": task.call.plugin, "task": task.name, "state": task.state, **asdict(task.call.tally)})
        return rows

    def totals(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """The same for metrics: name, labels, value."""
        tasks = [task.call for task in self.life.tasks] if self.life is not None else []
        for calls in (*self._calls.values(), *self.routes.by_plugin.values(), tasks):
            for call in calls:
                labels, tally = (call.plugin, call.hook.name), call.tally
                yield "zonemta_plugin_calls_total", labels, tally.calls
                yield "zonemta_plugin_seconds_total", labels, tally.seconds
                yield "zonemta_plugin_failures_total", labels, tally.failures + tally.overruns
                yield "zonemta_plugin_verdicts_total", labels, tally.verdicts
        for api in self.apis:
            for (counter, label), value in api.numbers.counted.items():
                yield "zonemta_plugin_count_total", (api.name, counter, label), value
            for (histogram, label), end, value in api.numbers.histograms():
                yield "zonemta_plugin_observed", (api.name, histogram, label, end), value

    def gauges(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """What is measured now: name, labels, value."""
        for task in self.life.tasks if self.life is not None else ():
            yield "zonemta_plugin_tasks", (task.call.plugin, task.name), float(task.state == RUNS)
        if self.life is None or self.life.is_over:  # its successor measures
            return
        process = str(self.life.process)
        for api in self.apis:
            for (gauge, label), value in api.numbers.measured.items():
                yield "zonemta_plugin_value", (api.name, gauge, label, process), value


def _twice(source: PluginSource, first: PluginApi) -> PluginError:
    sentence = "is enabled twice; leave it once in plugins.enabled"
    if source.file != first.file:
        sentence = f"has the name of {first.file}; give it one of its own in [[plugins.instances]], or rename its file"
    return PluginError(source.name, source.file, 0, sentence)


def _threads() -> set[threading.Thread]:
    """Those that run, but not where other code loads meanwhile: another thread's are nobody's here."""
    found = {one for one in threading.enumerate() if one.name != WATCHDOG}
    return found if threading.current_thread() is threading.main_thread() else set()


def _refuse_threads(source: PluginSource, begun: set[threading.Thread]) -> None:
    """Raises PluginError."""
    for thread in begun:
        sentence = (
            f"has started a thread while it was loaded ({thread.name}): the server's processes are forked after that, "
            "and would not have it; start it in `async def start(api, process)`, where an event loop runs already"
        )
        raise PluginError(source.name, source.file, 0, sentence)


def _check_commands(source: PluginSource, api: PluginApi, apis: dict[str, PluginApi]) -> None:
    for other in apis.values():
        for name in api.commands.keys() & other.commands.keys():
            if other is not api:
                again = other.file == api.file
                remedy = "name its commands after api.name" if again else "enable only one of them"
                sentence = f"its command {name!r} is also plugin {other.name}'s; {remedy}"
                raise PluginError(source.name, source.file, 0, sentence)


def _warn_of_unused(plugins: Plugins, apis: dict[str, PluginApi]) -> None:
    for name in plugins.options:
        if name not in apis:
            log.warning("[plugins.options.%s] is not used: no such plugin is enabled%s", name, suggestion(name, apis))
