"""`api.http`: routes of plugins, which the process of HTTP serves below /v1/plugins/NAME.

A route is declared plainly: a method, a path, a function whose arguments say what it takes. `request` is an
HttpRequest, `body` the body (a pydantic model, a dict, bytes); what the path names is from the path, all others are
from the query. What its annotations say is checked before it is called, and what it returns afterwards.

How one is called: `routes.py`. Failures: ValueError for what is no route, while it is registered.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, TypeAdapter

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.verdicts import Verdict

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Caller = Literal["inject", "read", "operate", "admin", "anyone"]
METHODS: tuple[str, ...] = typing.get_args(Method)
CALLERS: tuple[str, ...] = typing.get_args(Caller)
ANYONE = "anyone"
ROUTES_MAX = 100
"""Of one plugin."""
PATH_CHARACTERS_MAX = 200
STATUSES = (400, 403, 404, 409, 413, 415, 422, 429, 503)
"""Those that an HttpError may have."""
PREFIX = "/v1/plugins/"
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z_][a-z0-9_]*\}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FRAMING = frozenset(("connection", "content-length", "content-type", "transfer-encoding", "upgrade", "keep-alive"))
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""Of a plugin that may have routes."""


class HttpError(Verdict):
    """Refuses a request. status: 400, 403, 404, 409, 413, 415, 422, 429 or 503. detail: one sentence for the client,
    which says what to do. retry_s: of 429 and 503, when to try again."""

    def __init__(self, status: int, detail: str, retry_s: int = 0) -> None:
        if status not in STATUSES:
            raise ValueError(f"HttpError needs one of {', '.join(map(str, STATUSES))}, not {status!r}")
        if not isinstance(detail, str) or not detail:
            raise ValueError(f"HttpError needs a sentence, not {detail!r}")
        super().__init__(Reply(451 if status in (429, 503) else 554, "", detail[:500]))
        self.status, self.detail, self.retry_s = status, detail[:2000], retry_s


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a route. method: in capital letters. path: below /v1/plugins/NAME. headers: with lower-case names,
    of several fields of a name the first one; without the key. client: the address that it comes from.

    key: the name of the key, "" where nobody's is asked for and none came. role: the key's; "": it has none. tenants,
    campaigns: the key's scope; none of a kind: all of them. id: names the request in the log.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    client: str
    key: str = ""
    role: str = ""
    tenants: frozenset[str] = frozenset()
    campaigns: frozenset[str] = frozenset()
    id: str = ""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a function returns that answers with something else than JSON and 200.

    content: text is sent in UTF-8. type: its Content-Type. status: 200 to 399. headers: further ones.
    """

    content: bytes | str = b""
    type: str = "application/octet-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.content, bytes | str):
            raise ValueError(f"the content of an HttpAnswer is bytes or text, not {type(self.content).__name__}")
        if not (isinstance(self.status, int) and 200 <= self.status <= 399):
            raise ValueError(f"the status of an HttpAnswer is from 200 to 399, not {self.status!r}; raise an HttpError")
        for name, value in {"Content-Type": self.type, **self.headers}.items():
            if not (isinstance(name, str) and _TOKEN.fullmatch(name) and isinstance(value, str) and _is_line(value)):
                raise ValueError(f"{name!r}: {value!r} is not a header field of an HttpAnswer")
        if wrong := {one.lower() for one in self.headers} & _FRAMING:
            raise ValueError(f"an HttpAnswer cannot set the header field {min(wrong)!r}")


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable()


class QueryParameter(NamedTuple):
    """many: it may be repeated. required: there is no default."""

    adapter: TypeAdapter[Any]
    many: bool
    required: bool
    default: Any


class HttpRoute:
    """As it was registered. in_path, query: what the function takes of both. body: what it is; None: there is none.

    returns: what it declares to return; None: it does not say.
    """

    def __init__(
        self, method: str, path: str, function: Callable[..., Any], role: str, summary: str, scoped: bool
    ) -> None:  # fmt: skip
        """Raises ValueError."""
        if method not in METHODS:
            raise ValueError(f"{method!r} is not a method of a route; there are {', '.join(METHODS)}")
        if role not in CALLERS:
            raise ValueError(f"{role!r} is not who may call a route; there are {', '.join(CALLERS)}")
        if not (isinstance(summary, str) and summary.isprintable() and len(summary) <= 200):
            raise ValueError(f"the summary of {method} {path} must be a line of up to 200 characters")
        self.method, self.path, self.role = method, path, role
        self.summary, self.scoped, self.function = summary, scoped, function
        self._placeholders = _placeholders(path)
        parts = (f"(?P<{part[1:-1]}>[^/]+)" if part[:1] == "{" else re.escape(part) for part in path.split("/"))
        self._pattern = re.compile("" if path == "/" else "/".join(parts))
        if not inspect.iscoroutinefunction(function):
            raise ValueError(f"the function of {self} must be an async def")
        self.in_path = dict[str, TypeAdapter[Any]]()
        self.query = dict[str, QueryParameter]()
        self.body: Any = None
        self.takes_request = False
        self._take(function)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def shape(self) -> tuple[str, str]:
        """The same for routes that mean the same requests."""
        return self.method, re.sub(r"\{\w+\}", "{}", self.path)

    @property
    def says(self) -> str:
        return inspect.getdoc(self.function) or ""

    def matches(self, path: str) -> dict[str, str] | None:
        """What the path has in the places of this one's; None: it is another. path: what follows the plugin's name."""
        found = self._pattern.fullmatch(path)
        return found.groupdict() if found else None

    def _take(self, function: Callable[..., Any]) -> None:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            raise ValueError(f"the annotations of the function of {self} cannot be read: {error}") from None
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ValueError(f"the function of {self} takes {name!r} by position; arguments are passed by name")
            hint = hints.get(name, str)
            if name == "request":
                self.takes_request = True
            elif name == "body":
                self.body = self._body(hints.get(name))
            elif name in self._placeholders:
                self.in_path[name] = self._adapter(name, hint)
            else:
                empty = parameter.default is parameter.empty
                kinds = {typing.get_origin(one) or one for one in (hint, *typing.get_args(hint))}
                many = not kinds.isdisjoint((list, set, frozenset, tuple))
                self.query[name] = QueryParameter(self._adapter(name, hint), many, empty, parameter.default)
        if missing := [one for one in self._placeholders if one not in self.in_path]:
            raise ValueError(f"the function of {self} does not take {missing[0]!r}, which is in its path")
        returned = hints.get("return", Any)
        self.returns = None if returned in (Any, HttpAnswer, type(None)) else self._adapter("return", returned)

    def _body(self, hint: Any) -> Any:
        if self.method in ("GET", "DELETE"):
            raise ValueError(f"{self} has no body; take what it needs from the query")
        if hint in (bytes, dict) or typing.get_origin(hint) is dict:
            return bytes if hint is bytes else dict
        if inspect.isclass(hint) and issubclass(hint, BaseModel):
            self._adapter("body", hint)
            return hint
        raise ValueError(f"the body of {self} must be annotated as a pydantic model, dict or bytes")

    def _adapter(self, name: str, hint: Any) -> TypeAdapter[Any]:
        try:
            adapter = TypeAdapter[Any](hint)
            adapter.json_schema(mode="serialization" if name == "return" else "validation")
        except Exception as error:
            said = str(error).splitlines()[0][:200]
            raise ValueError(f"the annotation of {name!r} of the function of {self} is of no use: {said}") from None
        return adapter


def _placeholders(path: str) -> list[str]:
    """Raises ValueError."""
    segments = path.split("/")[1:] if isinstance(path, str) and path[:1] == "/" else []
    good = all(_SEGMENT.fullmatch(part) and part not in (".", "..") for part in segments) or path == "/"
    if not segments or not good or len(path) > PATH_CHARACTERS_MAX:
        raise ValueError(f"{path!r} is not the path of a route; write it as /lists or /lists/{{name}}")
    found = [part[1:-1] for part in segments if part[:1] == "{"]
    if len(set(found)) < len(found):
        raise ValueError(f"the path {path!r} has a name twice")
    if taken := {"request", "body"} & set(found):
        raise ValueError(f"the path {path!r} cannot have {{{min(taken)}}}, which is an argument of its own")
    return found
