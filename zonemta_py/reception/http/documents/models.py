"""What is asked and answered, as types: they check requests, and the API's description is made from them.

Strict: unknown keys are refused, and a number is never taken for a text. The rows of a batch are checked by `batch`,
since there may be a thousand of them; `BatchDocument` describes them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    WithJsonSchema,
    model_validator,
)  # fmt: skip

from zonemta_py.queue.campaigns.thresholds import SHARES
from zonemta_py.reception.http.documents import values

Name = Annotated[str, AfterValidator(values.name), WithJsonSchema({"type": "string", "pattern": values.NAME_PATTERN})]


def _described(pattern: str, **more: Any) -> WithJsonSchema:
    """What the description says of a text: the same as its validator."""
    return WithJsonSchema({"type": "string", "pattern": pattern, **more})


_LINE = {"type": "string", "pattern": values.LINE_PATTERN, "maxLength": values.VALUE_CHARACTERS_MAX}
Line = Annotated[str, AfterValidator(values.field), WithJsonSchema(_LINE)]
Cause = Annotated[str, AfterValidator(values.field), Field(max_length=500), WithJsonSchema(_LINE | {"maxLength": 500})]
By = Annotated[str, AfterValidator(values.field), Field(max_length=200), WithJsonSchema(_LINE | {"maxLength": 200})]
Body = Annotated[str, AfterValidator(values.text), _described(values.TEXT_PATTERN)]
Base64 = Annotated[str, _described(values.BASE64_PATTERN, contentEncoding="base64")]
Address = Annotated[str, AfterValidator(values.address), WithJsonSchema({"type": "string", "format": "email"})]
ReturnPath = Annotated[str, AfterValidator(values.return_path)]
Priority = Annotated[int, Field(ge=-9, le=9), BeforeValidator(values.whole)]
Count = Annotated[int, Field(ge=0), BeforeValidator(values.whole)]
Planned = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(values.whole)]
Column = Annotated[str, AfterValidator(values.column), _described(values.COLUMN_PATTERN)]


def plain_name(schema: str) -> str:
    """A schema's name as clients know it, from its class's."""
    return schema if schema.endswith("ProblemDocument") else schema.removesuffix("Document")


class Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        model_title_generator=lambda model: plain_name(model.__name__),
    )


class PersonDocument(Model):
    """A mailbox with its display name; a plain string is the address alone."""

    address: Address
    name: Line = ""
    """Display name."""


def _person(given: Any) -> Any:
    return {"address": given} if isinstance(given, str) else given


_PERSON = {"anyOf": [{"type": "string", "format": "email"}, {"$ref": "#/components/schemas/Person"}]}
Mailbox = Annotated[PersonDocument, BeforeValidator(_person), WithJsonSchema(_PERSON)]


class Attachment(Model):
    """A file."""

    name: Annotated[str, AfterValidator(values.file_name), _described(values.LINE_PATTERN, minLength=1, maxLength=255)]
    """File name as the reader sees it."""
    type: Annotated[str, AfterValidator(values.media_type), _described(values.MEDIA_PATTERN)] = (
        "application/octet-stream"
    )
    """Media type."""
    content: Base64
    """The file in base64 (RFC 4648)."""
    content_id: Annotated[str, AfterValidator(values.content_id), _described(values.CONTENT_ID_PATTERN)] | None = None
    """Given for an image that the HTML shows as cid:content_id."""


_COMPOSED = ("from", "cc", "reply_to", "subject", "text", "html", "headers", "attachments")
"""Keys of a message that is not raw."""


def _given(key: str) -> dict[str, Any]:
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


class MessageDocument(Model):
    """One message: composed from its parts here, or `raw`, as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "allOf": [_given("from"), {"properties": {"raw": {"type": "null"}}}],
                    "anyOf": [_given("text"), _given("html")],
                },
                {
                    "allOf": [_given("raw"), _given("sender")],
                    "not": {"anyOf": [{"required": [key]} for key in _COMPOSED]},
                },
            ],
            "examples": [
                {
                    "from": {"address": "shop@example.com", "name": "The Shop"},
                    "to": ["anna@example.org"],
                    "subject": "Your order",
                    "text": "It is on its way.\n",
                    "tenant": "shop",
                }
            ],
        }
    )

    sender: ReturnPath | None = None
    """Return path (MAIL FROM), "" for the null one; not given: the address in from."""
    from_: Annotated[Mailbox | None, Field(alias="from")] = None
    """The field From."""
    to: Annotated[list[Mailbox], FailFast()] = Field(min_length=1)
    """Who gets it; all of them are named in the field To, unless the message is raw."""
    cc: Annotated[list[Mailbox], FailFast()] = []
    """More of them, named in the field Cc."""
    bcc: Annotated[list[Address], FailFast()] = []
    """More of them, named nowhere."""
    reply_to: Mailbox | None = None
    """The field Reply-To."""
    subject: Line = ""
    text: Body | None = None
    """The plain text."""
    html: Body | None = None
    """The same in HTML."""
    headers: dict[Annotated[str, AfterValidator(values.header_name)], Line] = Field(
        {}, max_length=100, json_schema_extra={"propertyNames": {"pattern": values.HEADER_PATTERN}}
    )
    """More fields of the header section; X-Deliver-After and its like speak to this server, as they do by SMTP."""
    attachments: Annotated[list[Attachment], FailFast()] = Field([], max_length=100)
    raw: str | None = None
    """The whole message instead of from … attachments (RFC 5322); one that is not UTF-8 goes as message/rfc822."""
    zone: Line = ""
    """Sending zone; not given: as the rules choose."""
    campaign: Name | None = None
    tenant: Name | None = None
    priority: Priority | None = None
    """-9 … 9; what goes first (RFC 6710)."""

    @model_validator(mode="after")
    def _check(self) -> MessageDocument:
        composed = {name.rstrip("_") for name in self.model_fields_set} & {*_COMPOSED}
        if self.raw is not None:
            if composed:
                raise ValueError(f"raw is the whole message; remove {', '.join(sorted(composed))}")
            if self.sender is None:
                raise ValueError('raw needs sender, the return path; "" is the null one')
        elif self.from_ is None:
            raise ValueError("from is missing: give the address that the message is from")
        elif self.text is None and self.html is None:
            raise ValueError("there is neither text nor html; give one of them, or both")
        return self


