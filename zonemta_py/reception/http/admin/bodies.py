"""What operators send, as types (see `documents/models.py`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from zonemta_py.mail.fields import CONTROLS
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.reception.http.documents import values
from zonemta_py.reception.http.documents.models import Cause, Model

What = Annotated[
    str,
    AfterValidator(values.field),
    Field(min_length=1, max_length=500),
    WithJsonSchema({"type": "string", "pattern": values.LINE_PATTERN, "minLength": 1, "maxLength": 500}),
]
"""A text that is not empty."""
ReplyText = Annotated[
    str,
    AfterValidator(values.field),
    Field(max_length=500, pattern="^[245][0-9][0-9]( .*)?$"),
    WithJsonSchema({"type": "string", "pattern": f"^[245][0-9][0-9]( [^{CONTROLS}]*)?$", "maxLength": 500}),
]


def _class(given: str) -> str:
    if given not in CLASSES:
        raise ValueError(f"there is no class {given[:40]!a}; use one of {', '.join(CLASSES)}")
    return given


Class = Annotated[str, AfterValidator(_class), WithJsonSchema({"type": "string", "enum": list(CLASSES)})]
Standing = Literal[
    "destination", "tenant", "campaign", "zone", "source", "rest", "resting", "rate", "concurrency", "recipients",
    "pipelining", "no-tls", "lost",
]  # fmt: skip
"""Kinds of what holds mail (`schedule.admin_orders.LIFTED`)."""
Suspendable = Literal["destination", "tenant", "campaign", "zone", "source"]


class Lift(Model):
    """What is to be lifted, as /v1/standing names it."""

    kind: Standing
    name: What


class SuspensionDocument(Model):
    seconds: float | None = Field(None, gt=0, le=10 * 366 * 86_400)
    """For so long; default: until it is resumed."""
    cause: Cause = ""
    """The reason: shown wherever mail waits for it, and journalled."""


class StepDocument(Model):
    """A step of a warm-up schedule."""

    step: Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(values.whole)] | Literal["warm"]
    """From 1; or warm: no limit."""
