"""`zonemta plugin run`: plugins in a real server on loopback, whose mail arrives here, for trying them by hand.

It is the server of `zonemta_py.plugin.testing`: a queue, a receiver and a sender, in a folder that is removed at its
end. With --reload it takes over what is changed in the plugins' files; what does not load is said, and the server goes
on with what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import ConfigFile, configuration
from zonemta_py.cli.terminal.output import printable
from zonemta_py.config import Plugins, as_toml
from zonemta_py.logs.causes import cause
from zonemta_py.plugin.host import PluginError
from zonemta_py.plugin.loading import BUNDLED, code_of, digest, named_file
from zonemta_py.plugin.testing import Arrived, Mta, MtaNotStarted, running
from zonemta_py.plugin.testing.mta import MAIL

LOOK_S = 0.3
_NOTHING = "nothing has changed: "
SHOWN_BYTES_MAX = 100_000
"""Of a message that has arrived."""


def run(
    plugins: Annotated[
        list[str] | None,
        typer.Argument(metavar="PLUGIN", help="Names, or paths of files; default: all that are enabled."),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Load them again whenever their files change, and send to --to again.")
    ] = False,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="ADDRESS", help="Send a message to this address at once; may be repeated."),
    ] = None,
    message: Annotated[
        Path | None, typer.Option("--message", metavar="FILE", help="The message that is sent; default: a short one.")
    ] = None,
    sender: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Its return path.")] = "shop@example.com",
    config: ConfigFile = None,
) -> None:
    """Run plugins in a server of their own on loopback, and show what arrives and what it logs. Ctrl-C ends it.

    Their options, instances and the zones' names are those of the configuration; all mail arrives here.
    """
    settings = configuration(config)
    chosen = _chosen(settings.plugins, plugins or settings.plugins.enabled)
    zones = [zone.name for zone in settings.zones]
    default = next((zone.name for zone in settings.zones if zone.default), zones[0])
    listeners = [one.name for one in settings.listeners if one.name != "smtp"]
    try:
        content = message.read_bytes() if message is not None else None
    except OSError as error:
        raise from_os(error) from None
    trial = _Trial(chosen, reload, to or [], content, sender)
    ordered = (default, *(one for one in zones if one != default))
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):  # Ctrl-C, SIGTERM
        asyncio.run(trial.run(ordered, listeners))


def _chosen(of: Plugins, wanted: list[str]) -> Plugins:
    """With paths that are right from anywhere. Raises CommandError."""
    if not wanted:
        raise CommandError(Exit.USAGE, "no plugin is enabled; name one, or the path of its file")
    enabled, instances = list[str](), list(of.instances)
    for one in wanted:
        try:
            enabled.append(_absolute(one, of.folder))
        except PluginError as error:
            raise CommandError(Exit.NO_INPUT, str(error)) from None
    for number, one_ in enumerate(instances):
        with contextlib.suppress(PluginError):
            instances[number] = one_.model_copy(update={"plugin": _absolute(one_.plugin, of.folder)})
    names = {of.instance(one).name for one in wanted}
    options = {name: table for name, table in of.options.items() if name in names}
    return of.model_copy(update={"enabled": enabled, "instances": instances, "options": options})


def _absolute(wanted: str, folder: Path | None) -> str:
    """Raises PluginError."""
    if "/" not in wanted and not wanted.endswith(".py"):
        return wanted
    file = named_file(wanted, folder)[1]
    return str(file.parent if file.name == "__init__.py" else file)


def _files(of: Plugins) -> list[str]:
    """Of the plugins that are enabled, as far as they are files."""
    found = list[str]()
    for one in of.enabled:
        wanted = of.instance(one).plugin
        if "/" in wanted or wanted.endswith(".py"):
            with contextlib.suppress(PluginError):
                found.append(str(named_file(wanted, of.folder)[1]))
            continue
        for place in (of.folder.expanduser(), BUNDLED) if of.folder else (BUNDLED,):
            if (file := code_of(place / wanted)) is not None:
                found.append(str(file))
                break
    return found


def _say(text: str) -> None:
    print(printable(text), flush=True)


class _Trial:
    """A server with these plugins."""

    def __init__(self, plugins: Plugins, reload: bool, to: list[str], message: bytes | None, sender: str) -> None:
        self._plugins, self._reload, self._to, self._sender = plugins, reload, to, sender
        self._message = MAIL if message is None else b"\r\n".join(message.splitlines()) + b"\r\n"
        self._shown, self._logged = 0, 0
        self._refused = ""
        """Why it was not loaded again: the server logs that, too, which is not shown then."""

    async def run(self, zones: tuple[str, ...], listeners: list[str]) -> None:
        """Until it is cancelled. Raises CommandError."""
        given = self._plugins.model_dump(exclude_defaults=True, mode="json")
        config = "".join(f"plugins.{name} = {as_toml.value(value)}\n" for name, value in given.items())
        if (task := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        while True:
            before = self._digests()
            try:
                async with running(config=config, zones=zones, listeners=listeners) as mta:
                    _say(f"mail goes in at 127.0.0.1 port {mta.port}, and arrives here; Ctrl-C ends this")
                    await self._go_on(mta, before)
            except MtaNotStarted as error:
                if not self._reload:
                    raise CommandError(Exit.CONFIG, _why(error)) from None
                _say(f"{_why(error)}\nit is tried again when the plugins' files change")
                while self._digests() == before:  # noqa: ASYNC110 (nobody tells)
                    await asyncio.sleep(LOOK_S)

    def _digests(self) -> list[str]:
        return [*map(digest, _files(self._plugins))]

    async def _go_on(self, mta: Mta, before: list[str]) -> None:
        self._shown = self._logged = 0
        await self._send(mta)
        while True:
            self._show(mta)
            await asyncio.sleep(LOOK_S)
            if self._reload and (now := self._digests()) != before:
                before = now
                if "" not in now:  # else an editor is about to write it
                    await self._load_again(mta)

    async def _load_again(self, mta: Mta) -> None:
        try:
            await mta.zonemta("reload")
        except AssertionError as error:
            self._refused = str(error).rstrip().splitlines()[-1].rpartition(_NOTHING)[2]
            _say(f"not loaded again: {self._refused}")
            return
        self._refused = ""
        _say("loaded again")
        await self._send(mta)

    async def _send(self, mta: Mta) -> None:
        if not self._to:
            return
        try:
            answer = await mta.send(*self._to, sender=self._sender, message=self._message)
        except OSError as error:
            _say(f"the message was not sent: {cause(error)}")
            return
        for address, reply in answer.refused.items():
            _say(f"<{address}> refused: {reply}")
        _say(f"sent: {answer.reply}")

    def _show(self, mta: Mta) -> None:
        log = mta.log
        lines = log[self._logged :].splitlines(keepends=True)
        sys.stderr.writelines(line for line in lines if not self._refused or self._refused not in line)
        sys.stderr.flush()
        self._logged = len(log)
        for one in mta.sink.messages[self._shown :]:
            self._shown += 1
            found = Arrived.of(one)
            _say(f"--- to {', '.join(found.recipients)} from <{found.sender}>")
            whole = found.headers.build() + b"\r\n" + found.body
            _say(whole[:SHOWN_BYTES_MAX].decode("utf-8", "replace").replace("\r\n", "\n"))


def _why(error: MtaNotStarted) -> str:
    """The server's own last sentence, where it has said one."""
    said = str(error).splitlines()[-1]
    return said.removeprefix("zonemta: ") if said.startswith("zonemta: ") else str(error)
