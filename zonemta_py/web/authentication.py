"""What happens to every request before and after its handler: a number, a key, limits; problem documents."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
from typing import Any

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zonemta_py.logs.privacy import UserName
from zonemta_py.metrics.report import count
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.reception.connection_limits import plain_ip
from zonemta_py.reception.pull import QueueProblem
from zonemta_py.reception.receiver import MessageRefused
from zonemta_py.web.documents import models
from zonemta_py.web.documents.problem import KINDS, MEDIA_TYPE, RequestProblem, of_reply, of_verdict
from zonemta_py.web.keys import LOCAL, Holder
from zonemta_py.web.request_context import RequestContext, Visit

log = logging.getLogger(__name__)

OPEN = frozenset(("/v1/health", "/v1/ready", "/v1/openapi.json"))
"""Paths that need no key."""
METRICS = "/metrics"
PAGES = "/dashboard"
WEBHOOKS = "/v1/feedback/"
"""Where a key may come as a password (RFC 7617): that is all that many providers can send."""
SIGNED = Holder("(signed)", frozenset())
"""Who posts a webhook that has no key, but a signature, which its handler checks when it has the body: until then it is
a stranger."""
NOBODY = Holder("(nobody)", frozenset())
"""Who calls a plugin's route that needs no key, and sends none."""
STREAM = "/v1/events"
"""What stays open, and so counts for itself."""
_BUG = RequestProblem(
    "bug", "the server failed on this request; send it again, and if it fails again, show its operator the instance"
)
_ALWAYS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class AuthenticationMiddleware:
    """Wraps the application: a client without a key, or with too many requests in progress, causes no work, and its
    body is not read."""

    def __init__(self, app: ASGIApp, request_context: RequestContext, dashboard: ASGIApp | None = None) -> None:
        self._app, self._request_context, self._dashboard = app, request_context, dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        here = self._request_context
        client = plain_ip(scope["client"][0]) if scope.get("client") else ""
        who = Visit(here.site.next_id(), client, scope["scheme"] == "https")
        send = _counted(send)
        scope.setdefault("state", {})["visit"] = who
        scope["state"]["request_context"] = here
        try:
            if scope["path"] in OPEN or (scope["path"] == METRICS and here.open_metrics(client)):
                await self._app(scope, receive, send)
                return
            _one_length(scope)
            if self._dashboard is not None and (scope["path"] + "/").startswith(f"{PAGES}/"):
                await self._dashboard(scope, receive, send)  # which has a login of its own
                return
            signed = scope["method"] == "POST" and here.webhooks.signed(scope["path"])
            said = _authorization(scope)
            nobody = not said and here.site.host.routes.for_anyone(scope["method"], scope["path"])
            who.holder = SIGNED if signed else NOBODY if nobody else here.keys.holder(said)
            streams = scope["path"] == STREAM
            shares = here.streams if streams else here.shares
            account = "" if streams or who.holder.name == LOCAL else here.site.accounts.of(client, key=who.holder.name)
            with (
                shares.stranger(client)
                if signed or nobody
                else shares.one(who.holder.name, client, who.holder.operates)
            ):
                if not account:
                    await self._app(scope, receive, send)
                    return
                async with here.sessions.one(account, who.id):
                    await self._app(scope, receive, send)
        except RequestProblem as problem:
            await told(Request(scope), problem)(scope, receive, send)


def _counted(send: Send) -> Send:
    async def counting(message: Message) -> None:
        if message["type"] == "http.response.start":
            count("zonemta_http_requests_total", (str(message["status"]),))
        await send(message)

    return counting


def _authorization(scope: Scope) -> str:
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    said = found[0].decode("latin-1") if len(found) == 1 else ""
    if scope["path"].startswith(WEBHOOKS) and said[:6].lower() == "basic ":
        with contextlib.suppress(ValueError):
            return f"Bearer {base64.b64decode(said[6:].strip(), validate=True).decode().partition(':')[2]}"
    return said


def _one_length(scope: Scope) -> None:
    """Two lengths are an attempt at request smuggling (RFC 9112 6.1). Raises RequestProblem."""
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names and b"content-length" in names:
        sentence = "the body's length is given by both Content-Length and Transfer-Encoding; send only one"
        raise RequestProblem("malformed", sentence, headers={"connection": "close"})


def request_context(request: Request) -> RequestContext:
    here: RequestContext = request.state.request_context
    return here


def visit(request: Request) -> Visit:
    who: Visit = request.state.visit
    return who


def answer(content: Any) -> Response:
    """200 with JSON."""
    return Response(json.dumps(content, ensure_ascii=False), media_type="application/json", headers=dict(_ALWAYS))


def told(request: Request, error: Exception) -> Response:
    """Any failure as a problem document."""
    problem = as_problem(error)
    who = visit(request)
    instance = f"{request.url.path[:200]}#{who.id}"
    name = UserName(who.holder.name) if who.holder else "no key"
    log.info("%s %s %s by %s at %s: %s", who.id, request.method, problem.status, name, who.client, problem.detail[:300])
    return Response(
        problem.document(instance), problem.status, media_type=MEDIA_TYPE, headers={**_ALWAYS, **problem.headers}
    )


def as_problem(error: Exception) -> RequestProblem:
    if isinstance(error, RequestProblem):
        return error
    if isinstance(error, Verdict):
        return of_verdict(error)
    if isinstance(error, QueueProblem):
        return RequestProblem("conflict" if error.gone else "invalid", str(error))
    if isinstance(error, QueueFault):
        return RequestProblem("bug", error.reply.text)
    if isinstance(error, QueueRefusal | MessageRefused):
        return of_reply(error.reply)
    return _BUG


def needs(*names: str, whole: bool = False) -> dict[str, Any]:
    """For the description: the key needs one of these rights, or the role of that name; whole: and no scope."""
    found: dict[str, Any] = {"security": [{"key": [one]} for one in names]}
    return found | {"x-scope": "none"} if whole else found


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem responses of an operation, for the description, including those that any operation may have."""
    titles = {kind.status: kind.title for kind in KINDS.values()}
    return {
        status: {"model": models.ProblemDocument, "description": titles[status]}
        for status in sorted({*statuses, 401, 403, 429, 500, 503})
    }
