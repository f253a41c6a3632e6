"""The plugin host: loads what the configuration enables, and calls hooks in the configured order.

`listens(name)` is a set test made before anything is prepared for a call: a hook that nobody implements costs nothing.
pluggy is not used: its call loop is synchronous, and it lacks what the host is for: time limits, verdicts and
attribution of failures.

Failures: `Host.load` raises PluginError (a ConfigError). A call raises the verdicts its hook accepts, and PluginFailed
where a failing plugin must stop the mail; whatever else a plugin does is logged and counted, never raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zonemta_py.config import Plugins
from zonemta_py.plugin import checks
from zonemta_py.plugin.api import PluginApi, log
from zonemta_py.plugin.calls import Call
from zonemta_py.plugin.loading import PluginError, PluginSource, find, suggestion
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.plugin.verdicts import Drop, PluginFailed
from zonemta_py.queue.poison import HOOK_DEATHS_MAX, UNDER_WAY

__all__ = ["Host", "PluginError"]


class Host:
    """All enabled plugins of one process. commands: `zonemta NAME` → function, of all plugins.

    listens: hook name → whether any plugin implements it.
    """

    listens: Callable[[str], bool]

    def __init__(self, calls: Iterable[Call], apis: Iterable[PluginApi]) -> None:
        self._calls: dict[str, tuple[Call, ...]] = {}
        for call in calls:
            self._calls[call.hook.name] = (*self._calls.get(call.hook.name, ()), call)
        self._apis = tuple(apis)
        self.commands = {name: function for api in self._apis for name, function in api.commands.items()}
        self.headers = frozenset(name for api in self._apis for name in api.headers)
        """Lower-case names of the header fields that plugins need in the envelope."""
        self.listens = frozenset(self._calls).__contains__  # bound here: a method of our own would double its cost
        self.entries = self.filter_log if self.listens("log_entry") else None
        """What log lines pass through; None: no plugin listens."""
        self._log_lock = threading.RLock()
        self._in_log = False

    @classmethod
    def empty(cls) -> Host:
        """No plugins."""
        return cls((), ())

    @classmethod
    def load(cls, plugins: Plugins, zones: Iterable[str] = ()) -> Host:
        """Imports, checks and sets up everything in `plugins.enabled`. Raises PluginError for the first fault.

        zones: names of the configured zones, for plugins that route.
        """
        zones, here = frozenset(zones), getattr(plugins.options, "folder", None)
        calls: list[Call] = []
        apis: dict[str, PluginApi] = {}
        for wanted in plugins.enabled:
            threads = set(threading.enumerate())
            source = find(wanted, plugins.folder)
            if source.name in apis:
                raise PluginError(source.name, source.file, 0, "is enabled twice; leave it once in plugins.enabled")
            functions = checks.hooks(source)
            api = apis[source.name] = PluginApi(source.name, zones, plugins.timeout_s)
            chosen = checks.options(source, plugins.options.get(source.name, {}), here)
            checks.set_up(source, api, chosen)
            for name, function in functions.items():
                refuses = plugins.unknown_zone == "refuse"
                calls.append(Call(source.name, source.file, HOOKS[name], function, plugins.timeout_s, zones, refuses))
            _check_commands(source, api, apis)
            if not threads.issuperset(threading.enumerate()):
                log.warning(
                    "plugin %s, %s: has started a thread while it was loaded, which the server's processes will not "
                    "have: they are forked after that; start it in the hook that first needs it", source.name,
                    source.file,
                )  # fmt: skip
        _warn_of_unused(plugins, apis)
        return cls(calls, apis.values())

    def watch_over(self, folder: Path, process: str, counted: bool = True) -> None:
        """Notes from now on, for whoever finds this process dead, what it was about; leaves out what has ended too many
        of them. counted: what the one before died of is counted here."""
        if counted and not self._calls:
            return
        UNDER_WAY.open(folder, process, counted)
        for calls in self._calls.values():
            for call in calls:
                if UNDER_WAY.left_out(call.plugin, call.hook.name):
                    call.leave_out(f"has ended {HOOK_DEATHS_MAX} processes")

    async def call(self, name: str, /, **arguments: Any) -> None:
        """Calls one hook in every plugin that has it. Raises a Verdict: the first ends the round."""
        assert arguments.keys() == HOOKS[name].offered, f"{name} is called with {', '.join(arguments)}"
        for call in self._calls.get(name, ()):
            try:
                await call.run(arguments)
            except PluginFailed:
                if call.hook.failing == "raise":
                    raise

    def call_now(self, name: str, /, **arguments: Any) -> None:
        """The same for the hooks that must not wait (smtp_sni, log_entry)."""
        assert arguments.keys() == HOOKS[name].offered, f"{name} is called with {', '.join(arguments)}"
        for call in self._calls.get(name, ()):
            try:
                call.run_now(arguments)
            except PluginFailed:
                if call.hook.failing == "raise":
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
        """One row per plugin and hook (fields of `Tally`), then one per counter (plugin, counter, value)."""
        rows: list[dict[str, Any]] = [
            {"plugin": call.plugin, "hook": name, **asdict(call.tally)}
            for name, calls in self._calls.items()
            for call in calls
        ]
        for api in self._apis:
            rows += ({"plugin": api.name, "counter": name, "value": value} for name, value in api.counters.items())
        return rows

    def totals(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """The same for metrics: name, labels, value."""
        for hook, calls in self._calls.items():
            for call in calls:
                labels, tally = (call.plugin, hook), call.tally
                yield "zonemta_plugin_calls_total", labels, tally.calls
                yield "zonemta_plugin_seconds_total", labels, tally.seconds
                yield "zonemta_plugin_failures_total", labels, tally.failures + tally.overruns
        for api in self._apis:
            for (counter, label), value in api.labelled.items():
                yield "zonemta_plugin_count_total", (api.name, counter, label), value


def _check_commands(source: PluginSource, api: PluginApi, apis: dict[str, PluginApi]) -> None:
    for other in apis.values():
        for name in api.commands.keys() & other.commands.keys():
            if other is not api:
                sentence = f"its command {name!r} is also plugin {other.name}'s; enable only one of them"
                raise PluginError(source.name, source.file, 0, sentence)


def _warn_of_unused(plugins: Plugins, apis: dict[str, PluginApi]) -> None:
    for name in plugins.options:
        if name not in apis:
            log.warning("[plugins.options.%s] is not used: no such plugin is enabled%s", name, suggestion(name, apis))
