"""How a route of a plugin is found and called (`http.py` declares them).

Failures: a call raises HttpError, which is its answer; PluginFailed for whatever else it does; RouteSkipped while it is
left out. NoSuchRoute: there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

from pydantic import TypeAdapter, ValidationError

from zonemta_py.plugin.admin import acting
from zonemta_py.plugin.calls import Call, Misbehaved, limited
from zonemta_py.plugin.http import ANYONE, PREFIX, HttpAnswer, HttpError, HttpRequest, HttpRoute
from zonemta_py.plugin.spec import Hook
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.queue.poison import UNDER_WAY, Subject

_ANYTHING = TypeAdapter[Any](Any)


class RouteSkipped(PluginFailed):
    """It is left out for a time."""


class RouteCall(Call):
    """A plugin's function for one route."""

    __slots__ = ("route",)

    def __init__(self, plugin: str, file: str, route: HttpRoute, limit_s: float) -> None:
        hook = Hook(f"http {route}", (), frozenset(), "any", (HttpError,), "raise", True, False)
        super().__init__(plugin, file, hook, route.function, limit_s)
        self.route = route

    async def answer(self, arguments: dict[str, Any], request: HttpRequest) -> HttpAnswer:
        """One whole call. arguments: all but the request."""
        if self.route.takes_request:
            arguments["request"] = request
        token = acting.set(f"key {request.key}" if request.key else "")
        started = perf_counter()
        try:
            found = await self._called(arguments, Subject(f"{request.method} {request.path}"))
        except BaseException as error:
            self.fail(error, perf_counter() - started)
        finally:
            acting.reset(token)
        self.measure(perf_counter() - started)
        return found

    async def _called(self, arguments: dict[str, Any], subject: Subject) -> HttpAnswer:
        if self.out_until and self.suppressed_by():
            raise RouteSkipped(self.plugin, self.hook.name, f"is skipped because it {self.why_out}")
        UNDER_WAY.look()
        if UNDER_WAY.deadly(self.plugin, self.hook.name, subject.about):
            problem = f"has ended its process twice at this ({subject.about})"
            raise PluginFailed(self.plugin, self.hook.name, problem, named=True)
        return content(self.route, await limited(self.function(**arguments), self, subject))


class NoSuchRoute(LookupError):
    """others: methods that there are at that path; none: nothing is there."""

    def __init__(self, others: Iterable[str] = ()) -> None:
        super().__init__()
        self.others = sorted(others)


class PluginRoutes:
    """Of all plugins, by the plugin's name."""

    def __init__(self, calls: Iterable[RouteCall]) -> None:
        self.by_plugin: dict[str, list[RouteCall]] = {}
        for call in calls:
            self.by_plugin.setdefault(call.plugin, []).append(call)
        for rows in self.by_plugin.values():  # what names more of a path counts before what names less
            rows.sort(key=lambda call: call.route.path.count("{"))

    def __bool__(self) -> bool:
        return bool(self.by_plugin)

    def find(self, method: str, path: str) -> tuple[RouteCall, dict[str, str]]:
        """path: whole, decoded. Raises NoSuchRoute."""
        plugin, slash, rest = path.removeprefix(PREFIX).partition("/")
        others = set[str]()
        for call in self.by_plugin.get(plugin, ()) if path.startswith(PREFIX) else ():
            values = call.route.matches(slash + rest)
            if values is not None:
                if call.route.method == method:
                    return call, values
                others.add(call.route.method)
        raise NoSuchRoute(others)

    def for_anyone(self, method: str, path: str) -> bool:
        """Whether that needs no key."""
        if not path.startswith(PREFIX):
            return False
        try:
            return self.find(method, path)[0].route.role == ANYONE
        except NoSuchRoute:
            return False


def content(route: HttpRoute, value: Any) -> HttpAnswer:
    """What a function's answer is on the wire. Raises Misbehaved."""
    if isinstance(value, HttpAnswer):
        return value
    if value is None and route.returns is None:
        return HttpAnswer(status=204)
    try:
        adapter = route.returns or _ANYTHING
        written = adapter.dump_json(adapter.validate_python(value), warnings=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = f"{where}: {first['msg']}" if where else first["msg"]
        raise Misbehaved(f"returned {type(value).__name__}, which is not what it declares ({said})") from None
    except Exception as error:
        raise Misbehaved(f"returned {type(value).__name__}, which is no JSON ({str(error)[:200]})") from None
    return HttpAnswer(written, "application/json")
