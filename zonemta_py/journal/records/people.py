"""Records about people: who gets on the suppression list and off it, and what came back about a message.

A SUPPRESS record is a list of `SuppressRow`.

FEEDBACK is what came back later and by another way than its delivery. One record is one finding: a bounce report about
three recipients is three records. All that follows from it is derived from the record alone: figures, events,
suppressions (whose evidence names it, `journal:SEQ`), rows of the lake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from zonemta_py.disk.packing import pack

KINDS = (
    "bounce", "delay", "delivered", "complaint", "unsubscribe", "auto-reply", "challenge", "other", "open", "click",
    "dmarc-report", "tls-report", "reputation",
)  # fmt: skip
"""bounce, delay, delivered: what another server's report says. other: mail at one of our addresses that nobody
understood. open, click: a person has fetched the picture, or followed a link, of a message that was tracked. The last
three are of no message (AGGREGATES)."""

AGGREGATES = KINDS[-3:]
"""Reports about our mail as a whole: DMARC aggregate reports, TLS reports, and providers' tables of reputation, each
row of which is a record."""


class SuppressRow(NamedTuple):
    """A person on the suppression list, in a SUPPRESS record. since_ms: UNIX time. evidence: where the reason can be
    looked up. by: who added it.

    also: lower-ranking kinds recorded for the same person in the same scope. again: the record only repeats an earlier
    one, which is counted already. exact: of a scope campaign:NAME, that it is for mail of no tenant only.
    """

    address: str
    kind: str
    since_ms: int
    reason: str
    evidence: str
    by: str
    campaign: str
    scope: str = "all"
    also: tuple[str, ...] = ()
    again: bool = False
    exact: bool = False

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        """Rows of older versions have no scope, which means all."""
        return cls(*fields[:8], *([tuple(fields[8]), *fields[9:11]] if len(fields) > 8 else ()))

    def row(self) -> list[Any]:
        """In its shortest form."""
        if self.exact:
            return list(self)
        return list(
            self[:10] if self.again else self[:9] if self.also else self[:8] if self.scope != "all" else self[:7]
        )


class UnsuppressRecord(NamedTuple):
    """Taken off the suppression list. scopes: of each address; None: all of them of scope "all". again: another of
    several queues has the same, and tells of it."""

    addresses: list[str]
    by: str
    scopes: list[str] | None = None
    again: bool = False

    def pack(self) -> bytes:
        return pack(self if self.again else self[:3] if self.scopes is not None else self[:2])

    @classmethod
    def of(cls, fields: Sequence[Any]) -> UnsuppressRecord:
        return cls(*fields[:4])


class FeedbackRecord(NamedTuple):
    """Fields as of `queue.api.Feedback`. reply_class, rule: of the reply that a bounce quotes, by our rules. agreed:
    code, text and stage agree that the recipient takes no mail. tied: how the message was found: "token", "given",
    "message-id", "feedback-id", "headers"; "": it was not (`queue.feedback.ties`). names: what makes it the same when
    it comes twice. raw_bytes: size of the file in `feedback/`, 0: none. again: it was known, but what follows from it
    had been undone; it is not counted. place: of a bounce, the provider that had taken the mail, or the site; ""
    unknown (`queue.feedback.takers`). about: of message
    and recipient (`mail.metadata`). report: of AGGREGATES, what it says (`mail.reports`)."""

    kind: str
    recipient: str
    message: str = ""
    message_id: str = ""
    campaign: str = ""
    tenant: str = ""
    zone: str = ""
    code: int = 0
    enhanced: str = ""
    text: str = ""
    reporter: str = ""
    form: str = ""
    via: str = ""
    genuine: str = ""
    scope: str = ""
    reply_class: str = ""
    rule: str = ""
    agreed: bool = False
    tied: str = ""
    names: Sequence[str] = ()
    raw_bytes: int = 0
    again: bool = False
    place: str = ""
    about: list[Any] | None = None
    report: dict[str, Any] | None = None

    def pack(self) -> bytes:
        return pack(self.row())

    def row(self) -> list[Any]:
        """In its shortest form."""
        return list(self if self.report else self[:24] if self.about else self[:23])

    @classmethod
    def of(cls, fields: list[Any]) -> FeedbackRecord:
        """Raises ValueError: they are not a record's."""
        try:
            return cls(*fields[:25])
        except TypeError as error:
            raise ValueError(f"not feedback: {error}") from None
