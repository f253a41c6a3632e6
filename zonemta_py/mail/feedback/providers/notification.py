"""What providers of mail send as JSON by mail: Amazon SES through SNS (bounce, complaint, delivery, delay)."""

from __future__ import annotations

import json
from typing import Any

from zonemta_py.mail.feedback.addresses import address_of
from zonemta_py.mail.feedback.diagnostic import implied, reply_of
from zonemta_py.mail.feedback.report import Found
from zonemta_py.mail.reply import Reply

RECIPIENTS_MAX = 100
_KINDS = {"bounce": "bounce", "complaint": "complaint", "delivery": "delivered", "deliverydelay": "delay"}
_LISTS = {
    "bounce": "bouncedRecipients",
    "complaint": "complainedRecipients",
    "delivery": "recipients",
    "deliverydelay": "delayedRecipients",
}


def read_notification(text: str) -> tuple[list[Found], dict[str, str]]:
    """(what is found, fields of the original); ([], {}) if it is none."""
    document = _document(text)
    inner = document.get("Message")
    if isinstance(inner, str):
        document = _document(inner)
    event = str(document.get("notificationType") or document.get("eventType") or "").lower().replace(" ", "")
    about = next((value for key, value in document.items() if key.lower() == event and isinstance(value, dict)), None)
    if event not in _KINDS or about is None:
        return [], {}
    mail = document.get("mail")
    recipients = about.get(_LISTS[event])
    found = [_found(event, one, about) for one in recipients[:RECIPIENTS_MAX]] if isinstance(recipients, list) else []
    return found, _fields(mail) if isinstance(mail, dict) else {}


def _document(text: str) -> dict[str, Any]:
    """The object at the beginning of the text, whatever follows it; {} if there is none."""
    start = text.lstrip()
    if not start.startswith("{"):
        return {}
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(start)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _found(event: str, recipient: Any, about: dict[str, Any]) -> Found:
    told = recipient if isinstance(recipient, dict) else {"emailAddress": recipient}
    reporter = str(about.get("reportingMTA") or "").rpartition(";")[2].strip()
    address = address_of(str(told.get("emailAddress") or "")[:400])
    if event == "complaint":
        return Found(
            "complaint", address, Reply(0, "", str(about.get("complaintFeedbackType") or "abuse")[:100]), reporter
        )
    reply = reply_of(str(told.get("diagnosticCode") or about.get("smtpResponse") or ""), _status(told))
    if event == "bounce":
        soft = about.get("bounceType") in ("Transient", "Undetermined")
        reply = implied(reply, "temporary" if soft else "")
    return Found(_KINDS[event], address, reply, reporter)


def _status(told: dict[str, Any]) -> str:
    status = str(told.get("status") or "")
    return status if status.count(".") == 2 and status[:1] in "245" and status.replace(".", "").isdigit() else ""


def _fields(mail: dict[str, Any]) -> dict[str, str]:
    headers = mail.get("headers")
    fields = (
        {str(one.get("name")).lower(): str(one.get("value"))[:2_000] for one in headers if isinstance(one, dict)}
        if isinstance(headers, list)
        else {}
    )
    if isinstance(mail.get("source"), str):
        fields.setdefault("return-path", mail["source"][:400])
    return fields
