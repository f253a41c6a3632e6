"""Campaigns as JSON: their settings, with the template, their state, orders about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, FailFast, Field, Tag

from zonemta_py.queue.campaigns.thresholds import SHARES
from zonemta_py.web.documents.models import (
    Base64,
    Cause,
    Count,
    Line,
    Model,
    Name,
    Planned,
    Priority,
    ReturnPath,
)
from zonemta_py.web.documents.templates import PersonalDocument, TemplateDocument


class Bounds(Model):
    """Shares (0 to 1) of attempts at which the campaign is paused automatically, checked from `least` attempts on."""

    least: Count | None = None
    deferred: float | None = Field(None, ge=0, le=1)
    bounced: float | None = Field(None, ge=0, le=1)
    blocked: float | None = Field(None, ge=0, le=1)
    complaints: float | None = Field(None, ge=0, le=1)


assert {*Bounds.model_fields} == {"least", *SHARES}


_TEMPLATE = (
    "nwGhdJSwSGVsbG8ge3sgbmFtZSB9fah0ZW1wbGF0ZQEBlLBuZXdzQGV4YW1wbGUuY29tqHRlbXBsYXRlAQHAwMDCkJSwRGVhciB7eyBuYW1l"
    "IH19Cqh0ZW1wbGF0ZQEBwMCQkMM="
)
"""An example: a prepared template of one line."""


def _form(given: Any) -> str:
    return "[packed]" if isinstance(given, str) else "[plain]"


class ChoiceDocument(Model):
    """The campaign waits until its template is chosen between those of others, its variants, that were sent before."""

    of: list[Name] = Field(min_length=2, max_length=10)
    """The variants: campaigns that exist. Batches need the fields of all their templates."""
    metric: Literal["clicks", "opens", "unsubscribes", "complaints", "bounced"] = "clicks"
    """Shares of the delivered that are compared: most clicks or opens win, fewest of the others (bounced: of those
    tried)."""
    after_h: float = Field(4, ge=0, le=720)
    """Hours after which the best one is chosen; 0: only by POST …/decide."""


_AnyTemplate = Annotated[
    Annotated[Base64, Tag("[packed]")] | Annotated[TemplateDocument, Tag("[plain]")], Discriminator(_form)
]


class CampaignDocument(Model):
    """A campaign's settings. Repeating a PUT with the same content succeeds and changes nothing."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "sender": "news@example.com",
                    "template": {
                        "from": "The Shop <news@example.com>",
                        "subject": "Hello {{ name }}",
                        "html": "<p>Dear {{ name }}, spring is here.</p>",
                    },
                    "tenant": "shop",
                    "planned": 100000,
                    "bounds": {"least": 1000, "bounced": 0.05},
                },
                {"sender": "news@example.com", "template": _TEMPLATE},
            ]
        }
    )

    sender: ReturnPath
    """Return path (MAIL FROM)."""
    template: _AnyTemplate
    """The template; or a prepared one in base64 (RFC 4648), as packed by `zonemta campaign`."""
    tenant: Name | Literal[""] = ""
    zone: Line = ""
    priority: Priority = 0
    planned: Planned = 0
    """Expected number of recipients; 0: unknown."""
    bounds: Bounds | None = None
    life_h: float = Field(168, gt=0, le=24 * 366)
    """Hours after which a recipient is given up."""
    notify: Literal["remote", "never", "failure"] = "remote"
    """Who notifies the return path of an undeliverable recipient. remote: other servers, about what they accepted;
    failures found by this server are in the campaign's figures and the journal. never: no server; others are asked for
    silence too (RFC 3461). failure: this server too, with a notification for each."""
    in_doubt: Literal["retry", "hold", ""] = ""
    """Recipients whose final reply was awaited at a crash: send again, or hold for an operator; "": as the zone
    says."""
    choice: ChoiceDocument | None = None
    """The template is chosen later, between variants; the one given here only needs to be one of theirs."""
    at: Line = ""
    """From when on it goes: 09:00 (the next nine o'clock of each recipient), 2026-11-24 or 2026-11-24 09:00 as each
    recipient's clocks show it, or with an offset or Z."""
    window: Line = ""
    """Hours in which it goes, by each recipient's clocks: 09:00-17:00, mon-fri 09:00-17:00; or the name of a window of
    the configuration."""
    until: Line = ""
    """Until when it goes, as `at`; a day alone with all its hours. What has not gone when that is over everywhere is
    removed, and nobody is told."""
    time_zone: Line = ""
    """Of recipients whose own is not known (an IANA name, or a country); default: UTC."""
    time_zone_column: Name | Literal[""] = ""
    """The column of batches with each recipient's time zone: an IANA name, a country (ISO 3166-1) or a locale such as
    de_AT; of a country with several, the most populous."""
    at_column: Name | Literal[""] = ""
    """The column of batches with each recipient's own time of day, HH:MM; empty values: `at`."""


class CampaignTimes(Model):
    """As of a campaign; null: as it is; "": at any time."""

    at: Line | None = None
    window: Line | None = None
    until: Line | None = None
    time_zone: Line | None = None


class Order(Model):
    cause: Cause = ""
    """The reason: shown with the campaign, and journalled."""


class Decision(Model):
    winner: Name | Literal[""] = ""
    """The variant whose template the campaign gets; "": the best one now."""
    cause: Cause = ""
    """The reason: shown with the campaign, and journalled."""


class NewText(Model):
    template: _AnyTemplate
    """As of a campaign. It asks for no field but those that the present one asks for."""
    cause: Cause = ""
    """The reason, for the log."""


class TrialDocument(Model):
    """Who is to get a campaign's message as a test."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [{"to": "me@example.com", "fields": {"name": "Anna"}}]}]}
    )

    messages: Annotated[list[PersonalDocument], FailFast()] = Field(min_length=1, max_length=100)
    """To whom, and the fields of whom the message is made."""
    subject: Line = "[test] "
    """Text before the subject; "": none."""
