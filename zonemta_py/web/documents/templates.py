"""A campaign's template, and a message for several people with fields for each, as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, FailFast, Field, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from zonemta_py.merge.source import File, TemplateSource, Text
from zonemta_py.web.documents import values
from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.models import (
    Attachment,
    Body,
    Column,
    FilledLine,
    Line,
    MessageMetadata,
    Model,
    Name,
    Priority,
    ReturnPath,
    To,
)

_HEADERS: JsonDict = {"propertyNames": {"pattern": values.HEADER_PATTERN}}
_HeaderName = Annotated[str, AfterValidator(values.header_name)]


class TemplateDocument(Model):
    """Jinja2 in every text: {{ name }} is the recipient's field of that name, {{ recipient }} the address."""

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["from", "subject"],
            "anyOf": [{"required": [key]} for key in ("text", "html", "mjml")],
            "examples": [
                {
                    "from": "The Shop <news@example.com>",
                    "subject": "Hello {{ name }}",
                    "html": "<p>Dear {{ name }}, spring is here.</p>",
                }
            ],
        }
    )

    from_: Annotated[FilledLine, Field(alias="from")]
    """The From field: name@domain, or Name <name@domain>."""
    subject: FilledLine
    reply_to: Line = ""
    """The Reply-To field, written like from; "": none."""
    to_name: Line = ""
    """Display name beside the recipient's address, such as {{ first_name }} {{ last_name }}."""
    list_unsubscribe: Line = ""
    """List-Unsubscribe: an https: or mailto: URL of your own; "": none but what the server adds."""
    one_click: bool = False
    """That URL takes one-click unsubscriptions (RFC 8058)."""
    headers: dict[_HeaderName, Line] = Field({}, max_length=100, json_schema_extra=_HEADERS)
    """Further header fields; X-Deliver-After and similar fields are instructions to this server, as with SMTP."""
    text: Body | None = None
    """The plain text; not given: made from html."""
    html: Body | None = None
    """CSS of style elements is inlined."""
    mjml: Body | None = None
    """MJML, from which html is made; not both."""
    attachments: Annotated[list[Attachment], FailFast()] = Field([], max_length=100)
    """For everybody; one with a content_id is an image that the HTML refers to as cid:content_id."""

    @model_validator(mode="after")
    def _check(self) -> TemplateDocument:
        if self.text is None and self.html is None and self.mjml is None:
            raise ValueError("there is neither text nor html nor mjml; give one of them")
        if self.html is not None and self.mjml is not None:
            raise ValueError("html is made from mjml; give one of the two")
        return self

    def source(self, files: list[AttachedFile]) -> TemplateSource:
        """Not prepared. files: its attachments."""
        return TemplateSource(
            file="template",
            subject=Text(self.subject, "subject"),
            sender=Text(self.from_, "from"),
            reply_to=_text(self.reply_to or None, "reply_to"),
            to_name=_text(self.to_name or None, "to_name"),
            list_unsubscribe=_text(self.list_unsubscribe or None, "list_unsubscribe"),
            one_click=self.one_click,
            headers=tuple((name, Text(value, name)) for name, value in self.headers.items()),
            text=_text(self.text, "text"),
            html=_text(self.html, "html"),
            mjml=_text(self.mjml, "mjml"),
            attachments=tuple(File(one.name, one.type, one.content) for one in files if not one.content_id),
            images=tuple(File(one.content_id, one.type, one.content) for one in files if one.content_id),
        )


def _text(content: str | None, key: str) -> Text | None:
    return Text(content.replace("\r\n", "\n"), key) if content is not None else None


_FIELDS = {
    "type": "object", "additionalProperties": {"type": "string", "pattern": values.LINE_PATTERN},
    "propertyNames": {"pattern": values.COLUMN_PATTERN}, "maxProperties": values.COLUMNS_MAX,
}  # fmt: skip


class PersonalDocument(Model):
    """One person's message."""

    to: To
    """The recipient; the name stands beside the address unless the template has to_name."""
    fields: Annotated[dict[Column, Line], WithJsonSchema(_FIELDS)] = Field({}, max_length=values.COLUMNS_MAX)
    """Name → value, as the template uses them."""
    attachments: Annotated[list[Attachment], FailFast()] = Field([], max_length=100)
    """For this person alone, beside the template's."""


class MergedDocument(Model):
    """One template, and a message for each of several people: an invoice, a ticket, a reminder. Each message is one of
    its own, with a receipt; they are of no campaign unless they name one."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "template": {
                        "from": "The Shop <shop@example.com>",
                        "subject": "Invoice {{ number }}",
                        "text": "Dear {{ name }}, your invoice is attached.\n",
                    },
                    "messages": [
                        {
                            "to": {"address": "anna@example.org", "name": "Anna"},
                            "fields": {"name": "Anna", "number": "17"},
                            "attachments": [{"name": "17.pdf", "type": "application/pdf", "content": "JVBERi0="}],
                        }
                    ],
                }
            ]
        }
    )

    template: TemplateDocument
    messages: Annotated[list[PersonalDocument], FailFast()] = Field(min_length=1)
    sender: ReturnPath | None = None
    """Return path (MAIL FROM), "" for the null sender; default: the address in the template's from."""
    zone: Line = ""
    """Sending zone; default: chosen by the rules."""
    campaign: Name | None = None
    tenant: Name | None = None
    priority: Priority | None = None
    """-9 … 9; higher goes first (RFC 6710)."""
    metadata: MessageMetadata = Field({})
    """JSON values by name, of 2,048 bytes at most, that come back in events, stories and reports: never sent."""


class ReceiptOfOne(Model):
    """What became of one message of several."""

    to: str
    id: str
    """The message's id, also if its recipient is suppressed; "" if a plugin dropped it."""
    accepted: Literal[0, 1]
    suppressed: Literal[0, 1]
    repeated: bool
    """It had been stored by an earlier request with the same Idempotency-Key."""


class MergedReceipt(Model):
    """All messages are on stable storage."""

    messages: list[ReceiptOfOne]


def is_merged(content: dict[str, Any]) -> bool:
    """Whether a request is a `MergedDocument`."""
    return "messages" in content or "template" in content
