"""The names that Postfix has for its queues, and what they are here: states of recipients."""

from __future__ import annotations

from collections.abc import Iterable

from zonemta_py.cli.terminal.errors import CommandError, Exit

STATES = {"incoming": "queued", "active": "leased", "deferred": "deferred", "hold": "held"}
_OWN = {state: state for state in STATES.values()}
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
    known = STATES | _OWN
    found = list[str]()
    for name in names:
        if name not in known:
            instead = f"; {_NONE_HERE[name]}" if name in _NONE_HERE else f"; name some of {', '.join(STATES)}, or none"
            raise CommandError(Exit.USAGE, f"{program}: there is no queue {name!a} here{instead}")
        found.append(known[name])
    return list(dict.fromkeys(found))
