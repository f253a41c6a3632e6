"""What operators' questions are answered with, as types; they may get more members at any time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from zonemta_py.reception.http.documents.models import Model

MOST = 10_000


class OpenRow(Model):
    model_config = ConfigDict(extra="allow")


class CountsDocument(OpenRow):
    """Recipients by state."""

    queued: int = 0
    deferred: int = 0
    held: int = 0
    leased: int = 0


class Total(CountsDocument):
    messages: int
    bytes: int


class Status(OpenRow):
    version: str
    hostname: str
    problems: list[str]
    """Why no mail should come now, as /v1/ready says it; empty: it may come."""
    total: Total
    rates: dict[str, Any]
    """What happens a second, over the last minute."""


class Standing(OpenRow):
    """Something that holds mail: a suspension, a rest, or what was learned."""

    kind: str
    name: str
    cause: str
    since_ms: int
    until_ms: int
    """0: until it is lifted, or something happens."""


class ZoneRow(OpenRow):
    name: str
    default: bool
    delivery: Literal["smtp", "pull"]
    host: str
    """The smart host; empty: MX lookup."""
    sources: list[str]
    counts: CountsDocument
    suspended: Standing | None


class ZoneWithSettings(ZoneRow):
    settings: dict[str, Any]
    """Its table of the configuration; secrets are hidden."""


class WarmupRow(OpenRow):
    """Where a new source stands at a provider."""

    source: str
    provider: str
    schedule: str
    step: int
    steps: int
    warm: bool
    cap: int | None
    """Recipients a day; null: no limit."""
    sent: int


class SourceRow(OpenRow):
    address: str
    zones: list[str]
    settings: dict[str, Any]
    standing: list[Standing]
    warmups: list[WarmupRow]


class LimitsDocument(OpenRow):
    configured: list[dict[str, Any]]
    learned: list[Standing]


class Reason(OpenRow):
    kind: str
    cause: str
    since_ms: int
    until_ms: int


class LaneDocument(OpenRow):
    """A flow queue."""

    zone: str
    site: str
    source: str
    tenant: str
    campaign: str
    waiting: int
    active: int
    reasons: list[Reason]


class Lanes(OpenRow):
    rows: list[LaneDocument]
    more: int
    """Rows that are left out."""


class StandingRows(OpenRow):
    rows: list[Standing]
    more: int


class Suspended(OpenRow):
    held: int
    """Flow queues in memory that it stops."""
    standing: list[Standing]


class Lifted(Model):
    lifted: Literal[True]


class RecipientDocument(OpenRow):
    id: str
    recipient: str
    zone: str
    state: str
    attempts: int
    due_ms: int
    last: str
    """The latest answer."""


class MessageRow(OpenRow):
    """A message in the queue."""

    id: str
    envelope: dict[str, Any]
    recipients: list[RecipientDocument]
    """Those that have not ended."""
    header: str
    """Its header section."""


class InDoubt(OpenRow):
    """A recipient whose final answer may have been on its way at a crash."""

    id: str
    zone: str
    recipient: str
    sender: str | None
    since_ms: int
    action: str


class InDoubts(OpenRow):
    rows: list[InDoubt]
    more: int


class Explained(OpenRow):
    about: str
    kind: str
    rows: list[dict[str, Any]]
    """Each with its `reasons`, the first being what holds it now; without any it goes when its turn comes."""
    more: int


class RuleRow(OpenRow):
    rule: str
    asks: str
    """What it asks of a reply."""
    action: dict[str, Any]
    """What differs from doing nothing."""
    file: str
    kind: str = Field(alias="class")


class Configuration(OpenRow):
    """Every section with its values in force; secrets are hidden."""

    settings: dict[str, Any]
