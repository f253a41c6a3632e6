"""Requests and responses about the suppression list, and about people to be forgotten, as types (see `models`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, FailFast, Field, WithJsonSchema

from zonemta_py.queue.suppression.entry import SCOPE_PATTERN, checked_scope
from zonemta_py.web.documents.models import Address, By, Cause, FilledLine, Model, Name

SUPPRESSIONS_MAX = 10_000
Kind = Literal["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
Scope = Annotated[str, AfterValidator(checked_scope), WithJsonSchema({"type": "string", "pattern": SCOPE_PATTERN})]


class Suppressed(Model):
    """An address that gets no mail."""

    address: Address
    kind: Kind
    reason: Cause = ""
    evidence: Cause = ""
    """The proof: a reply, a complaint's id, the address of a form."""
    by: By = ""
    """Who adds it to the list; default: the key's name."""
    campaign: Name | Literal[""] = ""
    """The campaign it came from."""
    scope: Scope | None = None
    """The mail that it stops: all, campaigns, campaigns:TENANT, campaign:NAME, campaign:TENANT/NAME, list:NAME,
    list:TENANT/NAME, tenant:NAME or zone:NAME. Default: all; for an unsubscribe, the campaigns of the tenant that has
    sent the campaign, or all campaigns if none is known."""


class Suppressions(Model):
    rows: Annotated[list[Suppressed], FailFast()] = Field(min_length=1, max_length=SUPPRESSIONS_MAX)


class Added(Model):
    added: int
    known: int
    """Entries that existed already."""


class SuppressionRow(Model):
    model_config = ConfigDict(extra="allow")

    address: str
    kind: str
    since_ms: int
    reason: str
    evidence: str
    by: str
    campaign: str = ""
    scope: str = "all"
    also: list[str] = Field([])
    """Lower-ranking kinds recorded for the same address and scope."""


class SuppressionRowsOf(SuppressionRow):
    """An address's entry of scope all, or else its first one."""

    others: list[SuppressionRow] = Field([])
    """Its entries in other scopes."""


class SuppressionRows(Model):
    rows: list[SuppressionRow]
    next: str | None
    """Pass it as `after` to get the next page; null: this is the last one."""


class HeardItem(Model):
    """One refusal, complaint or unsubscribe. message: our id of the message, if known."""

    model_config = ConfigDict(extra="allow")

    at_ms: int
    group: str
    """unknown, inactive, full, domain, complaint or unsubscribe."""
    message: str
    said: str = ""
    """The reply."""
    agreed: bool = False
    """Code, text and stage agree."""
    held: bool = False
    """A guard holds it back, or did: it is not enough alone."""
    by: str = ""
    """Which provider said it, to which source."""


class StandingItem(Model):
    """How far the refusals of one kind are enough, for the mail of one scope."""

    model_config = ConfigDict(extra="allow")

    group: str
    scope: str
    counted: int
    enough: bool
    said: str
    """The same in words, with what would be enough."""


class EvidenceOf(Model):
    """Why a person is or is not on the suppression list."""

    address: str
    entries: list[SuppressionRow]
    heard: list[HeardItem]
    standing: list[StandingItem]
    guards: list[str]
    """Those that hold some of it back now."""


class GuardRow(Model):
    """Where refusals are held back, as very many people were said not to exist at once."""

    name: str
    """Provider or site, and our source address if there are several."""
    cause: str
    since_ms: int
    people: int


class GuardEnd(Model):
    name: FilledLine
    """As GET /v1/guards has it."""
    drop: bool = False
    """Forget what is held back: the provider was broken; otherwise it counts from now on: the list was bad."""


class GuardEnded(Model):
    people: int
    """Of whom something was held back."""


class Removed(Model):
    removed: int


class Forget(Model):
    """A person's request to be forgotten."""

    address: Address
    keep: bool = False
    """Keep the address alone on the suppression list, as erased, so that it never gets mail again; otherwise it leaves
    the list too."""


class Forgotten(Model):
    """What was removed: recipients that waited in the queue, and Idempotency-Keys that are not in use."""

    model_config = ConfigDict(extra="allow")

    removed: int
