"""Requests and responses about the suppression list, and about people to be forgotten, as types (see `models`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, FailFast, Field, WithJsonSchema

from zonemta_py.mail.addresses import entries as spelling
from zonemta_py.queue.suppression.entry import SCOPE_PATTERN, checked_scope
from zonemta_py.web.documents.models import Address, By, Cause, FilledLine, Model, Name

SUPPRESSIONS_MAX = 10_000
Kind = Literal["hard-bounce", "manual", "unsubscribe", "complaint", "erased"]
Scope = Annotated[str, AfterValidator(checked_scope), WithJsonSchema({"type": "string", "pattern": SCOPE_PATTERN})]


def _spelled(given: str) -> str:
    """As it came: how it is stored, the queue decides."""
    spelling.checked(given)
    return given


Entry = Annotated[
    str,
    AfterValidator(_spelled),
    WithJsonSchema({"type": "string", "examples": ["ann@example.com", "@example.com", "@*.example.com", "noreply@*"]}),
]


class Suppressed(Model):
    """An address that gets no mail, or what stands for many."""

    address: Entry
    """An email address; @example.com: a whole domain, @*.example.com: all below it; a pattern such as noreply@*, with *
    for any characters; sha256: and 64 hexadecimal digits: the SHA-256 of an address in lower case."""
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
