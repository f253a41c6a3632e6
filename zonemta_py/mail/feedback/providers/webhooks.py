"""What mail providers post to a program's address when something becomes of a message that they have sent: one event a
row, in the form that each documents.

    ses        Amazon SES through SNS: an envelope around a notification (bounce, complaint, delivery, delay)
    sendgrid   Twilio SendGrid's Event Webhook: a list of events
    mailgun    Mailgun's webhooks: `event-data` beside a signature
    postmark   Postmark's webhooks: one object, its `RecordType` says which

What is not news of a recipient (processed, sent, accepted) gives no row; what is unknown is not guessed. Signatures are
`signatures`' business. Failures: WebhookRefused, one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from zonemta_py.mail.feedback.addresses import address_of
from zonemta_py.mail.feedback.diagnostic import reply_of
from zonemta_py.mail.feedback.providers.notification import read_notification
from zonemta_py.mail.reply import Reply

EVENTS_MAX = 10_000
_TEXT_MAX = 500


class WebhookRefused(ValueError):
    """It is not of that provider's form; one sentence."""


class Posted(NamedTuple):
    """One event. kind: of feedback. reply: as of `Found`. message_id: the field of that name, as it was sent; "" if it
    does not say. name: the provider's own of the event, "" if there is none. text: a link, a reason."""

    kind: str
    recipient: str
    reply: Reply
    message_id: str = ""
    name: str = ""


def read(provider: str, content: Any) -> list[Posted]:
    """content: of the JSON. Raises WebhookRefused."""
    reader = READERS.get(provider)
    if reader is None:
        raise WebhookRefused(f"there is no form {provider[:40]!a}; there are {', '.join(READERS)}")
    try:
        return list(reader(content))
    except (KeyError, TypeError, AttributeError):
        raise WebhookRefused(
            f"the body is not of the form that {provider} documents; post its events unchanged"
        ) from None


def asks(content: Any) -> str:
    """Of Amazon SNS about itself: "SubscriptionConfirmation", "UnsubscribeConfirmation"; "" for anything else."""
    kind = content.get("Type") if isinstance(content, dict) else None
    return kind if kind in ("SubscriptionConfirmation", "UnsubscribeConfirmation") else ""


def _ses(content: Any) -> Iterator[Posted]:
    if not isinstance(content, dict) or not content.keys() & {"Message", "notificationType", "eventType"}:
        raise KeyError("Message")
    found, fields = read_notification(json.dumps(content))
    inner = content.get("Message")
    told = json.loads(inner) if isinstance(inner, str) and inner.lstrip()[:1] == "{" else content
    mail = told.get("mail") or {}
    own = (mail.get("commonHeaders") or {}).get("messageId") or fields.get("message-id") or ""
    for one in found:
        yield Posted(one.kind, one.recipient, one.reply, str(own), str(content.get("MessageId") or ""))


_SENDGRID = {
    "bounce": "bounce", "deferred": "delay", "delivered": "delivered", "spamreport": "complaint", "open": "open",
    "click": "click", "unsubscribe": "unsubscribe", "group_unsubscribe": "unsubscribe",
}  # fmt: skip


def _sendgrid(content: Any) -> Iterator[Posted]:
    for event in _listed(content):
        kind = _SENDGRID.get(event["event"])
        if kind is None:
            continue
        said = str(event.get("reason") or event.get("response") or "")
        reply = reply_of(said, str(event.get("status") or "")) if kind in ("bounce", "delay") else Reply(0)
        if kind == "click":
            reply = Reply(0, "", str(event.get("url") or ""))
        yield Posted(
            kind, _who(event["email"]), reply, str(event.get("smtp-id") or ""), str(event.get("sg_event_id") or "")
        )


_MAILGUN = {
    "failed": "bounce", "delivered": "delivered", "complained": "complaint", "unsubscribed": "unsubscribe",
    "opened": "open", "clicked": "click",
}  # fmt: skip


def _mailgun(content: Any) -> Iterator[Posted]:
    event = content["event-data"]
    kind = _MAILGUN.get(event["event"])
    if kind is None:
        return
    reply = Reply(0, "", str(event.get("url") or "") if kind == "click" else "")
    if kind == "bounce":
        kind = "delay" if event.get("severity") == "temporary" else kind
        status = event.get("delivery-status") or {}
        code, words = status.get("code"), str(status.get("message") or status.get("description") or "")
        reply = reply_of(words, str(status.get("enhanced-code") or ""))
        if not reply.code and isinstance(code, int) and 400 <= code <= 599:
            reply = Reply(code, reply.enhanced, reply.text)
    own = str(((event.get("message") or {}).get("headers") or {}).get("message-id") or "")
    yield Posted(
        kind, _who(event["recipient"]), reply, f"<{own}>" if own and own[0] != "<" else own, str(event.get("id") or "")
    )


_POSTMARK = {
    "Bounce": "bounce", "SpamComplaint": "complaint", "SubscriptionChange": "unsubscribe", "Open": "open",
    "Click": "click", "Delivery": "delivered",
}  # fmt: skip
_POSTMARK_TYPES = {
    "Transient": "delay", "DnsError": "delay", "AutoResponder": "auto-reply", "ChallengeVerification": "challenge",
    "SpamComplaint": "complaint", "Unsubscribe": "unsubscribe", "Subscribe": "", "AddressChange": "auto-reply",
    "OpenRelayTest": "", "VirusNotification": "other", "Unknown": "other",
}  # fmt: skip
"""Types of a Bounce that are none."""


def _postmark(content: Any) -> Iterator[Posted]:
    record, kind = content["RecordType"], _POSTMARK.get(content["RecordType"])
    if record == "Bounce":
        kind = _POSTMARK_TYPES.get(str(content.get("Type")), "bounce")
    if not kind or (record == "SubscriptionChange" and not content.get("SuppressSending")):
        return
    words = str(content.get("Details") or content.get("Description") or content.get("SuppressionReason") or "")
    reply = reply_of(words, "") if kind in ("bounce", "delay") else Reply(0, "", words[:_TEXT_MAX])
    if kind == "click":
        reply = Reply(0, "", str(content.get("OriginalLink") or ""))
    number = content.get("ID")
    name = f"{record} {number}" if number else ""
    yield Posted(kind, _who(content.get("Email") or content["Recipient"]), reply, "", name)


def _listed(content: Any) -> list[Any]:
    events = content if isinstance(content, list) else [content]
    if len(events) > EVENTS_MAX:
        raise WebhookRefused(f"{len(events):,} events at once are too many; post {EVENTS_MAX:,} at most")
    return events


def _who(value: Any) -> str:
    return address_of(str(value)[:400])


READERS: dict[str, Callable[[Any], Iterator[Posted]]] = {
    "ses": _ses, "sendgrid": _sendgrid, "mailgun": _mailgun, "postmark": _postmark,
}  # fmt: skip
"""By the name of the form."""
