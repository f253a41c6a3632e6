"""The configuration of an MTA whose file has mistakes just now: what runs is looked at, ordered and left for an earlier
configuration all the same.

Commands that try, check or show the file itself do not use this.
"""

from __future__ import annotations

import sys
from pathlib import Path

from zonemta_py.cli.terminal.options import configuration
from zonemta_py.cli.terminal.output import printable
from zonemta_py.config import Config, ConfigError, usual_file
from zonemta_py.config.file import folder_of, of_text
from zonemta_py.queue.reload import history


def in_force(file: Path | None, folder: Path | None = None) -> Config:
    """As `configuration`; of a file with mistakes that which the MTA in its folder was last given, and stderr says so.
    Raises ConfigError if there is none."""
    try:
        return configuration(file, folder)
    except ConfigError:
        chosen = file or usual_file()
        there = folder or (folder_of(chosen) if chosen else None)
        config = _last(there) if there else None
        if config is None or there is None:
            raise
    sentence = f"{chosen}: has errors, which `zonemta config check` lists; this uses the running configuration"
    print(f"zonemta: {printable(sentence)}", file=sys.stderr)
    return config.model_copy(update={"server": config.server.model_copy(update={"folder": there})})


def _last(folder: Path) -> Config | None:
    try:
        source = history.newest(folder)
        return of_text(Path(source.path), source.text) if source.path else None
    except (ConfigError, OSError):
        return None
