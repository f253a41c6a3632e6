"""Makes a message ready to be sent: merges it if it is a campaign's, lets plugins change it, recodes what must not
leave as it is, adds fields and signatures.

Failures: exceptions, which `not_made` turns into the outcome for the recipients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zonemta_py.delivery.message.body import Body
from zonemta_py.delivery.message.gate import Unsendable
from zonemta_py.delivery.message.sender_checks import NotFit
from zonemta_py.delivery.message.signing import Unsigned
from zonemta_py.mail import edits
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.headers import split
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.problems import RenderRefused, TemplateRefused
from zonemta_py.plugin.verdicts import Drop, Hold
from zonemta_py.queue.api import BOUNCED, DEFERRED, HELD, LINES_FIT, UNREADABLE, Delivery, Outcome, QueueRefusal

if TYPE_CHECKING:
    from zonemta_py.delivery.context import SenderContext
    from zonemta_py.plugin.host import Host

NotMade = (QueueRefusal, RenderRefused, TemplateRefused, Unsendable, Unsigned, NotFit)


async def letter(context: SenderContext, delivery: Delivery) -> Body:
    """The finished message of a delivery. Raises one of NotMade, or a plugin's Verdict."""
    if delivery.values is None and not context.host.listens("sender_fetch"):
        body = await stored(context, delivery)
    else:
        body = await fetched(context, delivery)
    if context.host.listens("sender_headers"):
        body = await body.with_header(await body.wanted(context.host, delivery))
    return await finished(context, delivery, body)


async def fetched(context: SenderContext, delivery: Delivery) -> Body:
    """As stored, or merged. Raises one of NotMade, or a plugin's Verdict."""
    host = context.host
    if host.listens("sender_fetch"):
        await host.call("sender_fetch", delivery=delivery)
    if delivery.values is None:
        return await stored(context, delivery)
    body = await stored(context, delivery, await context.templates.make(delivery))
    return body if context.merging is None else await _as_it_comes(context.merging, delivery, body)


async def _as_it_comes(host: Host, delivery: Delivery, body: Body) -> Body:
    """A message that was made just now, with the header section that plugins give to what comes in. Raises their
    verdict; who drops it has it held, as there is no client who could hear of it."""
    headers, _ = split(await body.head())
    envelope = Envelope(
        delivery.sender, list(delivery.recipients), size=delivery.size, origin=delivery.origin,
        user=delivery.user or None, protocol="HTTP", received_ms=delivery.received_ms, headers=dict(delivery.headers),
        campaign=delivery.campaign, tenant=delivery.tenant or None, account=delivery.account, notes=delivery.notes,
        meta=dict(delivery.meta),
    )  # fmt: skip
    try:
        await host.call("message_headers", envelope=envelope, headers=headers)
    except Drop as verdict:
        held = Hold(verdict.reason)
        held.plugin, held.hook = verdict.plugin, verdict.hook
        raise held from None
    return await body.with_header(headers.build())


async def stored(context: SenderContext, delivery: Delivery, pieces: list[bytes] | None = None) -> Body:
    """As stored, with what plugins, and then tasks, have changed in its header section. pieces: of a merged one."""
    body = Body(delivery, context.dispatch, pieces)
    if delivery.edits:
        headers, _ = split(await body.head())
        body = await body.with_header(edits.section(headers, delivery.edits))
    if delivery.routing and delivery.values is None and (fields := delivery.routing.get("header")):
        headers, _ = split(await body.head())
        edits.set_fields(headers, fields)
        body = await body.with_header(headers.build())
    return body


async def finished(context: SenderContext, delivery: Delivery, body: Body) -> Body:
    """With fields and signatures added. Raises one of NotMade."""
    if delivery.lines != LINES_FIT or body.changed:
        body = await context.gate.lines(delivery, body, context.zone(delivery.zone, delivery.tables))
    if context.outgoing.active or (delivery.routing and "dkim" in delivery.routing):
        await context.outgoing.finish(delivery, body)
    if context.sender_checks is not None and (zone := context.zone(delivery.zone)).sender_checks != "off":
        sender = context.outgoing.addressed(delivery).sender
        await context.sender_checks.look(zone, delivery, sender, await body.section())
    return body


async def for_server(context: SenderContext, delivery: Delivery, body: Body, keywords: Mapping[str, str]) -> Body:
    """The finished message as a server that offers these extensions can take it. Raises one of NotMade."""
    if "8bitmime" in keywords:
        return body
    other = await context.gate.seven(delivery, body, context.zone(delivery.zone, delivery.tables))
    if other is None:
        return body
    if context.outgoing.active or (delivery.routing and "dkim" in delivery.routing):
        await context.outgoing.finish(delivery, other)
    return other


def not_made(error: Exception, recipients: list[int]) -> Outcome:
    """error: one of NotMade. Values that make no message are final; an unavailable queue or key is temporary."""
    if isinstance(error, QueueRefusal):
        return refused_by_queue(error, recipients)
    if isinstance(error, Unsendable):
        kind = "protocol" if error.reply.enhanced == "5.6.3" else "syntax"
        return Outcome(BOUNCED, error.reply, "queue", recipients, kind=kind)
    if isinstance(error, NotFit):
        verdict = HELD if error.hold else BOUNCED
        return Outcome(verdict, error.reply, "queue", recipients, kind="authentication")
    if isinstance(error, Unsigned):  # no server has replied, so it has no stage that rules match
        return Outcome(DEFERRED, error.reply, "queue", recipients)
    return Outcome(BOUNCED, Reply(554, "5.6.0", f"the message cannot be made: {error}"), "queue", recipients)


def refused_by_queue(refusal: QueueRefusal, recipients: list[int]) -> Outcome:
    """A message that can never be read again goes back to its sender now; one that an operator has to make readable is
    held."""
    if refusal.reply == UNREADABLE:
        return Outcome(HELD, refusal.reply, "body", recipients, kind="system-error")
    final = refusal.reply.permanent
    return Outcome(BOUNCED if final else DEFERRED, refusal.reply, "body", recipients, kind="system-error")
