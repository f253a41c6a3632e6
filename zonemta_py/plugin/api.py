"""What a plugin may register in `setup`: commands, counters, its own log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from zonemta_py.config import NAME

log = logging.getLogger("zonemta.plugin")
"""For log lines of the host, and for plugins without a `setup`."""

_FIELD_NAME = re.compile(r"[!-9;-~]+")
LABELS_MAX = 200
"""Different labels that one plugin may count by."""


class PluginApi:
    """Handed to `setup(api, options)`; a plugin keeps it to count and log later. `setup` runs once, before the
    processes are forked: threads and connections are for the hook that first needs them.

    name: the plugin's name. zones: names of the configured zones, empty where they are not known.
    log: a logger of its own. commands, counters, headers: what was registered so far. timeout_s: after which a call
    of a hook is cut off; what a plugin waits for itself has to end before.
    """

    def __init__(self, name: str, zones: Iterable[str] = (), timeout_s: float = 5) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.zones = frozenset(zones)
        self.log = log.getChild(name)
        self.commands: dict[str, Callable[..., Any]] = {}
        self.counters: dict[str, float] = {}
        self.labelled: dict[tuple[str, str], float] = {}
        self.headers: set[str] = set()

    def command(self, name: str, function: Callable[..., Any]) -> None:
        """Adds `zonemta NAME`: a plain function whose parameters become arguments and options, as in typer.

        Raises ValueError if the name is not a command name, or already taken by this plugin.
        """
        if not re.fullmatch(NAME, name):
            raise ValueError(f"{name!r} is not a command name; use lower-case letters, digits and dashes")
        if name in self.commands:
            raise ValueError(f"command {name!r} is registered twice; give each command its own name")
        self.commands[name] = function

    def keep_headers(self, *names: str) -> None:
        """Keeps these header fields with the envelope (`envelope.headers`: lower-case name → the first field's value,
        decoded, 200 characters at most), where queue_route and later hooks find them. Without it there are subject,
        from, to, message-id, date, list-id, feedback-id, and those that rules of zones name.

        Raises ValueError for what is not the name of a header field.
        """
        for name in names:
            if not _FIELD_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a header field such as List-Id")
            self.headers.add(name.lower())

    def count(self, name: str, n: float = 1, label: str = "") -> None:
        """Adds n to a counter of this process, which begins at 0 with it: each receiver, each sender and the queue
        count separately. `counters` returns them; metrics have the sum of all processes, by label.

        label: a part of the counter, such as a verdict; after LABELS_MAX different ones, "other".
        """
        self.counters[name] = self.counters.get(name, 0) + n
        key = (name, label)
        if key not in self.labelled and len(self.labelled) >= LABELS_MAX:
            key = (name, "other")
        self.labelled[key] = self.labelled.get(key, 0) + n
