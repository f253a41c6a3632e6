"""Of whom a reply speaks, and what it says of them, read with the vocabulary (`replies.toml`).

Theory: a reply says something (*predicate*: unknown, full, blocked …) of somebody (*subject*: recipient, sender, our
address or host, the message, the domain, their system). The same predicate means another class with each subject: an
unknown recipient is `user-unknown`, an unknown sender is not; so each predicate is given the nearest subject of its
clause. Where a reply names nobody the command it answers does: the stage. Of several predicates the more particular
one decides (ORDER). Pure; the text is a folded one (`spelling`).
"""

from __future__ import annotations

import re
from bisect import bisect
from typing import NamedTuple

from zonemta_py.mail.classify import CONNECTING
from zonemta_py.mail.rules.classes import AGREEABLE
from zonemta_py.mail.vocabulary.matcher import Token, tokens

FAR = 70
"""Letters between a predicate and its subject, at most."""
_CLAUSE = re.compile(r"[;:!|()\[\]\n,]|[.](?=\s|$)|(?:^| )- | -- ")
_CLAUSE_COST = 25
_OF = re.compile(
    r"\s*(?:of(?: the| your| its)?|for the|from the|de la|de l'|de|del|della|dello|du|des|der|von|vom|van de|van|do|da"
    r"|al)\s*"
)
_IP = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]\d)|(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f:]{1,4}(?![\w:])"
)
_URL = re.compile(r"https?://\S+")
_FIELD = re.compile(r"\b(?:from|to|proto|helo|ehlo|client|relay|ip|host|sender|rcpt|recipient|size|id|mailfrom)=\S*")
"""Of the session, as servers add them for whoever reads logs."""
_HOST_ASIDE = re.compile(r" \((?:[a-z0-9_-]{1,63}\.){1,8}[a-z0-9-]{2,63}\)")
"""The domain (example.com) …: nothing stands between."""
_ADDRESS = re.compile(r"<?@>?")
RECIPIENT_STAGES = frozenset(("rcpt", "data", "dot", "report"))
"""Those at which a reply can be about the recipient."""

_DIRECT = {
    "greylisting": "greylisting", "virus": "virus", "authentication": "authentication", "rdns": "reverse-dns",
    "relay": "relay-denied", "recipients": "too-many-recipients", "connections": "too-many-connections",
    "reputation": "poor-reputation", "spam": "spam-content", "rate": "rate", "expired": "expired", "tls": "tls",
    "syntax": "syntax", "protocol": "protocol", "network": "network", "nospace": "system-full", "busy": "rate",
    "error": "system-error", "again": "greylisting", "refused": "policy", "lists": "blocked-ip",
}  # fmt: skip
_OF_SUBJECT = {
    "unknown": {"recipient": "user-unknown", "sender": "policy", "source": "reverse-dns", "domain": "host-unknown",
                "content": "spam-content", "command": "protocol", "address": "user-unknown", "encryption": "tls"},
    "full": {
        "recipient": "mailbox-full", "system": "system-full", "sender": "rate", "source": "rate", "": "mailbox-full",
    },
    "disabled": {"recipient": "suspended", "sender": "policy", "system": "system-error", "source": "blocked-ip",
                 "encryption": "tls", "domain": "host-unknown"},
    "inactive": {"recipient": "inactive", "sender": "policy", "encryption": "tls", "domain": "host-unknown"},
    "moved": {"recipient": "moved", "address": "moved"},
    "blocked": {
        "recipient": "suspended", "sender": "policy", "source": "blocked-ip", "domain": "poor-reputation",
        "content": "spam-content", "": "policy",
    },
    "big": {"recipient": "mailbox-full", "content": "message-too-big", "": "message-too-big"},
}  # fmt: skip
ORDER = (
    "greylisting", "virus", "nospace", "recipients", "connections", "authentication", "rdns", "lists", "big", "spam",
    "relay", "blocked:source", "full:recipient", "unknown:sender", "moved", "unknown", "inactive", "disabled", "full",
    "tls", "reputation", "expired", "of nobody", "rate", "syntax", "blocked", "network", "busy", "protocol", "error",
    "again", "refused",
)  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(ORDER)}
_TELLING = frozenset(("network", "rate", "blocked-ip", "system-full"))
"""Classes that rank below "expired", and are its reason where a report names both."""


class Reading(NamedTuple):
    """kind: the class that the words say, "" if none. about: of whom, "" if that is not said. speaks: everybody it
    speaks of. said: all that it says. firm: it is said of that subject itself, close by.
    aside: our host is named too, but nothing is said of it. ip: an IP address is named."""

    kind: str
    about: str
    speaks: frozenset[str]
    said: frozenset[str]
    firm: bool
    aside: bool
    ip: bool


