"""`zonemta postqueue` and `zonemta postsuper`: for hands and scripts that know Postfix. Orders are tasks, as those of
`zonemta queue`, and can be undone; nothing is asked before.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.run.running import me
from zonemta_py.cli.send.compatibility import configuration_of, parsed, states_of
from zonemta_py.cli.send.mailq import print_objects, print_queue
from zonemta_py.cli.tasks import follow
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.filters import message_ids
from zonemta_py.config import Config
from zonemta_py.queue import questions

_VERBS = {"d": "delete", "h": "hold", "H": "release", "r": "requeue"}
_NOTHING = "psS"
"""Repairs of Postfix's own folders."""


def postqueue(context: typer.Context) -> None:
    """Postfix-compatible queue listing and flushing.

    -p: list the queue, as `zonemta mailq`. -j: the same as JSON. -f: retry all deferred mail now. -i ID: retry that
    message now. -s DOMAIN: retry mail for that domain now. -c FILE: configuration file.
    """
    flags, rest = parsed("postqueue", context.args, "c:fi:jps:v")
    config = configuration_of(dict(flags).get("c"))
    wanted = [(letter, value) for letter, value in flags if letter not in "cv"]
    if rest or len(wanted) != 1:
        raise CommandError(Exit.USAGE, "postqueue: say one of -p, -j, -f, -i ID and -s DOMAIN, and nothing else")
    ((letter, value),) = wanted
    if letter == "p":
        print_queue(config)
    elif letter == "j":
        print_objects(config)
    else:
        ids = message_ids([value]) if letter == "i" else []
        meant: dict[str, dict[str, Any]] = {"f": {"all": True}, "i": {"id": ids}, "s": {"domain": [value.strip("[]")]}}
        _order(config, "flush", meant[letter])


def postsuper(context: typer.Context) -> None:
    """Postfix-compatible queue maintenance, by message id, for ALL, or for ids read from stdin (-).

    -d ID: delete. -h ID: hold. -H ID: release from hold. -r ID: requeue. ALL may be followed by queue names: hold,
    incoming, active, deferred. -p, -s, -S have no effect here. -c FILE: configuration file.
    """
    flags, rest = parsed("postsuper", context.args, "c:d:h:H:pr:sSv")
    states = states_of(rest, "postsuper")
    orders = [(letter, value) for letter, value in flags if letter in _VERBS]
    if not orders and not any(letter in _NOTHING for letter, _ in flags):
        raise CommandError(Exit.USAGE, "postsuper: say what is to be done: -d, -h, -H or -r, each with an id, ALL or -")
    config = configuration_of(dict(flags).get("c"))
    named: dict[str, list[str]] = {}
    for letter, value in orders:
        if value == "ALL":
            _order(config, _VERBS[letter], {"state": states} if states else {"all": True})
        else:
            named.setdefault(letter, []).extend(sys.stdin.read().split() if value == "-" else [value])
    for letter, ids in named.items():
        if ids:
            _order(config, _VERBS[letter], {"id": message_ids([one.rstrip("*!") for one in ids])})


def _order(config: Config, verb: str, where: dict[str, Any]) -> None:
    row = answer(config, questions.task, verb=verb, where=where, set={}, by=me(), cause="as for Postfix")
    follow.tell(follow.to_the_end(config, row), json=False)
