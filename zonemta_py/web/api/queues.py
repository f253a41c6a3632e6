"""/v1/queues: messages pushed to named queues, and taken from them."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import AfterValidator, Field
from starlette.types import Receive, Scope, Send

from zonemta_py.config.services.pull import names_queue
from zonemta_py.reception.pull import Push, Taken
from zonemta_py.reception.tcp import has_all
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import reading, values
from zonemta_py.web.documents.models import Count, Model
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.request_context import Digest

SECONDS_MAX = 31_536_000
Queue = Annotated[str, Field(pattern=values.NAME_PATTERN)]
ReceiptText = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,64}\.[0-9]{1,18}$")]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]


class QueueRow(Model):
    """A queue, and how many messages it has."""

    queue: Queue
    ready: Count
    """That can be taken now."""
    leased: Count
    """That are reserved, or being taken."""
    delayed: Count
    """Whose time has not come."""
    held: Count
    """That an operator has to release or drop."""


class Pushed(Model):
    id: str
    """The message's id."""
    repeated: bool
    """An earlier request with the same Idempotency-Key stored it; nothing was stored now."""


class Acknowledgement(Model):
    """The message is done."""

    receipt: ReceiptText
    """The header Zonemta-Receipt of the response to reserve."""


class NegativeAcknowledgement(Acknowledgement):
    """The message is to be taken again."""

    delay_s: Seconds = 0.0
    """After so many seconds; 0: at once, in its old place."""


class Extension(Acknowledgement):
    """The message stays reserved."""

    seconds: Seconds
    """For so many seconds from now."""


class Settled(Model):
    receipt: ReceiptText


MEDIA_TYPE = "application/octet-stream"


class Handover(Response):
    """A message as a response: its bytes as they are, its envelope in header fields. It is done when the client's TCP
    has acknowledged the whole response: it is all that HTTP lets a server know. A response that ends otherwise gives
    the message back. Whoever must be sure reserves, and acknowledges.

    settles: it is done when the response has arrived; otherwise it stays as it is. receipt: the client gets one.
    timeout_s: how long the client may take for each chunk."""

    def __init__(self, taken: Taken, timeout_s: float, settles: bool = False, receipt: bool = False) -> None:
        self._taken, self._timeout_s, self._settles, self._leased = taken, timeout_s, settles, settles or receipt
        delivery = taken.delivery
        envelope = {"sender": delivery.sender, "recipients": [one.address for one in delivery.recipients]}
        fields = {
            "content-length": str(delivery.size), "zonemta-id": delivery.id, "zonemta-envelope": json.dumps(envelope),
            "zonemta-attempts": str(max(delivery.attempts, default=0)), "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }  # fmt: skip
        if receipt:
            fields["zonemta-receipt"] = taken.receipt
        super().__init__(headers=fields, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport: Any = scope["state"]["transport"]
        arrived = False
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}, send)
            async for chunk in self._taken.chunks():
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True}, send)
            arrived = await has_all(transport, self._timeout_s)  # before the end, which may close the connection
            await self._send({"type": "http.response.body", "body": b""}, send)
        except TimeoutError:
            transport.abort()
        finally:
            if self._leased and not arrived:
                transport.abort()  # an end that looks clean would say that it is the client's
                await self._taken.give_back()
        if self._settles and arrived:
            await self._taken.done()

    async def _send(self, event: dict[str, Any], send: Send) -> None:
        async with asyncio.timeout(self._timeout_s):
            await send(event)


def described_message(what: str) -> dict[int | str, dict[str, Any]]:
    """The successful responses, for the description of the API."""
    fields = {
        "Zonemta-Id": "The message's id.",
        "Zonemta-Envelope": "A JSON object with sender and recipients, in ASCII.",
        "Zonemta-Attempts": "How often it was given back with a delay.",
    }
    if "reserve" in what:
        fields["Zonemta-Receipt"] = "Names the reservation, for ack, nack and extend."
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in fields.items()}
    content = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    return {
        200: {"description": "The message, byte for byte.", "content": content, "headers": headers},
        204: {"description": "There is none."},
    }


def nothing() -> Response:
    return Response(status_code=204, headers={"cache-control": "no-store"})


router = APIRouter(prefix="/v1/queues", dependencies=[Depends(reading.known_query)])
WAIT_S_MAX = 300
_Queue = Annotated[
    Queue, Path(description="The queue's name; capitals count as small letters."), AfterValidator(str.lower)
]
_Wait = Annotated[
    float, Query(ge=0, le=WAIT_S_MAX, description="Seconds to wait for a message if there is none; the request counts.")
]
_BYTES = {
    "required": False,
    "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
}
_A = TypeVar("_A", bound=Acknowledgement)


@router.get(
    "",
    summary="All named queues",
    response_model=list[QueueRow],
    openapi_extra=needs("pop", "push", "read", whole=True),
    responses=described(422),
)
async def every(request: Request) -> Response:
    """Those of the configuration, and those that have messages; of them, those that the key is for."""
    who = visit(request).key
    who.check("pop", "push", "read")
    who.check_whole()
    rows = await request_context(request).queues.every()
    return answer([row._asdict() for row in rows if names_queue(who.queues, row.queue)])


@router.get(
    "/{queue}",
    summary="One queue's size",
    response_model=QueueRow,
    openapi_extra=needs("pop", "push", "read", whole=True),
    responses=described(422),
)
async def one(request: Request, queue: _Queue) -> Response:
    """A queue without messages is there all the same: it is made by a push."""
    who = visit(request).key
    who.check("pop", "push", "read")
    who.check_whole()
    who.check_queue(queue)
    return answer((await request_context(request).queues.size(queue))._asdict())


