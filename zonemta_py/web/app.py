"""The application: its operations, error responses, and OpenAPI 3.1 description."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route
from starlette.types import Message

from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.pull import QueueProblem
from zonemta_py.reception.receiver import MessageRefused
from zonemta_py.web.api import campaigns, domains, events, inject, metrics, plugins, queues, suppressions
from zonemta_py.web.api.admin import ALL, bodies
from zonemta_py.web.api.feedback import feedback
from zonemta_py.web.api.uploads import attachments
from zonemta_py.web.authentication import OPEN, answer, described, request_context, told
from zonemta_py.web.documents import campaigns as campaign_bodies
from zonemta_py.web.documents import feedback_rows, models, suppression_rows, templates
from zonemta_py.web.documents.problem import MEDIA_TYPE, RequestProblem, of_status
from zonemta_py.web.documents.reading import of_validation
from zonemta_py.web.request_context import Visit

_ABOUT = (
    "Mail, campaign batches, the suppression list and named queues of a zonemta node, and all that an operator can see"
    " and do. A 200 means that the data are on"
    " stable storage. Every refusal is a problem document (RFC 9457) whose detail says what to do; with 429 and 503,"
    " Retry-After says when to try again. Send a key as Authorization: Bearer <key>."
)
_BODIES = (
    models.MessageDocument, models.BatchDocument, templates.MergedDocument, campaign_bodies.CampaignDocument,
    campaign_bodies.CampaignTimes, campaign_bodies.Decision, campaign_bodies.NewText,
    campaign_bodies.Order, campaign_bodies.TrialDocument,
    suppression_rows.Suppressions, suppression_rows.Forget, suppression_rows.GuardEnd,
    feedback_rows.FeedbackRows, feedback_rows.Wishes, models.PersonDocument, models.AddresseeDocument,
    domains.DomainChange, domains.DomainRotation,
    queues.Acknowledgement, queues.NegativeAcknowledgement, queues.Extension,
    bodies.Lift, bodies.KnownDoubts, bodies.SuspensionDocument, bodies.StepDocument, bodies.RerouteDocument,
    bodies.TaskDocument, bodies.Start, bodies.Reload, bodies.Drain, bodies.ZoneToNode, bodies.BalanceNodes,
)  # fmt: skip
_MODULES = (inject, attachments, campaigns, suppressions, domains, feedback, events, queues, metrics, plugins, *ALL)
_REFUSALS = (RequestProblem, QueueRefusal, QueueProblem, Verdict, MessageRefused)


def make() -> FastAPI:
    """The application. It finds its context in each request's state (`authentication.AuthenticationMiddleware`)."""
    app = FastAPI(
        title="zonemta-py", version="1", description=_ABOUT, openapi_url=None, docs_url=None, redoc_url=None,
        redirect_slashes=False, generate_unique_id_function=_identity,
    )  # fmt: skip
    for module in _MODULES:
        app.include_router(module.router)
    app.get("/v1/health", summary="Whether mail is accepted", response_model=models.Health, responses=described())(
        health
    )
    app.get("/v1/openapi.json", include_in_schema=False)(description)
    for kind in (*_REFUSALS, Exception):
        app.exception_handler(kind)(_tell)
    app.exception_handler(RequestValidationError)(_tell_of_parameters)
    app.exception_handler(HTTPException)(_tell_of_path)
    app.exception_handler(ClientDisconnect)(_gone)
    return app


shared = cache(make)
"""The one of this process, and of those forked from it."""


def warm() -> None:
    """FastAPI makes its routes when the first request comes, in a quarter of a second: here one comes that finds
    nothing, so that processes forked from this one answer theirs at once."""
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [],
             "state": {"visit": Visit("none", "", True)}}  # fmt: skip

    async def nobody(_: Message) -> None:
        """Is told."""

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(shared()(scope, nothing, nobody))
    finally:
        loop.close()


def _identity(route: APIRoute) -> str:
    """The operation id, from which client generators make names: suppressions_remove."""
    return f"{route.endpoint.__module__.rpartition('.')[2]}_{route.name}"


async def health(request: Request) -> Response:
    """Whether the queue answers. Needs no key."""
    await request_context(request).queue.ask(questions.size)
    return answer({"status": "ok"})


async def description(request: Request) -> Response:
    """With the routes of plugins."""
    whole = openapi(request.app)
    routes = request_context(request).site.host.routes
    return answer(plugins.with_routes(whole, routes) if routes else whole)


async def _tell(request: Request, error: Exception) -> Response:
    return told(request, error)


async def _tell_of_parameters(request: Request, error: Any) -> Response:
    rows = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
    return told(request, of_validation(rows))


async def _tell_of_path(request: Request, error: Any) -> Response:
    """Errors of the framework: unknown path, method not allowed."""
    sentences = {
        404: f"there is nothing at {request.url.path[:200]!a}; /v1/openapi.json names all paths",
        405: f"{request.method[:20]!a} is not supported here; use a method listed in Allow",
    }
    sentence = sentences.get(error.status_code, "the request cannot be read; correct it")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return told(request, of_status(error.status_code, sentence, headers))


def _methods(request: Request) -> set[str]:
    """All methods of the path; the framework's own list has only the first route's. A route that names more of the path
    hides those that name less: `report` is no order to a campaign."""
    ours = [*request.app.routes, *(route for module in _MODULES for route in module.router.routes)]
    found = [route for route in ours if isinstance(route, Route) and route.matches(request.scope)[0] != Match.NONE]
    least = min((route.path.count("{") for route in found), default=0)
    return {method for route in found if route.path.count("{") == least for method in route.methods or ()}


async def _gone(request: Request, error: Exception) -> Response:
    """The client has disconnected."""
    return Response(status_code=400)


def openapi(app: FastAPI) -> dict[str, Any]:
    """The complete description: with bodies that the application parses itself, problem documents, and the key."""
    whole: dict[str, Any] = app.openapi()
    components = whole["components"]
    _, made = models_json_schema(
        [(model, "validation") for model in _BODIES], ref_template="#/components/schemas/{model}"
    )
    components["schemas"] = {
        **{name: schema for name, schema in components["schemas"].items() if "ValidationError" not in name},
        **made["$defs"],
    }
    components["schemas"] = dict(sorted(components["schemas"].items()))
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "`zonemta api-key new NAME` creates one."}
    }
    whole["security"] = [{"key": []}]
    whole["servers"] = [{"url": "http://127.0.0.1:8525"}]
    for path, operations in whole["paths"].items():
        for operation in operations.values():
            operation["tags"] = [path.split("/")[2]]
            _complete(operation, path in OPEN)
    named: dict[str, Any] = _plainly_named(whole)
    return named


def _plainly_named(value: Any) -> Any:
    """Replaces schema names by their public names: `Message` for the class `MessageDocument`."""
    if isinstance(value, dict):
        return {models.plain_name(key): _plainly_named(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plainly_named(inner) for inner in value]
    return models.plain_name(value) if isinstance(value, str) and value.startswith("#/") else value


def _complete(operation: dict[str, Any], open_to_all: bool) -> None:
    if open_to_all:
        operation["security"] = []
        for status in ("401", "403", "429"):
            operation["responses"].pop(status, None)
    for status, response in operation["responses"].items():
        if status.startswith(("4", "5")):
            response["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
        if status in ("429", "503"):
            said = {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}
            response["headers"] = {"Retry-After": said}
