"""Delivery status notifications: RFC 3464 and, with addresses in UTF-8, RFC 6533."""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.addresses import address_of
from zonemta_py.mail.feedback.diagnostic import ENHANCED, reply_of
from zonemta_py.mail.feedback.parts import fields_of
from zonemta_py.mail.feedback.report import Found

RECIPIENTS_MAX = 100
"""Of one report."""
_BLANK = re.compile(r"\n[ \t]*\n+")
_ACTIONS = {
    "failed": "bounce",
    "failure": "bounce",
    "fail": "bounce",
    "expired": "bounce",
    "delayed": "delay",
    "delivered": "delivered",
    "relayed": "delivered",
    "expanded": "delivered",
    "deliverable": "delivered",
}


def read_status(status: str) -> list[Found]:
    """One for each recipient named in a message/delivery-status part, [] if there is none."""
    groups = _groups(status)
    whole: dict[str, str] = {}
    found = list[Found]()
    for group in groups:
        if "action" not in group and "final-recipient" not in group and "original-recipient" not in group:
            whole = group | whole
        elif len(found) < RECIPIENTS_MAX:
            found.append(_found(group, whole))
    return found


def _groups(status: str) -> list[dict[str, str]]:
    """Fields between blank lines. Fields of a recipient that a blank line has torn apart belong together."""
    groups = list[dict[str, str]]()
    for block in _BLANK.split(status.strip("\n"), 4 * RECIPIENTS_MAX):
        fields = fields_of(block)
        torn = "action" in fields and "final-recipient" not in fields and "original-recipient" not in fields
        if torn and groups and "final-recipient" in groups[-1] and "action" not in groups[-1]:
            groups[-1] = groups[-1] | fields
        elif fields:
            groups.append(fields)
    return groups


def _found(group: dict[str, str], whole: dict[str, str]) -> Found:
    named = ENHANCED.search(group.get("status", ""))
    status = named[1] if named else ""
    recipient = address_of(group.get("original-recipient", "")) or address_of(group.get("final-recipient", ""))
    reply = reply_of(group.get("diagnostic-code", ""), status)
    comment = group.get("status", "").partition("(")[2].rstrip(") ")
    if not reply.text and comment:
        reply = reply_of(comment, status)
    words = group.get("action", "").lower().split()
    kind = _ACTIONS.get(words[0].strip("();,") if words else "", "") or _kind_of(status)
    return Found(kind, recipient, reply, _host(group.get("remote-mta", "")) or _host(whole.get("reporting-mta", "")))


def _kind_of(status: str) -> str:
    return {"2": "delivered", "4": "delay"}.get(status[:1], "bounce")


def _host(value: str) -> str:
    words = (value.partition(";")[2] or value).split()
    return words[0].strip("<>()")[:255] if words else ""
