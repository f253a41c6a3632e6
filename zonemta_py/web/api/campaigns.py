"""/v1/campaigns: the state of campaigns, and orders about them, which the queue stores and carries out."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor

from zonemta_py.queue import questions
from zonemta_py.reception.suppression_scopes import own_campaigns
from zonemta_py.web.api.templates import hooked, merged
from zonemta_py.web.api.uploads.attached import AttachmentGroup
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import campaigns, models, reading, templates
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.request_context import RequestContext, Visit
from zonemta_py.web.serving import report_page
from zonemta_py.zones import campaign_hours
from zonemta_py.zones.campaign_hours import CampaignHours


class _OrderName(StringConvertor):
    """What may be an order: not what is there to be read."""

    regex = "(?!report$)[^/]+"


register_url_convertor("campaign_order", _OrderName())
router = APIRouter(prefix="/v1/campaigns", dependencies=[Depends(reading.known_query)])
_Name = Annotated[models.Name, Path(description="The campaign's name.")]
_Action = Annotated[
    Literal["suspend", "resume", "cancel", "complete", "pause"],
    Path(
        description="complete: all batches were sent, so it ends when nothing waits any more. pause is deprecated: "
        "it is another word for suspend."
    ),
]
_Body = TypeVar("_Body", bound=BaseModel)


def _order(summary: str, body: str, model: Any = questions.CampaignRow) -> dict[str, Any]:
    """Arguments of a route that orders something about a campaign that is there. body: the name of its schema."""
    return {
        "summary": summary, "response_model": document(model),
        "openapi_extra": reading.body_of(body) | needs("campaigns"),
        "responses": described(400, 404, 409, 413, 415, 422),
    }  # fmt: skip


@router.put(
    "/{name}",
    summary="Create a campaign",
    response_model=document(questions.Created, closed=True),
    openapi_extra=reading.body_of("Campaign") | needs("campaigns"),
    responses=described(400, 409, 413, 415, 422),
)
async def put(request: Request, name: _Name) -> Response:
    """Must precede its first batch. Repeating it with the same content succeeds; other content under the same name is a
    409."""
    here = request_context(request)
    who = visit(request).key
    who.check("campaigns")
    given = await reading.json_object(request, here.config.http.body_bytes)
    content = reading.checked(campaigns.CampaignDocument, given)
    who.speak(content.sender)
    tenant = content.tenant
    if who.scope.bound:
        tenant = tenant or (min(who.scope.tenants) if len(who.scope.tenants) == 1 else "")
        if not who.scope.covers(tenant, name):
            what = f"the campaign {name!r} of the tenant {tenant!r}"
            raise RequestProblem("no-right", f"{what} is not in the scope of the key {who.name!r}; name one that is")
    here.check_choices(visit(request), tenant, content.zone, content.priority)
    template = await _prepared(here, content.template, visit(request), tenant, name, content.sender)
    if content.zone and here.config.zone(content.zone) is None:
        raise invalid([FieldError("zone", f"there is no zone {content.zone[:80]!a}; name one from the configuration")])
    for variant in content.choice.of if content.choice else ():
        await here.campaign(variant, who.scope)
    hours = content.model_dump(include={*CampaignHours._fields})
    try:
        campaign_hours.checked(hours, frozenset(window.name for window in here.config.windows), now_ms=0)
    except ValueError as wrong:
        raise invalid([FieldError("hours", str(wrong))]) from None
    settings = content.model_dump(exclude={"template", "bounds", *hours}) | {"tenant": tenant, "hours": hours}
    bounds = content.bounds.model_dump(exclude_none=True) if content.bounds else {}
    alone = bool(who.scope.tenants)
    return answer(
        await here.ask(questions.campaign_put, name=name, template=template, bounds=bounds, alone=alone, **settings)
    )


async def _prepared(
    here: RequestContext, given: str | templates.TemplateDocument, who: Visit, tenant: str, name: str, sender: str
) -> bytes:
    """Checked, and prepared unless it comes so, and as plugins leave it. Raises RequestProblem, Verdict."""
    if isinstance(given, str):
        template = reading.bytes_of(given, "template")
        await here.templates.sound(template, here.site.clock_ms(), who.key)
    else:
        groups = [AttachmentGroup("template.attachments", given.attachments)]
        async with here.attachments.of(groups, who.key, tenant) as (files,):
            made = await here.templates.prepared(given.source(files).pack(), here.site.clock_ms(), who.key)
        template = made.prepared
    return await hooked.shown(here, who, template, name, sender, tenant)


@router.get(
    "",
    summary="All campaigns",
    response_model=document(list[questions.CampaignRow]),
    openapi_extra=needs("campaigns", "read"),
    responses=described(422),
)
async def every(
    request: Request,
    after: Annotated[
        models.Name | None, Query(description="The last page's last name; default: the first page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows.")] = 1000,
) -> Response:
    """The newest first, without their history."""
    who = visit(request).key
    who.check("campaigns", "read")
    here = request_context(request)
    if not who.scope.bound:
        try:
            return answer(await here.queue.ask(questions.campaigns, limit=limit, after=after or ""))
        except ValueError as error:
            raise invalid([FieldError("query after", str(error))]) from None
    rows = await own_campaigns(here.queue, who.scope)
    start = next((number for number, row in enumerate(rows, 1) if row["name"] == after), 0)
    return answer(rows[start : start + limit])


@router.get(
    "/{name}",
    summary="One campaign",
    response_model=document(questions.CampaignRow),
    openapi_extra=needs("campaigns", "read"),
    responses=described(404, 422),
)
async def one(
    request: Request,
    name: _Name,
    hours: Annotated[bool, Query(description="Who waits for their hour, too: this reads all that waits.")] = False,
) -> Response:
    """The state of a campaign, with its history."""
    who, here = visit(request).key, request_context(request)
    who.check("campaigns", "read")
    row = await here.campaign(name, who.scope)
    report = await report_page.known(here.config, name, who.scope)
    row["report_ms"] = report.made_ms if report is not None and report.created_ms == row["created_ms"] else 0
    if hours and row.get("hours"):
        scheduled = await here.ask(questions.campaign_hours, name=name)
        row["scheduled"] = {**scheduled}
    return answer(row)


@router.get(
    "/{name}/report",
    summary="A campaign's report",
    response_class=HTMLResponse,
    openapi_extra=needs("campaigns", "read"),
    responses=described(404, 422),
)
async def report(request: Request, name: _Name) -> Response:
    """The page that was made when the campaign had ended, also once the queue has forgotten the campaign."""
    who, here = visit(request).key, request_context(request)
    who.check("campaigns", "read")
    try:
        return await report_page.shown(here.config, name, who.scope)
    except report_page.NoReport as none:
        raise RequestProblem("not-found", str(none)) from None


@router.patch("/{name}", **_order("Change when a campaign goes", "CampaignTimes"))
async def change(request: Request, name: _Name) -> Response:
    """What is named changes, for all that waits; the rest stays. It is in effect before the response is sent."""
    here, _, said, _ = await _ordered(request, name, campaigns.CampaignTimes)
    return answer(await here.ask(questions.campaign_schedule, name=name, **said.model_dump(exclude_none=True)))


@router.post("/{name}/decide", **_order("Choose a campaign's template between its variants", "Decision"))
async def decide(request: Request, name: _Name) -> Response:
    """What waits of it goes from now on, with that template. It cannot be undone."""
    here, who, said, _ = await _ordered(request, name, campaigns.Decision)
    cause = said.cause or f"by the key {who.key.name}"
    return answer(await here.ask(questions.campaign_decide, name=name, winner=said.winner, cause=cause))


@router.post("/{name}/text", **_order("Correct a suspended campaign's template", "NewText"))
async def text(request: Request, name: _Name) -> Response:
    """All that waits of it, and all that comes, gets this template. What a request is refused for changes nothing."""
    here, who, said, row = await _ordered(request, name, campaigns.NewText)
    template = await _prepared(here, said.template, who, row["tenant"], name, row["sender"])
    await here.templates.fits(name, template, who.key.name)
    cause = said.cause or f"by the key {who.key.name}"
    return answer(await here.ask(questions.campaign_text, name=name, template=template, cause=cause))


@router.post("/{name}/test", **_order("Send a campaign's message to yourself", "Trial", templates.MergedReceipt))
async def test(request: Request, name: _Name) -> Response:
    """The message as these people would get it, at once, whatever the campaign's state and hours; it counts for no
    campaign."""
    here, who, content, row = await _ordered(request, name, campaigns.TrialDocument)
    return answer({"messages": await merged.test(here, who, row, content)})


@router.post("/{name}/{action:campaign_order}", **_order("Suspend, resume, cancel or complete a campaign", "Order"))
async def order(request: Request, name: _Name, action: _Action) -> Response:
    """The order is in effect before the response is sent. Canceling takes effect at once and cannot be undone."""
    here, who, said, _ = await _ordered(request, name, campaigns.Order)
    if action == "complete":
        return answer(await here.ask(questions.campaign_complete, name=name))
    ordered = questions.CAMPAIGN_ORDERS["pause" if action == "suspend" else action]
    return answer(await here.ask(ordered, name=name, cause=said.cause or f"by the key {who.key.name}"))


async def _ordered(
    request: Request, name: str, body: type[_Body]
) -> tuple[RequestContext, Visit, _Body, questions.CampaignRow]:
    """Whom to ask, who orders what, and the row of the campaign, which is theirs. Raises RequestProblem."""
    here, who = request_context(request), visit(request)
    who.key.check("campaigns")
    said = reading.checked(body, await reading.json_object(request, here.config.http.body_bytes))
    row = await here.campaign(name, who.key.scope)
    await here.own(name, who)
    return here, who, said, row
