"""/v1/recipients, /v1/sizes, /v1/size, /v1/ages: what is in the queue, in pages and in figures."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, Query, Request, Response

from zonemta_py.queue import questions
from zonemta_py.reception.suppression_scopes import own_campaigns
from zonemta_py.web.api.admin import rows, where
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import models
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext

router = APIRouter(prefix="/v1")
By = Literal["zone", "domain", "provider", "campaign", "tenant"]
_After = Annotated[models.Line, Query(description="The last page's `next`; default: the first page.")]


@router.get("/recipients", **operation("read", "Recipients in the queue", questions.Recipients, whole=False))
async def every(
    request: Request,
    filter: Annotated[dict[str, Any], Depends(where.of_query)],
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows.")] = 100,
    after: _After = "",
    order: Annotated[Literal["", "age"], Query(description="age: the oldest first, as they come anyway.")] = "",
) -> Response:
    """A page of those that all filters match: where each is, when it goes next, and what it waits for. The oldest come
    first; the recipients of a message by address. Whoever is in the queue, and meant, from the first page to the last
    is listed exactly once, whatever becomes of it and of others meanwhile; anybody else at most once. A page is there
    within 40 ms, so it may have fewer rows than asked for; the last has no `next`."""
    here, who = asked(request)
    if who.scope.bound:
        filter, after = who.narrowed(filter), here.cursors.opened(who.name, after)
    found = await ask(here, "invalid", questions.list_, limit=limit, after=after, order=order, **filter)
    if who.scope.bound:
        found["walked"] = len(found["rows"])  # how many others there are on the way is not for this key
        if found["next"]:
            found["next"] = here.cursors.sealed(who.name, found["next"])  # it names a recipient, perhaps of others
    return answer(found)


@router.get("/sizes", **operation("read", "How much is queued, by what", questions.SizesDocument, whole=False))
async def sizes(
    request: Request,
    by: Annotated[By, Query(description="What is counted by; with a scope: tenant or campaign.")],
    zone: Annotated[where.Text, Query(description="Of this zone only; counted by domain.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows.")] = 100,
    after: _After = "",
) -> Response:
    """Exact, the largest first, in pages."""
    here, who = asked(request)
    if who.scope.bound:
        return answer(await _own_sizes(here, who, by))
    return answer(await ask(here, "invalid", questions.sizes, by=by, limit=limit, after=after, zone=zone or None))


@router.get("/size", **operation("read", "How much is queued of something", questions.CountsDocument, whole=False))
async def size(
    request: Request,
    zone: Annotated[where.Text, Query(description="Of this zone.")] = "",
    domain: Annotated[where.Text, Query(description="To this domain; with zone or alone.")] = "",
    provider: Annotated[where.Text, Query(description="To this provider.")] = "",
    campaign: Annotated[where.Text, Query(description="Of this campaign; with tenant or alone.")] = "",
    tenant: Annotated[where.Text, Query(description="Of this tenant.")] = "",
) -> Response:
    """Exact, and at once. Without parameters: all."""
    here, who = asked(request)
    given = {"zone": zone, "domain": domain, "provider": provider, "campaign": campaign, "tenant": tenant}
    given = {name: value for name, value in given.items() if value}
    if who.scope.bound:
        if odd := given.keys() - {"campaign", "tenant"}:
            raise _not_counted(who, min(odd))
        return answer(await _own(here, who.narrowed(given)))
    if given:
        return answer(await ask(here, "invalid", questions.size_of, **given))
    return answer((await ask(here, "invalid", questions.size))["total"])


@router.get("/ages", **operation("read", "How old the mail is, by destination", questions.AgesDocument))
async def ages(
    request: Request,
    by: Annotated[Literal["domain", "site", "provider"], Query(description="What is counted by.")] = "domain",
    zone: Annotated[where.Text, Query(description="Of this zone only.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows.")] = 50,
) -> Response:
    """Age and destination, as Postfix's qshape shows it, from a pass over all recipients."""
    here, _ = asked(request)
    return answer(await ask(here, "not-found", questions.qshape, by=by, zone=zone or None, limit=limit))


async def _own(here: RequestContext, narrowed: dict[str, Any]) -> dict[str, int]:
    """The sum of all pairs of the filter's tenants and campaigns."""
    pairs: list[dict[str, str]] = [{}]
    for name in ("tenant", "campaign"):
        if name in narrowed:
            value = narrowed[name]
            names = value if isinstance(value, list) else [value]
            pairs = [pair | {name: one} for pair in pairs for one in names]
    total = Counter[str]()
    for pair in pairs[: rows.PAIRS_MAX]:
        total.update(cast(dict[str, int], await ask(here, "invalid", questions.size_of, **pair)))
    return total


async def _own_sizes(here: RequestContext, who: Holder, by: str) -> dict[str, Any]:
    if by == "tenant" and who.scope.tenants:
        names = sorted(who.scope.tenants)
    elif by == "campaign":
        names = sorted(who.scope.campaigns) or [row["name"] for row in await own_campaigns(here.queue, who.scope)]
    else:
        raise _not_counted(who, by)
    found = [{"name": name} | await _own(here, who.narrowed({by: name})) for name in names]
    found = [row for row in found if any(value for value in row.values() if isinstance(value, int))]
    found.sort(key=lambda row: -sum(value for value in row.values() if isinstance(value, int)))
    return {"rows": found, "next": None, "of": len(found)}


def _not_counted(who: Holder, by: str) -> RequestProblem:
    sentence = f"the key {who.name!r} has a scope, of which nothing is counted by {by}; use tenant or campaign"
    return invalid([FieldError(f"query {by}", sentence)])
