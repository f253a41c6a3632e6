"""/v1/plugins/NAME/…: routes of plugins (`zonemta_py/plugin/http.py`), with the keys, roles, limits and problem
documents of all others.

A function that fails is named to the client, in the log, in metrics and status; one that is left out for a time is 503.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError

from zonemta_py.logs.privacy import UserName
from zonemta_py.plugin.http import ANYONE, PREFIX, HttpAnswer, HttpError, HttpRequest, HttpRoute
from zonemta_py.plugin.routes import NoSuchRoute, PluginRoutes, RouteCall, RouteSkipped
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.web.authentication import described, needs, request_context, visit
from zonemta_py.web.documents import reading
from zonemta_py.web.documents.problem import MEDIA_TYPE, FieldError, RequestProblem, invalid, of_route, of_status
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import Visit

log = logging.getLogger(__name__)
router = APIRouter()

SKIPPED_S = 60
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
_ALWAYS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@router.api_route("/v1/plugins/{plugin}", methods=_METHODS, include_in_schema=False)
@router.api_route("/v1/plugins/{plugin}/{path:path}", methods=_METHODS, include_in_schema=False)
async def plugin(request: Request) -> Response:
    """A route of whichever plugin has it."""
    here, who = request_context(request), visit(request)
    call, in_path = _found(request, here.site.host.routes)
    route = call.route
    _check(who.key, route)
    arguments = {name: _valid(f"path {name!r}", adapter, in_path[name]) for name, adapter in route.in_path.items()}
    arguments |= _query(request, route)
    if route.body is not None:
        arguments["body"] = await _body(request, route, here.config.http.body_bytes)
    try:
        found = await call.answer(arguments, _told(request, who, call.plugin))
    except HttpError as error:
        raise of_route(error.status, error.detail, error.retry_s) from None
    except RouteSkipped as skipped:
        detail = f"the route {route} of the plugin {call.plugin!r} {skipped.problem}; send the request again later"
        raise RequestProblem("unavailable", detail, retry_s=SKIPPED_S) from None
    except PluginFailed:
        detail = f"the plugin {call.plugin!r} failed on this request ({route}); the server's log says how"
        raise RequestProblem("bug", detail) from None
    if route.method != "GET":
        log.info(
            "%s %s %s by %s at %s: done by plugin %s", who.id, route.method, request.url.path[:200],
            UserName(who.key.name), who.client, call.plugin,
        )  # fmt: skip
    return _response(found)


def _found(request: Request, routes: PluginRoutes) -> tuple[RouteCall, dict[str, str]]:
    """Raises RequestProblem."""
    try:
        return routes.find(request.method, request.url.path)
    except NoSuchRoute as error:
        if error.others:
            allowed = {"Allow": ", ".join(error.others)}
            raise of_status(
                405, f"{request.method[:20]!a} is not supported here; use a method listed in Allow", allowed
            ) from None
        sentence = f"no plugin has a route {request.url.path[:200]!a}; /v1/openapi.json names all paths"
        raise RequestProblem("not-found", sentence) from None


def _check(key: Holder, route: HttpRoute) -> None:
    """Raises RequestProblem."""
    if route.role == ANYONE:
        return
    if route.role == "inject":
        key.check("inject")
    else:
        key.check_role(route.role)  # type: ignore[arg-type]  # one of them, as it is not anyone
    if not route.scoped:
        key.check_whole()


def _query(request: Request, route: HttpRoute) -> dict[str, Any]:
    """Raises RequestProblem."""
    for name in request.query_params:
        if name not in route.query:
            remedy = f"there are {', '.join(route.query)}" if route.query else "remove it"
            raise invalid([FieldError(f"query {name[:40]!a}", f"is not a parameter of this request; {remedy}")])
    found = dict[str, Any]()
    for name, parameter in route.query.items():
        given = request.query_params.getlist(name)
        if given:
            if len(given) > 1 and not parameter.many:
                raise invalid([FieldError(f"query {name!r}", "appears more than once; send one")])
            found[name] = _valid(f"query {name!r}", parameter.adapter, given if parameter.many else given[0])
        elif parameter.required:
            raise invalid([FieldError(f"query {name!r}", "is missing; give it")])
        else:
            found[name] = parameter.default
    return found


def _valid(where: str, adapter: TypeAdapter[Any], value: Any) -> Any:
    """Raises RequestProblem."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        rows = error.errors(include_url=False, include_input=False)
        raise reading.of_validation([{**row, "loc": (where, *row["loc"])} for row in rows]) from None


