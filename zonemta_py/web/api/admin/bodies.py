"""What operators send, as types (see `documents/models.py`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from zonemta_py.mail.fields import CONTROLS
from zonemta_py.web.api.admin import rows, where
from zonemta_py.web.api.admin.where import Filter
from zonemta_py.web.documents import values
from zonemta_py.web.documents.feedback_rows import MessageId
from zonemta_py.web.documents.models import Cause, FilledLine, Line, Model

IDS_MAX = 900
"""Messages of one request."""
What = Annotated[
    str,
    AfterValidator(values.field),
    Field(min_length=1, max_length=500),
    WithJsonSchema({"type": "string", "pattern": values.LINE_PATTERN, "minLength": 1, "maxLength": 500}),
]
"""A text that is not empty."""
Limit = Annotated[int, Query(ge=1, le=rows.MOST, description="Maximum number of rows.")]
ReplyText = Annotated[
    str,
    AfterValidator(values.field),
    Field(max_length=500, pattern="^[245][0-9][0-9]( .*)?$"),
    WithJsonSchema({"type": "string", "pattern": f"^[245][0-9][0-9]( [^{CONTROLS}]*)?$", "maxLength": 500}),
]


Standing = Literal[
    "destination", "domain", "tenant", "campaign", "zone", "source", "rest", "resting", "rate", "concurrency",
    "recipients", "pipelining", "no-tls", "lost", "guard", "reroute",
]  # fmt: skip
"""Kinds of what holds mail (`schedule.admin_orders.LIFTED`)."""
Suspendable = Literal["destination", "domain", "tenant", "campaign", "zone", "source"]


class Lift(Model):
    """What is to be lifted, as /v1/standing names it."""

    kind: Standing
    name: What


class KnownDoubts(Model):
    """Who in doubt is known to an operator, and is taken from the list."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"until_ms": 1_700_000_000_000}]})

    ids: Annotated[list[MessageId], Field(min_length=1, max_length=IDS_MAX)] | None = None
    """Only recipients of these messages; default: of all."""
    until_ms: Annotated[int, Field(ge=0, lt=1 << 48), BeforeValidator(values.whole)] | None = None
    """Only who was being sent to before then (UNIX time in ms): when the list was read, so that nobody leaves it
    unseen."""


class SuspensionDocument(Model):
    seconds: float | None = Field(None, gt=0, le=10 * 366 * 86_400)
    """For so long; default: until it is resumed."""
    cause: Cause = ""
    """The reason: shown wherever mail waits for it, and journalled."""


class RerouteDocument(Model):
    """Mail that goes another way for a time. One that there is for the same mail is replaced."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"destination": "example.com", "to": "pool backup", "seconds": 7200}]}
    )

    zone: FilledLine | None = None
    """Mail of this zone; default: of any."""
    destination: FilledLine | None = None
    """For this domain, site or provider; default: all of the zone."""
    to: FilledLine
    """pool NAME, zone NAME, host NAME:PORT (a smart host), or skip MX-HOST."""
    seconds: float | None = Field(None, gt=0, le=10 * 366 * 86_400)
    """For so long; default: until it is removed."""
    cause: Cause = ""
    """The reason: shown by explain, and journalled."""


def _line(least: int, most: int) -> dict[str, Any]:
    """The description of a text of one line, of so many characters."""
    return {"type": "string", "pattern": values.LINE_PATTERN, "minLength": least, "maxLength": most}


SourceLine = Annotated[str, AfterValidator(values.field), Field(max_length=100), WithJsonSchema(_line(0, 100))]
HostLine = Annotated[str, AfterValidator(values.field), Field(max_length=300), WithJsonSchema(_line(0, 300))]
SenderLine = Annotated[
    str, AfterValidator(values.field), Field(min_length=2, max_length=320), WithJsonSchema(_line(2, 320))
]
NameLine = Annotated[str, AfterValidator(values.field), Field(max_length=63), WithJsonSchema(_line(0, 63))]
FieldName = Annotated[str, Field(pattern=values.HEADER_PATTERN)]


class Change(Model):
    """What a task sets."""

    zone: What | None = None
    """move: the zone."""
    priority: where.Priority | None = None
    at_ms: Annotated[int, Field(ge=0, lt=1 << 48), BeforeValidator(values.whole)] | None = None
    """set: not before (UNIX time in ms)."""
    life_h: Annotated[float, Field(gt=0, le=24 * 366)] | None = None
    """set: hours after which a recipient is given up."""
    source: SourceLine | None = None
    """set: the source address to send from; empty: as usual."""
    host: HostLine | None = None
    """set: the smart host to send to, host or host:port; empty: as usual."""
    sender: SenderLine | None = None
    """set: the return path, also for notices; <>: nobody."""
    header: Annotated[dict[FieldName, Line | None], Field(min_length=1, max_length=20)] | None = None
    """set: header fields that are replaced before signing; null: removed."""
    campaign: NameLine | None = None
    """set: the campaign; empty: none. Not for mail that its campaign counts."""
    tenant: NameLine | None = None
    """set: the tenant; empty: none. Not for mail that its campaign counts."""


UndoSeconds = Annotated[float, Field(ge=0, le=30 * 86_400)]


class TaskDocument(Model):
    """An order for many recipients."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"verb": "delete", "where": {"campaign": "spring", "domain": "example.org"}, "cause": "typo"}]
        }
    )

    verb: Literal["delete", "hold", "release", "flush", "move", "set", "requeue", "purge"]
    where: Filter
    set: Change | None = None
    """For move and set."""
    cause: Cause = ""
    """The reason: shown with the task, and journalled."""
    undo_s: UndoSeconds | None = None
    """How long it can be undone; default: queue.undo_s."""
    preview: bool = False
    """Only count what it would do."""


class Start(Model):
    cause: Cause = ""
    undo_s: UndoSeconds | None = None


class Reload(Model):
    check: bool = False
    """Only say what it would change, and what is wrong."""


class ZoneToNode(Model):
    zone: Annotated[FilledLine, Field(max_length=64)]
    to: Annotated[FilledLine, Field(max_length=32)]
    """The node that gets it."""
    giver: Annotated[Line, Field(max_length=32)] = ""
    """Only what waits on this node; "": on all others."""


class BalanceNodes(Model):
    dry_run: bool = False
    """Only say what would move."""


class Drain(Model):
    for_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """How long deliveries under way may take; then all ends."""


class StepDocument(Model):
    """A step of a warm-up schedule."""

    step: Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(values.whole)] | Literal["warm"]
    """From 1; or warm: no limit."""
