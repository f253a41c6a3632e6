"""/v1/events: what happens to mail, as server-sent events.

Each has its id, so a browser that has lost the connection says with Last-Event-ID where it was, and gets what happened
meanwhile, from the journal. All streams share one tail (`events.hub`); one that is slow reads on in the journal, and is
closed if it takes nothing for a minute. It stays open while the queue's process restarts, and ends, as every answer
does, when this process is to end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from zonemta_py.config.services.events import EventType
from zonemta_py.events.filter import EventFilter
from zonemta_py.events.hub import Listening, Told
from zonemta_py.web.authentication import described, needs, request_context, visit
from zonemta_py.web.documents import models, reading
from zonemta_py.web.documents.problem import FieldError, invalid
from zonemta_py.web.shares import StreamShares

router = APIRouter(prefix="/v1", dependencies=[Depends(reading.known_query)])
SILENT_S = 15.0
"""After so long without an event a comment shows that the stream lives, and the id says how far it has come."""
RETRY_MS = 2000
PIECE_BYTES = 64 * 1024


class _TakesNothing(Exception):
    pass


class EventStream(StreamingResponse):
    """Ends if the client takes nothing for a minute: what waits for it is in memory, a piece of it at least, and goes
    with the connection. (FastAPI's own response for event streams never gives up.)"""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[bytes, None], shares: StreamShares, status_code: int = 200) -> None:
        """status_code: FastAPI looks for it, to document it."""
        super().__init__(content, status_code, {"cache-control": "no-store", "x-accel-buffering": "no"})
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            try:
                await self._shares.taken(send(message))
            except TimeoutError:
                raise _TakesNothing from None

        try:
            await super().__call__(scope, receive, patient)
        except _TakesNothing:
            scope["state"]["transport"].abort()  # a close would wait until the client has taken the rest
            while (await receive())["type"] != "http.disconnect":
                pass

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await self.body_iterator.aclose()  # type: ignore[attr-defined]  # a generator of ours


@router.get(
    "/events",
    summary="Events as they happen",
    response_class=EventStream,
    openapi_extra=needs("events"),
    responses={
        **described(422),
        200: {
            "description": "Server-sent events: `id`, `event` (the type), `data` (a CloudEvent in JSON, config/"
            "events.schema.json); `missed` with {records} if the archive no longer has so many. It does not end.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def stream(
    request: Request,
    type: Annotated[list[EventType], Query(max_length=100, description="Only these types.")] = [],  # noqa: B006
    zone: Annotated[list[models.Line], Query(max_length=100, description="Only these zones.")] = [],  # noqa: B006
    domain: Annotated[list[models.Line], Query(max_length=100, description="Only recipients there.")] = [],  # noqa: B006
    campaign: Annotated[list[models.Line], Query(max_length=100, description="Only these campaigns.")] = [],  # noqa: B006
    tenant: Annotated[list[models.Line], Query(max_length=100, description="Only these tenants.")] = [],  # noqa: B006
    message: Annotated[list[models.Line], Query(max_length=100, description="Only these messages.")] = [],  # noqa: B006
    recipient: Annotated[list[models.Line], Query(max_length=100, description="Only to these.")] = [],  # noqa: B006
    since: Annotated[datetime | None, Query(description="Begin then, in the past; default: now.")] = None,
    last_event_id: Annotated[str, Header(max_length=2_000, description="Go on behind this event.")] = "",
) -> EventStream:
    """All events behind `Last-Event-ID`, or since then, or from now on, of whatever mail there is. Each filter may be
    given several times: any of its values matches; all filters must."""
    who = visit(request).key
    who.check("events")
    own = who.narrowed({"tenant": tenant or None, "campaign": campaign or None})
    here = request_context(request)
    wanted = EventFilter.of(type, zone, domain, own["campaign"] or (), own["tenant"] or (), message, recipient)
    since_ms = None
    if since is not None and not last_event_id:
        since_ms = round((since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp() * 1000)
    try:
        listen = await here.events.opened(last_event_id, since_ms)
    except ValueError as error:
        raise invalid([FieldError("Last-Event-ID", str(error))]) from None
    return EventStream(_pieces(listen, wanted, since_ms or 0), here.streams)


async def _pieces(listen: Listening, wanted: EventFilter, since_ms: int) -> AsyncGenerator[bytes, None]:
    yield format_sse_event(retry=RETRY_MS, comment="events of zonemta-py")
    passed = ""
    async with aclosing(listen(SILENT_S)) as portions:
        async for found in portions:
            passed = next((one.id for one in reversed(found) if one.id), passed)
            piece, size = list[bytes](), 0
            for one in found:
                if one.event is None or (one.event.ms >= since_ms and wanted.wants(one.event)):
                    piece.append(_written(one))
                    size += len(piece[-1])
                if size > PIECE_BYTES:
                    yield b"".join(piece)
                    piece, size = [], 0
            if piece:
                yield b"".join(piece)
            elif not found:
                yield format_sse_event(comment="", id=passed or None)  # no event, but the client knows how far it is


def _written(one: Told) -> bytes:
    if one.event is None:
        return format_sse_event(event="missed", data_str=json.dumps({"records": one.missed}))
    return format_sse_event(event=one.event.type, data_str=one.body.decode(), id=one.id)
