"""Requests and responses about the suppression list, and about people to be forgotten, as types (see `models`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, FailFast, Field, WithJsonSchema

from zonemta_py.queue.suppression.entry import SCOPE_PATTERN, checked_scope
from zonemta_py.reception.http.documents.models import Address, By, Cause, Model, Name

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
    """The mail that it stops: all, campaigns, campaigns:TENANT, campaign:NAME, tenant:NAME or zone:NAME. Default: all;
    for an unsubscribe, the campaigns of the tenant that has sent the campaign, or all campaigns if none is known."""


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
