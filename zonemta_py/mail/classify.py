"""What a reply means for the recipient, and the errors that stand for a reply that never came.

Theory: a reply is about the command it answers. Until the connection is ready for MAIL nothing has been said about our
message, so whatever a server answers to connect, banner, EHLO, STARTTLS or AUTH is about that server and us: try its
neighbour, then try later; a 5xx there is never permanent for the mail. From MAIL on, 5xx is permanent and all else
temporary: unknown means temporary, since a wrong "later" costs a retry and a wrong "never" costs a message.
Three exceptions:
  421 anywhere: the server is going away (RFC 5321 3.8); temporary, and the destination needs a rest.
  552 to RCPT without a better code: "too many recipients" of old servers (RFC 5321 4.5.3.1.10), meant as 452, unless
    it says that there is no such mailbox, or how large the message is.
  dns: our own finding; its 5xx (no such domain, null MX) is permanent.
What no server said has its class (`mail.rules.classes`) where it is made, `DeliveryError.reply_class`: our own
sentences name hosts of strangers, and no rule for other servers' replies may read those.
What ends on our own side (LOCAL: our proxy, our source address) is temporary and says nothing of the destination. So
is what fails because TLS is demanded (TLS_POLICY): without that demand the same host may accept the mail.
Replies classified as temporary never carry a 5xx code: they are rewritten, so that verdict and record agree.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zonemta_py.mail.reply import Reply

CONNECTING = frozenset(("connect", "banner", "ehlo", "tls", "auth"))
"""Stages before MAIL: they concern the server, not the message."""

LOCAL = frozenset(("proxy", "source"))
"""Stages that never reached the server: they concern only us."""

NO_PORT = "4.4.5"
"""The code of a source address that is there, but has no port left."""

NO_ROUTE = "has no route to"
"""Of a source address that is there, from which nothing gets to the address named behind it."""

TLS_POLICY = "tls-policy"
"""The stage of TLS that is not as a zone, a domain, a message or a plugin demands it; "tls" is that of optional
TLS."""


class Judgement(NamedTuple):
    """permanent: no use in trying again. down: the whole destination should rest. reply: as it is to be recorded."""

    permanent: bool
    down: bool
    reply: Reply


def judge(reply: Reply, stage: str) -> Judgement:
    """Takes an unsuccessful reply and the stage it came in (the names of `Outcome.stage`)."""
    if reply.code == 421:
        return Judgement(False, True, reply)
    if stage in CONNECTING or stage in LOCAL:
        return Judgement(False, stage in CONNECTING, _softened(reply, "4.3.2") if reply.permanent else reply)
    if stage == "dns":
        return Judgement(reply.permanent, not reply.permanent, reply)
    if stage == "rcpt" and reply.code == 552 and reply.enhanced in ("", "5.5.3") and not _UNKNOWN.search(reply.text):
        return Judgement(False, False, Reply(452, "4.5.3", reply.text))
    return Judgement(reply.permanent, False, reply)


_UNKNOWN = re.compile(
    r"not (?:be )?found|no such|unknown|(?:does|do)(?: not|n't) exist|non-?exist|invalid|not (?:known|valid|here)"
    r"|\b(?:message|mail|e-?mail|size)\b.{0,40}(?:\b\d+ ?(?:[kmg]i?b|bytes)\b|too (?:large|big|long))",
    re.IGNORECASE,
)
"""552 to RCPT says that there is no such mailbox, or how large the message is."""
_NUMBER = re.compile(
    r"\b(?:too many|maximum|max\.?|limit|exceed\w*|number of|over)\b.{0,40}\b(?:recipients?|rcpts?|receivers?)\b"
    r"|\b(?:recipients?|rcpts?)\b.{0,20}\b(?:limit|count|max(?:imum)?|exceed\w*|reached)\b",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"\b(?:hours?|hourly|days?|daily|minutes?|seconds?|today|rate|quota|mailbox|storage|space|disk|(?:un|in)valid|unknown"
    r"|bad|non-?existing|errors? from)\b",
    re.IGNORECASE,
)


def too_many(reply: Reply) -> bool:
    """Whether it says that one transaction may not have so many recipients (RFC 5321 4.5.3.1.10), and no more than
    that: how many there may be in an hour is another matter."""
    if not (400 <= reply.code < 600) or reply.code == 421 or _RATE.search(reply.text):
        return False
    return reply.enhanced[1:] == ".5.3" or _NUMBER.search(reply.text) is not None


def perhaps_too_many(reply: Reply) -> bool:
    """The code alone, to a RCPT after others that were accepted: 452, or 552 as old servers say it."""
    plain = reply.enhanced in ("", "4.5.3", "5.5.3") and not _RATE.search(reply.text)
    return reply.code in (452, 552) and plain


def _softened(reply: Reply, enhanced: str) -> Reply:
    return Reply(451, enhanced, f"server refused to talk to us: {reply}")


_AWAITED = {
    "connect": "while connecting",
    "banner": "while waiting for the greeting",
    "ehlo": "while waiting for the reply to EHLO",
    "tls": "while starting TLS",
    "auth": "while authenticating",
    "mail": "while waiting for the reply to MAIL",
    "rcpt": "while waiting for the reply to RCPT",
    "data": "while waiting for the reply to DATA",
    "body": "while sending the message",
    "dot": "while waiting for the reply to the end of the message",
}


class DeliveryError(Exception):
    """A delivery could not go on. stage: of `Outcome.stage`. reply: what to record. `temporary` unless it says 5xx.
    reply_class: as of `Outcome.kind`."""

    code, enhanced, what = 451, "4.0.0", "delivery failed"
    reply_class = "network"

    def __init__(self, stage: str, detail: str = "", reply: Reply | None = None) -> None:
        text = f"{self.what} {_AWAITED.get(stage, '')}".rstrip()
        self.stage = stage
        self.reply = reply or Reply(self.code, self.enhanced, f"{text}: {detail}" if detail else text)
        super().__init__(str(self.reply))

    @property
    def temporary(self) -> bool:
        return not judge(self.reply, self.stage).permanent


class Unreachable(DeliveryError, ConnectionError):
    """No connection came about: refused, no route."""

    enhanced, what = "4.4.1", "no connection"


class ProxyFailed(DeliveryError):
    """The proxy on our side cannot be reached, or refuses to serve us; the destination has not been asked."""

    enhanced, what = "4.4.1", "proxy failed"

    def __init__(self, detail: str) -> None:
        super().__init__("proxy", detail)


class SourceUnusable(DeliveryError):
    """The source address or interface to send from is not this machine's."""

    enhanced, what = "4.4.1", "cannot send from here"

    def __init__(self, detail: str) -> None:
        super().__init__("source", detail)


