"""`zonemta run`: the MTA in the foreground. It ends by being killed; there is no other way and none is needed.

Operators' errors are found before any process is started: configuration, folder, ports, and whether another
MTA has this folder. Only the standard library's argparse is used, which costs a millisecond and little memory.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from zonemta_py.cli.run import folder_lock
from zonemta_py.cli.run.folder import ensure_writable, kept_to_oneself, until, wait_until_unlocked
from zonemta_py.cli.terminal.errors import CommandError, Exit, guarded
from zonemta_py.cli.version import program
from zonemta_py.config import Config, ConfigError, Listener, secret, usual_file
from zonemta_py.config.file import SourceFile, checked, of_text, text_of
from zonemta_py.logs import setup
from zonemta_py.logs.stream import LogStream
from zonemta_py.processes import privileges

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]+)):(\d{1,5})")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(Exit.USAGE, f"{message}; see `zonemta run --help`")


def main(arguments: list[str]) -> int:
    return guarded(lambda: run(arguments))


def run(arguments: list[str]) -> None:
    """Returns never, unless something is wrong before the first process starts: then CommandError or ConfigError."""
    if sys.stderr is not None:
        sys.stderr = LogStream(sys.stderr)
    os.umask(0o077)  # mail is private, whatever file it is in
    config, path, origin = configured(arguments)
    setup.shape(config)
    who = privileges.identity(config)
    ensure_writable(config.folder, who)
    folder_lock.announce(config.folder, who)
    exposed = secret.warning(path, config.model_dump()) if path else ""
    for sentence in [exposed, *kept_to_oneself(config.folder), *_lacking(config)]:
        if sentence:
            print(f"zonemta: {sentence}", file=sys.stderr, flush=True)
    wait_until_unlocked(config.folder)
    for listener in config.all_listeners:
        until(lambda listener=listener: check_port(listener))  # type: ignore[misc]
    from zonemta_py.journal import version
    from zonemta_py.processes import supervisor

    try:
        version.check(config.folder)
    except version.StoreTooNew as error:
        raise CommandError(Exit.CONFIG, str(error)) from None
    try:
        supervisor.run(config, opening=opening(config, path), again=lambda: again(arguments), origin=origin)
    except supervisor.StartError as error:
        raise CommandError(Exit.UNAVAILABLE, str(error)) from None


def _lacking(config: Config) -> Iterator[str]:
    """What is needed, if not now."""
    if config.reports.folder is not None:
        from zonemta_py.cli.service import campaign_reports

        yield from campaign_reports.sentences(config)


def opening(config: Config, path: Path | None) -> Iterator[str]:
    """What is running, for the operator; the queue itself says when it is ready."""
    yield f"{program()}: {path.absolute() if path else 'no configuration file, so the defaults'}"
    yield f"zonemta: queue in {config.folder}; `zonemta queue size` shows its contents"
    if config.server.user:
        yield f"zonemta: runs as user {privileges.me()!r}"
    for listener in config.listeners:
        yield f"zonemta: mail by SMTP at {listener.address} port {listener.port}"
    if config.http.enabled:
        yield f"zonemta: mail by HTTP at {config.http.listener.address} port {config.http.listener.port}"
    if config.pull.enabled:
        yield f"zonemta: named queues at {config.pull.address} port {config.pull.port}"
    if config.links.enabled:
        yield f"zonemta: links in mail at {config.links.address} port {config.links.port}, as {config.links.url}"
    if config.reports_folder is not None:
        yield f"zonemta: reports on finished campaigns in {config.reports_folder}"
    for zone in config.zones:
        where = (
            f"sends to {', else to '.join(_way(*place) for place in zone.places)}"
            if zone.smart
            else f"sends to {_way('mx', 0)}"
        )
        yield f"zonemta: zone {zone.name!r} {'holds its mail until clients fetch it' if zone.pulled else where}"


def _way(host: str, port: int) -> str:
    return "the MX hosts of each recipient's domain" if host == "mx" else f"{host} port {port}"


def again(arguments: list[str]) -> tuple[Config, SourceFile]:
    """The configuration that these arguments mean now. Raises ConfigError."""
    try:
        config, _, origin = configured(arguments)
    except CommandError as error:
        raise ConfigError(str(error)) from None
    return config, origin


def configured(arguments: list[str]) -> tuple[Config, Path | None, SourceFile]:
    """The configuration that these arguments mean, and its file, if any: then what the command line overrides."""
    chosen = parser().parse_args(arguments)
    path = Path(chosen.config) if chosen.config else None if chosen.folder else usual_file()
    origin = SourceFile(str(path.absolute()), text_of(path)) if path else SourceFile()
    config = of_text(path, origin.text) if path else Config()
    return overridden(config, chosen.folder, chosen.listen, chosen.relay, path), path, origin


def parser() -> argparse.ArgumentParser:
    """Of the arguments of `zonemta run`."""
    options = _Parser(
        prog="zonemta run", description="Runs the MTA in the foreground until it is killed.",
        epilog="Example: zonemta run --config zonemta.toml",
    )  # fmt: skip
    options.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        default=os.environ.get("ZONEMTA_CONFIG"),
        help="configuration file (TOML); default: $ZONEMTA_CONFIG, else /etc/zonemta/zonemta.toml if it exists and no"
        " --folder is given, else the defaults",
    )
    options.add_argument("--folder", metavar="DIR", help="queue folder; overrides server.folder")
    options.add_argument("--listen", metavar="ADDRESS:PORT", help="address and port of the first listener")
    options.add_argument("--relay", metavar="HOST:PORT", help="smart host for every zone, without MX lookups")
    return options


def overridden(
    config: Config, folder: str | None, listen: str | None, relay: str | None, file: Path | None = None
) -> Config:
    """`config` with the overrides in it, checked again as a whole. file: where the configuration is from. Raises
    CommandError for what is not an address."""
    if folder:
        here = Path(folder).expanduser().absolute()
        config = _with(config, file, "--folder", folder, lambda rows: rows["server"].update(folder=here))
    if listen:
        address, port = _split("--listen", listen)
        config = _with(
            config, file, "--listen", listen, lambda rows: rows["listeners"][0].update(address=address, port=port)
        )
    if relay:
        host, to = _split("--relay", relay)
        config = _with(
            config, file, "--relay", relay, lambda rows: [zone.update(host=host, port=to) for zone in rows["zones"]]
        )
    return config


def _with(
    config: Config, file: Path | None, option: str, text: str, change: Callable[[dict[str, Any]], object]
) -> Config:
    """One option at a time, so that the one that is wrong, or fits nothing else that is configured, is named."""
    rows = config.model_dump()
    change(rows)
    try:
        return checked(rows, f"{option} {text}", file.absolute().parent if file else None)
    except ConfigError as error:
        raise CommandError(Exit.USAGE, str(error)) from None


def _split(option: str, text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    if not found or not 1 <= int(found[3]) <= 65535:
        raise CommandError(Exit.USAGE, f"{option}: {text!r} is not a host and a port; write it like 127.0.0.1:2525")
    return found[1] or found[2], int(found[3])


def check_port(listener: Listener) -> None:
    """Raises CommandError if the listener could not be opened. Nothing stays open."""
    family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
    where = f"listener {listener.name!r}: {listener.address} port {listener.port}"
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Connections in TIME_WAIT must not count as listeners.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listener.address, listener.port))
        except OSError as error:
            code, reason = _PORT_ERRORS.get(
                error.errno or 0, (Exit.UNAVAILABLE, f"cannot be opened ({error.strerror})")
            )
            raise CommandError(code, f"{where} {reason}") from None


_PORT_ERRORS = {
    errno.EADDRINUSE: (
        Exit.UNAVAILABLE, "is in use by another program; stop it (`ss -ltnp` shows it) or choose another port",
    ),
    errno.EACCES: (
        Exit.PERMISSION, "needs privileges; choose a port above 1023, or give Python the capability "
"CAP_NET_BIND_SERVICE",
    ),
    errno.EADDRNOTAVAIL: (Exit.CONFIG, "is not an address of this machine; `ip address` lists its addresses"),
}  # fmt: skip
