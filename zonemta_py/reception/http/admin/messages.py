"""/v1/messages: one message, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from zonemta_py.reception.http.admin import rows
from zonemta_py.reception.http.admin.operation import ask, asked, operation
from zonemta_py.reception.http.authentication import answer
from zonemta_py.reception.http.documents import reading
from zonemta_py.reception.http.documents.problem import RequestProblem
from zonemta_py.reception.http.keys import Holder
from zonemta_py.reception.http.request_context import RequestContext

router = APIRouter(prefix="/v1/messages")
_Id = Annotated[str, Field(pattern="^[0-9a-f]{16}$"), Path(description="The message's id.")]


@router.get("/{id}", **operation("read", "One message", rows.MessageRow, 404, whole=False))
async def one(request: Request, id: _Id) -> Response:
    """Its envelope, its header section, and its recipients that have not ended."""
    here, who = asked(request)
    return answer(await found(here, who, id))


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
    first = await ask(here, "not-found", "content", id=id)
    return StreamingResponse(
        _parts(here, id, first), media_type=reading.MAIL,
        headers={"cache-control": "no-store", "x-content-type-options": "nosniff"},
    )  # fmt: skip


async def _parts(here: RequestContext, id: str, part: dict[str, Any]) -> AsyncIterator[bytes]:
    """A message that ends meanwhile breaks the connection: half of it must not look whole."""
    chunks, number = part["chunks"], 1
    while True:
        yield part["data"]
        number += part["count"]
        if number > chunks:
            return
        part = await here.queue.ask("content", id=id, first=number)


async def found(here: RequestContext, who: Holder, id: str) -> dict[str, Any]:
    """The message. Raises RequestProblem (404), also for one that is not in the key's scope."""
    message: dict[str, Any] = await ask(here, "not-found", "show", id=id)
    envelope = message["envelope"]
    if not who.scope.covers(envelope.get("tenant"), envelope.get("campaign")):
        raise RequestProblem(
            "not-found", f"there is no message {id!r} in the queue; `zonemta queue list` shows all messages"
        )
    return message
