"""What the synthetic mail is like: providers with their reply texts, zones, sources, campaigns, tenants.

Shares are rough figures of a mixed sender (newsletters, receipts): most mail is delivered at once, every tenth or so
attempt is deferred, one recipient in fifty does not exist. The reply texts have the variable parts (addresses, IPs, queue ids,
links) that real ones have.
"""

# ruff: noqa: E501 - a reply is one line
from __future__ import annotations

from dataclasses import dataclass

DELIVERED, DEFERRED, BOUNCED = 1, 2, 3


@dataclass(frozen=True)
class Answer:
    """share: among the answers of the same verdict. In text: {ip} our address, {to} the recipient, {tag} a random tag."""

    verdict: int
    share: float
    code: int
    enhanced: str
    text: str
    stage: str
    kind: str = ""
    rule: str = ""


@dataclass(frozen=True)
class Provider:
    """share: of the mail. deferred, bounced: of its attempts. took_ms: median. tls: share of its connections."""

    name: str
    share: float
    domains: tuple[str, ...]
    sites: tuple[str, ...]
    deferred: float
    bounced: float
    took_ms: int
    tls: float
    answers: tuple[Answer, ...]


_GOOGLE = (
    Answer(1, 1, 250, "2.0.0", "OK  {tag} - gsmtp", "dot"),
    Answer(2, 6, 421, "4.7.28", "Gmail has detected an unusual rate of unsolicited mail originating from your IP address [{ip}]. To protect our users from spam, mail sent from your IP address has been temporarily rate limited. {tag} - gsmtp", "dot", "rate", "google-ip-rate"),
    Answer(2, 2, 450, "4.2.1", "The user you are trying to contact is receiving mail at a rate that prevents additional messages from being delivered. {tag} - gsmtp", "rcpt", "rate", "google-recipient-rate"),
    Answer(2, 1, 452, "4.2.2", "The recipient's inbox is out of storage space. {tag} - gsmtp", "rcpt", "mailbox-full", "google-over-quota"),
    Answer(3, 8, 550, "5.1.1", "The email account that you tried to reach does not exist. Please try double-checking the recipient's email address for typos. {tag} - gsmtp", "rcpt", "user-unknown", "google-user-unknown"),
    Answer(3, 1, 550, "5.2.1", "The email account that you tried to reach is inactive. {tag} - gsmtp", "rcpt", "inactive", "google-inactive"),
    Answer(3, 1, 550, "5.7.26", "This mail has been blocked because the sender is unauthenticated. {tag} - gsmtp", "dot", "authentication", "google-dmarc"),
)  # fmt: skip
_MICROSOFT = (
    Answer(1, 1, 250, "2.6.0", "<{tag}@src.example> [InternalId=7213] Queued mail for delivery", "dot"),
    Answer(2, 5, 451, "4.7.650", "The mail server [{ip}] has been temporarily rate limited due to IP reputation. For e-mail delivery information, see https://postmaster.live.com (S775) [{tag}.protection.outlook.com]", "mail", "poor-reputation", "microsoft-ip-reputation"),
    Answer(2, 2, 451, "4.3.2", "Server busy. Please try again later from [{ip}]. (S77719) [{tag}.protection.outlook.com]", "mail", "rate", "microsoft-busy"),
    Answer(3, 7, 550, "5.5.0", "Requested action not taken: mailbox unavailable (S2017062302). [{tag}.protection.outlook.com]", "rcpt", "user-unknown", "microsoft-mailbox-unavailable"),
    Answer(3, 2, 550, "5.7.606", "Access denied, banned sending IP [{ip}]. To request removal from this list please visit https://sender.office.com/ [{tag}.protection.outlook.com]", "rcpt", "blocked-ip", "microsoft-banned-ip"),
)  # fmt: skip
_YAHOO = (
    Answer(1, 1, 250, "", "ok dirdel", "dot"),
    Answer(2, 4, 421, "4.7.0", "[TSS04] Messages from {ip} temporarily deferred due to unexpected volume or user complaints - 4.16.55.1; see https://postmaster.yahooinc.com/error-codes", "mail", "rate", "yahoo-ts"),
    Answer(2, 1, 451, "4.3.0", "Message temporarily deferred due to resources unavailable {tag}", "dot", "system-error", "yahoo-resources"),
    Answer(3, 5, 554, "5.7.9", "delivery error: dd This user doesn't have a yahoo.com account ({to}) [0] - {tag}.mail.yahoo.com", "dot", "user-unknown", "yahoo-user-unknown"),
    Answer(3, 1, 552, "5.2.2", "1 Requested mail action aborted, mailbox not found", "rcpt", "mailbox-full", "yahoo-mailbox-full"),
)  # fmt: skip
_APPLE = (
    Answer(1, 1, 250, "2.0.0", "Ok: queued as {tag}", "dot"),
    Answer(2, 1, 450, "4.2.2", "<{to}>: Over quota; {tag}", "rcpt", "mailbox-full", "over-quota"),
    Answer(3, 3, 550, "5.1.1", "<{to}>: user does not exist", "rcpt", "user-unknown", "user-unknown"),
    Answer(3, 1, 554, "5.7.1", "[HM08] Message rejected due to local policy. Please visit https://support.apple.com/en-us/HT204137", "dot", "policy", "apple-policy"),
)  # fmt: skip
_REST = (
    Answer(1, 3, 250, "2.0.0", "Ok: queued as {tag}", "dot"),
    Answer(1, 1, 250, "", "OK id={tag}", "dot"),
    Answer(2, 6, 450, "4.2.0", "<{to}>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/{tag}.html", "rcpt", "greylisting", "greylisted"),
    Answer(2, 2, 421, "4.4.2", "connection timed out", "connect", "network", "own-timeout"),
    Answer(2, 1, 451, "4.3.0", "Policy engine said \"no, later\" (ref {tag})", "data", "undefined", ""),
    Answer(3, 5, 550, "5.1.1", "<{to}>: Recipient address rejected: User unknown in virtual mailbox table", "rcpt", "user-unknown", "user-unknown"),
    Answer(3, 2, 554, "5.7.1", "Service unavailable; Client host [{ip}] blocked using zen.spamhaus.org; https://www.spamhaus.org/query/ip/{ip}", "rcpt", "blocked-ip", "listed"),
    Answer(3, 1, 552, "5.2.2", "Mailbox full ({to})", "rcpt", "mailbox-full", "mailbox-full"),
    Answer(3, 1, 550, "5.0.0", "Computer says no, case {tag}", "dot", "undefined", ""),
)  # fmt: skip

