"""/v1/standing, /v1/suspensions and /v1/warmups: what holds mail, and how to change that.

A key with a scope sees and changes the suspensions of its own tenants and campaigns only.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from zonemta_py.queue import questions
from zonemta_py.web.api.admin import bodies, rows
from zonemta_py.web.api.admin.operation import ask, asked, every_standing, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import models, reading
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.models import Line
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext

router = APIRouter(prefix="/v1")
_Kind = Annotated[bodies.Suspendable, Path(description="What is suspended.")]
_Name = Annotated[models.Cause, Path(description="Its name; a destination's is that of its site or provider.")]


@router.get("/standing", **operation("read", "What holds mail", rows.StandingRows, whole=False))
async def standing(
    request: Request,
    kind: Annotated[bodies.Standing | None, Query(description="Only this kind.")] = None,
    limit: bodies.Limit = 1000,
    after: Annotated[int, Query(ge=0, le=10**6, description="The last page's `next`.")] = 0,
) -> Response:
    """Suspensions, rests, and what was learned about destinations: why, since when, until when."""
    here, who = asked(request)
    found = [row for row in await every_standing(here) if kind in (None, row["kind"])]
    if who.scope.bound:
        found = [row for row in found if await _own(here, who, row["kind"], row["name"])]
    return answer({"rows": found[after : after + limit], "next": after + limit if len(found) > after + limit else None})


@router.post(
    "/standing/lift",
    **operation("operate", "Lift what holds mail", document(rows.Lifted, closed=True), 404, body="Lift", whole=False),
)
async def lift(request: Request) -> Response:
    """A suspension, a rest, or what was learned: mail continues at once."""
    here, who = asked(request)
    said = reading.checked(bodies.Lift, await reading.json_object(request, here.config.http.body_bytes))
    return await _lifted(here, who, said.kind, said.name)


@router.put(
    "/suspensions/{kind}/{name}",
    **operation("operate", "Suspend", rows.Suspended, 404, 409, body="Suspension", whole=False),
)
async def suspend(request: Request, kind: _Kind, name: _Name) -> Response:
    """Nothing of it is sent from now on, until it is resumed. Its mail waits, without counting attempts."""
    here, who = asked(request)
    said = reading.checked(bodies.SuspensionDocument, await reading.json_object(request, here.config.http.body_bytes))
    await _check(here, who, kind, name)
    cause = said.cause or f"by the key {who.name}"
    try:
        tenants = sorted(who.scope.tenants) if kind == "campaign" else []
        held = await ask(
            here, "conflict", questions.stop, kind=kind, name=name, seconds=said.seconds, cause=cause, tenants=tenants
        )
    except RequestProblem:
        if who.scope.bound:  # the queue's sentence names those that there are
            raise _nothing(kind, name) from None
        raise
    kinds: tuple[str, ...] = (kind,)
    if kind in ("destination", "domain"):  # a destination that shares its hosts with others is suspended as a domain
        kinds, name = ("destination", "domain"), name.lower().rstrip(".")
    found = [row for row in await every_standing(here) if row["kind"] in kinds and row["name"] == name]
    return answer({"held": held, "standing": found})


@router.delete(
    "/suspensions/{kind}/{name}", **operation("operate", "Resume", document(rows.Lifted, closed=True), 404, whole=False)
)
async def resume(request: Request, kind: _Kind, name: _Name) -> Response:
    """What is suspended continues at once."""
    here, who = asked(request)
    return await _lifted(here, who, kind, name)


async def _lifted(here: RequestContext, who: Holder, kind: str, name: str) -> Response:
    await _check(here, who, kind, name)
    if not await ask(here, "not-found", questions.lift, kind=kind, name=name):
        raise _nothing(kind, name)
    return answer({"lifted": True})


async def _check(here: RequestContext, who: Holder, kind: str, name: str) -> None:
    if who.scope.bound and not await _own(here, who, kind, name):
        raise _nothing(kind, name)


async def _own(here: RequestContext, who: Holder, kind: str, name: str) -> bool:
    """Whether it is a tenant or campaign that the key has all of."""
    if kind == "tenant":
        return bool(name) and name in who.scope.tenants and not who.scope.campaigns
    if kind != "campaign":
        return False
    return await here.owns(who.scope, name)


def _nothing(kind: str, name: str) -> RequestProblem:
    return RequestProblem("not-found", f"there is no {kind} {name[:100]!r} here; GET /v1/standing lists what there is")


# -- reroutes


@router.get("/reroutes", **operation("read", "What is rerouted", list[questions.RerouteRow]))
async def reroutes(request: Request) -> Response:
    """Mail that goes by another pool, zone or smart host, or past one MX host: why, since when, until when."""
    here, _ = asked(request)
    return answer(await here.ask(questions.reroutes))


@router.post("/reroutes", **operation("operate", "Reroute mail", questions.RerouteRow, 409, body="Reroute"))
async def reroute(request: Request) -> Response:
    """What waits goes that way at its next try, and what comes; when it ends, mail goes its own way again."""
    here, who = asked(request)
    said = reading.checked(bodies.RerouteDocument, await reading.json_object(request, here.config.http.body_bytes))
    row = await ask(
        here, "conflict", questions.reroute, to=said.to, zone=said.zone or "", destination=said.destination or "",
        seconds=said.seconds, cause=said.cause, by=f"the key {who.name}",
    )  # fmt: skip
    return answer(row)


@router.delete("/reroutes", **operation("operate", "End a reroute", document(rows.RerouteEnded, closed=True), 404, 409))
async def end_reroute(
    request: Request,
    zone: Annotated[Line, Query(max_length=100, description="Its zone; default: any.")] = "",
    destination: Annotated[Line, Query(max_length=300, description="Its destination; default: any.")] = "",
) -> Response:
    """Its mail goes its own way again, that which waits, too."""
    here, _ = asked(request)
    if not await ask(here, "conflict", questions.reroute_remove, zone=zone, destination=destination):
        raise RequestProblem("not-found", "there is no such reroute; GET /v1/reroutes lists what there is")
    return answer({"removed": True})


# -- warm-up


@router.get("/warmups", **operation("read", "Warm-up of new sources", list[questions.WarmupRow]))
async def warmups(request: Request) -> Response:
    """Where each new source stands at each provider, today's cap, and what it has sent of it."""
    here, _ = asked(request)
    return answer(await here.ask(questions.warmup))


@router.put(
    "/warmups/{source}/{provider}",
    **operation("operate", "Set a source's warm-up step", questions.WarmupRow, 404, body="Step"),
)
async def warm(
    request: Request,
    source: Annotated[models.By, Path(description="Address of a source that is warming up.")],
    provider: Annotated[models.Cause, Path(description="A provider, or a site without one.")],
) -> Response:
    """What it sent today stays counted."""
    here, _ = asked(request)
    said = reading.checked(bodies.StepDocument, await reading.json_object(request, here.config.http.body_bytes))
    step = None if said.step == "warm" else said.step
    return answer(await ask(here, "not-found", questions.warm, source=source, provider=provider, step=step))
