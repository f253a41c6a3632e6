"""Commands of plugins: which there are, and how one runs, with `api.admin` and `api.store` of the MTA it is about.

Nothing is loaded unless a configuration enables plugins: the one that `--config` or ZONEMTA_CONFIG names, else the
service's on this machine. Failures: ConfigError where that or a plugin cannot be loaded; what goes wrong in a command
is a CommandError that names plugin, command, file and line.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from zonemta_py.cli.run.ask_queue import ask_queue, runs
from zonemta_py.cli.run.running import me
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import ConfigFile, extended, in_force
from zonemta_py.cli.terminal.plugins_enabled import enables_plugins
from zonemta_py.config import Config
from zonemta_py.plugin.admin import AdminRefused, AdminUnavailable, acting
from zonemta_py.plugin.calls import line_in
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.store import StoreUnavailable

if TYPE_CHECKING:
    from zonemta_py.plugin.api import PluginApi
    from zonemta_py.queue.questions.question import Question

TITLE = "Commands of plugins"


def summaries(file: Path | None) -> list[tuple[str, str]]:
    """Name and summary of each command, for help; what cannot be loaded is in a line of its own."""
    if not enables_plugins(file):
        return []
    try:
        _, host = _loaded(file)
    except Exception as error:  # help is shown whatever a configuration, or a plugin, is like
        return [("(none)", f"They cannot be loaded: {' '.join(str(error).split())}")]
    return [
        (name, f"{_says(function) or 'No description.'} (plugin {api.name})")
        for api in host.apis
        for name, function in sorted(api.commands.items())
    ]


def _says(function: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _loaded(file: Path | None) -> tuple[Config, Host]:
    """Raises ConfigError."""
    config = in_force(file)
    return config, Host.of(config)


def add(app: typer.Typer, file: Path | None) -> None:
    """All commands of the plugins that it enables. Raises ConfigError."""
    if file is not None and not file.exists():
        in_force(file)  # says so
    if not enables_plugins(file):
        return
    config, host = _loaded(file)
    for api in host.apis:
        for name, function in api.commands.items():
            command = _command(api, name, function, config, host)
            alone = typer.Typer(add_completion=False)
            alone.command(name)(command)
            try:
                typer.main.get_command(alone)
            except Exception as error:
                line = function.__code__.co_firstlineno if inspect.isfunction(function) else 0
                sentence = f"the parameters of its command {name!r} are of no use: {error}"
                raise PluginError(api.name, api.file, line, sentence) from None
            app.command(name)(command)


def _command(
    api: PluginApi, name: str, function: Callable[..., Any], config: Config, host: Host
) -> Callable[..., None]:  # fmt: skip
    own = "config" in inspect.signature(function).parameters

    def run(**options: Any) -> None:
        if not own:
            options.pop("config", None)  # it was looked up before, to know the command
        asks = _Questions(config)
        host.ask(asks.store, asks.admin)
        token = acting.set(me())
        try:
            returned = function(**options)
            if inspect.iscoroutine(returned):
                returned = asyncio.run(returned)
        except (CommandError, typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except AdminRefused as refused:
            raise CommandError(Exit.DATA, str(refused)) from None
        except (AdminUnavailable, StoreUnavailable) as error:
            raise CommandError(Exit.UNAVAILABLE, str(error)) from None
        except Exception as error:
            if hasattr(error, "format_message"):  # of the command line, as typer.BadParameter
                raise
            said = f"raised {type(error).__name__}: {' '.join(str(error).split())[:500]}"
            raise CommandError(Exit.PROBLEMS, _where(api, name, error) + said) from error
        finally:
            acting.reset(token)
        if returned is None:
            return
        if type(returned) is not int or returned not in list(Exit):
            sentence = f"returned {returned!r}; it returns nothing, or an exit status of sysexits.h"
            raise CommandError(Exit.PROBLEMS, _where(api, name, None) + sentence)
        raise CommandError(Exit(returned))

    return extended(function, run, {}, {} if own else {"config": (ConfigFile, None)})


def _where(api: PluginApi, name: str, error: BaseException | None) -> str:
    line = line_in(api.file, error)
    return f"plugin {api.name}, command {name}, {api.file}{f':{line}' if line else ''}: "


class _Questions:
    """Of a command to the MTA that runs."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._store: Callable[..., Any] | None = None

    async def admin(self, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        try:
            return await asyncio.to_thread(partial(ask_queue, self._config.folder, question, **arguments))
        except CommandError as error:
            if error.code == Exit.DATA:
                raise AdminRefused(error.sentence) from None
            raise AdminUnavailable(error.sentence) from None

    async def store(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        if self._store is None:
            if self._config.cluster.enabled:
                raise StoreUnavailable("in a cluster, api.store is there for its nodes' processes, not for commands")
            if not await asyncio.to_thread(runs, self._config.folder):
                raise StoreUnavailable(f"no MTA runs in {self._config.folder}; start it with `zonemta run`")
            from zonemta_py.processes.plugin_services import QueueServices
            from zonemta_py.processes.roles import queue_client

            self._store = QueueServices(self._config, queue_client).store
        return await self._store(what, plugin, name, token, arguments)
