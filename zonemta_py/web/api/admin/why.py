"""/v1/explain and /v1/in-doubt: why mail waits, and what may have arrived although nobody knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from zonemta_py.queue import questions
from zonemta_py.web.api.admin import bodies, messages, rows
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import models, reading
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext

router = APIRouter(prefix="/v1")
_ID = re.compile(r"[0-9a-f]{16}")
_What = Annotated[
    bodies.What,
    Query(description="A message's id, a recipient, domain, site, provider, campaign, tenant, IP address or zone."),
]


@router.get("/explain", **operation("read", "Why something waits", questions.Explained, 404, whole=False))
async def explain(
    request: Request,
    what: _What,
    after: Annotated[models.Line, Query(description="The last page's `next`; default: the first page.")] = "",
) -> Response:
    """And until when. A page is there within 40 ms, so that it may have no rows although there are some further on; the
    last has no `next`. A key with a scope asks for its own messages, tenants and campaigns."""
    here, who = asked(request)
    if not who.scope.bound:
        return answer(await _page(here, what, after))
    try:
        return answer(await _in_scope(here, who, what, here.cursors.opened(who.name, after)))
    except RequestProblem as problem:
        if problem.slug != "not-found":
            raise
    sentence = f"nothing called {what[:100]!r} waits here; ask for what is in the key's scope"
    raise RequestProblem("not-found", sentence)  # the same for what is another's, and for what is not there


async def _page(here: RequestContext, what: str, after: str) -> questions.Explained:
    """Raises RequestProblem."""
    return await ask(here, "invalid" if after else "not-found", questions.explain, what=what, after=after)


async def _in_scope(here: RequestContext, who: Holder, what: str, after: str) -> questions.Explained:
    """Of what others have, nothing is said: neither who is next, nor how many were looked at. The queue is only asked
    for what is in the scope, so that an answer does not take longer where others have something. Raises
    RequestProblem."""
    what = what.strip()
    if _ID.fullmatch(what):
        await messages.found(here, who, what)
    elif not after and not await _own(here, who, what):  # a cursor is only given to whom it belongs
        raise RequestProblem("not-found", "it is not in the scope")
    found = await _page(here, what, after)
    if found["kind"] != "message":
        if not after and found["kind"] not in ("tenant", "campaign"):
            raise RequestProblem("not-found", "a zone or domain has the same name")
        found |= {"rows": [row for row in found["rows"] if _covers(who, row)], "more": 0}
    following = here.cursors.sealed(who.name, found["next"]) if found["next"] else None
    return found | {"next": following, "looked": len(found["rows"])}


async def _own(here: RequestContext, who: Holder, name: str) -> bool:
    """Whether a tenant or campaign of that name is in the scope."""
    return name in who.scope.tenants or name in who.scope.campaigns or await here.owns(who.scope, name)


def _covers(who: Holder, row: Mapping[str, Any]) -> bool:
    return who.scope.covers(row.get("tenant"), row.get("campaign"))


@router.get("/in-doubt", **operation("read", "Recipients in doubt", rows.InDoubts))
async def in_doubt(
    request: Request,
    limit: bodies.Limit = 100,
    after: Annotated[models.Cause, Query(description="The last page's `next`; default: the first page.")] = "",
) -> Response:
    """Their final answers may have been on their way at a crash: they can get a message twice."""
    here, _ = asked(request)
    found = await ask(here, "invalid", questions.in_doubt, limit=limit, after=after)
    last = found[-1] if len(found) == limit else None
    return answer({"rows": found, "next": f"{last['id']} {last['recipient']}" if last else None})


@router.post(
    "/in-doubt/acknowledge",
    **operation("operate", "Acknowledge recipients in doubt", rows.Acknowledged, body="KnownDoubts"),
)
async def acknowledge(request: Request) -> Response:
    """Takes them from the list, which ends the alert; the journal still has them. Their mail goes on as before."""
    here, _ = asked(request)
    said = reading.checked(bodies.KnownDoubts, await reading.json_object(request, here.config.http.body_bytes))
    count = await ask(here, "invalid", questions.in_doubt_acknowledge, ids=said.ids, until_ms=said.until_ms)
    return answer({"acknowledged": count})


@router.get("/story", **operation("read", "The story of an address", questions.Story))
async def story(
    request: Request,
    what: Annotated[bodies.What, Query(description="An address, or a message's id.")],
    before: Annotated[models.By, Query(description="The last answer's `next`, to look further back.")] = "",
) -> Response:
    """Everything that happened to mail for it, from the journal and its archive."""
    here, _ = asked(request)
    return answer(await ask(here, "invalid", questions.trace, what=what, before=before))
