"""The classes of replies. Apart from the rules that name them, so that a queue that starts need not load those."""

from __future__ import annotations

CLASSES = {
    "user-unknown": "the address does not exist",
    "mailbox-full": "the recipient's quota is used up",
    "inactive": "the mailbox exists, but is no longer used",
    "suspended": "the recipient's account is disabled, locked or blocked by its provider",
    "moved": "the recipient has a new address",
    "host-unknown": "the domain does not exist, takes no mail, or cannot be routed",
    "network": "no connection, or it broke",
    "tls": "TLS failed, is required, or is not offered",
    "spam-content": "the message looks like spam to them: text, links, headers",
    "virus": "an attachment is infected, or of a type they never accept",
    "blocked-ip": "our IP address is on their blocklist, or on one they consult",
    "poor-reputation": "our IP address or domain has a bad reputation, without being on a blocklist",
    "reverse-dns": "the PTR record or the EHLO name of our IP address is missing or wrong",
    "authentication": "SPF, DKIM, DMARC or ARC: the message is not proven to be the sender's",
    "policy": "a policy of theirs or of the recipient, not explained further",
    "rate": "too much, too fast: messages, recipients, or to this one recipient",
    "greylisting": "unknown senders have to try again later",
    "too-many-connections": "too many connections at once, or too many sessions",
    "too-many-recipients": "too many recipients in one transaction",
    "message-too-big": "the message exceeds their size limit",
    "relay-denied": "they do not accept mail for this domain, or require authentication",
    "protocol": "commands out of order, unknown, or too many errors",
    "syntax": "an address, header or body that breaks the standard",
    "system-full": "their disk or queue is full",
    "system-error": "a system of theirs is broken or down",
    "expired": "it was not delivered within its lifetime",
    "undefined": "nothing more is known",
}
"""Name → what it means. Every reply gets one of these."""

BLOCKED_CLASSES = frozenset(("blocked-ip", "poor-reputation", "policy", "spam-content"))
"""Attempts with these count as blocked, deferred or bounced alike: for a campaign's bounds, a canary, in reports."""
