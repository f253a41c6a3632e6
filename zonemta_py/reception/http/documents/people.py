"""What is asked and answered of the suppression list, and of who is to be forgotten, as types (see `models`)."""

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
    """What shows it: a reply, a complaint's id, an address of a form."""
    by: By = ""
    """Who put it on the list; not given: the key's name."""
    campaign: Name | Literal[""] = ""
    """The campaign it came from."""
    scope: Scope | None = None
    """Which mail it stops: all, campaigns, campaigns:TENANT, campaign:NAME, tenant:NAME or zone:NAME. Not given: all,
    but for an unsubscribe the campaigns of the tenant that has sent the campaign; all campaigns if none is known."""


class Suppressions(Model):
    rows: Annotated[list[Suppressed], FailFast()] = Field(min_length=1, max_length=SUPPRESSIONS_MAX)


class Added(Model):
    added: int
    known: int
    """Those that were there already."""


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
    """Kinds of less weight that were said of the same address and scope."""


class SuppressionRowsOf(SuppressionRow):
    """An address's entry of scope all, or else the first one."""

    others: list[SuppressionRow] = Field([])
    """Its entries in other scopes."""


class SuppressionRows(Model):
    rows: list[SuppressionRow]
    next: str | None
    """Ask with after = this for what follows; null: that was all."""


class Removed(Model):
    removed: int


class Forget(Model):
    """A person asks to be forgotten."""

    address: Address
    keep: bool = False
    """The address alone stays on the suppression list, as erased, so that it is never mailed again; else it leaves the
    list too."""


class Forgotten(Model):
    """What went: recipients that waited in the queue, Idempotency-Keys that are not in use."""

    model_config = ConfigDict(extra="allow")

    removed: int
