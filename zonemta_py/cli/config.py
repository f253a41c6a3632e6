"""`zonemta config …`: checks a configuration, shows the one in force, makes password hashes and secrets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.errors import Exit, Stop
from zonemta_py.cli.options import ConfigFile, configuration
from zonemta_py.config import ConfigError, load

app = typer.Typer(help="Check and show the configuration.", no_args_is_help=True)


@app.command()
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration to check.")]) -> None:
    """Say whether a configuration can be used: keys, values, certificates, password hashes, plugins."""
    from zonemta_py import children

    config = load(file)
    try:
        children.check(config, children.plugins(config))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    names = ", ".join(zone.name for zone in config.zones)
    where = ", ".join(f"{listener.address}:{listener.port}" for listener in config.listeners)
    print(f"{file}: good; listens on {where}; zones: {names}; queue in {config.folder}")


@app.command()
def show(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Configuration; none: the defaults.")] = None,
    config: ConfigFile = None,
) -> None:
    """Print the configuration in force as TOML, every key with what it means. Passwords are hidden."""
    from zonemta_py.reference import effective

    print(effective(configuration(file or config)), end="")


@app.command()
def password() -> None:
    """Print the hash of a password for [users]; asks twice, or reads one line from stdin."""
    from argon2 import PasswordHasher

    if sys.stdin.isatty():
        import getpass

        secret = getpass.getpass("Password: ")
        if secret != getpass.getpass("Again: "):
            raise Stop(Exit.DATA, "the two passwords differ; try again")
    else:
        secret = _line()
    if not secret:
        raise Stop(Exit.DATA, "an empty password protects nothing; give one")
    print(PasswordHasher().hash(secret))


def _line() -> str:
    """Read as UTF-8, which is what clients send their passwords in (RFC 4616), whatever the locale."""
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise Stop(Exit.DATA, "the password is not UTF-8 text; no client could send it") from None


@app.command()
def secret() -> None:
    """Print a secret for return_path.secret: 256 bits of chance."""
    import secrets

    print(secrets.token_urlsafe(32))