class SourceBusy(SourceUnusable):
    """The source address has no free port left for that destination; it is there."""

    enhanced = NO_PORT


class ConnectionLost(DeliveryError, ConnectionError):
    """The connection ended before the reply was complete."""

    enhanced, what = "4.4.2", "connection lost"


class ReplyTimeout(DeliveryError, TimeoutError):
    """The server fell silent, or stopped reading."""

    enhanced, what = "4.4.2", "timed out"


class ReplyGarbled(DeliveryError, ValueError):
    """What came is not an SMTP reply, or not one to the command."""

    enhanced, what = "4.5.0", "reply not understood"
    reply_class = "protocol"


class TlsFailed(DeliveryError):
    """TLS is required and not offered, or the handshake failed, or the certificate is not the server's."""

    enhanced, what = "4.7.5", "TLS failed"
    reply_class = "tls"


class AuthFailed(DeliveryError):
    """The server does not offer AUTH we can do, or TLS to do it under."""

    enhanced, what = "4.7.8", "authentication impossible"
    reply_class = "relay-denied"


class ReplyRefused(DeliveryError):
    """The server's own reply, carried up from before MAIL."""

    what = "refused"
    reply_class = ""


class NoRoute(DeliveryError):
    """DNS has no route to the domain; the reply says whether permanently."""

    what = "no route"

    def __init__(self, code: int, enhanced: str, text: str) -> None:
        super().__init__("dns", reply=Reply(code, enhanced, text))
        self.reply_class = of_route(self.reply)


def of_route(reply: Reply) -> str:
    """The class of a `NoRoute`: what its domain says for good is the domain's; a loop back to us is ours to mend."""
    return "host-unknown" if reply.permanent and reply.enhanced != "5.4.6" else "network"


def own_class(reply: Reply) -> str:
    """The class of a sentence of ours, where only its text is left (the latest reply of a recipient that waits); "": it
    is a server's."""
    if _ROUTELESS.match(reply.text):
        return of_route(reply)
    return next((kind for begins, kind in _BEGINNINGS if reply.text.startswith(begins)), "")


_ROUTELESS = re.compile(
    r"domain \S+ (?:does not exist$|takes no mail \(null MX|has neither MX nor)|no mail exchanger of \S+ has an address"
    r"|no name server: |host \S+ has no address; correct |DNS lookup of \S+|the lookup of \S+ failed, see"
    r"|mail for \S+ would come back to|.{1,900}: mail is not sent there$|the domain is empty$"
    r"|\S+ is not (?:a domain name|an address literal)$"
)
"""What `NoRoute`s say."""
_BEGINNINGS = (
    *((f"{one.what} {words}", one.reply_class) for one in (Unreachable, ConnectionLost, ReplyTimeout, ReplyGarbled,
      TlsFailed, AuthFailed) for words in _AWAITED.values()),
    ("required TLS failed: ", "tls"), ("TLS is required, and the server does not offer it", "tls"),
    ("the MTA-STS policy of ", "tls"), ("neither DNSSEC nor MTA-STS proves ", "tls"),
    ("DNS does not say whether the host has TLSA records", "tls"),
    ("proxy failed: ", "network"), ("cannot send from here: ", "network"), ("REQUIRETLS cannot be met: ", "tls"),
    ("the server does not take internationalised mail (SMTPUTF8)", "protocol"),
    ("its time in the queue is over", "expired"), ("its delivery deadline has passed", "expired"),
)  # fmt: skip