@router.post(
    "/{queue}/push",
    summary="Push a message",
    response_model=Pushed,
    openapi_extra={"requestBody": _BYTES, "parameters": [reading.KEY]} | needs("push", whole=True),
    responses=described(400, 409, 413, 415, 422),
)
async def push(
    request: Request,
    queue: _Queue,
    priority: Annotated[int | None, Query(ge=-9, le=9, description="9 is taken first; default: 0.")] = None,
    delay: Annotated[float, Query(ge=0, le=SECONDS_MAX, description="Seconds before which nobody gets it.")] = 0,
) -> Response:
    """The body is the message, byte for byte, whatever its Content-Type; the response is sent once it is on stable
    storage. After a 503, a 429 or no response at all, repeat the request with the same Idempotency-Key."""
    here, who = request_context(request), visit(request)
    who.key.check("push")
    who.key.check_queue(queue)
    reading.plain_coding(request)
    key = reading.request_key(request)
    digest = Digest(f"push {who.key.name} {queue} {key}" if key else "", "push", queue, str(priority), str(delay))
    blocks = digest.over(reading.blocks(request, here.config.pull.message_bytes))
    pushed = Push(queue, priority, delay, who.client, who.key.name, who.key.name, digest.put_into)
    receipt = await here.queues.push(pushed, blocks)
    return answer({"id": receipt.id, "repeated": receipt.repeated})


@router.post(
    "/{queue}/pop",
    summary="Pop the oldest message",
    openapi_extra=needs("pop", whole=True),
    responses=described_message("pop") | described(422),
)
async def pop(request: Request, queue: _Queue, wait: _Wait = 0) -> Response:
    """The message is done when the client's TCP has acknowledged the whole response, and given back if that does not
    happen; nothing more can be known. If it must not be lost when the client fails, reserve it and acknowledge."""
    taken = await _taken(request, queue, 0.0, wait)
    return _shown(request, taken, settles=True)


@router.post(
    "/{queue}/reserve",
    summary="Reserve the oldest message",
    openapi_extra=needs("pop", whole=True),
    responses=described_message("reserve") | described(422),
)
async def reserve(
    request: Request,
    queue: _Queue,
    seconds: Annotated[
        float | None, Query(gt=0, le=SECONDS_MAX, description="For so long; default: pull.reserve_s.")
    ] = None,
    wait: _Wait = 0,
) -> Response:
    """Nobody else gets the message for so many seconds, unless it is given back. If it is not acknowledged by then, it
    is in its old place again."""
    taken = await _taken(request, queue, request_context(request).queues.reservation(seconds), wait)
    return _shown(request, taken, receipt=True)


@router.get(
    "/{queue}/peek",
    summary="Show the oldest message",
    openapi_extra=needs("pop", whole=True),
    responses=described_message("peek") | described(422),
)
async def peek(request: Request, queue: _Queue) -> Response:
    """It stays where it is, and others may take it."""
    _may_take(request, queue)
    return _shown(request, await request_context(request).queues.peek(queue))


@router.post(
    "/{queue}/ack",
    summary="Acknowledge a reserved message",
    response_model=Settled,
    openapi_extra=reading.body_of("Acknowledgement") | needs("pop", whole=True),
    responses=described(400, 409, 413, 415, 422),
)
async def ack(request: Request, queue: _Queue) -> Response:
    """It is done; the response is sent once that is on stable storage. 409: it is not reserved any more, and somebody
    else may have it."""
    said = await _order(request, queue, Acknowledgement)
    await request_context(request).queues.ack(said.receipt, queue.__eq__)
    return answer({"receipt": said.receipt})


@router.post(
    "/{queue}/nack",
    summary="Give a reserved message back",
    response_model=Settled,
    openapi_extra=reading.body_of("NegativeAcknowledgement") | needs("pop", whole=True),
    responses=described(400, 409, 413, 415, 422),
)
async def nack(request: Request, queue: _Queue) -> Response:
    """At once, in its old place; or after a delay."""
    said = await _order(request, queue, NegativeAcknowledgement)
    await request_context(request).queues.nack(said.receipt, said.delay_s, queue.__eq__)
    return answer({"receipt": said.receipt})


@router.post(
    "/{queue}/extend",
    summary="Extend a reservation",
    response_model=Settled,
    openapi_extra=reading.body_of("Extension") | needs("pop", whole=True),
    responses=described(400, 409, 413, 415, 422),
)
async def extend(request: Request, queue: _Queue) -> Response:
    """From now on, whatever was left."""
    said = await _order(request, queue, Extension)
    await request_context(request).queues.extend(said.receipt, said.seconds, queue.__eq__)
    return answer({"receipt": said.receipt})


def _may_take(request: Request, queue: str) -> None:
    """Raises RequestProblem."""
    who = visit(request).key
    who.check("pop")
    who.check_queue(queue)


async def _taken(request: Request, queue: str, reserve_s: float, wait_s: float) -> Taken | None:
    _may_take(request, queue)
    queues, streams, loop = (
        request_context(request).queues,
        request_context(request).streams,
        asyncio.get_running_loop(),
    )
    until = loop.time() + wait_s
    while True:
        left_s = max(0.0, until - loop.time())
        taken = await queues.take(queue, reserve_s, left_s, visit(request).client)
        if taken is not None or left_s <= 0 or streams.ending:
            return taken
        if await request.is_disconnected():
            raise RequestProblem("slow", "the client has gone; ask again")


def _shown(request: Request, taken: Taken | None, settles: bool = False, receipt: bool = False) -> Response:
    if taken is None:
        return nothing()
    return Handover(taken, request_context(request).config.limits.timeout_s, settles, receipt)


async def _order(request: Request, queue: str, model: type[_A]) -> _A:
    _may_take(request, queue)
    content = await reading.json_object(request, request_context(request).config.http.body_bytes)
    return reading.checked(model, content)
