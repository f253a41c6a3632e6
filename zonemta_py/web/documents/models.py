"""Requests and responses as types, which validate requests and generate the API's description.

Strict: unknown keys are refused, and a number is never accepted as text. The rows of a batch are checked by `batch`,
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

from zonemta_py.mail import metadata
from zonemta_py.web.documents import values

Name = Annotated[str, AfterValidator(values.name), WithJsonSchema({"type": "string", "pattern": values.NAME_PATTERN})]


def _described(pattern: str, **more: Any) -> WithJsonSchema:
    """The description of a text's pattern, equal to its validator's."""
    return WithJsonSchema({"type": "string", "pattern": pattern, **more})


_LINE = {"type": "string", "pattern": values.LINE_PATTERN, "maxLength": values.VALUE_CHARACTERS_MAX}
Line = Annotated[str, AfterValidator(values.field), WithJsonSchema(_LINE)]
FilledLine = Annotated[str, AfterValidator(values.field), Field(min_length=1), WithJsonSchema(_LINE | {"minLength": 1})]
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


_METADATA = WithJsonSchema({
    "type": "object", "maxProperties": metadata.NAMES_MAX, "propertyNames": {"pattern": metadata.NAME_PATTERN},
})  # fmt: skip
MessageMetadata = Annotated[dict[str, Any], AfterValidator(values.message_metadata), _METADATA]
RecipientMetadata = Annotated[dict[str, Any], AfterValidator(values.recipient_metadata), _METADATA]


def plain_name(schema: str) -> str:
    """A schema's public name, from its class's name."""
    return schema if schema.endswith("ProblemDocument") else schema.removesuffix("Document")


class Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        model_title_generator=lambda model: plain_name(model.__name__),
    )


def _given(key: str) -> dict[str, Any]:
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


class PersonDocument(Model):
    """A mailbox with its display name; a plain string is the address alone."""

    address: Address
    name: Line = ""
    """Display name."""


class AddresseeDocument(PersonDocument):
    """A recipient, with what is to come back with all that is told of it."""

    metadata: RecipientMetadata = {}
    """JSON values by name, over those of the message, of 512 bytes at most: never sent."""


def _person(given: Any) -> Any:
    return {"address": given} if isinstance(given, str) else given


_PERSON = {"anyOf": [{"type": "string", "format": "email"}, {"$ref": "#/components/schemas/Person"}]}
Mailbox = Annotated[PersonDocument, BeforeValidator(_person), WithJsonSchema(_PERSON)]
_RECIPIENT = {"anyOf": [{"type": "string", "format": "email"}, {"$ref": "#/components/schemas/Addressee"}]}
To = Annotated[AddresseeDocument, BeforeValidator(_person), WithJsonSchema(_RECIPIENT)]


_FILE_NAME = _described(values.LINE_PATTERN, minLength=1, maxLength=255)


class Attachment(Model):
    """A file: its content, or a reference to one that was uploaded (PUT /v1/attachments/{file})."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"allOf": [_given("name"), _given("content")], "properties": {"ref": {"type": "null"}}},
                {"allOf": [_given("ref")], "properties": {"content": {"type": "null"}}},
            ]
        }
    )

    name: Annotated[str, AfterValidator(values.file_name), _FILE_NAME] | None = None
    """File name as the reader sees it; of a reference, default: the name it was uploaded with."""
    type: Annotated[str, AfterValidator(values.media_type), _described(values.MEDIA_PATTERN)] | None = None
    """Media type; default: application/octet-stream, of a reference that it was uploaded with."""
    content: Base64 | None = None
    """The file in base64 (RFC 4648)."""
    ref: Annotated[str, AfterValidator(values.file_name), _FILE_NAME] | None = None
    """Instead of content: the name that the mail's tenant has uploaded it with, or sha256: and its digest in hex."""
    content_id: Annotated[str, AfterValidator(values.content_id), _described(values.CONTENT_ID_PATTERN)] | None = None
    """For an image that the HTML refers to as cid:content_id."""

    @model_validator(mode="after")
    def _check(self) -> Attachment:
        if self.content is not None and self.ref is not None:
            raise ValueError("ref stands for content; give one of the two")
        if self.content is None and self.ref is None:
            raise ValueError("there is neither content nor ref; give one of them")
        if self.name is None and self.ref is None:
            raise ValueError("name is missing; give the name that the reader sees")
        return self


