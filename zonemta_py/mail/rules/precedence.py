"""What no pattern may override: of whom a reply speaks, where it came and what its status code says.

Promises, whatever the rules:
  - A class about the recipient comes only from RCPT, DATA, the end of the message, or a report, and never from a reply
    that speaks of the sender, of our host, address or connection, or of relaying; nor with a sender's status
    (x.1.7, x.1.8).
  - A source address rests, and a 5xx with a recipient's status (5.1.1, 5.1.6, 5.2.1) is tried again, only where the
    reply names our address, host or connection: a URL, attachment or From on a list is no fault of an address.
  - A 5xx that refuses our IP address, or is about its reputation, or that asks us to come again after a fault of
    theirs, is tried again.
  - `moved` takes 551, x.1.6 or an address to move to.
  - One reply is enough (`agreed`) only where code, text and stage say the same, without reservations.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace

from zonemta_py.mail.classify import CONNECTING
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import ABOUT_RECIPIENT, CLASSES
from zonemta_py.mail.rules.reading import RECIPIENT_STAGES, Reading
from zonemta_py.mail.rules.rule import Action

OF_SENDERS = (".1.7", ".1.8")
OF_RECIPIENTS = frozenset(("5.1.1", "5.1.6", "5.2.1"))
_NUMBERS = frozenset(("too-many-recipients", "mailbox-full", "message-too-big"))
_OTHERS = frozenset(("sender", "source"))
_NOT_OURS = frozenset(("content", "sender", "domain", "recipient"))
_PLAIN = frozenset(("5.1.1", "5.1.10"))
"""With these any 5xx will do."""
_CODES = frozenset((550, 551, 553, 554))
_UNNAMED = frozenset(("", "source"))
"""Where an IP address is refused, and nobody else is said to be the reason, it is ours."""
_OF_US = frozenset(("reverse-dns", "blocked-ip"))
SEEN = frozenset(("data", "dot"))
"""Where the letter was seen: what is refused there, and not for our address, is refused for good."""
_NEW_ADDRESS = re.compile(
    r"(?:moved?|new|now|forward\w*|instead|chang\w*|try|use|please|relocat\w*|neue?|nou\w*|nuev\w*|nuov\w*|nov\w*)"
    r" .{0,60}@",
    re.IGNORECASE,
)
_CONTRARY = frozenset(
    ("hedge", "part", "spam", "virus", "authentication", "rdns", "rate", "greylisting", "connections", "recipients",
     "big", "full", "reputation", "lists", "blocked", "network", "busy", "nospace", "tls", "expired", "disabled",
     "protocol", "error")
)  # fmt: skip


def bar(kind: str, about: str, reply: Reply, stage: str, reading: Reading) -> str:
    """Why a rule of this class cannot hold, as a phrase; "" if it can. about: of whom the rule knows that its replies
    speak ("": the reading says)."""
    status = reply.enhanced[1:]
    if kind in ABOUT_RECIPIENT and (why := _no_recipient(kind, about, reply, stage, reading)):
        return why
    many = kind == "too-many-recipients" and not reading.said.isdisjoint(("rate", "reputation"))
    if not about and (many or (kind in _NUMBERS and reading.kind == "rate")):
        return "it speaks of how many in which time"
    if kind == "protocol" and status == ".5.3":
        return f"status {reply.enhanced} is about their number"
    if kind == "protocol" and reply.enhanced in OF_RECIPIENTS:
        return f"status {reply.enhanced} is about the recipient"
    if kind == "protocol" and reply.permanent and status.startswith(".7."):
        return f"status {reply.enhanced} is about policy"
    if kind == "message-too-big" and status == ".4.7":
        return f"status {reply.enhanced} is about time"
    if kind == "too-many-recipients" and status in (".1.1", ".1.6", ".2.1", ".2.2", ".2.3", ".3.4"):
        return f"status {reply.enhanced} is not about their number"
    if about:
        return ""
    if kind == "host-unknown" and stage != "dns" and (reading.ip or _other(reading)):
        return f"it speaks of the {_other(reading) or 'source'}"
    if kind == "blocked-ip" and reading.firm and reading.about in _NOT_OURS and not names_us(stage, reading):
        return f"it speaks of the {reading.about}, not of our address"
    if kind == "policy" and status == ".7.25":
        return f"status {reply.enhanced} is about reverse DNS"
    if kind == "blocked-ip" and reading.kind == "spam-content" and _of_a_part(reading):
        return "it speaks of a part of the message"
    if kind == "relay-denied" and reading.kind == "user-unknown" and "relay" not in reading.said:
        return "it speaks of the recipient, not of relaying"
    if kind == "relay-denied" and reading.kind == "tls" and "relay" not in reading.said:
        return "it speaks of TLS, not of a login"
    if kind == "policy" and reading.kind == "blocked-ip" and reading.firm and names_us(stage, reading):
        return "it speaks of our address"
    if kind == "system-error" and reading.kind in ABOUT_RECIPIENT and reading.firm and reply.permanent:
        return "it speaks of the recipient"
    if kind == "system-error" and reading.kind in _OF_US and reading.firm and reading.about == "source":
        return "it speaks of our address or host"
    if kind == "system-full" and ((reading.kind == "mailbox-full" and reading.firm) or status == ".2.2"):
        return "it speaks of the recipient, not of their system"
    return ""


def names_us(stage: str, reading: Reading) -> bool:
    """Whether the reply is about our address, host or connection."""
    listed = "lists" in reading.said and "part" not in reading.said
    return stage in CONNECTING or reading.ip or "source" in reading.speaks or listed


def trimmed(kind: str, action: Action, about: str, reply: Reply, stage: str, reading: Reading) -> Action:
    """What may be done of it. A 5xx about the reputation of our IP address, or of a fault of theirs that asks us to
    come again, says nothing about the message."""
    refused = kind == "policy" and reply.enhanced not in OF_RECIPIENTS and reading.about in _UNNAMED
    ours = reading.ip and (kind == "poor-reputation" or refused)
    if not action.verdict and (ours or (kind == "system-error" and _again(reading))):
        action = replace(action, verdict="retry")
    if about == "source" or names_us(stage, reading):
        return action
    if action.rest_s:
        action = replace(action, rest_s=0.0)
    of_letter = kind in _OF_US and stage in SEEN and reply.permanent
    if action.verdict == "retry" and (of_letter or reply.enhanced in OF_RECIPIENTS):
        action = replace(action, verdict="")
    return action


def agreed(kind: str, reply: Reply, stage: str, reading: Reading) -> bool:
    """kind: the class that a rule gave, which `bar` allows."""
    return (
        stage in RECIPIENT_STAGES
        and reply.permanent
        and (reply.code in _CODES or reply.enhanced in _PLAIN)
        and reply.enhanced in CLASSES[kind].statuses
        and reading.kind == kind
        and reading.about == "recipient"
        and reading.firm
        and not (reading.ip or reading.aside or reading.said & _contrary(kind))
    )


def _contrary(kind: str) -> frozenset[str]:
    """What else must not be said."""
    return _CONTRARY - {"disabled"} if kind in ("inactive", "suspended") else _CONTRARY


def _no_recipient(kind: str, about: str, reply: Reply, stage: str, reading: Reading) -> str:
    if stage not in RECIPIENT_STAGES:
        return f"stage {stage} is not about a recipient"
    if reply.enhanced[1:] in OF_SENDERS:
        return f"status {reply.enhanced} is about the sender"
    other = _other(reading)
    if kind == "mailbox-full" and reply.enhanced[1:] == ".3.1":
        return f"status {reply.enhanced} is about their system"
    if kind == "mailbox-full":
        other = reading.about if reading.about in _OTHERS else ""
    if other and not about and not (stage == "report" and reply.enhanced in OF_RECIPIENTS and reading.kind == kind):
        return f"it speaks of the {other}"
    if kind == "user-unknown" and "reputation" in reading.said and not about:
        return "it speaks of how many there were"
    if kind == "moved" and reply.code != 551 and reply.enhanced[1:] != ".1.6" and not _NEW_ADDRESS.search(reply.text):
        return "nothing says where to: no 551, x.1.6 or address"
    return ""


def _again(reading: Reading) -> bool:
    return "again" in reading.said and reading.kind in ("system-error", "greylisting", "")


def _of_a_part(reading: Reading) -> bool:
    """Whether it speaks of a URL or an attachment, though an address may be named too."""
    return "part" in reading.said and "source" not in reading.speaks


def _other(reading: Reading) -> str:
    """Whom besides the recipient it speaks of."""
    for subject in ("source", "sender"):
        if subject in reading.speaks:
            return subject
    return next((word for word in ("authentication", "relay") if word in reading.said), "")
