"""What a plugin may register, and ask for: commands, counters, its own log; tasks and locks of its processes."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from zonemta_py.config import NAME
from zonemta_py.mail.envelope import Recipient
from zonemta_py.plugin.arguments import StoredMessage
from zonemta_py.plugin.injection import Content, Inject, injection
from zonemta_py.plugin.store import Ask, SharedStore

log = logging.getLogger("zonemta.plugin")
"""For log lines of the host, and for plugins without a `setup`."""

TASKS_MAX = 50
"""Background tasks of one plugin in a process."""
NAME_MAX = 100
_FIELD_NAME = re.compile(r"[!-9;-~]+")
LABELS_MAX = 200
"""Different labels that one plugin may count by."""


class Life(Protocol):
    """What a process has for its plugins (`plugin.life`)."""

    def add(self, api: PluginApi, name: str, function: Callable[[], Any], once: bool) -> None: ...
    def one_process(self, api: PluginApi, name: str) -> AbstractAsyncContextManager[None]: ...


class PluginApi:
    """Handed to `setup(api, options)`; a plugin keeps it to count and log later. `setup` runs once, before the
    processes are forked: threads and connections are for the hook that first needs them.

    name: the plugin's name. zones: names of the configured zones, empty where they are not known. log: a logger of its
    own. store: values and counters that all processes share; from `start` on. commands, counters, headers: what was
    registered so far. timeout_s: after which a call of a hook is cut off; what a plugin waits for itself has to end
    before. file: where its code is.
    """

    def __init__(self, name: str, zones: Iterable[str] = (), timeout_s: float = 5, file: str = "") -> None:
        self.name, self.file = name, file
        self.timeout_s = timeout_s
        self.store = SharedStore(name, self._asked)
        """Values and counters that all processes share; from `start` on."""
        self.ask: Ask | None = None
        self.injects: Inject | None = None
        self.life: Life | None = None
        """Of this process, once that runs."""
        self._from_setup: dict[str, tuple[Callable[[], Any], bool]] = {}
        self._wanted: dict[str, tuple[Callable[[], Any], bool]] | None = None
        self._has_begun = False
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

    async def inject(
        self, message: Content, recipients: Iterable[str | Recipient], sender: str = "", key: str = "", *,
        zone: str = "", campaign: str = "", tenant: str = "", account: str = "", priority: int | None = None,
        hold_until: float | datetime | None = None, notes: dict[str, Any] | None = None,
    ) -> StoredMessage:  # fmt: skip
        """Hands in mail; returns once it is on stable storage. Limits and hooks are those of a listener (all `message_`
        hooks but this plugin's own); its fields X-Sending-Zone and the like say nothing.

        message: bytes, text, an EmailMessage or an async iterator of bytes, with its header section. recipients:
        addresses, or Recipients with notes of their own. sender: the return path, "" for none. key: whoever hands in
        with the same key again gets the first answer (`repeated`), and nothing is stored twice. zone: "" as routing has
        it. campaign, tenant, account, priority: as a client may say. hold_until: UNIX seconds or a datetime.

        Possible in each process, from `start` on. Raises InjectionRefused with the reply that a client would get, and
        ValueError or TypeError for what can never be right.
        """
        wanted = injection(
            self.name, message, recipients, sender, key, zone=zone, campaign=campaign, tenant=tenant, account=account,
            priority=priority, hold_until=hold_until, notes=notes,
        )  # fmt: skip
        if self.injects is None:
            raise RuntimeError("there is no queue to hand in to; use api.inject in a process of the server")
        return await self.injects(wanted)

    async def _asked(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        if self.ask is None:
            raise RuntimeError("there is no queue to ask; use api.store in a process of the server, from `start` on")
        return await self.ask(what, plugin, name, token, arguments)

    # -- life

    def task(self, name: str, function: Callable[[], Any], once: bool = False) -> None:
        """Runs `async def function()` in the background of each process, from the end of `start` on: begun again when
        it fails, after a pause that grows to a minute; ended at a reload and when the process ends. It has done its
        work when it returns.

        once: in one process of the MTA on this machine at a time, as `once`. Called in `setup`, in `start` or later.
        Raises ValueError for a name that runs already, and for a function that is not `async def`.
        """
        _check_name("task", name)
        if not inspect.iscoroutinefunction(function):
            raise ValueError(f"task {name!r} must be an async def without arguments")
        wanted = self._from_setup if self._wanted is None else self._wanted
        if self._has_begun and self.life is not None:
            self.life.add(self, name, function, once)
            return
        if name in wanted:
            raise ValueError(f"task {name!r} runs already; give each task its own name")
        if len(wanted) >= TASKS_MAX:
            raise ValueError(f"a plugin may have {TASKS_MAX} tasks")
        wanted[name] = (function, once)

    def once(self, name: str) -> AbstractAsyncContextManager[None]:
        """`async with api.once("poll"):` waits until no other process of this MTA on this machine is inside. When a
        process ends, however, another one is let in within a second. Each node of a cluster has one of its own.

        Raises ValueError, and RuntimeError in `setup`, when there are no processes yet.
        """
        _check_name("lock", name)
        if self.life is None:
            raise RuntimeError("there are no processes yet; use api.once from `start` on")
        return self.life.one_process(self, name)

    def begins(self) -> None:
        """`start` is about to be called: what it asked for before it failed is forgotten."""
        self._wanted, self._has_begun = dict(self._from_setup), False

    def begun(self) -> dict[str, tuple[Callable[[], Any], bool]]:
        """The tasks that it wants by now; others begin at once from now on."""
        self._has_begun = True
        return dict(self._from_setup if self._wanted is None else self._wanted)


def _check_name(what: str, name: str) -> None:
    if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= NAME_MAX):
        raise ValueError(f"{name!r} is not the name of a {what}; give it a text of up to {NAME_MAX} letters")
