"""/v1/suppressions and /v1/forget: who gets no mail any more, and who is to be forgotten."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from zonemta_py.reception.http.authentication import answer, described, request_context, visit
from zonemta_py.reception.http.documents import models, people, reading
from zonemta_py.reception.http.documents.problem import FieldError, RequestProblem, invalid

router = APIRouter(prefix="/v1")
_AT_ONCE = 500
_Address = Annotated[models.Address, Path(description="An email address.")]


@router.post(
    "/suppressions",
    summary="Add addresses to the suppression list",
    response_model=people.Added,
    openapi_extra=reading.body_of("Suppressions"),
    responses=described(400, 413, 415, 422),
)
async def add(request: Request) -> Response:
    """They get no mail of that scope from then on, including queued mail. An existing entry stays as it is, unless the
    new kind ranks higher: hard-bounce, manual, unsubscribe, complaint, erased. A zone's settings say which kinds stop
    its mail, so that people who left a newsletter still get passwords."""
    here, who = request_context(request), visit(request)
    who.key.check("suppressions")
    content = await reading.json_object(request, here.config.http.body_bytes, people.SUPPRESSIONS_MAX * 10)
    given, rows = content.get("rows"), list[list[Any]]()
    if not isinstance(given, list) or not 1 <= len(given) <= people.SUPPRESSIONS_MAX or len(content) > 1:
        reading.checked(people.Suppressions, content | {"rows": given[:1] if isinstance(given, list) else given})
        raise invalid([FieldError("rows", f"is not 1 to {people.SUPPRESSIONS_MAX:,} rows; send fewer at once")])
    for at in range(0, len(given), _AT_ONCE):
        part = reading.checked(people.Suppressions, {"rows": given[at : at + _AT_ONCE]}, within=("rows", at))
        rows += [[one.address, one.kind, one.reason, one.evidence, one.by or who.key.name, one.campaign, 0, one.scope]
                 for one in part.rows]  # fmt: skip
        await asyncio.sleep(0)
    return answer(await here.ask("suppress", rows=rows))


@router.get(
    "/suppressions", summary="The suppression list", response_model=people.SuppressionRows, responses=described(422)
)
async def every(
    request: Request,
    after: Annotated[models.Line, Query(description="The last page's `next`; default: the first page.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of rows.")] = 1000,
    kind: Annotated[people.Kind | None, Query(description="Only entries of this kind.")] = None,
    scope: Annotated[people.Scope | None, Query(description="Only entries of this scope.")] = None,
) -> Response:
    """Entries for all mail by address, then those of each other scope, a page at a time."""
    visit(request).key.check("suppressions", "read")
    return answer(await request_context(request).ask("suppressions", after=after, limit=limit, kind=kind, scope=scope))


@router.get(
    "/suppressions/{address}",
    summary="Whether an address is suppressed, and why",
    response_model=people.SuppressionRowsOf,
    responses=described(404, 422),
)
async def one(request: Request, address: _Address) -> Response:
    visit(request).key.check("suppressions", "read")
    row = await request_context(request).ask("suppression", address=address)
    if row is None:
        raise _not_there(address)
    return answer(row)


@router.delete(
    "/suppressions/{address}",
    summary="Remove an address from the suppression list",
    response_model=people.Removed,
    responses=described(404, 422),
)
async def remove(
    request: Request,
    address: _Address,
    scope: Annotated[
        people.Scope | None, Query(description="Only its entry of this scope; default: all of them.")
    ] = None,
) -> Response:
    """The address gets mail again: only with that person's consent."""
    who = visit(request)
    who.key.check("suppressions")
    removed = await request_context(request).ask("unsuppress", addresses=[address], by=who.key.name, scope=scope)
    if not removed:
        raise _not_there(address)
    return answer({"removed": removed})


@router.post(
    "/forget",
    summary="Forget a person",
    response_model=people.Forgotten,
    openapi_extra=reading.body_of("Forget"),
    responses=described(400, 413, 415, 422),
)
async def forget(request: Request) -> Response:
    """Removes the person's waiting mail from the queue, and stored Idempotency-Keys that are not in use."""
    here, who = request_context(request), visit(request)
    who.key.check("suppressions")
    content = reading.checked(people.Forget, await reading.json_object(request, here.config.http.body_bytes))
    return answer(await here.ask("forget", address=content.address, keep=content.keep, by=who.key.name))


def _not_there(address: str) -> RequestProblem:
    return RequestProblem("not-found", f"{address} is not on the suppression list; GET /v1/suppressions shows who is")
