"""Whether a text that came back speaks of a delivery, and whether that is still tried.

Theory: what has the null sender comes from a machine (RFC 5321 4.5.5): an automatic reply, which is asked first
(`answers`), or a notification. So a status code, an enclosed message, or words that mean a refusal to the rules'
vocabulary are enough there; what a person or a list may have sent must look like a report in more than one way, since
they quote reports and write about them. Pure.
"""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.addresses import address_of, addresses, is_service, spelt_out
from zonemta_py.mail.feedback.answers import is_list_server, is_machine, is_reply, thanks, writes_itself
from zonemta_py.mail.feedback.diagnostic import ENHANCED, has_code, permanent, temporary
from zonemta_py.mail.feedback.parts import Parts
from zonemta_py.mail.feedback.vocabulary import (
    DAEMONS,
    DELAYS,
    DELIVERED,
    FAILURES,
    FINAL,
    LISTS,
    OF_MAIL,
    OF_TRADE,
    OVERVIEWS,
    POSTAL,
    REASONS,
    fails,
)
from zonemta_py.mail.rules.reading import read as meaning
from zonemta_py.mail.vocabulary.matcher import says
from zonemta_py.mail.vocabulary.spelling import folded

_TITLES = tuple(phrase for phrase in (*FAILURES, *DELAYS) if not says(phrase, REASONS))
"""What a subject begins with in a mail about a delivery; a reason alone may begin any letter."""
_OF_MAIL = ("reject", *(one for one in FAILURES if not says(one, ("user", "address", "mailbox", "account", "domain"))))
"""In a subject: a message was refused, and not a person's login."""
_NOT_YET = re.compile(r"\bnot\b(?:\W{1,3}\w{1,20}){0,4}\W{1,3}yet\b")
"""A delay, with at most four words between the two."""
_NOT_FINAL = re.compile(r"\b(?:not|nicht|never)(?: been| yet)? (?:given up|giving up|aufgegeben|abandoned|expired)")
_DESKS = ("support", "help", "service@", "info@", "kontakt", "contact", "サポート", "поддержк", "客服", "고객")
"""In a From field: who answers requests, and may name an address that is no longer used."""
_OF_MANY = ("list-id", "list-post", "list-unsubscribe")
"""Fields of lists' mail and newsletters (RFC 2369, RFC 2919)."""
_ADDRESS = re.compile(r"[^\s<>@]{1,64}@[^\s<>@]{1,255}")
_BEGINNING_CHARACTERS = 300
_MEANING_CHARACTERS = 1_000


def speaks_of_delivery(parts: Parts, daemon: bool, failure: bool, words: str) -> bool:
    """Whether it is a mail system that writes, and of a delivery; a person may answer with the same subject.

    daemon: its author is a mail system's. failure: its subject speaks of one. words: the text without the original,
    lower case, with single spaces."""
    if parts.fields.get("x-failed-recipients"):
        return True
    if of_others(parts) or of_trade(parts, words):
        return False
    subject = parts.decoded("subject").lower()
    told = fails(words) or says(words, DELAYS) or has_code(words) or parts.kind == "multipart/report"
    if is_machine(parts):
        return _of_machine(parts, told, failure, words) or (daemon and _of_daemon(parts, failure or told, words))
    if daemon and not answerable(parts):
        return _of_daemon(parts, failure or told, words)
    if (is_reply(parts) and not parts.enclosed) or (to_many(parts) and not daemon):
        return False
    if parts.enclosed and told and writes_itself(parts):
        return True
    if daemon:
        told = told and (says(words, FAILURES) or not fails(words))
        about = bool(parts.original) or names_another(parts, words)
        return says(subject, FAILURES) or (told and about)
    about = bool(parts.original) or names_another(parts, f"{subject} {words}")
    if told and about and writes_itself(parts):
        if not answerable(parts) or is_list_server(parts) or says(words, LISTS):
            return True
        return says(subject, _OF_MAIL) and (bool(parts.original) or _names_somebody(parts, words))
    return told and failure and (bool(parts.original) or (titled(parts) and _names_somebody(parts, words)))


def _of_daemon(parts: Parts, told: bool, words: str) -> bool:
    """Of what a mail system signs, and has the null sender or one that nobody has told."""
    status = bool(ENHANCED.search(words)) or (is_machine(parts) and "@" in words)
    return told or status or says(parts.decoded("subject").lower(), DELIVERED)


