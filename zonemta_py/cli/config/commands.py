"""`zonemta config …`: checks a configuration, shows the one in force, makes password hashes and secrets."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.config import certificates, history, notice
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import Telling, print_json
from zonemta_py.config import Config, ConfigError, senders
from zonemta_py.config.secret import warning as exposed
from zonemta_py.config.section import every
from zonemta_py.config.services.events import SECRET_PREFIX
from zonemta_py.config.values import Local, marked, written
from zonemta_py.config.warnings import doubts
from zonemta_py.plugin.host import Host
from zonemta_py.processes import privileges
from zonemta_py.queue import questions

app = typer.Typer(help="Check and show the configuration and earlier ones.", no_args_is_help=True)
app.command()(history.history)
app.command()(history.diff)
app.command()(history.back)
app.command()(history.forget)
app.command()(notice.notice)

_SOON = timedelta(days=366)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", envvar="ZONEMTA_CONFIG", help="Configuration to check.")],
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Check a configuration: keys, values, certificates, password hashes, plugins.

    With --folder, also checks the effect on mail waiting in that queue, if the MTA is running.
    """
    from zonemta_py.cli.service import campaign_reports, return_path
    from zonemta_py.processes import checks, queue_process

    _check_readable(file)
    config = configuration(file, folder)
    warnings: list[str] = []
    plugged: list[Host] = []
    try:
        warnings += [*_open(file, config), *_become(config)]
        every(
            lambda: plugged.append(queue_process.plugins(config, unused=False)),
            lambda: checks.check(config, *(plugged or [Host.empty()])),
            lambda: warnings.extend(doubts(config)),
            lambda: warnings.extend([*_doubts(config), *pull_zone_doubts(config)]),
            lambda: warnings.extend(certificates.doubts(config, datetime.now(UTC), unusable=False)),
            lambda: warnings.extend([*return_path.sentences(config), *campaign_reports.sentences(config)]),
            lambda: warnings.extend(turned_to_smtp(config) if folder else []),
        )
    except ConfigError as error:
        raise ConfigError(*(f"{file}: {sentence}" for sentence in error.sentences)) from None
    for sentence in warnings:
        print(f"zonemta: {file}: {sentence}", file=sys.stderr)
    names = ", ".join(zone.name for zone in config.zones)
    listening = [f"{listener.address}:{listener.port}" for listener in config.all_listeners]
    with Telling(json) as tell:
        tell(file=file, warnings=warnings)
        tell(listeners=listening, zones=[zone.name for zone in config.zones], folder=config.folder)
        tell(f"{file}: good; listens on {', '.join(listening)}; zones: {names}; queue in {config.folder}")


def _check_readable(file: Path) -> None:
    """Raises ConfigError with a remedy that fits an argument."""
    try:
        file.open("rb").close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{file}: cannot be read ({reason}); name an existing file") from None


def _open(file: Path, config: Config) -> Iterator[str]:
    if sentence := exposed(file, config.model_dump()):
        yield f"warning: {sentence.removeprefix(f'{file}: ')}"


def _become(config: Config) -> Iterator[str]:
    """The checks run as the user that the MTA would run as, so root becomes it here too."""
    if os.geteuid():
        return
    if not config.server.user:
        yield (
            'warning: started as root it stays root; write server.user = "NAME", a user of its own (or "root", if that'
            " is meant)"
        )
        return
    try:
        who = privileges.identity(config)
    except ConfigError as error:
        yield f"warning: {error}"
        return
    if who and config.folder.is_dir() and (sentence := privileges.stranger(config.folder, who)):
        yield f"warning: {sentence}"
    privileges.drop(config)


