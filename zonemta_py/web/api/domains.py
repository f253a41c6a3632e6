"""/v1/domains: sender domains with their keys, return paths and links, and the DNS records that belong to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import AfterValidator, Field, WithJsonSchema, create_model

from zonemta_py.mail.sender_domain import checked_domain
from zonemta_py.queue import questions
from zonemta_py.web import sender_domains
from zonemta_py.web.authentication import answer, described, needs, request_context, visit
from zonemta_py.web.documents import models, reading
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.models import Model, Name
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext

router = APIRouter(prefix="/v1", dependencies=[Depends(reading.known_query)])
PEM_BYTES_MAX = 20_000
_SELECTOR = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$"


def _domain(value: str) -> str:
    """Raises ValueError."""
    return checked_domain(value)


DomainName = Annotated[str, AfterValidator(_domain), WithJsonSchema({"type": "string", "examples": ["example.com"]})]
_Pem = Annotated[models.Body, Field(max_length=PEM_BYTES_MAX)]
_Path = Annotated[DomainName, Path(description="The domain of its senders' addresses.")]


class DomainChange(Model):
    """What a sender domain is to be. What is left out stays as it is."""

    tenant: Name | Literal[""] | None = None
    """Whose it is: only this tenant's mail gets its keys, return paths and links."""
    return_path: DomainName | Literal[""] | None = None
    """The domain of its return paths, at it or below it; empty: that of the configuration. Default for a new one:
    bounces. and its name, where there are VERP addresses."""
    link: DomainName | Literal[""] | None = None
    """The name that links in its mail begin with, at it or below it; empty: that of the configuration."""
    selector: Annotated[str, Field(pattern=_SELECTOR)] | None = None
    """Of the key that is given or made."""
    algorithm: Literal["rsa", "ed25519"] = "rsa"
    """Of the key that is made."""
    private_key: _Pem | None = None
    """PEM, of a key that you have; default: one is made when there is none."""


class DomainRotation(Model):
    """A new key."""

    selector: Annotated[str, Field(pattern=_SELECTOR)] | None = None
    algorithm: Literal["rsa", "ed25519"] = "rsa"
    private_key: _Pem | None = None


class DomainRecord(Model):
    """A DNS record of it."""

    record: str
    """Which one: the selector of a key, return_path, spf, link or dmarc."""
    name: str
    type: Literal["TXT", "MX", "CNAME"]
    value: str
    line: str
    """The same as it stands in a zone file."""
    why: str
    status: Literal["ok", "missing", "wrong", "unknown", "unasked"]
    """What DNS said last."""
    words: str
    """What is there instead."""
    at_ms: int
    """When it was asked; 0: never."""


class RemovedDomain(Model):
    removed: str


_ROW: Any = document(questions.DomainRow)
SenderDomainDocument = create_model("SenderDomainDocument", __base__=_ROW, records=(list[DomainRecord], ...))
"""A sender domain, with the records to publish."""
SenderDomainDocument.__doc__ = "A sender domain, with the DNS records to publish."


