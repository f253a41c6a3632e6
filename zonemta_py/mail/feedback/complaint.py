"""Complaints: RFC 5965 reports, and the forms of those providers who have their own.

Only what says abuse, fraud, virus, opt-out or nothing at all is a complaint; "not-spam" and reports on authentication
(RFC 6591) are other news. A redacted recipient is "": the message is then known by the original's fields.
"""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.addresses import address_of, addresses
from zonemta_py.mail.feedback.answers import is_machine, is_reply
from zonemta_py.mail.feedback.diagnostic import has_code
from zonemta_py.mail.feedback.enclosed import parted
from zonemta_py.mail.feedback.parts import Parts, fields_of
from zonemta_py.mail.feedback.report import Found
from zonemta_py.mail.feedback.vocabulary import (
    AWAY_SUBJECTS,
    COMPLAINING,
    COMPLAINTS,
    DELAYS,
    FAILURES,
    JUNK,
    fails,
)
from zonemta_py.mail.fields import one_line
from zonemta_py.mail.headers import decode
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.vocabulary.matcher import says

RECIPIENTS_MAX = 100
_NO_COMPLAINTS = frozenset(("not-spam", "notspam", "not_spam", "auth-failure", "dmarc", "other", "virus-scan"))
_RECIPIENTS = re.compile(
    r"^(?:Original-Rcpt-To|Removal-Recipient|Original-Recipient|X-HmXmrOriginalRecipient|X-Original-Rcpt-To"
    r"|Final-Recipient)[ \t]*:[ \t]*([^\n]+)",
    re.IGNORECASE | re.MULTILINE,
)
_REDACTED = re.compile(r"redacted|hidden|hashed|removed|xxxx|undisclosed|anonym", re.IGNORECASE)
_REPORTERS = (
    "staff@hotmail.com",
    "scomp@aol.net",
    "feedbackloop@",
    "fbl@",
    "fbl-",
    "abuse@",
    "complaints@",
    "feedback@arf",
    "spamreport",
    "junkreport",
    "antispam",
    "spam-report",
    "abuse-team",
    "abuse team",
    "abuse desk",
)
_OURS = ("abuse@", "fbl@", "fbl-", "complaints@", "spam@")
"""In a To field: addresses for complaints alone."""
_TAKERS = (*_OURS, "postmaster@")
_RECEIVED_FOR = re.compile(r"\bfor <([^<>\s@]{1,128}@[^<>\s]{1,255})>")


def read_arf(parts: Parts) -> list[Found]:
    """From a message/feedback-report part; [] if it has none."""
    fields = fields_of(parts.feedback)
    if not fields:
        return []
    kind = "other" if fields.get("feedback-type", "abuse").strip().lower() in _NO_COMPLAINTS else "complaint"
    named = _named(parts.feedback) or _named(parts.original.partition("\n\n")[0])
    text = one_line(fields.get("feedback-type", "abuse"))[:100]
    reporter = _host(fields.get("reporting-mta", "")) or parts.sender_host()
    return [
        Found(kind, recipient, Reply(0, "", text), reporter) for recipient in named or [_delivered_to(parts.original)]
    ]


def read_forwarded(parts: Parts) -> list[Found]:
    """A complaint without such a part: Microsoft's, and what people and gateways forward as text; [] if it is none."""
    subject, sender = parts.decoded("subject").lower(), parts.fields.get("from", "").lower()
    head, original = parts.text, parts.original
    if not original:
        head, original = parted(parts.text)
    marked = "x-hmxmroriginalrecipient" in original[:8_000].lower()
    words = " ".join(head[:2_000].lower().split())
    if not marked and not (original and _complains(parts, subject, sender, words)):
        return _told_by_desk(parts, subject, sender, words)
    parts.original = parts.original or original
    named = _named(original.partition("\n\n")[0]) or _named(head) or [_delivered_to(original)]
    return [Found("complaint", one, Reply(0, "", one_line(subject)[:300]), parts.sender_host()) for one in named]


def _told_by_desk(parts: Parts, subject: str, sender: str, words: str) -> list[Found]:
    """A complaint that an abuse desk passes on in words alone, and names who complained."""
    if not (says(sender, _REPORTERS) or _complaining(parts, subject)):
        return []
    desk = says(sender, _REPORTERS) and not is_machine(parts)
    if desk and says(words, COMPLAINING) and says(words, JUNK):
        subject = f"{subject} {words}"
    if not (says(subject, COMPLAINING) and says(subject, JUNK)):
        return []
    if not says(sender, _REPORTERS):
        author = address_of(parts.decoded("from"))
        to = parts.fields.get("to", "").lower()
        theirs = author.lower() == address_of(parts.fields.get("return-path", "")).lower() and says(to, _OURS)
        told = [Found("complaint", author, Reply(0, "", one_line(subject)[:300]), parts.sender_host())]
        return told if author and theirs and "list-id" not in parts.fields else []
    own = {one.lower() for name in ("from", "to") for one in addresses(parts.fields.get(name, ""))}
    named = [one for one in addresses(words) if one not in own]
    return [Found("complaint", one, Reply(0, "", one_line(subject)[:300]), parts.sender_host()) for one in named[:1]]


def _complains(parts: Parts, subject: str, sender: str, words: str) -> bool:
    """By its subject; or by its words, where those who pass on complaints, or somebody who is asked to take them, has
    it. A bounce may say that a mail was spam."""
    if _complaining(parts, subject):
        return True
    if is_machine(parts) or has_code(words) or says(subject, FAILURES):
        return False
    passed_on = says(sender, _REPORTERS) or says(parts.fields.get("to", "").lower(), _TAKERS)
    return passed_on and (says(words, COMPLAINTS) or says(words, COMPLAINING) or says(words, JUNK))


def _complaining(parts: Parts, subject: str) -> bool:
    """Whether its subject says so in words of its own: answers and bounces repeat ours, which may speak of junk."""
    ours = fields_of(parts.original[:8_000].lstrip("\n").partition("\n\n")[0]).get("subject", "")
    own = subject.replace(decode(ours).lower().strip(), "") if ours else subject
    automatic = parts.fields.get("auto-submitted", "").lower().startswith("auto-replied")
    answers = automatic or is_reply(parts) or says(subject, AWAY_SUBJECTS) or fails(own) or says(own, DELAYS)
    reports = says(parts.fields.get("from", "").lower(), _REPORTERS)
    if (answers or is_machine(parts)) and not reports:
        return False
    return says(own, COMPLAINTS) or (says(own, COMPLAINING) and says(own, JUNK))


def _named(text: str) -> list[str]:
    found = dict[str, None]()
    for match in _RECIPIENTS.finditer(text[:16_000]):
        address = address_of(match[1][:400])
        if address and not _REDACTED.search(address.partition("@")[0]):
            found[address] = None
    return list(found)[:RECIPIENTS_MAX]


def _delivered_to(original: str) -> str:
    """Whom the original went to, of fields that a mailbox's server writes; To may name a list, or anybody."""
    fields = fields_of(original.partition("\n\n")[0])
    for name in ("x-apparently-to", "delivered-to", "x-original-to", "envelope-to", "x-rcpt-to", "to"):
        address = address_of(fields.get(name, ""))
        if address and not _REDACTED.search(address):
            return address
    found = _RECEIVED_FOR.search(original[:8_000])
    return found[1] if found and not _REDACTED.search(found[1]) else ""


def _host(value: str) -> str:
    return (value.partition(";")[2] or value).strip()[:255]
