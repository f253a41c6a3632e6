"""Requests and responses about what came back, as types (see `models`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import BeforeValidator, FailFast, Field

from zonemta_py.queue import questions
from zonemta_py.web.documents import values
from zonemta_py.web.documents.models import Address, By, Cause, Count, Model, Name
from zonemta_py.web.documents.suppression_rows import Scope

ROWS_MAX = 1_000
Kind = Literal[
    "bounce", "delay", "delivered", "complaint", "unsubscribe", "auto-reply", "challenge", "other", "open", "click",
]  # fmt: skip
Aggregate = Literal["dmarc-report", "tls-report", "reputation"]
"""Reports on our mail as a whole."""
Provider = Literal["ses", "sendgrid", "mailgun", "postmark"]
MessageId = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class FeedbackDocument(Model):
    """What became of one recipient of a message after it was sent."""

    kind: Kind
    recipient: Address | Literal[""] = ""
    message: MessageId | Literal[""] = ""
    """The message's id here; or give message_id or feedback_id."""
    message_id: Cause = ""
    """The message's Message-ID field."""
    feedback_id: Cause = ""
    """The message's Feedback-ID field."""
    campaign: Name | Literal[""] = ""
    tenant: Name | Literal[""] = ""
    code: Annotated[int, Field(ge=0, le=599), BeforeValidator(values.whole)] = 0
    """The reply code that a bounce quotes; 0: unknown."""
    enhanced: Annotated[str, Field(pattern=r"^([245]\.[0-9]{1,3}\.[0-9]{1,3})?$")] = ""
    text: Cause = ""
    """The reply's text; of a click the link."""
    reporter: By = ""
    """The host that says so."""
    scope: Scope | None = None
    """Which mail an unsubscribe stops; default: the campaigns of the message's tenant."""
    name: By = ""
    """Your number of the event: repeated, it is not counted again. Default: message, recipient and kind."""


class FeedbackRows(Model):
    rows: Annotated[list[FeedbackDocument], FailFast()] = Field(min_length=1, max_length=ROWS_MAX)


class Wishes(Model):
    leave: list[Count] = Field(default_factory=list, max_length=ROWS_MAX)
    """Numbers of rows with form "wish": who wrote them has unsubscribed."""
    forget: list[Count] = Field(default_factory=list, max_length=ROWS_MAX)
    """Those that are none: their messages are deleted."""


class WishesDecided(Model):
    unsubscribed: int
    forgotten: int


class Recorded(Model):
    recorded: int
    known: int
    """Of which the like had been recorded before: they are not counted again."""


class WebhookTaken(Recorded):
    left_out: int
    """Rows about mail that is not in the scope of the key or webhook: nothing is recorded of them."""


class FoundRow(Model):
    kind: Kind | Aggregate
    recipient: str
    code: int
    enhanced: str
    text: str
    genuine: str
    recorded: bool


class ReportRead(Model):
    """What a report says."""

    form: str
    """The form that was understood: rfc3464, arf …; empty: none."""
    rows: list[FoundRow]


class FeedbackPage(TypedDict):
    rows: list[questions.FeedbackRow]
    next: Count | str | None
    """Pass it as `after` to get the next page; null: this is the last one."""
