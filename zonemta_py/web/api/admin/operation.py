"""What all operations of operators have in common: a role, no misspelt parameters, and a description."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Depends, Request, Response

from zonemta_py.config import Role
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import NO_CURSOR, A, P, Question
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import reading
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext


def operation(
    role: Role, summary: str, model: Any, *statuses: int, whole: bool = True, body: str = "", tagged: bool = False,
    media: str = "", **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of a route. whole: only for keys without a scope. body: the name of the request's schema. tagged: it
    has an ETag. media: the response's media type, if it is not JSON."""
    responses = described(422, *statuses, *((400, 413, 415) if body else ()))
    if tagged:
        responses[304] = {"description": "It is what If-None-Match names."}
    if media:
        binary = {"schema": {"type": "string", "format": "binary"}}
        responses[200] = {"description": "Byte for byte.", "content": {media: binary}}
    extra = needs(f"role {role}", whole=whole) | (reading.body_of(body) if body else {})
    if tagged or "parameters" in more:
        extra["parameters"] = [*([_IF_NONE_MATCH] if tagged else []), *more.pop("parameters", [])]
    return {
        "summary": summary, "response_model": document(model), "responses": responses, "openapi_extra": extra,
        "dependencies": [Depends(_admitting(role, whole)), Depends(reading.known_query)], **more,
    }  # fmt: skip


STANDING_MAX = 20_000
_IF_NONE_MATCH: dict[str, Any] = {
    "name": "If-None-Match", "in": "header", "required": False, "description": "An ETag: 304 if it is still that.",
    "schema": {"type": "string"},
}  # fmt: skip


def _admitting(role: Role, whole: bool) -> Callable[[Request], Awaitable[None]]:
    async def admit(request: Request) -> None:
        visit(request).key.check_role(role, whole)

    return admit


def asked(request: Request) -> tuple[RequestContext, Holder]:
    """Whom to ask, and who asks."""
    return request_context(request), visit(request).key


def tagged(request: Request, content: Any) -> Response:
    """The content with an ETag; nothing if the client has it."""
    tag = '"' + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32] + '"'
    said = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if tag in said or "*" in said:
        return Response(status_code=304, headers={"etag": tag, "cache-control": "no-store"})
    response = answer(content)
    response.headers["etag"] = tag
    return response


async def ask(here: RequestContext, slug: str, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """Asks the queue; its refusal becomes a problem of that kind. Raises RequestProblem, QueueRefusal."""
    try:
        return await here.queue.ask(question, *_, **arguments)
    except ValueError as error:
        raise RequestProblem("invalid" if NO_CURSOR in str(error) else slug, str(error)) from None


async def every_standing(here: RequestContext) -> list[questions.Standing]:
    """All that holds mail, up to STANDING_MAX."""
    found: list[questions.Standing] = []
    while len(found) < STANDING_MAX:
        page = await here.ask(questions.standing, limit=1000, after=len(found))
        found += page
        if len(page) < 1000:
            break
    return found
