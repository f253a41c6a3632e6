"""POST /v1/inject: a complete message, a message composed of parts, or a batch of a campaign."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.queue.api import Receipt
from zonemta_py.web.api.templates import merged
from zonemta_py.web.api.uploads.attached import AttachmentGroup
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import batch, models, reading, templates
from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.compose import compose
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.request_context import Digest, RequestContext, Visit

router = APIRouter(dependencies=[Depends(reading.known_query)])
LARGE = 256 * 1024
_T = TypeVar("_T")
_SUBMITTED = {
    "required": True,
    "content": {
        reading.JSON: {
            "schema": {"oneOf": [{"$ref": f"#/components/schemas/{one}"} for one in ("Message", "Merged", "Batch")]}
        },
        reading.MAIL: {"schema": {"type": "string", "format": "binary"}},
    },
}
_KEY = reading.KEY | {"description": reading.KEY["description"] + " Required for a batch."}


@router.post(
    "/v1/inject",
    summary="Submit mail",
    response_model=models.ReceiptDocument | templates.MergedReceipt,
    openapi_extra={"requestBody": _SUBMITTED, "parameters": [_KEY]} | needs("inject"),
    responses=described(400, 409, 413, 415, 422),
)
async def inject(
    request: Request,
    sender: Annotated[
        models.ReturnPath | None, Query(description="message/rfc822: the return path; default: the null sender.")
    ] = None,
    to: Annotated[
        list[models.Address] | None, Query(description="message/rfc822: a recipient; repeat the parameter.")
    ] = None,
    zone: Annotated[models.Line, Query(description="message/rfc822: the sending zone.")] = "",
    campaign: Annotated[
        models.Name | None, Query(description="message/rfc822: the campaign, for shares and reports.")
    ] = None,
    tenant: Annotated[models.Name | None, Query(description="message/rfc822: the tenant.")] = None,
    priority: Annotated[int | None, Query(ge=-9, le=9, description="message/rfc822: -9 … 9.")] = None,
) -> Response:
    """Accepts mail in one of four forms: a message, complete (message/rfc822, with the envelope in the query) or as
    parts in a JSON object (Message); a template and a message for each of several people (Merged); or recipients of a
    campaign with their fields (Batch). The response is sent once everything is on stable storage. After a 503, a 429 or
    no response at all, repeat the request with the same Idempotency-Key."""
    here, who = request_context(request), visit(request)
    who.key.check("inject")
    if reading.media_type(request, reading.JSON, reading.MAIL) == reading.MAIL:
        envelope = Envelope(
            sender or "", _recipients(to or []), sending_zone=zone or None, campaign=campaign, tenant=tenant,
            priority=priority,
        )  # fmt: skip
        receipt = await _mail(here, who, request, envelope)
    else:
        most = reading.ELEMENTS_MAX + 4 * here.config.limits.recipients
        content = await reading.json_object(request, here.config.http.body_bytes, most)
        if templates.is_merged(content):
            return answer({"messages": await _merged(here, who, request, content)})
        receipt = await (_batch if "recipients" in content else _message)(here, who, request, content)
    return answer(
        {
            "id": receipt.id,
            "accepted": receipt.accepted,
            "suppressed": receipt.suppressed,
            "repeated": receipt.repeated,
        }
    )


async def _mail(here: RequestContext, who: Visit, request: Request, envelope: Envelope) -> Receipt:
    _check_recipients(here, envelope)
    addresses = [recipient.address for recipient in envelope.recipients]
    asked = (envelope.sender, *addresses, envelope.sending_zone, envelope.campaign, envelope.tenant)
    digest = Digest(_scoped(who, request), "mail", *asked, str(envelope.priority))
    blocks = reading.blocks(request, here.config.limits.message_bytes)
    return await here.hand_in(envelope, who, digest.over(blocks), digest)


async def _message(here: RequestContext, who: Visit, request: Request, content: dict[str, Any]) -> Receipt:
    large = sum(len(value) for value in content.values() if isinstance(value, str)) > LARGE
    message: models.MessageDocument = await _run(large, reading.checked, models.MessageDocument, content)
    sender = message.sender if message.sender is not None else message.from_.address if message.from_ else ""
    named = [*message.to, *message.cc]
    people = _recipients([*(one.address for one in named), *message.bcc])
    for one, meta in _metadata(people, named):
        one.meta = meta
    envelope = Envelope(
        sender, people, sending_zone=message.zone or None, campaign=message.campaign,
        tenant=message.tenant, priority=message.priority, meta=message.metadata,
    )  # fmt: skip
    _check_recipients(here, envelope)
    key = _scoped(who, request)
    whole = await _run(large, _whole, content) if key else ""
    large = large or bool(message.attachments)
    given = [AttachmentGroup("attachments", message.attachments)]
    async with here.attachments.of(given, who.key, message.tenant or "") as (files,):
        digest = Digest(key, whole, *(one.digest for one in files if one.digest))
        return await here.hand_in(envelope, who, _pieces(await _run(large, _written, message, files)), digest)


async def _merged(here: RequestContext, who: Visit, request: Request, content: dict[str, Any]) -> list[dict[str, Any]]:
    document: templates.MergedDocument = await asyncio.to_thread(reading.checked, templates.MergedDocument, content)
    return await merged.send(here, who, document, reading.request_key(request))


def _whole(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


async def _run(large: bool, work: Callable[..., _T], *arguments: Any) -> _T:
    """Runs slow work in a thread."""
    return await asyncio.to_thread(work, *arguments) if large else work(*arguments)


def _written(message: models.MessageDocument, files: list[AttachedFile]) -> bytes:
    if message.raw is not None:
        return message.raw.encode()
    try:
        return compose(message, files)
    except RenderRefused as refused:
        raise invalid([FieldError("", str(refused))]) from None


async def _batch(here: RequestContext, who: Visit, request: Request, content: dict[str, Any]) -> Receipt:
    key = reading.request_key(request)
    if not key:
        raise RequestProblem(
            "malformed",
            "a batch needs the header Idempotency-Key; send one that names this batch, the same one each "
            "time you send it",
        )
    envelope = batch.read(content, here.config.limits.recipients)
    envelope.request = f"campaign {envelope.campaign} {key}"
    return await here.hand_in_batch(envelope, who)


def _recipients(addresses: list[str]) -> list[Recipient]:
    """Drops duplicate addresses."""
    return [Recipient(address) for address in dict.fromkeys(addresses)]


def _metadata(
    people: list[Recipient], named: list[models.AddresseeDocument]
) -> Iterator[tuple[Recipient, dict[str, Any]]]:
    """Of those that have any; of one that is named twice the first."""
    said: dict[str, dict[str, Any]] = {}
    for one in named:
        if one.metadata:
            said.setdefault(one.address, one.metadata)
    return ((one, said[one.address]) for one in people if one.address in said)


def _check_recipients(here: RequestContext, envelope: Envelope) -> None:
    most = here.config.limits.recipients
    if not 1 <= len(envelope.recipients) <= most:
        raise invalid([FieldError("to", f"names {len(envelope.recipients):,} recipients; name 1 to {most:,}")])
    envelope.smtputf8 = not (envelope.sender + "".join(one.address for one in envelope.recipients)).isascii()


def _scoped(who: Visit, request: Request) -> str:
    """The request's key, prefixed with its sender, "" if it has none."""
    key = reading.request_key(request)
    return f"key {who.key.name} {key}" if key else ""


async def _pieces(whole: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(whole), CHUNK_BYTES):
        yield whole[at : at + CHUNK_BYTES]
