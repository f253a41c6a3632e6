"""Commands that are called as those of other MTAs are, by programs and out of habit: which configuration they have, and
how they read their arguments.

Who calls sendmail or mailq says nothing of a configuration. So without one, and without ZONEMTA_CONFIG, it is FILES[0],
of which only listeners matter and which everybody may read, else FILES[1], if the user may.
"""

from __future__ import annotations

import getopt
import os
from collections.abc import Iterable, Sequence
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


STATES = {"incoming": "queued", "active": "leased", "deferred": "deferred", "hold": "held"}
_OWN_STATES = {state: state for state in STATES.values()}
_NONE_HERE = {
    "maildrop": "submitted mail is in the queue when sendmail exits",
    "corrupt": "damaged mail is in quarantine/ of the queue's folder (`zonemta standing`)",
    "bounce": "`zonemta log` and `zonemta trace ADDRESS` have every answer; what has bounced and is kept is shown by"
    " `zonemta queue list --state bounced`",
    "flush": "`zonemta queue flush --domain DOMAIN` tries mail to a domain now",
}
_NONE_HERE |= {"defer": _NONE_HERE["bounce"], "trace": _NONE_HERE["bounce"], "saved": _NONE_HERE["corrupt"]}
_NONE_HERE |= {"bounced": _NONE_HERE["bounce"]}


def states_of(names: Iterable[str], program: str = "qshape") -> list[str]:
    """The states, each once; in the words of either. Raises CommandError for a queue that is not there."""
    known = STATES | _OWN_STATES
    found = list[str]()
    for name in names:
        if name not in known:
            instead = f"; {_NONE_HERE[name]}" if name in _NONE_HERE else f"; name some of {', '.join(STATES)}, or none"
            raise CommandError(Exit.USAGE, f"{program}: there is no queue {name!a} here{instead}")
        found.append(known[name])
    return list(dict.fromkeys(found))
