"""Messages made from one template, each for one person: rendered beside this process, and handed in one by one.

Each has a request key of its own, made from the request's: so what is repeated after a failure in the middle is stored
once. A template is checked as a campaign's is, and its instructions to this server are obeyed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from zonemta_py.mail.addresses.link import PRINTED, UNKNOWN, WIDENING, Link, Scope, printed
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.list_id import list_name, list_title
from zonemta_py.mail.schedule_fields import InvalidValue, apply
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.merge.trial import Person, Rendered, RenderOrder, TrialResult
from zonemta_py.queue import questions
from zonemta_py.queue.api import Receipt
from zonemta_py.web.api.templates.workshop import TOO_MUCH
from zonemta_py.web.api.uploads.attached import AttachmentGroup
from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.campaigns import TrialDocument
from zonemta_py.web.documents.models import AddresseeDocument
from zonemta_py.web.documents.problem import ERRORS_MAX, FieldError, RequestProblem, invalid
from zonemta_py.web.documents.templates import MergedDocument, PersonalDocument
from zonemta_py.web.request_context import Digest, RequestContext, Visit

NAME = "recipient_name"
"""The field that a template without to_name has beside the address."""
AT_ONCE = 32
"""So many are handed in together."""


async def send(here: RequestContext, who: Visit, content: MergedDocument, key: str) -> list[dict[str, Any]]:
    """Rows as `ReceiptOfOne`. key: of the request, "" if it has none. Raises RequestProblem, QueueRefusal, Verdict,
    MessageRefused."""
    most = here.config.limits.recipients
    if len(content.messages) > most:
        raise invalid([FieldError("messages", f"has {len(content.messages):,} messages; send {most:,} at most")])
    if len(content.messages) > 1 and not key:
        what = "several messages need the header Idempotency-Key; send one that names this request, the same each time"
        raise RequestProblem("malformed", what)
    people = len(content.messages)
    groups = [AttachmentGroup("template.attachments", content.template.attachments, people), *_groups(content.messages)]
    async with here.attachments.of(groups, who.key, content.tenant or "") as (common, *own):
        return await _send(here, who, content, key, common, own)


async def _send(
    here: RequestContext, who: Visit, content: MergedDocument, key: str, common: list[AttachedFile],
    own: list[list[AttachedFile]],
) -> list[dict[str, Any]]:  # fmt: skip
    """common: the template's attachments. own: everybody's."""
    source = content.template.source(common)
    if not content.template.to_name and any(one.to.name for one in content.messages):
        source = replace(source, to_name=Text(f"{{{{ {NAME} }}}}", "to_name"))
    found = await here.templates.prepared(source.pack(), here.site.clock_ms(), who.key)
    check_fields(found, content.messages, here.config.links.enabled)
    sender = content.sender if content.sender is not None else _author(found)
    letters = await rendered(
        here, who, found.prepared, found, content.messages, own, content.campaign or "", content.tenant or "", key
    )
    shared = (
        _identity(content.model_dump(mode="json", exclude=_said_nothing(content, "messages")), common) if key else ""
    )

    def one(number: int) -> Awaitable[dict[str, Any]]:
        person = content.messages[number]
        envelope = Envelope(
            sender, [_recipient(person)],
            sending_zone=content.zone or None, campaign=content.campaign, tenant=content.tenant,
            priority=content.priority, meta=dict(content.metadata),
        )  # fmt: skip
        _obey(here, found, envelope)
        alone = (
            _identity(person.model_dump(mode="json", exclude={"to": _said_nothing(person.to)}), own[number])
            if key
            else ""
        )
        digest = Digest(f"key {who.key.name} {key} {number}" if key else "", "merged", shared, alone)
        return _hand_in(here, who, envelope, letters[number], digest)

    return await _several(one, len(letters))


async def test(
    here: RequestContext, who: Visit, campaign: questions.CampaignRow, content: TrialDocument
) -> list[dict[str, Any]]:
    """A campaign's message for these people, of no campaign, and at once. campaign: its row. Raises as `send`."""
    source = TemplateSource.unpack(await here.queue.template(campaign["name"]))
    subject = replace(source.subject, content=protected(content.subject) + source.subject.content)
    packed = replace(source, subject=subject).pack()
    found = await here.templates.look(packed, who.key.name)
    check_fields(found, content.messages, here.config.links.enabled)
    tenant = campaign["tenant"] or ""
    async with here.attachments.of(_groups(content.messages), who.key, tenant) as own:
        letters = await rendered(here, who, packed, found, content.messages, own, campaign["name"], tenant, "")

    def one(number: int) -> Awaitable[dict[str, Any]]:
        envelope = Envelope(
            campaign["sender"], [_recipient(content.messages[number])],
            sending_zone=campaign["zone"] or None, tenant=campaign["tenant"] or None, notes=dict(found.notes or {}),
        )  # fmt: skip
        return _hand_in(here, who, envelope, letters[number], Digest(""), contents=False)

    return await _several(one, len(letters))