def _of_machine(parts: Parts, told: bool, failure: bool, words: str) -> bool:
    """Of what has the null sender, and is no automatic reply."""
    said = f"{parts.decoded('subject').lower()} {words}"
    about = bool(parts.original) or names_another(parts, said)
    if has_code(said) or ENHANCED.search(said):
        return bool(parts.original) if is_reply(parts) else True
    if is_reply(parts) or not about:
        return False
    if failure:
        return True
    if of_desk(parts):
        return False
    if says(parts.decoded("from").lower(), POSTAL):
        return True
    return (told or _means_refusal(said)) if writes_itself(parts) else told and bool(parts.original)


def _means_refusal(said: str) -> bool:
    """To the vocabulary of the rules for replies."""
    found = meaning(folded(said[:_MEANING_CHARACTERS]), 0, "", "report")
    return bool(found.kind) and found.firm


def is_delay(subject: str, words: str) -> bool:
    """Whether delivery is still tried. Both lower case."""
    said = _NOT_FINAL.sub("", f"{subject} {words}")
    if says(said, FINAL):
        return False
    if says(said, DELAYS) or _NOT_YET.search(said):
        return says(subject, DELAYS) or not (permanent(words) and fails(words))
    return temporary(words) and not fails(f"{subject} {words}")


def names_another(parts: Parts, words: str) -> bool:
    """Whether it names an address that is not its author's."""
    author = address_of(parts.decoded("from")).lower()
    return any(one != author for one in addresses(words) or spelt_out(words))


def _names_somebody(parts: Parts, words: str) -> bool:
    """Whether it names an address that is neither its author's nor a service's, to whom one turns with questions."""
    author = address_of(parts.decoded("from")).lower()
    return any(one != author and not is_service(one) for one in addresses(words) or spelt_out(words))


def private(parts: Parts) -> bool:
    """Whether a person writes, or a list: they may quote what they like."""
    return answerable(parts) and (not titled(parts) or to_many(parts))


def of_others(parts: Parts) -> bool:
    """Whether it is about somebody's mail in general (reports of DMARC and TLS, digests of quarantines), or sent to
    many: not about a message of ours."""
    many = any(name in parts.fields for name in _OF_MANY) and "x-list-administrivia" not in parts.fields
    if many and not is_list_server(parts) and not says(parts.decoded("from").lower(), DAEMONS):
        return True
    return says(parts.decoded("subject").lower(), OVERVIEWS) and not parts.original


def of_trade(parts: Parts, words: str) -> bool:
    """Whether it begins with a payment or a parcel, which fail with numbers too, and not with mail."""
    if parts.original or says(parts.decoded("from").lower(), DAEMONS):
        return False
    said = _ADDRESS.sub("", f"{parts.decoded('subject').lower()} {words[:_BEGINNING_CHARACTERS]}")
    return says(said, OF_TRADE) and not says(said, OF_MAIL)


def of_desk(parts: Parts) -> bool:
    """Whether a help desk writes, or what thanks for a mail: either may name an address that is no longer used."""
    return thanks(parts.text) or says(parts.decoded("from").lower(), _DESKS)


def may_report(parts: Parts) -> bool:
    """Whether it may be a mail system's report, or a list server's: nobody whom one could answer writes them."""
    if of_desk(parts) or of_others(parts):
        return False
    return is_machine(parts) or is_list_server(parts) or (not answerable(parts) and writes_itself(parts))


def titled(parts: Parts) -> bool:
    """Whether its subject begins with the failure or delay of a delivery; people come to it later, or answer it."""
    return parts.decoded("subject").lower().lstrip().startswith(_TITLES)


def answerable(parts: Parts) -> bool:
    """Whether its envelope names who wrote it: mail systems leave that empty, lest two of them answer each other."""
    return "@" in parts.fields.get("return-path", "")


def to_many(parts: Parts) -> bool:
    """A list's mail, or a newsletter; not what a list server itself has to say (Mailman)."""
    if parts.fields.get("x-list-administrivia", "").lower() == "yes":
        return False
    return not is_machine(parts) and any(name in parts.fields for name in _OF_MANY)
