"""Commands that are called as those of other MTAs are, by programs and out of habit: which configuration they have, and
how they read their arguments.

Who calls sendmail or mailq says nothing of a configuration. So without one, and without ZONEMTA_CONFIG, it is FILES[0],
of which only listeners matter and which everybody may read, else FILES[1], if the user may.
"""

from __future__ import annotations

import getopt
import os
from collections.abc import Sequence
from pathlib import Path

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.config import USUAL_FILE, Config, load

FILES = (Path("/etc/zonemta/sendmail.toml"), USUAL_FILE)


def configuration_of(file: str | Path | None) -> Config:
    """Raises ConfigError."""
    named = file or os.environ.get("ZONEMTA_CONFIG")
    if named:
        return load(Path(named))
    return load(next((path for path in FILES if os.access(path, os.R_OK)), None))


def parsed(program: str, arguments: Sequence[str], flags: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Flags by letter with their values, "" for those that stand alone; what follows them. Raises CommandError."""
    try:
        found, rest = getopt.gnu_getopt(list(arguments), flags)
    except getopt.GetoptError as error:
        raise CommandError(Exit.USAGE, f"{program}: {error}; see `zonemta {program} --help`") from None
    return [(name[1:], value) for name, value in found], rest
