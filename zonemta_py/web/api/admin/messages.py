"""/v1/messages: one message, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from zonemta_py.queue import questions
from zonemta_py.web.api.admin import rows
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import models, reading
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext

router = APIRouter(prefix="/v1/messages")
LOOKS_MAX = 20
_Id = Annotated[str, Field(pattern="^[0-9a-f]{16}$"), Path(description="The message's id.")]


@router.get("/{id}", **operation("read", "One message, with its whole story", rows.MessageWithStory, 404, whole=False))
async def one(
    request: Request,
    id: _Id,
    before: Annotated[models.By, Query(description="The story's `next`, to look further back.")] = "",
) -> Response:
    """Its envelope, header section and waiting recipients while it is in the queue; and everything that happened to it,
    from acceptance to the last answer, also when it has ended."""
    here, who = asked(request)
    try:
        message = await here.queue.ask(questions.show, id=id)
    except ValueError:
        message = None
    story = await ask(here, "invalid", questions.trace, what=id, before=before)
    if who.scope.bound:
        story = await _whole(here, id, story)
    if not _own(who, message, story) or (message is None and not story["rows"] and story["next"] is None):
        raise _nothing(id)
    return answer({"id": id, "envelope": None, "recipients": [], "header": None} | (message or {}) | {"story": story})


async def _whole(here: RequestContext, id: str, story: questions.Story) -> questions.Story:
    """Back to its acceptance, which says whose it is."""
    for _ in range(LOOKS_MAX):
        if story["next"] is None or any(row["what"] == "accepted" for row in story["rows"]):
            break
        older = await ask(here, "invalid", questions.trace, what=id, before=story["next"])
        story = older | {"rows": older["rows"] + story["rows"]}
    return story


def _own(who: Holder, message: questions.Shown | None, story: questions.Story) -> bool:
    if not who.scope.bound:
        return True
    if message is not None:
        return who.scope.covers(message["envelope"].get("tenant"), message["envelope"].get("campaign"))
    accepted = [row for row in story["rows"] if row["what"] == "accepted"]
    return bool(accepted) and all(who.scope.covers(row.get("tenant"), row.get("campaign")) for row in accepted)


@router.get(
    "/{id}/content",
    **operation(
        "admin", "A message's content", None, 404, whole=False, media=reading.MAIL, response_class=StreamingResponse
    ),
)
async def content(request: Request, id: _Id) -> Response:
    """The message as it was accepted, byte for byte, while it is in the queue. Signatures, and what a campaign's
    template makes of it, come when it is sent."""
    here, who = asked(request)
    await found(here, who, id)
    first = await ask(here, "not-found", questions.content, id=id)
    return StreamingResponse(
        _parts(here, id, first), media_type=reading.MAIL,
        headers={"cache-control": "no-store", "x-content-type-options": "nosniff"},
    )  # fmt: skip


async def _parts(here: RequestContext, id: str, part: questions.MessageContent) -> AsyncIterator[bytes]:
    """A message that ends meanwhile breaks the connection: half of it must not look whole."""
    chunks, number = part["chunks"], 1
    while True:
        yield part["data"]
        number += part["count"]
        if number > chunks:
            return
        part = await here.queue.ask(questions.content, id=id, first=number)


async def _shown(here: RequestContext, id: str) -> questions.Shown:
    try:
        return await here.queue.ask(questions.show, id=id)
    except ValueError:
        raise _nothing(id) from None


async def found(here: RequestContext, who: Holder, id: str) -> questions.Shown:
    """The message. Raises RequestProblem (404), also for one that is not in the key's scope."""
    message = await _shown(here, id)
    envelope = message["envelope"]
    if not who.scope.covers(envelope.get("tenant"), envelope.get("campaign")):
        raise _nothing(id)
    return message


def _nothing(id: str) -> RequestProblem:
    return RequestProblem("not-found", f"there is no message {id!r}; GET /v1/recipients lists those in the queue")