@router.get(
    "/domains",
    summary="The sender domains",
    response_model=document(questions.DomainsPage, closed=True),
    openapi_extra=needs("domains", "read"),
    responses=described(422),
)
async def every(
    request: Request,
    after: Annotated[models.Line, Query(description="The last page's `next`; default: the first page.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="Maximum number of rows.")] = 100,
) -> Response:
    """By name, a page at a time. A key of tenants sees theirs."""
    here, who = request_context(request), visit(request).key
    who.check("domains", "read")
    return answer(await here.ask(questions.domains, after=after, limit=limit, own=_own(who)))


@router.get(
    "/domains/{domain}",
    summary="A sender domain, and the DNS records to publish",
    response_model=SenderDomainDocument,
    openapi_extra=needs("domains", "read"),
    responses=described(404, 409, 422),
)
async def one(request: Request, domain: _Path) -> Response:
    here, who = request_context(request), visit(request).key
    who.check("domains", "read")
    return answer(sender_domains.with_records(here.config, await _known(here, domain, who)))


@router.put(
    "/domains/{domain}",
    summary="Make or change a sender domain",
    response_model=SenderDomainDocument,
    openapi_extra=reading.body_of("DomainChange") | needs("domains"),
    responses=described(400, 409, 413, 415, 422),
)
async def put(request: Request, domain: _Path) -> Response:
    """A new one gets a DKIM key. Nothing of it is used before its records are seen in DNS: by POST …/check, or within
    minutes by the server itself. It holds for mail from then on, without a reload."""
    here, who = request_context(request), visit(request).key
    who.check("domains")
    wanted = reading.checked(DomainChange, await reading.json_object(request, here.config.http.body_bytes))
    own = _own(who)
    before = await here.ask(questions.domain, name=domain, own=own)
    given = wanted.model_dump(include={"tenant", "return_path", "link"}, exclude_none=True)
    if before is None:
        given["tenant"] = who.owner(given.get("tenant", ""))
    with _refusing():
        change = sender_domains.change(here.config, domain, given, before)
        if before is None or not before["keys"] or wanted.private_key:
            change |= await sender_domains.key(domain, wanted.selector, wanted.algorithm, wanted.private_key, before)
    row = await here.ask(questions.domain_put, name=domain, change=change, own=own, by=who.name)
    return answer(sender_domains.with_records(here.config, row))


@router.post(
    "/domains/{domain}/check",
    summary="Ask DNS for a sender domain's records now",
    response_model=SenderDomainDocument,
    openapi_extra=needs("domains"),
    responses=described(404, 409, 422),
)
async def check(request: Request, domain: _Path) -> Response:
    """What is right is used from then on."""
    here, who = request_context(request), visit(request).key
    who.check("domains")
    row = await sender_domains.looked(here.ask, here.config, await _known(here, domain, who))
    return answer(sender_domains.with_records(here.config, row))


@router.post(
    "/domains/{domain}/rotate",
    summary="Begin to change a sender domain's DKIM key",
    response_model=SenderDomainDocument,
    openapi_extra=reading.body_of("DomainRotation") | needs("domains"),
    responses=described(400, 404, 409, 413, 415, 422),
)
async def rotate(request: Request, domain: _Path) -> Response:
    """The new key signs once its record is seen; until then the present one does. What was signed by that is on its way
    for days: its record stays until then."""
    here, who = request_context(request), visit(request).key
    who.check("domains")
    wanted = reading.checked(DomainRotation, await reading.json_object(request, here.config.http.body_bytes))
    before = await _known(here, domain, who)
    with _refusing():
        change = await sender_domains.key(domain, wanted.selector, wanted.algorithm, wanted.private_key, before)
    row = await here.ask(questions.domain_put, name=domain, change=change, own=_own(who), by=who.name)
    return answer(sender_domains.with_records(here.config, row))


@router.delete(
    "/domains/{domain}",
    summary="Remove a sender domain",
    response_model=RemovedDomain,
    openapi_extra=needs("domains"),
    responses=described(404, 409, 422),
)
async def remove(request: Request, domain: _Path) -> Response:
    """Its keys are gone, too. What comes back to its own return paths is refused from then on."""
    here, who = request_context(request), visit(request).key
    who.check("domains")
    if not await here.ask(questions.domain_remove, name=domain, own=_own(who), by=who.name):
        raise _not_there(domain)
    return answer({"removed": domain})


def _own(who: Holder) -> list[str] | None:
    """Whose it may see; None: everybody's. Raises RequestProblem."""
    if who.scope.bound and not who.scope.tenants:
        who.check_whole()
    return sorted(who.scope.tenants) if who.scope.bound else None


async def _known(here: RequestContext, name: str, who: Holder) -> questions.DomainRow:
    row = await here.ask(questions.domain, name=name, own=_own(who))
    if row is None:
        raise _not_there(name)
    return row


def _not_there(name: str) -> RequestProblem:
    return RequestProblem("not-found", f"there is no sender domain {name}; GET /v1/domains shows those that there are")


@contextmanager
def _refusing() -> Iterator[None]:
    """Raises RequestProblem."""
    try:
        yield
    except sender_domains.FieldRefused as error:
        raise invalid([FieldError(error.field, str(error))]) from None
