"""Requests and responses about named queues, as types (see `models`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from zonemta_py.web.documents import values
from zonemta_py.web.documents.models import Count, Model

SECONDS_MAX = 31_536_000
Queue = Annotated[str, Field(pattern=values.NAME_PATTERN)]
ReceiptText = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,64}\.[0-9]{1,18}$")]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]


class QueueRow(Model):
    """A queue, and how many messages it has."""

    queue: Queue
    ready: Count
    """That can be taken now."""
    leased: Count
    """That are reserved, or being taken."""
    delayed: Count
    """Whose time has not come."""
    held: Count
    """That an operator has to release or drop."""


class Pushed(Model):
    id: str
    """The message's id."""
    repeated: bool
    """An earlier request with the same Idempotency-Key stored it; nothing was stored now."""


class Acknowledgement(Model):
    """The message is done."""

    receipt: ReceiptText
    """The header Zonemta-Receipt of the response to reserve."""


class NegativeAcknowledgement(Acknowledgement):
    """The message is to be taken again."""

    delay_s: Seconds = 0.0
    """After so many seconds; 0: at once, in its old place."""


class Extension(Acknowledgement):
    """The message stays reserved."""

    seconds: Seconds
    """For so many seconds from now."""


class Settled(Model):
    receipt: ReceiptText