PROVIDERS = (
    Provider("google", 0.38, ("gmail.com", "googlemail.com", "firma.example"), ("gmail-smtp-in.l.google.com",), 0.06, 0.012, 640, 1.0, _GOOGLE),
    Provider("microsoft", 0.22, ("outlook.com", "hotmail.com", "live.de"), ("outlook-com.olc.protection.outlook.com",), 0.09, 0.02, 1150, 1.0, _MICROSOFT),
    Provider("yahoo", 0.12, ("yahoo.com", "aol.com"), ("mta5.am0.yahoodns.net",), 0.11, 0.018, 820, 1.0, _YAHOO),
    Provider("apple", 0.06, ("icloud.com", "me.com"), ("mx01.mail.icloud.com",), 0.03, 0.01, 900, 1.0, _APPLE),
    Provider("", 0.22, tuple(f"company{n:03d}.example" for n in range(400)), tuple(f"mx.company{n:03d}.example" for n in range(400)), 0.14, 0.035, 310, 0.82, _REST),
)  # fmt: skip

BLOCKED = Answer(2, 1, 451, "4.7.500", "Server busy. Access from [{ip}] is blocked for abuse; see https://aka.ms/spamblock/{tag}", "mail", "blocked-ip", "microsoft-blocked-ip")  # fmt: skip
"""What `BLOCKED_SOURCE` hears from `BLOCKED_PROVIDER` between the shares `BLOCKED_FROM` and `BLOCKED_TO` of the time."""
BLOCKED_PROVIDER, BLOCKED_SOURCE, BLOCKED_FROM, BLOCKED_TO = "microsoft", "192.0.2.12", 0.55, 0.70

ZONES = {
    "transactional": (0.15, ("192.0.2.1", "192.0.2.2")),
    "default": (0.20, ("192.0.2.10",)),
    "bulk": (0.65, ("192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14")),
}
"""Name → share of the mail, sources."""
CAMPAIGNS = (*(f"news-{n:02d}" for n in range(1, 11)), "old-list")
"""Of zone bulk, one in turn after the other; every sixth recipient of "old-list" does not exist."""
BAD_CAMPAIGN, BAD_SHARE = "old-list", 1 / 6
TENANTS = ("acme", "globex", "initech", "umbrella")
TLS = ("TLSv1.3 TLS_AES_256_GCM_SHA384", "TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256")
RETRY_S = (300, 600, 1800, 3600, 7200, 14400)
"""Until the next attempt, by attempts so far; after the last one the recipient bounces ("expired")."""
EXPIRED = Answer(3, 1, 554, "5.4.7", "its time in the queue is over ({to})", "queue", "expired", "own-expired")