class _Said(NamedTuple):
    """In the order in which they decide: the more particular one, the one closer to its subject."""

    rank: int
    near: int
    kind: str
    about: str


def addresses_in(text: str) -> list[str]:
    """The IP addresses that a text names."""
    return _IP.findall(text)


def elsewhere(text: str) -> str:
    """The text, in which each IP address is that of a link: none of them is ours."""
    return _IP.sub("url", text)


def read(text: str, code: int, enhanced: str, stage: str) -> Reading:
    """text: folded, addresses as "@". stage, enhanced: whom an unnamed subject stands for."""
    ips = [Token(m.start(), m.end(), _OURS) for m in _IP.finditer(text)]
    if "://" in text:
        text = _URL.sub(_blank, text)
    fields = "=" in text and _FIELD.search(text) is not None
    if fields:
        text = _FIELD.sub(_blank, text)
    if "(" in text:
        text = _HOST_ASIDE.sub("", text)
    found = tokens(text)
    subjects = _subjects(text, found)
    ends = [match.start() for match in _CLAUSE.finditer(text)]
    asides = _asides(ends, found, subjects)
    nouns = sorted(subjects + ips + _addresses(text, subjects))
    sayings = [
        saying
        for token in found
        for predicate in token.concepts & _PREDICATES
        if (saying := _saying(ends, token, predicate, nouns, stage, enhanced))
    ]
    speaks = frozenset(next(iter(token.concepts)) for token in subjects if token not in asides)
    aside = fields or bool(asides)
    said = frozenset(concept for token in found for concept in token.concepts)
    best = min(sayings, default=None)
    if best and stage == "report" and best.rank == _RANK["expired"]:
        # That it was given up is said of all: the reason goes before.
        best = min((one for one in sayings if one.kind in _TELLING and one.near <= FAR), default=best)
    if best and best.kind == "greylisting" and "greylisting" not in said and not _may_be_greylisting(code, enhanced):
        best = None
    if best is None:
        return Reading("", "", speaks, said, False, aside, bool(ips))
    told = stage == "report" and enhanced in _OF_RECIPIENTS and best.kind in AGREEABLE and best.about != "sender"
    if told and "sender" in speaks:  # whom it greets; not enough to suppress for one of it all the same
        return Reading(best.kind, best.about, speaks, said, best.near <= FAR, True, bool(ips))
    kind, about = _of_others(best, speaks, said, bool(ips), stage)
    return Reading(kind, about, speaks, said, best.near <= FAR, aside, bool(ips))


def _of_others(best: _Said, speaks: frozenset[str], said: frozenset[str], ip: bool, stage: str) -> tuple[str, str]:
    """A recipient that is unknown in a reply that speaks of the sender is the sender, or their concern; and what is
    junk before anybody saw the message is our address."""
    kind, about = best.kind, best.about
    if best.rank == _RANK["busy"] and about == "system":
        return "system-error", about
    if kind == "authentication" and "relay" in said:
        return "relay-denied", about
    if kind == "spam-content" and ("source" in speaks or ip) and stage in _UNSEEN and "part" not in said:
        return "poor-reputation", "source"
    if kind == "blocked-ip" and "part" in said and about != "source":
        return "spam-content", "content"
    if kind == "host-unknown" and (ip or "source" in speaks):
        return "reverse-dns", "source"
    if kind not in AGREEABLE and kind != "host-unknown":
        return kind, about
    if "source" in speaks:
        return ("poor-reputation" if kind == "user-unknown" else "blocked-ip"), "source"
    return ("policy", "sender") if "sender" in speaks else (kind, about)


def _may_be_greylisting(code: int, enhanced: str) -> bool:
    """ "Later" alone, from a server that names no system of its own."""
    return 400 <= code < 500 and code not in (421, 452) and enhanced[:4] in ("", "4.7.")


def _addresses(text: str, subjects: list[Token]) -> list[Token]:
    """Addresses within the text that stand beside no noun: whose they are is not said."""
    found = []
    for mark in _ADDRESS.finditer(text):
        beside = any(0 <= mark.start() - noun.end <= 3 for noun in subjects)
        if mark.start() > 2 and not beside:
            found.append(Token(mark.start(), mark.end(), _SOMEBODY))
    return found


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _asides(ends: list[int], found: list[Token], subjects: list[Token]) -> list[Token]:
    """Where our host is only named, in a clause of its own after another: "user unknown (client mx.example.com)"."""
    if len(subjects) < 2 or not any(_OURS & token.concepts for token in subjects):
        return []
    said = {bisect(ends, token.start) for token in found if token.concepts & _PREDICATES}
    clauses = [(token, bisect(ends, token.start)) for token in subjects if token.concepts == _OURS]
    return [token for token, clause in clauses if said and clause > min(said) and clause not in said]


