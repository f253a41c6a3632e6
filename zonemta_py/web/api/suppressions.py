"""/v1/suppressions and /v1/forget: who gets no mail any more, and who is to be forgotten."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from zonemta_py.queue import questions
from zonemta_py.reception.scope import OutOfScope
from zonemta_py.reception.suppression_scopes import entries_of, is_own, own_scope, page_of, people_scopes
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import models, reading, suppression_rows
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.keys import Holder

router = APIRouter(prefix="/v1", dependencies=[Depends(reading.known_query)])
_AT_ONCE = 500
_Address = Annotated[
    suppression_rows.Entry,
    Path(description="An email address; or @example.com, @*.example.com, a pattern such as noreply@*, or sha256:HEX."),
]


@router.post(
    "/suppressions",
    summary="Add addresses to the suppression list",
    response_model=document(questions.Added, closed=True),
    openapi_extra=reading.body_of("Suppressions") | needs("suppressions"),
    responses=described(400, 413, 415, 422),
)
async def add(request: Request) -> Response:
    """They get no mail of that scope from then on, including queued mail. A domain, a pattern or a hash stops every
    address that it covers. An existing entry stays as it is, unless the new kind ranks higher: hard-bounce, manual,
    unsubscribe, complaint, erased. A zone's settings say which kinds stop its mail, so that people who left a
    newsletter still get passwords."""
    here, who = request_context(request), visit(request)
    who.key.check("suppressions")
    mine = await people_scopes(here.queue, who.key.scope)
    content = await reading.json_object(request, here.config.http.body_bytes, suppression_rows.SUPPRESSIONS_MAX * 10)
    given, rows = content.get("rows"), list[list[Any]]()
    if not isinstance(given, list) or not 1 <= len(given) <= suppression_rows.SUPPRESSIONS_MAX or len(content) > 1:
        reading.checked(
            suppression_rows.Suppressions, content | {"rows": given[:1] if isinstance(given, list) else given}
        )
        raise invalid(
            [FieldError("rows", f"is not 1 to {suppression_rows.SUPPRESSIONS_MAX:,} rows; send fewer at once")]
        )
    for at in range(0, len(given), _AT_ONCE):
        part = reading.checked(suppression_rows.Suppressions, {"rows": given[at : at + _AT_ONCE]}, within=("rows", at))
        rows += [[one.address, one.kind, one.reason, one.evidence, one.by or who.key.name, one.campaign, 0,
                  _scope(who.key, mine, one.scope, one.kind)] for one in part.rows]  # fmt: skip
        await asyncio.sleep(0)
    return answer(await here.ask(questions.suppress, rows=rows))


@router.get(
    "/suppressions",
    summary="The suppression list",
    response_model=document(questions.SuppressionRows, closed=True),
    openapi_extra=needs("suppressions", "read"),
    responses=described(422),
)
async def every(
    request: Request,
    after: Annotated[models.Line, Query(description="The last page's `next`; default: the first page.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of rows.")] = 1000,
    kind: Annotated[suppression_rows.Kind | None, Query(description="Only entries of this kind.")] = None,
    scope: Annotated[suppression_rows.Scope | None, Query(description="Only entries of this scope.")] = None,
) -> Response:
    """Entries for all mail by address (or what else they are for), then those of each other scope, a page at a time."""
    here, who = request_context(request), visit(request).key
    who.check("suppressions", "read")
    mine = await people_scopes(here.queue, who.scope)
    try:
        if mine is not None:
            return answer(await page_of(here.queue, mine, after, limit, kind, scope))
        return answer(await here.queue.ask(questions.suppressions, after=after, limit=limit, kind=kind, scope=scope))
    except ValueError as error:
        raise RequestProblem("invalid", str(error)) from None


@router.get(
    "/suppressions/{address}",
    summary="Whether an address is suppressed, and why",
    response_model=document(questions.SuppressionRowsOf),
    openapi_extra=needs("suppressions", "read"),
    responses=described(404, 422),
)
async def one(request: Request, address: _Address) -> Response:
    here, who = request_context(request), visit(request).key
    who.check("suppressions", "read")
    row = await here.ask(questions.suppression, address=address)
    rows = entries_of(row, await people_scopes(here.queue, who.scope))
    if not rows:
        raise _not_there(address)
    return answer({**rows[0], "others": rows[1:]})


@router.get(
    "/suppressions/{address}/evidence",
    summary="Why an address is or is not suppressed",
    response_model=document(questions.EvidenceOf, closed=True),
    openapi_extra=needs("suppressions", "read"),
    responses=described(422),
)
async def evidence(request: Request, address: _Address) -> Response:
    """The refusals, complaints and unsubscribes that were heard of it, and what would be enough. A key with a scope
    sees those of its own mail."""
    here, who = request_context(request), visit(request).key
    who.check("suppressions", "read")
    found, scope = await here.ask(questions.evidence, address=address), who.scope
    if scope.bound:
        mine = await people_scopes(here.queue, scope) or []
        theirs = [one for one in found["heard"] if scope.covers(one.get("tenant"), one.get("campaign"))]
        found |= {"heard": theirs, "standing": [row for row in found["standing"] if is_own(mine, row["scope"])]}
        found |= {"entries": [row for row in found["entries"] if is_own(mine, row["scope"])], "guards": []}
    return answer(found)


@router.delete(
    "/suppressions/{address}",
    summary="Remove an address from the suppression list",
    response_model=suppression_rows.Removed,
    openapi_extra=needs("suppressions"),
    responses=described(404, 422),
)
async def remove(
    request: Request,
    address: _Address,
    scope: Annotated[
        suppression_rows.Scope | None, Query(description="Only its entry of this scope; default: all of them.")
    ] = None,
) -> Response:
    """The address gets mail again: only with that person's consent."""
    here, who = request_context(request), visit(request).key
    who.check("suppressions")
    mine = await people_scopes(here.queue, who.scope)
    scopes: list[str | None] = [scope]
    if mine is not None:
        rows = entries_of(await here.ask(questions.suppression, address=address), mine)
        scopes = [row["scope"] for row in rows if scope in (None, row["scope"])]
    removed = 0
    for one in scopes:
        removed += await here.ask(questions.unsuppress, addresses=[address], by=who.name, scope=one)
    if not removed:
        rows = entries_of(await here.ask(questions.suppression, address=address), mine)
        raise _covered(address, rows) if rows and scope is None else _not_there(address)
    return answer({"removed": removed})


