"""The classes of replies: one row each, with all that any part of the program knows of a class by its name.

Apart from the rules that name them, so that a queue that starts need not load those. What is done about a class where
a rule does not say otherwise (retry, delay, rest) an operator may change: [classes.NAME] in config/rules.toml.
"""

from __future__ import annotations

from typing import NamedTuple

SUBJECTS = {
    "recipient": "the recipient", "sender": "the sender", "source": "our address, host or connection",
    "content": "the message", "domain": "a domain", "system": "a system of theirs",
}  # fmt: skip
"""Of whom a reply may speak, in words."""


class ReplyClass(NamedTuple):
    """about: of whom, one of SUBJECTS; "": of a pace, a path, or nobody. suppresses: as which refusals it counts
    against its recipient, a key of [suppression]; "" as none. advice: which text of a notice says what its sender can
    do (`notices.phrases.ADVICE`), "" none. blocked: attempts with it count as blocked, deferred or bounced alike: for a
    campaign's bounds, a canary, in reports. refuses: us, or the message; findings take all of these for a block.
    throttles: it means "slower". passes: whether it does with time; None: the words beside it say so, or nobody.
    statuses: those that say the same as the words, so that one such reply may be enough to suppress. That a mailbox is
    disabled, words alone do not prove: often it is for a time."""

    meaning: str
    about: str = ""
    suppresses: str = ""
    advice: str = ""
    blocked: bool = False
    refuses: bool = False
    throttles: bool = False
    passes: bool | None = None
    statuses: tuple[str, ...] = ()


CLASSES = {
    "user-unknown": ReplyClass("the address does not exist", "recipient", suppresses="unknown", advice="unknown",
                               passes=False, statuses=("", "5.1.1", "5.1.10", "5.1.0")),
    "mailbox-full": ReplyClass("the recipient's quota is used up", "recipient", suppresses="full", advice="full",
                               passes=True),
    "inactive": ReplyClass("the mailbox exists, but is no longer used", "recipient", suppresses="inactive",
                           advice="closed", passes=False, statuses=("5.2.1",)),
    "suspended": ReplyClass("the recipient's account is disabled, locked or blocked by its provider", "recipient",
                            suppresses="inactive", advice="closed", passes=False, statuses=("5.2.1", "5.7.13")),
    "moved": ReplyClass("the recipient has a new address", "recipient", suppresses="unknown", advice="moved",
                        passes=False, statuses=("", "5.1.1", "5.1.6")),
    "host-unknown": ReplyClass("the domain does not exist, takes no mail, or cannot be routed", "domain",
                               suppresses="domain", advice="domain"),
    "network": ReplyClass("no connection, or it broke"),
    "tls": ReplyClass("TLS failed, is required, or is not offered"),
    "spam-content": ReplyClass("the message looks like spam to them: text, links, headers", "content", blocked=True,
                               refuses=True, advice="content", passes=False),
    "virus": ReplyClass("an attachment is infected, or of a type they never accept", "content", refuses=True,
                        advice="content", passes=False),
    "blocked-ip": ReplyClass("our IP address is on their blocklist, or on one they consult", "source", blocked=True,
                             refuses=True, advice="refused"),
    "poor-reputation": ReplyClass("our IP address or domain has a bad reputation, without being on a blocklist",
                                  "source", blocked=True, refuses=True, advice="refused"),
    "reverse-dns": ReplyClass("the PTR record or the EHLO name of our IP address is missing or wrong", "source",
                              refuses=True, advice="refused"),
    "authentication": ReplyClass("SPF, DKIM, DMARC or ARC: the message is not proven to be the sender's", "sender",
                                 refuses=True, advice="refused"),
    "policy": ReplyClass("a policy of theirs or of the recipient, not explained further", blocked=True, refuses=True,
                         advice="refused"),
    "rate": ReplyClass("too much, too fast: messages, recipients, or to this one recipient", throttles=True),
    "greylisting": ReplyClass("unknown senders have to try again later", passes=True),
    "too-many-connections": ReplyClass("too many connections at once, or too many sessions", throttles=True),
    "too-many-recipients": ReplyClass("too many recipients in one transaction"),
    "message-too-big": ReplyClass("the message exceeds their size limit", "content", advice="size", passes=False),
    "relay-denied": ReplyClass("they do not accept mail for this domain, or require authentication", "sender",
                               advice="refused"),
    "protocol": ReplyClass("commands out of order, unknown, or too many errors"),
    "syntax": ReplyClass("an address, header or body that breaks the standard", "content"),
    "system-full": ReplyClass("their disk or queue is full", "system", passes=True),
    "system-error": ReplyClass("a system of theirs is broken or down", "system"),
    "expired": ReplyClass("it was not delivered within its lifetime", passes=True),
    "undefined": ReplyClass("nothing more is known"),
}  # fmt: skip
"""Every reply gets one of these."""

ABOUT_RECIPIENT = frozenset(name for name, one in CLASSES.items() if one.about == "recipient")
ABOUT_US = frozenset(name for name, one in CLASSES.items() if one.about in ("source", "sender"))
SUPPRESSING = frozenset(name for name, one in CLASSES.items() if one.suppresses)
"""Those of recipients, and of domains that take no mail."""
AGREEABLE = frozenset(name for name, one in CLASSES.items() if one.statuses)
"""Those of which one reply may be enough."""
BLOCKED_CLASSES = frozenset(name for name, one in CLASSES.items() if one.blocked)
REFUSING = frozenset(name for name, one in CLASSES.items() if one.refuses)
THROTTLING = frozenset(name for name, one in CLASSES.items() if one.throttles)