def protected(text: str) -> str:
    """As a template that says just that."""
    return f"{{{{ {text!r} }}}}" if "{" in text else text


async def _several(one: Callable[[int], Awaitable[dict[str, Any]]], count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for at in range(0, count, AT_ONCE):
        rows += await asyncio.gather(*map(one, range(at, min(at + AT_ONCE, count))))
    return rows


async def rendered(
    here: RequestContext, who: Visit, template: bytes, found: TrialResult, people: list[PersonalDocument],
    files: list[list[AttachedFile]], campaign: str, tenant: str, key: str,
) -> list[bytes]:  # fmt: skip
    """Everybody's message. template: prepared; found: what there is to know of it. files: of each alone. Raises
    RequestProblem for a value that the template cannot take."""
    unique = f"{who.key.name} {key}" if key else who.id
    order = RenderOrder(
        template,
        campaign,
        formatdate(here.site.clock_ms() / 1000),
        [
            _person(one, files[number], f"{unique} {number}", _links(here, found, one.to.address, campaign, tenant))
            for number, one in enumerate(people)
        ],
    )
    said = await here.templates.workshop.run("render", await asyncio.to_thread(order.pack), who.key.name)
    if said is None:
        raise invalid([FieldError("template", TOO_MUCH)])
    made = Rendered.unpack(said)
    if made.problems:
        wrong = [FieldError(f"messages[{number}]", what) for number, what in made.problems.items()]
        raise invalid(wrong[:ERRORS_MAX])
    return made.messages


def _links(here: RequestContext, found: TrialResult, address: str, campaign: str, tenant: str) -> dict[str, str]:
    """What the template may print: the message has no id yet."""
    links, day = here.config.links, here.site.clock_ms() // 86_400_000
    if not links.enabled:
        return {}
    asked = found.said.get("X-Unsubscribe", "").lower()
    scope: Scope = asked if asked in WIDENING else links.scope
    list_ = {"list_name": list_name(found.list_id), "list_title": list_title(found.list_id)}
    link = Link("unsubscribe", UNKNOWN, address, campaign, tenant, scope, day, **list_)
    return printed(links.url, link, links.secrets)


def _groups(people: list[PersonalDocument]) -> list[AttachmentGroup]:
    return [AttachmentGroup(f"messages[{number}].attachments", one.attachments) for number, one in enumerate(people)]


def _recipient(person: PersonalDocument) -> Recipient:
    return Recipient(person.to.address, meta=dict(person.to.metadata) or None)


def _said_nothing(document: MergedDocument | AddresseeDocument, *others: str) -> set[str]:
    """Without metadata a request is what it was before there were any."""
    return {*others} if document.metadata else {*others, "metadata"}


def _identity(document: dict[str, Any], files: list[AttachedFile]) -> str:
    """What a repeated request has to have, too: the same contents where it refers to some."""
    return json.dumps([document, [one.digest for one in files]], sort_keys=True)


def _person(one: PersonalDocument, files: list[AttachedFile], identity: str, links: dict[str, str]) -> Person:
    return Person(
        one.to.address,
        {NAME: one.to.name, **links, **one.fields},
        [(file.name, file.type, file.content) for file in files],
        hashlib.sha256(identity.encode()).hexdigest(),
    )


def check_fields(found: TrialResult, people: list[PersonalDocument], linked: bool) -> None:
    """linked: links are made here. Raises RequestProblem for fields that the template asks for, and somebody does not
    have."""
    wrong = [
        FieldError(f"messages[{number}].fields", f"has no {name!r}, which the template asks for ({place}); give it")
        for number, one in enumerate(people)
        for name, place in found.wanted.items()
        if name != NAME and name not in one.fields and not (linked and name in PRINTED)
    ]
    if wrong:
        raise invalid(wrong[:ERRORS_MAX])


def _author(found: TrialResult) -> str:
    address = found.author.rpartition("<")[2].rstrip("> \n").strip()
    if "{" in address:
        what = "is missing: the template's from is another for each recipient; give the return path"
        raise invalid([FieldError("sender", what)])
    return address


def _obey(here: RequestContext, found: TrialResult, envelope: Envelope) -> None:
    """What the template's fields ask of this server."""
    try:
        apply(envelope, found.said, here.site.rules.terms, here.site.clock_ms())
    except InvalidValue as wrong:
        raise invalid([FieldError("template.headers", str(wrong))]) from None


async def _hand_in(
    here: RequestContext, who: Visit, envelope: Envelope, letter: bytes, digest: Digest, contents: bool = True
) -> dict[str, Any]:
    """contents: plugins have not seen what it is made of."""
    address = envelope.recipients[0].address
    envelope.smtputf8 = not (envelope.sender + address).isascii()
    receipt: Receipt = await here.hand_in(envelope, who, _pieces(letter), digest, contents)
    return {
        "to": address,
        "id": receipt.id,
        "accepted": receipt.accepted,
        "suppressed": receipt.suppressed,
        "repeated": receipt.repeated,
    }


async def _pieces(whole: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(whole), CHUNK_BYTES):
        yield whole[at : at + CHUNK_BYTES]
