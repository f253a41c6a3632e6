"""Delivery status notifications: RFC 3464 and, with addresses in UTF-8, RFC 6533."""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.addresses import address_of
from zonemta_py.mail.feedback.diagnostic import ENHANCED, reply_of
from zonemta_py.mail.feedback.parts import fields_of
from zonemta_py.mail.feedback.report import Found
from zonemta_py.mail.reply import Reply

RECIPIENTS_MAX = 100
"""Of one report."""
_BLANK = re.compile(r"\n[ \t]*\n+")
_BEGINS = re.compile(r"^(Original-Recipient|Final-Recipient|Action)[ \t]?:", re.IGNORECASE | re.MULTILINE)
_NAMES = frozenset(("original-recipient", "final-recipient"))
_OF_RECIPIENT = frozenset(("action", "status", "diagnostic-code"))
_ESCAPED = re.compile(r"\\x\{([0-9A-F]{2,6})\}", re.IGNORECASE)
"""A character of an address in UTF-8 (RFC 6533 3)."""
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
    """One for each recipient named in a message/delivery-status part; if none is named, for each group of fields."""
    groups = _groups(status)
    whole: dict[str, str] = {}
    found = list[Found]()
    for group in groups:
        if "action" not in group and "final-recipient" not in group and "original-recipient" not in group:
            whole = group | whole
        elif len(found) < RECIPIENTS_MAX:
            found.append(_found(group, whole))
    return [one for one in found if one.recipient] or found


def _groups(status: str) -> list[dict[str, str]]:
    """Fields between blank lines, or where the next recipient begins without one. Fields of one recipient that blank
    lines have torn apart belong together."""
    groups = list[dict[str, str]]()
    for block in _BLANK.split(status.strip("\n"), 4 * RECIPIENTS_MAX):
        for fields in map(fields_of, _recipients(block)):
            if groups and _continues(groups[-1], fields):
                groups[-1] = groups[-1] | fields
            elif fields:
                groups.append(fields)
    return groups


def _recipients(block: str) -> list[str]:
    """The block, cut wherever the field comes again with which its first recipient begins."""
    begins = [match for _, match in zip(range(4 * RECIPIENTS_MAX), _BEGINS.finditer(block), strict=False)]
    again = [match.start() for match in begins[1:] if match[1].lower() == begins[0][1].lower()]
    return [block[start:end] for start, end in zip([0, *again], [*again, len(block)], strict=True)]


def _continues(group: dict[str, str], fields: dict[str, str]) -> bool:
    """Whether these fields are about the recipient of those before."""
    if not fields.keys() & _OF_RECIPIENT or fields.keys() & (group.keys() | _NAMES):
        return False
    return bool(group.keys() & _NAMES)


def _found(group: dict[str, str], whole: dict[str, str]) -> Found:
    named = ENHANCED.search(group.get("status", ""))
    status = named[1] if named else ""
    original, final = _named(group.get("original-recipient", "")), _named(group.get("final-recipient", ""))
    recipient = original or final
    reply = reply_of(group.get("diagnostic-code", ""), status)
    comment = group.get("status", "").partition("(")[2].rstrip(") ")
    if not reply.text and comment:
        reply = reply_of(comment, status)
    if original and final and original.lower() != final.lower() and final not in reply.text:
        reply = Reply(reply.code, reply.enhanced, f"{reply.text} (for {final})".lstrip())
    words = group.get("action", "").lower().split()
    kind = _ACTIONS.get(words[0].strip("();,") if words else "", "") or _kind_of(status)
    return Found(kind, recipient, reply, _host(group.get("remote-mta", "")) or _host(whole.get("reporting-mta", "")))


def _named(value: str) -> str:
    """The address, also one at what is no domain ("a@#b.example")."""
    value = _ESCAPED.sub(lambda match: chr(min(int(match[1], 16), 0x10FFFF)), value)
    words = (value.partition(";")[2] or value).split()
    odd = words[0].strip("<>") if words and words[0].count("@") == 1 and words[0].isprintable() else ""
    return address_of(value) or (odd if not odd.startswith("@") and not odd.endswith("@") else "")


def _kind_of(status: str) -> str:
    return {"2": "delivered", "4": "delay"}.get(status[:1], "bounce")


def _host(value: str) -> str:
    words = (value.partition(";")[2] or value).split()
    return words[0].strip("<>()")[:255] if words else ""
