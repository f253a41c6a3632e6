"""/v1/attachments: files that are uploaded once, and to which mail refers (`attached`). Each is a tenant's."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import AfterValidator, WithJsonSchema

from zonemta_py.disk.attachments import BY_DIGEST, Kept
from zonemta_py.web.api.uploads.attached import AttachmentDesk
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import attachments, models, reading, values
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid

router = APIRouter(prefix="/v1/attachments", dependencies=[Depends(reading.known_query)])
_WRITTEN_AT_ONCE = 256 * 1024
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_OCTETS = "application/octet-stream"
_File = Annotated[
    str, AfterValidator(values.upload_name), WithJsonSchema({"type": "string", "pattern": values.UPLOAD_PATTERN}),
    Path(description="The name; readers see it too, unless the mail gives another."),
]  # fmt: skip
_Tenant = Annotated[models.Name | None, Query(description="Whose it is; default: the key's tenant, or nobody's.")]
_BODY: dict[str, Any] = {
    "required": True, "content": {_OCTETS: {"schema": {"type": "string", "format": "binary"}}},
    "description": "The file's bytes. Their Content-Type is kept, without parameters; application/octet-stream, or"
    " none, means what the name's ending says.",
}  # fmt: skip


@router.put(
    "/{file}",
    summary="Upload an attachment",
    response_model=attachments.Uploaded,
    openapi_extra={"requestBody": _BODY} | needs("inject", "campaigns"),
    responses=described(400, 409, 413, 415, 422),
)
async def put(request: Request, file: _File, tenant: _Tenant = None) -> Response:
    """Replaces one of that name. Messages and templates then have a `ref` instead of a content: the name, or the `ref`
    of the response. They get a copy when they are accepted, so what is replaced or removed later does not change them.
    The ETag is the content's digest."""
    here, owner = request_context(request), _owner(request, tenant, "inject", "campaigns")
    kind = _type(request, file)
    desk = here.attachments
    upload = await desk.run(desk.kept.begin)
    try:
        async for block in _gathered(reading.blocks(request, here.config.http.attachment_bytes)):
            await desk.run(upload.write, block)
        if not upload.size:
            raise invalid([FieldError("", "the body is empty; send the file's bytes")])
        kept, new = await desk.run(upload.finish, owner, file, kind, desk.clock_ms())
    finally:
        upload.abort()  # at once, since who is canceled may wait for nothing
    return _tagged(kept, _row(desk, kept) | {"created": new})


@router.get(
    "",
    summary="All attachments",
    response_model=attachments.AttachmentRows,
    openapi_extra=needs("inject", "campaigns", "read"),
    responses=described(409, 422),
)
async def every(
    request: Request,
    tenant: _Tenant = None,
    after: Annotated[models.Line, Query(description="The last page's `next`; default: the first page.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows.")] = 1000,
) -> Response:
    """Of one tenant, by name."""
    desk, owner = request_context(request).attachments, _owner(request, tenant, "inject", "campaigns", "read")
    found = await desk.run(desk.kept.listed, owner, desk.clock_ms())
    later = [one for one in found if one.name > after]
    more = len(later) > limit
    rows = [_row(desk, one) for one in later[:limit]]
    return answer({"rows": rows, "next": rows[-1]["name"] if more else None})


@router.get(
    "/{file}",
    summary="What there is of an attachment",
    response_model=attachments.AttachmentRow,
    openapi_extra=needs("inject", "campaigns", "read"),
    responses=described(404, 409, 422),
)
async def one(request: Request, file: _File, tenant: _Tenant = None) -> Response:
    """Its type, size and digest, which is also the ETag; not its content."""
    desk, owner = request_context(request).attachments, _owner(request, tenant, "inject", "campaigns", "read")
    found = await desk.run(desk.kept.find, owner, [file], desk.clock_ms())
    if not found:
        raise _not_there(file)
    return _tagged(found[file], _row(desk, found[file]))


@router.delete(
    "/{file}",
    summary="Remove an attachment",
    response_model=attachments.AttachmentGone,
    openapi_extra=needs("inject", "campaigns"),
    responses=described(404, 409, 422),
)
async def remove(request: Request, file: _File, tenant: _Tenant = None) -> Response:
    """Mail and campaigns that were accepted keep their copies; what refers to it from now on is refused."""
    desk, owner = request_context(request).attachments, _owner(request, tenant, "inject", "campaigns")
    if not await desk.run(desk.kept.remove, owner, file):
        raise _not_there(file)
    return answer({"removed": True})


def _owner(request: Request, tenant: str | None, *rights: Any) -> str:
    """Whose attachments they are. Raises RequestProblem."""
    who = visit(request)
    who.key.check(*rights)
    request_context(request).check_choices(who, tenant)
    return who.key.owner(tenant or "")


def _type(request: Request, name: str) -> str:
    """The media type. Raises RequestProblem."""
    reading.plain_coding(request)
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said in _FORMS:
        remedy = "send the file itself as the body (curl --upload-file FILE), with its own type or none"
        raise RequestProblem("media-type", f"the body's Content-Type is that of a form, {said!r}; {remedy}")
    if said in ("", _OCTETS):
        said = mimetypes.guess_type(name)[0] or _OCTETS
        return said if not said.startswith(("multipart/", "message/")) else _OCTETS
    try:
        return values.media_type(said)
    except ValueError as error:
        raise invalid([FieldError("header Content-Type", str(error))]) from None


async def _gathered(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Larger ones: each is written by a thread."""
    held = list[bytes]()
    async for block in blocks:
        held.append(block)
        if sum(map(len, held)) >= _WRITTEN_AT_ONCE:
            yield b"".join(held)
            held.clear()
    yield b"".join(held)


def _row(desk: AttachmentDesk, kept: Kept) -> dict[str, Any]:
    return {
        "name": kept.name, "type": kept.type, "size": kept.size, "ref": BY_DIGEST + kept.sha256,
        "uploaded_ms": kept.uploaded_ms, "expires_ms": desk.kept.expires_ms(kept),
    }  # fmt: skip


def _tagged(kept: Kept, row: dict[str, Any]) -> Response:
    response = answer(row)
    response.headers["etag"] = f'"{kept.sha256}"'
    return response


def _not_there(name: str) -> RequestProblem:
    return RequestProblem(
        "not-found", f"there is no attachment {name[:100]!r}; GET /v1/attachments shows what there is"
    )
