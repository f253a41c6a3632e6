"""Options that several commands share, and the configuration they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.config import Config, load

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", envvar="ZONEMTA_CONFIG", help="Configuration; none: the defaults."),
]
Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="Where the queue lives, in place of server.folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def configuration(file: Path | None, folder: Path | None = None) -> Config:
    """Raises ConfigError."""
    config = load(file)
    if folder is None:
        return config
    return config.model_copy(update={"server": config.server.model_copy(update={"folder": folder})})
