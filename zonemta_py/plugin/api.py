"""What a plugin may register, and ask for: commands, numbers, its own log; tasks and locks of its processes."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from zonemta_py.config import NAME
from zonemta_py.mail.envelope import Recipient
from zonemta_py.plugin.admin import AskAdmin, PluginAdmin
from zonemta_py.plugin.arguments import StoredMessage
from zonemta_py.plugin.http import NAME as ROUTED_NAME
from zonemta_py.plugin.http import ROUTES_MAX, Caller, HttpRoute, Method
from zonemta_py.plugin.injection import Content, Inject, injection
from zonemta_py.plugin.numbers import SECONDS, Numbers, check_name
from zonemta_py.plugin.store import Ask, SharedStore
from zonemta_py.queue.questions.question import Question

log = logging.getLogger("zonemta.plugin")
"""For log lines of the host, and for plugins without a `setup`."""

TASKS_MAX = 50
"""Background tasks of one plugin in a process."""
COMMANDS = frozenset((
    "accounts", "address", "api-key", "backup", "campaign", "cluster", "completion", "config", "dkim", "doctor",
    "domain", "drain", "events", "explain", "feedback", "forget", "fsck", "help", "init", "journal", "lake", "lanes",
    "lift", "log", "mailq", "plugin", "postqueue", "postsuper", "qshape", "queue", "reload", "report", "reroute",
    "resume", "ring", "route", "rules", "run", "send", "sendmail", "sink", "srs", "standing", "status", "stop",
    "summary", "suppression", "suspend", "task", "tls", "top", "trace", "verp", "warmup", "whatif",
))  # fmt: skip
"""Of zonemta itself, which no plugin may take."""
_FIELD_NAME = re.compile(r"[!-9;-~]+")


class Life(Protocol):
    """What a process has for its plugins (`plugin.life`)."""

    def add(self, api: PluginApi, name: str, function: Callable[[], Any], once: bool) -> None: ...
    def one_process(self, api: PluginApi, name: str) -> AbstractAsyncContextManager[None]: ...


class PluginApi:
    """Handed to `setup(api, options)`; a plugin keeps it to count and log later. `setup` runs once, before the
    processes are forked: threads and connections are for the hook that first needs them.

    name: the plugin's name. zones: names of the configured zones, empty where they are not known. log: a logger of its
    own. store: values and counters that all processes share; from `start` on. admin: questions and orders of operators;
    from `start` on, and in commands. commands, headers: what was registered so
    far. timeout_s: after which a call of a hook is cut off; what a plugin waits for itself has to end
    before. file: where its code is.
    """

    def __init__(self, name: str, zones: Iterable[str] = (), timeout_s: float = 5, file: str = "") -> None:
        self.name, self.file = name, file
        self.log = log.getChild(name)
        self.timeout_s = timeout_s
        self.store = SharedStore(name, self._asked)
        """Values and counters that all processes share; from `start` on."""
        self.admin = PluginAdmin(name, self.log, self._asked_admin)
        """Questions and orders of operators; from `start` on, and in commands."""
        self.ask: Ask | None = None
        self.injects: Inject | None = None
        self.ask_admin: AskAdmin | None = None
        self.life: Life | None = None
        """Of this process, once that runs."""
        self._from_setup: dict[str, tuple[Callable[[], Any], bool]] = {}
        self._wanted: dict[str, tuple[Callable[[], Any], bool]] | None = None
        self._has_begun = False
        self.zones = frozenset(zones)
        self.commands: dict[str, Callable[..., Any]] = {}
        self.numbers = Numbers(self.log)
        self.headers: set[str] = set()
        self.routes: list[HttpRoute] = []
        self.is_set_up = False
        """Nothing more can be registered."""
        self._is_made = True

    _is_made = False

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_made:
            raise AttributeError(f"api.{name} is only read; keep what is your own in the plugin's module")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"api.{name} is only read")

    def provide(self, **values: Any) -> None:
        """What its process has for it; for the host alone."""
        self.__dict__.update(values)

    def command(self, name: str, function: Callable[..., Any]) -> None:
        """Adds `zonemta NAME`, in `setup`: a function, `def` or `async def`, whose parameters become arguments and
        options, as in typer, beside `--config`. It may use `admin` and `store` while the server runs.

        Raises ValueError if the name is not a command name, or already taken, by zonemta or this plugin; RuntimeError
        after `setup`.
        """
        self._check_setup("command")
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise ValueError(f"{name!r} is not a command name; use lower-case letters, digits and dashes")
        if name in COMMANDS:
            raise ValueError(f"command {name!r} is one of zonemta's own; give it another name")
        if name in self.commands:
            raise ValueError(f"command {name!r} is registered twice; give each command its own name")
        if not callable(function):
            raise ValueError(f"command {name!r} needs a function, not {type(function).__name__}")
        for one in inspect.signature(function).parameters.values():
            if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                raise ValueError(f"command {name!r} takes {one.name!r} by position; give each parameter a name")
        self.commands[name] = function

    def http(
        self, method: Method, path: str, function: Callable[..., Any], *, role: Caller, summary: str = "",
        scoped: bool = False,
    ) -> None:  # fmt: skip
        """Adds `METHOD /v1/plugins/NAME` + path to the HTTP interface, in `setup`. path: "/lists/{name}", or "/".

        function: `async def`; of its arguments `request` is an HttpRequest, `body` the body (annotated as a pydantic
        model, dict or bytes), what the path names is from the path, and all others are of the query; what annotations
        say is checked before it is called. What it returns is sent as JSON, None as 204, an HttpAnswer as it is;
        HttpError refuses. It runs in the process of HTTP, within the time limit of a hook.
        role: of the key that a caller needs: "inject", "read", "operate", "admin"; "anyone": no key. scoped: keys
        with a scope (tenants, campaigns) may call it, too; the function sees to it that they see only theirs.
        Raises ValueError for what is no route, or one that is registered already; RuntimeError after `setup`.
        """
        self._check_setup("route")
        if not ROUTED_NAME.fullmatch(self.name):
            raise ValueError(f"a plugin named {self.name!r} can have no routes; use letters, digits and underscores")
        route = HttpRoute(method, path, function, role, summary, scoped)
        if any(one.shape == route.shape for one in self.routes):
            raise ValueError(f"the route {route} is registered twice; there can be one function")
        if len(self.routes) >= ROUTES_MAX:
            raise ValueError(f"a plugin may have {ROUTES_MAX} routes")
        self.routes.append(route)

    def _check_setup(self, what: str) -> None:
        if self.is_set_up:
            raise RuntimeError(f"a {what} is registered in `setup`; the server has read them by now")

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
        count separately. Metrics have the sum of all processes, by label.

        label: a part of the counter, such as a verdict; after 200 different names and labels, "other".
        Raises ValueError for what is no name, or no number from 0 up.
        """
        self.numbers.count(name, n, label)

    def gauge(self, name: str, value: float | None, label: str = "") -> None:
        """What is measured in this process now: a size, an age, how many there are. Metrics have it of each process,
        with that as a label, until it ends, or a reload has given it a successor. None: it is measured no more.

        Beyond 200 different names and labels nothing is measured. Raises ValueError for what is no name, or no number.
        """
        self.numbers.measure(name, value, label)

    def observe(self, name: str, value: float, label: str = "", buckets: Sequence[float] = SECONDS) -> None:
        """Adds a value to a histogram: how long something took (the buckets are for seconds), how large it was. Metrics
        have the sum of all processes.

        buckets: their upper ends, growing, 30 at most; a histogram has the same ones each time. label: as of `count`.
        Raises ValueError for what is no name, no number from 0 up, or no buckets.
        """
        self.numbers.observe(name, value, label, buckets)

    async def inject(
        self, message: Content, recipients: Iterable[str | Recipient], sender: str = "", key: str = "", *,
        zone: str = "", campaign: str = "", tenant: str = "", account: str = "", priority: int | None = None,
        hold_until: float | datetime | None = None, notes: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
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
            priority=priority, hold_until=hold_until, notes=notes, metadata=metadata,
        )  # fmt: skip
        if self.injects is None:
            raise RuntimeError("there is no queue to hand in to; use api.inject in a process of the server")
        return await self.injects(wanted)

    async def _asked(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        if self.ask is None:
            raise RuntimeError("there is no queue to ask; use api.store in a process of the server, from `start` on")
        return await self.ask(what, plugin, name, token, arguments)

    async def _asked_admin(self, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        if self.ask_admin is None:
            raise RuntimeError("there is no queue to ask; use api.admin in a process of the server, from `start` on")
        return await self.ask_admin(question, arguments)

    # -- life

    def task(self, name: str, function: Callable[[], Any], once: bool = False) -> None:
        """Runs `async def function()` in the background of each process, from the end of `start` on: begun again when
        it fails, after a pause that grows to a minute; ended at a reload and when the process ends. It has done its
        work when it returns.

        once: in one process of the MTA on this machine at a time, as `once`. Called in `setup`, in `start` or later.
        Raises ValueError for a name that runs already, and for a function that is not `async def`.
        """
        check_name("task", name)
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
        check_name("lock", name)
        if self.life is None:
            raise RuntimeError("there are no processes yet; use api.once from `start` on")
        return self.life.one_process(self, name)

    def begins(self) -> None:
        """`start` is about to be called: what it asked for before it failed is forgotten."""
        self.provide(_wanted=dict(self._from_setup), _has_begun=False)

    def begun(self) -> dict[str, tuple[Callable[[], Any], bool]]:
        """The tasks that it wants by now; others begin at once from now on."""
        self.provide(_has_begun=True)
        return dict(self._from_setup if self._wanted is None else self._wanted)