_COMPOSED = ("from", "cc", "reply_to", "subject", "text", "html", "headers", "attachments")
"""Keys of a message that is not raw."""


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
    """Return path (MAIL FROM), "" for the null sender; default: the address in from."""
    from_: Annotated[Mailbox | None, Field(alias="from")] = None
    """The From field."""
    to: Annotated[list[To], FailFast()] = Field(min_length=1)
    """Recipients; all of them are listed in the To field, unless the message is raw."""
    cc: Annotated[list[To], FailFast()] = []
    """Further recipients, listed in the Cc field."""
    bcc: Annotated[list[Address], FailFast()] = []
    """Further recipients, listed nowhere."""
    reply_to: Mailbox | None = None
    """The Reply-To field."""
    subject: Line = ""
    text: Body | None = None
    """The plain text."""
    html: Body | None = None
    """The HTML version of the text."""
    headers: dict[Annotated[str, AfterValidator(values.header_name)], Line] = Field(
        {}, max_length=100, json_schema_extra={"propertyNames": {"pattern": values.HEADER_PATTERN}}
    )
    """Further header fields; X-Deliver-After and similar fields are instructions to this server, as with SMTP."""
    attachments: Annotated[list[Attachment], FailFast()] = Field([], max_length=100)
    raw: str | None = None
    """The whole message instead of from … attachments (RFC 5322); send a message that is not UTF-8 as
    message/rfc822."""
    zone: Line = ""
    """Sending zone; default: chosen by the rules."""
    campaign: Name | None = None
    tenant: Name | None = None
    priority: Priority | None = None
    """-9 … 9; higher goes first (RFC 6710)."""
    metadata: MessageMetadata = {}
    """JSON values by name, of 2,048 bytes at most, that come back in events, stories and reports: never sent."""

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
    """A batch without its rows."""

    campaign: Name
    """The campaign whose template is used; it must have been created before."""
    columns: list[Column] = Field(max_length=values.COLUMNS_MAX, json_schema_extra={"uniqueItems": True})
    """Names of the fields, as the template uses them."""
    zone: Line = ""
    """Sending zone; default: the campaign's."""
    source: Line = ""
    """Local address to send from, one of the zone's; default: any of them."""
    metadata: MessageMetadata = {}
    """JSON values by name that come back with all recipients of the batch; columns metadata (a JSON object) and
    meta_NAME are each recipient's own: never sent but by a template that names them."""


class BatchDocument(BatchHead):
    """Recipients of a campaign with their fields. Requires the header Idempotency-Key."""

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
    """One row for each recipient: the address, then a value for each column."""


class ReceiptDocument(Model):
    """The message is on stable storage."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "1939a8a8ab100000", "accepted": 2, "suppressed": 0, "repeated": False}]}
    )

    id: str
    """The message's id, also if all its recipients are suppressed: events and `trace` name it by that; "" if a plugin
    dropped it."""
    accepted: int
    """Recipients accepted."""
    suppressed: int
    """Recipients left out because they are on the suppression list."""
    repeated: bool
    """This Idempotency-Key was used before: this is the first response again, and nothing new was stored."""


class Health(Model):
    status: Literal["ok"]


class Place(Model):
    where: str
    """The place in the request, such as recipients[3][0]."""
    what: str


class ProblemDocument(Model):
    """Why a request failed (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:zonemta:problem:invalid",
                    "title": "Invalid request",
                    "status": 422,
                    "detail": "recipients[1][0]: 'anna' is not an email address; write name@domain",
                    "instance": "/v1/inject#5f3a9c2b1e7",
                    "errors": [
                        {"where": "recipients[1][0]", "what": "'anna' is not an email address; write name@domain"}
                    ],
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    """One sentence that ends with the remedy."""
    instance: str
    """The request's path and number; log lines about it have the same number."""
    errors: list[Place] = []
