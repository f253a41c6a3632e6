"""`zonemta verp …` and `zonemta srs …`: what return paths of ours say."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from zonemta_py.cli.errors import Exit, Stop
from zonemta_py.cli.options import AsJson, ConfigFile, configuration
from zonemta_py.cli.output import print_json
from zonemta_py.config import ReturnPath
from zonemta_py.mail import srs as srs_paths
from zonemta_py.mail import verp as verp_paths

verp = typer.Typer(help="Return paths that carry message and recipient.", no_args_is_help=True)
srs = typer.Typer(help="Return paths of other domains, rewritten.", no_args_is_help=True)

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="A return path.")]
_DAY_S = 86_400


@verp.callback()
def _verp() -> None:
    """A group, though it has one command."""


@srs.callback()
def _srs() -> None:
    """A group, though it has one command."""


@verp.command("decode")
def decode_verp(address: Address, config: ConfigFile = None, json: AsJson = False) -> None:
    """Say which message to whom a return path belongs to, if it is genuine."""
    path = _settings(config)
    try:
        found = verp_paths.decode(_bare(address), path.secret, _today(), path.srs_days)
    except verp_paths.VerpRefused as refused:
        raise Stop(Exit.DATA, f"{address}: {refused}") from None
    if json:
        print_json(found._asdict())
    else:
        print(f"message {found.id} to {found.recipient}, made {found.days} days ago")


@srs.command("decode")
def decode_srs(address: Address, config: ConfigFile = None) -> None:
    """Print the address that a rewritten return path stands for, if it is genuine."""
    path = _settings(config)
    try:
        print(srs_paths.reverse(_bare(address), path.secret, _today(), path.srs_days))
    except srs_paths.SrsRefused as refused:
        raise Stop(Exit.DATA, f"{address}: {refused}") from None


def _settings(config: ConfigFile) -> ReturnPath:
    path = configuration(config).return_path
    if not path.secret:
        raise Stop(Exit.CONFIG, "return_path.secret is empty; name the MTA's configuration with --config")
    return path


def _bare(address: str) -> str:
    return address.strip().removeprefix("<").removesuffix(">")


def _today() -> int:
    return int(time.time()) // _DAY_S