async def _body(request: Request, route: HttpRoute, most: int) -> Any:
    """Raises RequestProblem."""
    if route.body is bytes:
        reading.plain_coding(request)
        return b"".join([block async for block in reading.blocks(request, most)])
    content = await reading.json_object(request, most)
    return content if route.body is dict else reading.checked(route.body, content)


def _told(request: Request, who: Visit, plugin: str) -> HttpRequest:
    holder, headers = who.key, dict[str, str]()
    for name, value in request.headers.items():
        if name != "authorization":
            headers.setdefault(name, value)
    path = request.url.path.removeprefix(PREFIX + plugin)
    named = "" if holder.name[:1] == "(" else holder.name
    return HttpRequest(
        request.method, path or "/", headers, who.client, named, holder.role or "", holder.scope.tenants,
        holder.scope.campaigns, who.id,
    )  # fmt: skip


def _response(found: HttpAnswer) -> Response:
    content = found.content.encode("utf-8", "replace") if isinstance(found.content, str) else found.content
    headers = _ALWAYS | {name.lower(): value for name, value in found.headers.items()}
    if found.status != 204:
        headers["content-type"] = found.type
    return Response(content if found.status != 204 else None, found.status, headers)


# -- the description


def with_routes(whole: dict[str, Any], routes: PluginRoutes) -> dict[str, Any]:
    """The description of the HTTP interface with those of plugins; models are named `plugin.Model`."""
    paths, schemas = dict(whole["paths"]), dict(whole["components"]["schemas"])
    for name, calls in sorted(routes.by_plugin.items()):
        made = _schemas(name, [call.route for call in calls])
        schemas |= {f"{name}.{model}": schema for model, schema in made.pop("$defs", {}).items()}
        for call in calls:
            route = call.route
            path = f"{PREFIX}{name}{route.path if route.path != '/' else ''}"
            operation = _operation(name, route, made[str(route)])
            paths[path] = paths.get(path, {}) | {route.method.lower(): operation}
    return whole | {"paths": paths, "components": whole["components"] | {"schemas": dict(sorted(schemas.items()))}}


def _schemas(plugin: str, routes: list[HttpRoute]) -> dict[str, Any]:
    """Route → what it takes and returns, by name; and $defs."""
    inputs, references = [], f"#/components/schemas/{plugin}.{{model}}"
    for route in routes:
        inputs += [((str(route), name), "validation", adapter) for name, adapter in route.in_path.items()]
        inputs += [((str(route), name), "validation", one.adapter) for name, one in route.query.items()]
        if route.body not in (None, bytes, dict):
            inputs.append(((str(route), "body"), "validation", TypeAdapter(route.body)))
        if route.returns is not None:
            inputs.append(((str(route), "return"), "serialization", route.returns))
    made, defined = TypeAdapter.json_schemas(inputs, ref_template=references)
    found: dict[str, Any] = {str(route): {} for route in routes}
    for ((route_name, name), _), schema in made.items():
        found[route_name][name] = schema
    return found | {"$defs": defined.get("$defs", {})}


def _operation(plugin: str, route: HttpRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    statuses = [400, 404, 409, 413, 415, 422] if route.body is not None else [404, 409, 422]
    answered: dict[str, Any] = {"description": "What the plugin answers."}
    if "return" in schemas:
        answered["content"] = {reading.JSON: {"schema": schemas["return"]}}
    responses: dict[str, Any] = {"200": answered}
    for status, one in described(*statuses).items():
        if route.role != ANYONE or status not in (401, 403):
            schema = {"$ref": "#/components/schemas/ProblemDocument"}
            responses[str(status)] = {
                "description": one["description"], "content": {MEDIA_TYPE: {"schema": schema}},
            }  # fmt: skip
    found: dict[str, Any] = {
        "tags": ["plugins"],
        "summary": route.summary or f"Plugin {plugin}: {route}",
        "description": " ".join([f"Of the plugin {plugin}.", *route.says.split()]),
        "operationId": "_".join(["plugin", plugin, route.method.lower(), *re.findall(r"\w+", route.path)]),
        "responses": responses,
    } | ({"security": []} if route.role == ANYONE else needs(route.role, whole=not route.scoped))
    if parameters := list(_parameters(route, schemas)):
        found["parameters"] = parameters
    if route.body is not None:
        kind = "*/*" if route.body is bytes else reading.JSON
        schema = schemas.get("body") or ({} if route.body is bytes else {"type": "object"})
        found["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
    return found


def _parameters(route: HttpRoute, schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in route.in_path:
        yield {"name": name, "in": "path", "required": True, "schema": schemas[name]}
    for name, one in route.query.items():
        yield {"name": name, "in": "query", "required": one.required, "schema": schemas[name]}