def _subjects(text: str, found: list[Token]) -> list[Token]:
    """One subject each; "mailbox of the sender" and "sender mailbox" are the sender."""
    merged: list[Token] = []
    for token in found:
        named = [name for name in _PRECEDENCE if name in token.concepts]
        if not named:
            continue
        one = Token(token.start, token.end, frozenset(named[:1]))
        if merged and (joined := _joined(text, merged[-1], one)):
            merged[-1] = joined
        else:
            merged.append(one)
    return merged


def _joined(text: str, before: Token, after: Token) -> Token | None:
    between = text[before.end : after.start]
    if len(between) > 12:
        return None
    if _OF.fullmatch(between) and after.concepts & _STRONG:
        return Token(before.start, after.end, after.concepts)
    if between in _ADJACENT and before.concepts & _STRONG:
        return Token(before.start, after.end, before.concepts)
    return None


def _saying(
    ends: list[int], token: Token, predicate: str, nouns: list[Token], stage: str, enhanced: str
) -> _Said | None:
    near, about = min(
        ((_distance(ends, token, noun), next(iter(noun.concepts))) for noun in nouns), default=(FAR + 1, "")
    )
    if near > FAR or (about == "recipient" and stage not in RECIPIENT_STAGES):
        about = _unnamed(stage, enhanced)
    if predicate in _DIRECT:
        return _Said(_RANK[predicate], near, _DIRECT[predicate], about)
    kinds = _OF_SUBJECT[predicate]
    if about == "system" and about not in kinds:
        near, about = FAR + 1, _other_than_system(ends, token, nouns) or _unnamed(stage, enhanced)
    if predicate == "big" and near > FAR and about == "recipient":
        about = ""
    kind = kinds.get(about) or kinds.get("", "")
    if not kind or (predicate == "unknown" and about == "content" and stage == "report"):
        return None  # a report says that the message was deleted, too
    if (predicate in _OF_NOBODY and near > FAR) or (predicate == "unknown" and about == "content"):
        return _Said(_RANK["of nobody"], near, kind, about)
    return _Said(_RANK.get(f"{predicate}:{about}", _RANK[predicate]), near, kind, about)


def _other_than_system(ends: list[int], token: Token, nouns: list[Token]) -> str:
    """The nearest subject but their system, which is only where it is said: "not found on this server"."""
    others = [(_distance(ends, token, noun), next(iter(noun.concepts))) for noun in nouns]
    near, about = min(((far, name) for far, name in others if name != "system"), default=(FAR + 1, ""))
    return about if near <= FAR else ""


def _distance(ends: list[int], token: Token, noun: Token) -> int:
    """Letters between, more over the end of a clause. ends: where clauses end."""
    first, second = (noun, token) if noun.start < token.start else (token, noun)
    if second.start < first.end:
        return 0
    return second.start - first.end + _CLAUSE_COST * (bisect(ends, second.start) - bisect(ends, first.start))


def _unnamed(stage: str, enhanced: str) -> str:
    """Of whom a reply speaks that names nobody."""
    status = enhanced[1:]
    if status in (".1.7", ".1.8") or stage == "mail":
        return "sender"
    if stage in CONNECTING:
        return "source"
    if stage in ("rcpt", "report") or status.startswith((".1.", ".2.")):
        return "recipient"
    return ""


_UNSEEN = CONNECTING | {"mail", "rcpt"}
"""Stages at which nobody has seen the message."""
_OF_NOBODY = frozenset(("full", "inactive", "disabled"))
"""Of lower rank ("of nobody") where no subject is near: what is full or has run out may be the time for delivery. So is
a message that is no more."""
_PREDICATES = frozenset(_DIRECT) | frozenset(_OF_SUBJECT)
_PRECEDENCE = ("source", "sender", "recipient", "domain", "content", "system", "command", "encryption")
_STRONG = frozenset(("source", "sender"))
_OURS = frozenset(("source",))
_SOMEBODY = frozenset(("address",))
_OF_RECIPIENTS = frozenset(("5.1.1", "5.1.10", "5.1.6", "5.2.1"))
"""Statuses that a report gives about its recipient, though its sentences greet the sender, too."""
_ADJACENT = (" ", "'s ", "s ", "-", " <@> ", "")