_ROW = {"type": "array", "minItems": 1, "prefixItems": [{"type": "string", "format": "email"}], "items": _LINE}


class BatchHead(Model):
    """All of a batch but its rows."""

    campaign: Name
    """The campaign whose template the fields go into; it must have been put before."""
    columns: list[Column] = Field(max_length=values.COLUMNS_MAX, json_schema_extra={"uniqueItems": True})
    """Names of the fields, as the template calls them."""
    zone: Line = ""
    """Sending zone; not given: the campaign's."""
    source: Line = ""
    """Local address that these are to be sent from, one of the zone's; not given: any of them."""


class BatchDocument(BatchHead):
    """Recipients of a campaign with their fields. Needs the header Idempotency-Key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "campaign": "spring",
                    "columns": ["name", "city"],
                    "recipients": [["anna@example.org", "Anna", "Lyon"], ["ben@example.net", "Ben", "Turin"]],
                }
            ]
        }
    )

    recipients: list[Annotated[list[str], WithJsonSchema(_ROW)]] = Field(min_length=1)
    """One row for each: the address, then a value for each column."""


class ReceiptDocument(Model):
    """It is on stable storage."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "1939a8a8ab100000", "accepted": 2, "suppressed": 0, "repeated": False}]}
    )

    id: str
    """Of the message; "" if nothing was stored: all recipients are suppressed, or a plugin dropped it."""
    accepted: int
    """Recipients taken."""
    suppressed: int
    """Recipients left out, since the suppression list has them."""
    repeated: bool
    """This Idempotency-Key was answered before: the first answer again, and nothing new was stored."""


class Bounds(Model):
    """Shares (0 to 1) of the attempts at which a campaign is paused by itself, from `least` attempts on."""

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
"""A prepared one of a line, as an example."""


class CampaignDocument(Model):
    """What a campaign sends. Putting the same again is a success and changes nothing."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "sender": "news@example.com",
                    "template": _TEMPLATE,
                    "tenant": "shop",
                    "planned": 100000,
                    "bounds": {"least": 1000, "bounced": 0.05},
                }
            ]
        }
    )

    sender: ReturnPath
    """Return path (MAIL FROM)."""
    template: Base64
    """The prepared template in base64 (RFC 4648), as `zonemta campaign` packs it."""
    tenant: Name | Literal[""] = ""
    zone: Line = ""
    priority: Priority = 0
    planned: Planned = 0
    """Recipients there will be; 0: not said."""
    bounds: Bounds | None = None
    life_h: float = Field(168, gt=0, le=24 * 366)
    """Hours after which a recipient is given up."""
    notify: Literal["remote", "never", "failure"] = "remote"
    """Who tells the return path of recipients that were not reached. remote: other servers, of what they took and could
    not deliver; what this one finds out is in the campaign's figures and the journal. never: nobody, others are asked
    not to (RFC 3461). failure: this server too, a message for each."""


class Created(Model):
    created: bool
    """False: it was there already, the same."""


class CampaignRow(Model):
    """How a campaign is doing. Times are UNIX time in ms."""

    model_config = ConfigDict(extra="allow")

    name: str
    state: Literal["running", "paused", "canceled", "complete", "ended"]
    cause: str
    """Of the latest order."""
    sender: str
    tenant: str
    zone: str
    created_ms: int
    planned: int
    accepted: int
    delivered: int
    deferred: int
    """Attempts that were deferred."""
    bounced: int
    blocked: int
    complaints: int
    removed: int
    suppressed: int
    waiting: int
    """Accepted and not ended."""
    first_ms: int
    last_ms: int
    rate_per_s: float
    eta_ms: int | None
    history: list[list[int]] = []
    """[ms, waiting, delivered] at up to 240 moments; only where one campaign is asked for."""


class Order(Model):
    cause: Cause = ""
    """Why: shown with the campaign, and journalled."""


class Health(Model):
    status: Literal["ok"]


class Place(Model):
    where: str
    """The place in the request, such as recipients[3][0]."""
    what: str


class ProblemDocument(Model):
    """Why it was not done (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:zonemta:problem:invalid",
                    "title": "The request is understood, but cannot be done as it is",
                    "status": 422,
                    "detail": "recipients[1][0]: 'anna' is no e-mail address; write name@domain",
                    "instance": "/v1/inject#5f3a9c2b1e7",
                    "errors": [{"where": "recipients[1][0]", "what": "'anna' is no e-mail address; write name@domain"}],
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    """One sentence, which ends with the remedy."""
    instance: str
    """The request's path and number; what is logged about it has the number too."""
    errors: list[Place] = []