def _doubts(config: Config) -> Iterator[str]:
    """Warnings: what may be right on the target machine, but is not on this one, and what is left open."""
    from zonemta_py.disk.space import LEAST_BYTES

    if config.queue.reserve_bytes < LEAST_BYTES:
        yield (
            f"warning: queue.reserve_bytes is {config.queue.reserve_bytes:,}, less than the queue needs to empty "
            f"itself: {LEAST_BYTES:,} are kept free instead"
        )
    there_is = next(place for place in (config.folder, *config.folder.parents) if place.exists())
    if config.queue.reserve_bytes >= (whole := shutil.disk_usage(there_is).total):
        yield (
            f"warning: queue.reserve_bytes: {config.queue.reserve_bytes} is more than the whole disk of {there_is},"
            f" {whole}, so no mail is taken; lower it"
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    if config.reports.folder and config.reports.memory_gb > memory:
        yield (
            f"warning: reports.memory_gb: {config.reports.memory_gb:g} is more than this machine has, {memory:.1f};"
            " lower it"
        )
    for zone in config.zones:
        for host, _ in zone.places:
            if host.startswith("/") and not Path(host).exists():
                yield f"warning: zones[{zone.name}].host: there is no socket {host} yet; correct it, or make it"
    for party in senders.unsigned(config):
        yield (
            f"warning: {party.name} has no senders, and is not the only party that submits mail, so no [[dkim]] key"
            f' signs for it; set {party.where}, or ["*"] there if it may use any sender'
        )
    yield from _addresses(config)
    for source in (source for pool in config.pools for source in pool.sources):
        if source.warmup_since and source.warmup_since > (datetime.now(UTC) + _SOON).date():
            yield (
                f"warning: {source.address}: its warm-up begins on {source.warmup_since} (warmup_since), more than a"
                " year ahead; correct the day"
            )
    there = {name for _, name in socket.if_nameindex()}
    for source in (source for pool in config.pools for source in pool.sources):
        if source.interface and source.interface not in there:
            names = ", ".join(sorted(there))
            yield f"warning: {source.address} is bound to interface {source.interface!r}; this machine has only {names}"
        elif source.interface and (fault := privileges.interface_fault(source.interface)):
            yield f"warning: {source.address} cannot be bound to interface {source.interface!r}: {fault}"


def _addresses(config: Config) -> Iterator[str]:
    """Addresses that this machine should have, and has not. A proxy sends from its own."""
    from zonemta_py.delivery.dns.reachability import is_local

    proxied = {source.address for pool in config.pools for source in pool.sources if source.proxy}
    off = {kind for kind in ("http", "pull", "links") if not getattr(config, kind).enabled}
    places: dict[str, str] = {}
    for place, address, _ in marked(config, Local):
        if place[0] not in off and (place[0] != "pools" or address not in proxied):
            places.setdefault(address, written(config, place))
    for address, where in sorted(places.items()):
        if not is_local(ipaddress.ip_address(address)):
            verb = "sent from" if "sources" in where else "received at"
            yield f"warning: {where}: this machine does not have the address {address}; nothing can be {verb} it"


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Configuration file; default: that of --config.")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Print the configuration as TOML, every key with its meaning. Passwords are hidden."""
    from zonemta_py.reference import effective

    if file:
        _check_readable(file)
    text = effective(configuration(file or config))
    print_json(tomllib.loads(text)) if json else print(text, end="")


@app.command()
def password() -> None:
    """Print a password hash for [users]; prompts twice, or reads one line from stdin."""
    from argon2 import PasswordHasher

    if sys.stdin.isatty():
        import getpass

        secret = getpass.getpass("Password: ")
        if secret != getpass.getpass("Again: "):
            raise CommandError(Exit.DATA, "the two passwords differ; try again")
    else:
        secret = _line()
    if not secret:
        raise CommandError(Exit.DATA, "an empty password protects nothing; give one")
    print(PasswordHasher().hash(secret))


def _line() -> str:
    """Read as UTF-8, which is what clients send their passwords in (RFC 4616), whatever the locale."""
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise CommandError(Exit.DATA, "the password is not UTF-8 text; no client could send it") from None


@app.command()
def secret(
    webhook: Annotated[bool, typer.Option("--webhook", help="Print one for `secret` of a webhook.")] = False,
) -> None:
    """Print a secret for return_path.secret, or for a webhook of [[event_sinks]]: 256 random bits."""
    import base64
    import secrets

    if webhook:
        print(SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode())
    else:
        print(secrets.token_urlsafe(32))


def pull_zone_doubts(config: Config) -> Iterator[str]:
    """Warnings that the file alone gives reason for."""
    zone = config.default_zone
    if zone.pulled:
        yield (
            f"warning: zone {zone.name!r} is the default and a pull zone: all mail that no rule claims, and"
            " notifications to senders too, wait there and are not sent; set default = true in an SMTP zone"
            " unless that is meant"
        )
    pulled = [zone.name for zone in config.zones if zone.pulled]
    if pulled and not config.services:
        yield (f"warning: no client can fetch the mail in {_named(pulled)}: set enabled = true in [pull], or in [http]")


def turned_to_smtp(config: Config) -> Iterator[str]:
    """Warnings about what waits in the running queue of the configured folder. Raises ConfigError."""
    try:
        rows = answer(config, questions.queues)
    except CommandError as error:
        yield f"warning: mail waiting in {config.folder} was not checked: {error}"
        return
    for row in rows:
        name, count = row["zone"], sum(row[state] for state in ("ready", "leased", "delayed", "held"))
        zone = config.zone(name)
        if zone is None or zone.pulled or not count:
            continue
        if row["pushed"]:
            yield (
                f"warning: zone {name!r} is a pull zone no longer: {row['pushed']:,} pushed messages will be in the"
                f" queue queue/{name}, where `pop {name}` takes them; they are not sent"
            )
        if count > row["pushed"]:
            yield (
                f"warning: zone {name!r} is a pull zone no longer: {count - row['pushed']:,} recipients of mail that"
                " wait there to be fetched will be sent to by SMTP"
            )


def _named(names: list[str]) -> str:
    return f"zone {names[0]!r}" if len(names) == 1 else f"the zones {', '.join(map(repr, names))}"