@router.post(
    "/forget",
    summary="Forget a person",
    response_model=document(questions.Forgotten),
    openapi_extra=reading.body_of("Forget") | needs("suppressions", whole=True),
    responses=described(400, 413, 415, 422),
)
async def forget(request: Request) -> Response:
    """Removes the person's waiting mail from the queue, and stored Idempotency-Keys that are not in use."""
    here, who = request_context(request), visit(request)
    who.key.check("suppressions")
    who.key.check_whole()
    content = reading.checked(suppression_rows.Forget, await reading.json_object(request, here.config.http.body_bytes))
    return answer(await here.ask(questions.forget, address=content.address, keep=content.keep, by=who.key.name))


def _scope(who: Holder, mine: list[str] | None, wanted: str | None, kind: str) -> str | None:
    if mine is None:
        return wanted
    try:
        return own_scope(mine, wanted, kind)
    except OutOfScope as error:
        raise RequestProblem("no-right", f"the key {who.name!r} {error}") from None


def _covered(address: str, rows: list[questions.SuppressionRow]) -> RequestProblem:
    return RequestProblem("not-found", f"{address} has no entry of its own; {rows[0]['address']} covers it")


def _not_there(address: str) -> RequestProblem:
    return RequestProblem("not-found", f"{address} is not on the suppression list; GET /v1/suppressions shows who is")
