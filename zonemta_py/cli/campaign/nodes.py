"""Which nodes a campaign command talks to, and with which key: those named, else the MTA of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import configuration

if TYPE_CHECKING:
    from zonemta_py.pipeline.nodes.client import NodeAccess

KEY_VARIABLE = "ZONEMTA_API_KEY"
TOKEN = "http.token"
Nodes = Annotated[
    str,
    typer.Option(
        "--nodes", metavar="URL,…", envvar="ZONEMTA_NODES", help="URLs of the nodes; default: this machine's."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file", metavar="FILE", help=f"File with the nodes' API key; default: the key in {KEY_VARIABLE}."
    ),
]
Ca = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="CA certificates for verifying the nodes.")]
Patience = Annotated[
    float,
    typer.Option("--patience", metavar="S", min=1, help="Seconds to wait for an unreachable or busy node."),
]


def target(
    nodes: str, key_file: Path | None, config: Path | None, folder: Path | None, patience_s: float = 600,
    ca: Path | None = None,
) -> NodeAccess:  # fmt: skip
    """Raises CommandError, ConfigError."""
    from zonemta_py.pipeline.nodes.client import NodeAccess

    if nodes:
        urls, key, file = tuple(url.strip() for url in nodes.split(",") if url.strip()), named_key(key_file), key_file
    else:
        urls, key, file = local_door(config, folder)
    try:
        return NodeAccess(urls, key, patience_s, key_file=str(file or ""), verify=str(ca) if ca else True)
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"--nodes: {error}") from None


def named_key(key_file: Path | None) -> str:
    """Raises CommandError."""
    key = key_file.read_text("utf-8").strip() if key_file else os.environ.get(KEY_VARIABLE, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise CommandError(
            Exit.USAGE, f"there is no API key for the nodes; put one in {KEY_VARIABLE} or a file for --key-file "
            "(`zonemta api-key new NAME` on the node makes one)",
        )  # fmt: skip
    return key


def local_door(config: Path | None, folder: Path | None) -> tuple[tuple[str, ...], str, Path]:
    """URL, key and token file of this machine's HTTP listener. Raises CommandError, ConfigError."""
    settings = configuration(config, folder)
    if not settings.http.enabled:
        raise CommandError(
            Exit.CONFIG, "the HTTP listener is not enabled; set enabled = true under [http] in the configuration and "
            "restart it, or name other nodes with --nodes",
        )  # fmt: skip
    try:
        file = settings.folder / TOKEN
        key = file.read_text("utf-8").strip()
    except FileNotFoundError:
        raise CommandError(
            Exit.UNAVAILABLE, f"no MTA with an HTTP listener runs in {settings.folder}; start it with `zonemta run`"
        ) from None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.http.address, settings.http.address)
    scheme = "https" if settings.http.certificate else "http"
    return (f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.http.port}",), key, file.absolute()
