"""/v1/feedback: what came back about mail that was sent, told by programs and by providers' webhooks; and a list of it.

A key with the right `feedback` is believed ("key"), since an operator has given it; but not for a report that it passes
on, unless it says that it has proven who wrote it, or the report came to an address that a token of ours signs.

Of a key or a webhook with a scope it is only about its own mail, and only for its own lists. A row that names a message
is about that message's tenant and campaign, whatever else it says; one whose message nobody knows is what the key says
of its own. What follows from a bounce, a complaint or an unsubscribe is kept to a scope of the suppression list that is
the key's: a customer who invents bounces harms nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from zonemta_py.config import Right
from zonemta_py.config.own_addresses import own_addresses
from zonemta_py.mail.addresses.ours import NotOurs, Ours
from zonemta_py.mail.feedback.providers import webhooks
from zonemta_py.mail.feedback.read import read
from zonemta_py.mail.list_id import campaign_scope
from zonemta_py.mail.reports.letters import read_reports
from zonemta_py.queue import questions
from zonemta_py.queue.api import EVERYBODY, Feedback
from zonemta_py.reception.feedback.rows import Came, report_rows, rows
from zonemta_py.reception.scope import KeyScope, names
from zonemta_py.reception.suppression_scopes import is_own, written
from zonemta_py.web.api.feedback.webhooks import BODY_BYTES_MAX, Proven
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import feedback_rows, models, reading
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.request_context import RequestContext
from zonemta_py.wire.frames import feedback_row

log = logging.getLogger(__name__)

router = APIRouter(prefix="/v1", dependencies=[Depends(reading.known_query)])
BEGINNING_BYTES = 65_536
SIGNED_BODY_S = 20.0
"""How long a body may take that anybody could send: strangers must not keep the places of providers."""
_DAY_MS = 86_400_000
_MAIL = {
    "requestBody": {"required": True, "content": {reading.MAIL: {"schema": {"type": "string", "format": "binary"}}}}
}
_POSTED = {
    "requestBody": {
        "required": True,
        "content": {reading.JSON: {"schema": {"anyOf": [{"type": "object"}, {"type": "array"}]}}},
    }
}  # fmt: skip
_RIGHT: Right = "feedback"


@router.post(
    "/feedback",
    summary="Tell what became of messages",
    response_model=feedback_rows.Recorded,
    openapi_extra=reading.body_of("FeedbackRows") | needs(_RIGHT),
    responses=described(400, 413, 415, 422),
)
async def add(request: Request) -> Response:
    """Bounces, complaints, unsubscribes and what else came back by other ways than SMTP. Answered when it is on stable
    storage; each is counted for its campaign and suppresses as if it had come by mail. Repeat it whenever no answer
    came: nothing is counted twice. A key with a scope tells of its own mail, and what follows is for its own lists; if
    any row is not in the scope, none is recorded."""
    here = _asked(request)
    content = await reading.json_object(request, here.config.http.body_bytes, feedback_rows.ROWS_MAX * 16)
    document = reading.checked(feedback_rows.FeedbackRows, content)
    fields = [one.model_dump() | {"scope": one.scope or "", "via": "http", "form": "json", "genuine": "key"}
              for one in document.rows]  # fmt: skip
    told_rows, who = [Feedback(**one) for one in fields], visit(request).key
    if who.scope.bound:
        refused = await bind(here, who.scope, who.name, told_rows)
        for at, why in enumerate(refused):
            if why:
                raise RequestProblem("no-right", f"the key {who.name!r}: rows[{at}]: {why}")
    return answer(await _recorded(here, told_rows))


@router.post(
    "/feedback/report",
    summary="Pass on a report that came by mail",
    response_model=feedback_rows.ReportRead,
    openapi_extra=_MAIL | needs(_RIGHT),
    responses=described(400, 413, 415, 422),
)
async def report(
    request: Request,
    to: Annotated[models.Line, Query(description="The address it came to: one with our token proves it.")] = "",
    proven: Annotated[bool, Query(description="You have checked who wrote it (DKIM, SPF).")] = False,
) -> Response:
    """A whole message (message/rfc822): a bounce, a complaint, an automatic reply, in any form; with a key that has no
    scope also a DMARC aggregate report or a TLS report, which counts if you have proven it. Unless its address, an
    enclosed return path of ours or you prove it, it is recorded and shown, and nothing follows from it."""
    here = _asked(request)
    reading.media_type(request, reading.MAIL)
    message = b"".join([block async for block in reading.blocks(request, here.config.limits.message_bytes)])
    domains, today = here.config.return_path.domains, here.site.clock_ms() // _DAY_MS
    who = visit(request).key
    try:
        ours = domains.find(to, today) if to else None
    except NotOurs as error:
        raise invalid([FieldError("to", f"{error}; give the address that it came to, or none")]) from None
    if not who.scope.bound and (aggregates := await _aggregates(here, message, proven)):
        return answer({"form": aggregates[0].form, "rows": await _told(here, aggregates)})
    said = await asyncio.to_thread(read, message)
    came = Came(message[:BEGINNING_BYTES], said, "key" if proven else "", null=True)
    found = rows(ours or Ours("bounce", to), came, domains, today)
    for row in found:
        row.via = "http"
    found, left_out = await _within(here, who.scope, who.name, found)
    if left_out and not found:
        raise RequestProblem("no-right", f"the key {who.name!r}: {left_out[0]}")
    return answer({"form": said.form, "rows": await _told(here, found)})


async def _aggregates(here: RequestContext, message: bytes, proven: bool) -> list[Feedback]:
    """Rows of DMARC and TLS reports in a message."""
    found, _ = await asyncio.to_thread(read_reports, message, own_addresses(here.config))
    return [replace(row, via="http", genuine="key" if proven else "") for row in report_rows(found, "", "")]


async def _told(here: RequestContext, found: list[Feedback]) -> list[dict[str, Any]]:
    new = await here.queue.feedback(found)
    return [
        {"kind": row.kind, "recipient": row.recipient, "code": row.code, "enhanced": row.enhanced, "text": row.text,
         "genuine": row.genuine, "recorded": fresh} for row, fresh in zip(found, new, strict=True)
    ]  # fmt: skip


@router.get(
    "/reports",
    summary="What receivers report about our mail",
    response_model=document(questions.ReportsFound, closed=True),
    openapi_extra=needs(_RIGHT, "read"),
    responses=described(422),
)
async def reports(
    request: Request,
    days: Annotated[int, Query(ge=1, le=400, description="Reports about so many days up to today.")] = 7,
    domain: Annotated[
        models.Line, Query(max_length=255, pattern="^[^ ]*$", description="Only about this domain of ours.")
    ] = "",
) -> Response:
    """Sums of DMARC and TLS reports by receiver, the sources that were not aligned, and the latest reputation of each
    domain and address. For keys without a scope, since the reports are about domains that tenants may share."""
    here, who = _asked(request, "read"), visit(request).key
    if who.scope.bound:
        raise RequestProblem("no-right", f"the key {who.name!r} has a scope; reports are shown to one without")
    return answer(await here.ask(questions.feedback_reports, days=days, domain=domain.lower()))


@router.post(
    "/feedback/wishes",
    summary="Decide about wishes to leave",
    response_model=feedback_rows.WishesDecided,
    openapi_extra=reading.body_of("Wishes") | needs(_RIGHT),
    responses=described(400, 413, 415, 422),
)
async def decide(request: Request) -> Response:
    """Mail that may ask to leave a list, in prose, is kept for somebody to read (`GET /v1/feedback?wishes=true`). What
    is not a wish, or was decided before, is not counted. For keys without a scope."""
    here, who = _asked(request), visit(request).key
    if who.scope.bound:
        raise RequestProblem("no-right", f"the key {who.name!r} has a scope; wishes are decided by one without")
    content = await reading.json_object(request, here.config.http.body_bytes, feedback_rows.ROWS_MAX * 16)
    document = reading.checked(feedback_rows.Wishes, content)
    unsubscribed = await here.ask(questions.feedback_leave, numbers=document.leave)
    return answer({
        "unsubscribed": unsubscribed, "forgotten": await here.ask(questions.feedback_forget, numbers=document.forget)
    })  # fmt: skip


@router.post(
    "/feedback/{form}",
    summary="Take a provider's webhook",
    response_model=feedback_rows.WebhookTaken,
    openapi_extra=_POSTED | needs(_RIGHT),
    responses=described(400, 408, 413, 415, 422),
)
async def take(
    request: Request,
    form: Annotated[feedback_rows.Provider, Path(description="Whose form it is.")],
) -> Response:
    """What Amazon SES (through SNS), SendGrid, Mailgun and Postmark post. The first three may sign it: where
    [[http.webhooks]] has what proves that, the signature is needed and no key. Else put the key into the URL as a
    password: https://any:KEY@host/v1/feedback/ses. The messages are found by their Message-ID."""
    signed = request_context(request).webhooks.signed(request.scope["path"])
    here = request_context(request) if signed else _asked(request)
    content, proven = await (_signed(request, here, form) if signed else _keyed(request, here))
    if form == "ses" and (kind := webhooks.asks(content)):
        await _about_itself(here, kind, content, proven)
        return answer({"recorded": 0, "known": 0, "left_out": 0})
    try:
        found = webhooks.read(form, content)
    except webhooks.WebhookRefused as error:
        raise invalid([FieldError("body", str(error))]) from None
    scope, who = (proven.scope, proven.hook.name) if proven else (visit(request).key.scope, visit(request).key.name)
    told_rows, left_out = await _within(here, scope, who, [_row(form, one, proven) for one in found])
    return answer(await _recorded(here, told_rows) | {"left_out": len(left_out)})


@router.get(
    "/feedback",
    summary="What came back",
    response_model=document(feedback_rows.FeedbackPage, closed=True),
    openapi_extra=needs(_RIGHT, "read"),
    responses=described(422),
)
async def every(
    request: Request,
    kind: Annotated[
        feedback_rows.Kind | feedback_rows.Aggregate | None, Query(description="Only of this kind.")
    ] = None,
    recipient: Annotated[models.Address | None, Query(description="Only about this recipient.")] = None,
    campaign: Annotated[models.Name | None, Query(description="Only of this campaign.")] = None,
    message: Annotated[feedback_rows.MessageId | None, Query(description="Only about this message.")] = None,
    wishes: Annotated[bool, Query(description="Only what may be a wish to leave, for somebody to decide.")] = False,
    since_ms: Annotated[models.Count, Query(description="Only since then, UNIX time in ms.")] = 0,
    after: Annotated[models.Cause, Query(description="The last page's `next`; default: the first page.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="Maximum number of rows.")] = 100,
) -> Response:
    """The newest first, of the last `return_path.verp_days` days; a page may have fewer rows than asked for. A key
    with a scope sees what is in it."""
    here = _asked(request, "read")
    where = {"kind": kind, "recipient": recipient, "campaign": campaign, "message": message}
    given: dict[str, Any] = {name: value for name, value in where.items() if value} | {"wishes": wishes}
    own = visit(request).key.scope
    within = sorted(own.tenants), sorted(own.campaigns)
    return answer(
        await here.ask(questions.feedback, **given, since_ms=since_ms, after=after or 0, limit=limit, within=within)
    )


def _asked(request: Request, *others: Right) -> RequestContext:
    """Raises RequestProblem: the key may not."""
    who = visit(request).key
    who.check(_RIGHT, *others)
    return request_context(request)


async def _within(
    here: RequestContext, scope: KeyScope, who: str, told_rows: list[Feedback]
) -> tuple[list[Feedback], list[str]]:
    """What is in the scope; why the others are not."""
    if not scope.bound:
        return told_rows, []
    refused = await bind(here, scope, who, told_rows)
    if left_out := [why for why in refused if why]:
        log.info("%s: %d of %d rows of feedback are left out: %s", who, len(left_out), len(told_rows), left_out[0])
    return [row for row, why in zip(told_rows, refused, strict=True) if not why], left_out


async def _recorded(here: RequestContext, found: list[Feedback]) -> dict[str, int]:
    new = await here.queue.feedback(found)
    return {"recorded": sum(new), "known": len(new) - sum(new)}


def _row(provider: str, one: webhooks.Posted, proven: Proven | None) -> Feedback:
    """Where the signature is of a token alone, that is its name: another event with it is known already, also after a
    restart."""
    number = f"{one.name} {one.recipient}" if one.name else ""
    if proven is not None and proven.token:
        number = proven.token
    name = f"{provider} {number}" if number else ""
    return Feedback(
        one.kind, one.recipient, message_id=one.message_id, code=one.reply.code, enhanced=one.reply.enhanced,
        text=one.reply.text, form=provider, via="http", genuine="key", name=name,
    )  # fmt: skip


async def _keyed(request: Request, here: RequestContext) -> tuple[Any, None]:
    """What is posted with a key. Raises RequestProblem."""
    return _parsed(await _body(request, here.config.http.body_bytes)), None


async def _signed(request: Request, here: RequestContext, form: feedback_rows.Provider) -> tuple[Any, Proven]:
    """What is posted with a signature, which is right. Raises RequestProblem."""
    try:
        async with asyncio.timeout(SIGNED_BODY_S):
            body = await _body(request, min(here.config.http.body_bytes, BODY_BYTES_MAX))
    except TimeoutError:
        raise RequestProblem("slow", "the request comes too slowly; post it again over a faster connection") from None
    if form == "sendgrid":
        proven = here.webhooks.check_sendgrid(request.headers, body)
        return _parsed(body), proven
    content = _parsed(body)
    if form == "mailgun":
        return content, here.webhooks.check_mailgun(content)
    return content, await here.webhooks.check_ses(content)


async def _about_itself(here: RequestContext, kind: str, content: Any, proven: Proven | None) -> None:
    """Amazon SNS asks whether it may post, or says that it will not any more. Raises RequestProblem."""
    topic = str(content.get("TopicArn"))[:300]
    if kind == "UnsubscribeConfirmation":
        log.warning("Amazon SNS does not post %a to /v1/feedback/ses any more; subscribe again if that is wrong", topic)
    elif proven is not None:
        await here.webhooks.confirm(content, proven)
    else:
        url = str(content.get("SubscribeURL"))[:2_000]
        log.warning(
            "Amazon SNS, or somebody with the key, asks whether it may post %a to /v1/feedback/ses: to confirm it, open"
            " %a once if that is at amazonaws.com", topic, url,
        )  # fmt: skip


async def _body(request: Request, most: int) -> bytes:
    """SNS says that it is text/plain. Raises RequestProblem."""
    reading.media_type(request, reading.JSON, "text/plain")
    return b"".join([block async for block in reading.blocks(request, most)])


def _parsed(body: bytes) -> Any:
    """An object, or a list, which SendGrid posts. Raises RequestProblem."""
    listed = body.lstrip()[:1] == b"["
    content = reading.parsed(b'{"rows":' + body + b"}" if listed else body, webhooks.EVENTS_MAX * 40)
    return content["rows"] if listed else content


_SUPPRESSES = ("bounce", "complaint", "unsubscribe")


class _Outside(Exception):
    """Why it is not in the scope; a part of a sentence."""


class _About(NamedTuple):
    """Whose a row is."""

    campaign: str
    tenant: str


async def bind(here: RequestContext, scope: KeyScope, who: str, rows: list[Feedback]) -> list[str]:
    """Makes each row one of the scope; why it cannot be one, "" if it is. who: the key or webhook. Raises
    QueueRefusal."""
    bare = [replace(row, campaign="", tenant="", zone="") for row in rows]
    ties = await here.queue.ask(questions.feedback_ties, rows=[feedback_row(row) for row in bare])
    refused = list[str]()
    for row, (message, campaign, tenant, known) in zip(rows, ties, strict=True):
        try:
            if message and known:
                about = _of_message(scope, campaign, tenant)
            else:
                about = await _claimed(here, scope, row, campaign)
            row.scope = _effect(scope, row, about)
        except _Outside as outside:
            refused.append(str(outside))
            continue
        row.campaign, row.tenant, row.zone = about.campaign, about.tenant, ""
        row.name = f"{who} {row.name}" if row.name else ""
        refused.append("")
    return refused


def _of_message(scope: KeyScope, campaign: str, tenant: str) -> _About:
    if not scope.covers(tenant, campaign):
        raise _Outside("its message is not in this key's scope; leave it out")
    return _About(campaign, tenant)


async def _claimed(here: RequestContext, scope: KeyScope, row: Feedback, campaign: str) -> _About:
    """Of no message that is known. campaign: that the report itself speaks of."""
    if row.message:
        raise _Outside("its message is not in this key's scope; leave it out")
    campaign = campaign or row.campaign
    if not campaign and scope.campaigns:
        campaign = _only("campaign", scope.campaigns)
    if campaign:
        if not await here.owns(scope, campaign):
            raise _Outside(f"the campaign {campaign[:80]!r} is not in this key's scope; leave it out")
        of = await here.queue.ask(questions.campaign_tenant, name=campaign)
        if row.tenant and of not in (row.tenant, EVERYBODY):
            raise _Outside(f"the campaign {campaign[:80]!r} is not of the tenant {row.tenant[:80]!r}; leave that out")
        if of != EVERYBODY:
            return _About(campaign, of or "")
    tenant = row.tenant or (_only("tenant", scope.tenants) if scope.tenants else "")
    if scope.tenants and tenant not in scope.tenants:
        raise _Outside(f"the tenant {tenant[:80]!r} is not in this key's scope; name one of {names(scope.tenants)}")
    return _About(campaign, tenant)


def _only(what: str, own: frozenset[str]) -> str:
    if len(own) == 1:
        return next(iter(own))
    raise _Outside(f"it names neither a message that is known nor a {what}; name one of {names(own)}"[:300])


def _effect(scope: KeyScope, row: Feedback, about: _About) -> str:
    """The scope of what follows from it."""
    if row.kind not in _SUPPRESSES:
        return row.scope
    whole = f"tenant:{about.tenant}", f"campaigns:{about.tenant}", f"list:{about.tenant}/"
    own = [*whole] if about.tenant and not scope.campaigns else []
    own += [campaign_scope(about.campaign, about.tenant)] if about.campaign else []
    if row.scope and not is_own(own, row.scope):
        known = ", ".join(map(written, own))
        raise _Outside(f"the scope {row.scope[:80]!r} is not its own; use one of {known}, or none")
    if not own:
        raise _Outside("it is of neither a tenant nor a campaign, so nobody's list has room for it; leave it out")
    if row.kind == "unsubscribe" and not row.scope and len(own) > 1:
        return own[1]
    return row.scope or own[0]
