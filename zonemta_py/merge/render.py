"""One recipient's message from a compiled template. Pure: the same arguments give the same bytes.

What does not depend on fields is encoded once: attachments, and the pieces of the bodies between expressions.
Everything is 7-bit, so that its signature survives every server.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Template, TemplateError

from zonemta_py.merge import header
from zonemta_py.merge.encoding import base64, base64_bytes, join, piece
from zonemta_py.merge.html.tracking import Tracking, tracked
from zonemta_py.merge.language import FUNCTIONS
from zonemta_py.merge.limits import FIELD_CHARACTERS_MAX
from zonemta_py.merge.meter import WORK_MAX, MeteredContext
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.merge.source import File

FIELDS_CHARACTERS_MAX = 100_000
_CID = re.compile(r"""(?<=["'(])cid:([^"')\s]{1,200})(?=["')])""")
_SAID_MAX = 300
_DENSE = 1.5  # above this many times its size in quoted-printable, a text is sent in base64
_Values = dict[str, Any]
_LEFT = " left"
"""Key among the values, which no template can name, of the work left for the message."""
_ERRORS = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError)


@dataclass(slots=True)
class Field:
    """A header field's text: a template, or the constant it always is."""

    name: str
    template: Template | None
    constant: str | None

    def text(self, values: _Values) -> str:
        """Raises RenderRefused."""
        if self.template is None:
            return self.constant or ""
        text = "".join(_pieces(self.name, self.template, values))
        if len(text) > FIELD_CHARACTERS_MAX:
            raise RenderRefused(
                f"{self.name}: it has {len(text):,} characters; make it {FIELD_CHARACTERS_MAX:,} or less"
            )
        return text


class Part:
    """A text/plain or text/html body. strings: those of its pieces that are constant."""

    def __init__(self, kind: str, template: Template, strings: list[str]) -> None:
        self._name = "html" if kind == "html" else "text"
        self._template = template
        self._encoded = {one: piece(one) for one in strings}
        size = sum(len(one.encode()) for one in strings)
        self._base64 = sum(len(one) for one, _, _ in self._encoded.values()) > _DENSE * size + 500
        encoding = "base64" if self._base64 else "quoted-printable"
        self._head = (
            f"Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
        ).encode()

    def text(self, values: _Values) -> str:
        """As the recipient will see it, before it is encoded. Raises RenderRefused."""
        return "".join(_pieces(self._name, self._template, values))

    def whole(self, values: Mapping[str, Any]) -> str:
        """The same, outside of any message: with a budget of work of its own. Raises RenderRefused."""
        return self.text({**values, **FUNCTIONS, _LEFT: WORK_MAX})

    def entity(self, values: _Values, tracking: Tracking | None = None) -> bytes:
        """Header and body, without the CRLF that ends it. Raises RenderRefused."""
        pieces = _pieces(self._name, self._template, values)
        if tracking is not None:
            pieces = [tracked("".join(pieces), tracking)]
        if self._base64:
            return self._head + base64("".join(pieces))
        known = self._encoded
        return self._head + join([known[one] if one in known else piece(one) for one in pieces])


def _pieces(name: str, template: Template, values: _Values) -> list[str]:
    context: MeteredContext = template.new_context(values, shared=True)  # type: ignore[assignment]
    context.left = values[_LEFT]
    try:
        pieces = list(template.root_render_func(context))
    except _ERRORS as error:
        said = str(error).rstrip(".") or type(error).__name__
        raise RenderRefused(f"{name}: {said[:_SAID_MAX]}; correct the field or the template") from None
    values[_LEFT] = context.left
    return pieces


@dataclass(slots=True)
class Compiled:
    """Made by `compile.compile`. Messages: mixed(related(alternative(text, html), images), attachments)."""

    sender: tuple[Field | None, Field]
    reply_to: tuple[Field | None, Field] | None
    to_name: Field | None
    subject: Field
    list_unsubscribe: Field | None
    one_click: bool
    headers: list[Field]
    text: Part | None
    html: Part | None
    images: tuple[File, ...]
    attachments: tuple[File, ...]
    links: frozenset[str] = frozenset()
    """Names of links that it prints, which are made for each recipient where no field has that name."""
    _images: list[bytes] = field(init=False)
    _attachments: list[bytes] = field(init=False)
    _from: tuple[bytes, str] | None = field(init=False)
    """The field From and the domain in it, where no recipient changes them."""

    def __post_init__(self) -> None:
        """Raises RenderRefused for names and kinds of files that cannot stand in a header section."""
        self._images = [_entity(one, header.content_id(one.name), "inline") for one in self.images]
        self._attachments = [_entity(one, "", "attachment") for one in self.attachments]
        changes = any(one is not None and one.template is not None for one in self.sender)
        self._from = None if changes else self._sender({})

    def render(self, fields: Mapping[str, str], recipient: str, campaign: str, date: str, identity: str = "") -> bytes:
        """A whole message, its lines ending in CRLF.

        recipient: address, also {{ recipient }}; campaign: also {{ campaign }}. The two name the message: Message-ID
        and boundaries are a hash of them, or of `identity` instead of the campaign. date: of the Date field (RFC 5322
        3.3). Raises RenderRefused.
        """
        return b"".join(self.pieces(fields, recipient, campaign, date, identity))

    def pieces(
        self, fields: Mapping[str, str], recipient: str, campaign: str, date: str, identity: str = "",
        tracking: Tracking | None = None, number: str = "",
    ) -> list[bytes]:  # fmt: skip
        """The message of `render` in pieces, cut anywhere. tracking: what the HTML gets of it; None: nothing. number:
        our id of the message, which its Message-ID carries too; "": none.

        Attachments and images are the same objects for all recipients: streaming copies none of them.
        """
        values = _values(fields, recipient, campaign)
        named = f"{identity or campaign}\0{recipient}".encode("utf-8", "surrogatepass")
        unique = hashlib.sha256(named).hexdigest()[:32]
        try:
            return [
                b"".join(self._header(values, recipient, date, f"{unique}.{number}" if number else unique)),
                *self._body(values, unique, tracking),
                b"\r\n",
            ]
        except UnicodeEncodeError:
            raise RenderRefused(
                "a field has half a character (a lone surrogate); correct the list's encoding"
            ) from None

    def complete(self, fields: Mapping[str, str], links: Mapping[str, str] | None = None) -> dict[str, str]:
        """The fields, with the links that it prints and that no field is. links: those; None: examples, in place of
        what is made when it is sent."""
        made = {name: f"https://links.example/{name}" for name in self.links} if links is None else links
        return {name: made[name] for name in self.links if name in made} | dict(fields)

    def html_text(self, fields: Mapping[str, str], recipient: str, campaign: str) -> str:
        """The HTML part alone, its images in it, as a browser shows it; "" if there is none. Raises RenderRefused."""
        if self.html is None:
            return ""
        shown = {one.name: f"data:{one.kind};base64,{b64encode(one.content).decode()}" for one in self.images}
        text = self.html.text(_values(fields, recipient, campaign))
        return _CID.sub(lambda found: shown.get(found[1], found[0]), text)

    def _header(self, values: _Values, recipient: str, date: str, name: str) -> list[bytes]:
        sender, domain = self._from or self._sender(values)
        made = [sender]
        if self.reply_to:
            made.append(header.mailbox("Reply-To", _text(self.reply_to[0], values), self.reply_to[1].text(values)))
        made.append(header.mailbox("To", _text(self.to_name, values), recipient))
        made.append(header.unstructured("Subject", self.subject.text(values)))
        made.append(f"Date: {header.clean(date)}\r\nMessage-ID: <{name}@{domain}>\r\n".encode())
        if self.list_unsubscribe:
            made.append(header.url("List-Unsubscribe", self.list_unsubscribe.text(values)))
            if self.one_click:
                made.append(b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n")
        made += [header.unstructured(one.name, one.text(values)) for one in self.headers]
        made.append(b"MIME-Version: 1.0\r\n")
        return made

    def _sender(self, values: _Values) -> tuple[bytes, str]:
        address = self.sender[1].text(values)
        domain = header.addr_spec("From", address).rpartition("@")[2]
        return header.mailbox("From", _text(self.sender[0], values), address), domain

    def _body(self, values: _Values, unique: str, tracking: Tracking | None) -> list[bytes]:
        parts = [[self.text.entity(values)]] if self.text is not None else []
        if self.html is not None:
            parts.append([self.html.entity(values, tracking)])
        body = parts[0] if len(parts) == 1 else _multipart("alternative", "a", unique, parts)
        if self._images:
            body = _multipart("related", "r", unique, [body, *([image] for image in self._images)])
        if self._attachments:
            body = _multipart("mixed", "m", unique, [body, *([file] for file in self._attachments)])
        return body


def _values(fields: Mapping[str, str], recipient: str, campaign: str) -> _Values:
    if sum(map(len, fields.values())) > FIELDS_CHARACTERS_MAX:
        raise RenderRefused(f"the fields have more than {FIELDS_CHARACTERS_MAX:,} characters; shorten them")
    return {**fields, **FUNCTIONS, "recipient": recipient, "campaign": campaign, _LEFT: WORK_MAX}


def _text(part: Field | None, values: _Values) -> str:
    return part.text(values) if part is not None else ""


def _multipart(kind: str, letter: str, unique: str, entities: list[list[bytes]]) -> list[bytes]:
    boundary = f"=_{letter}{unique}"
    between = f"\r\n--{boundary}\r\n".encode()
    pieces = [f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n'.encode()]
    for entity in entities:
        pieces += (between, *entity)
    pieces.append(f"\r\n--{boundary}--".encode())
    return pieces


def _entity(file: File, identity: str, disposition: str) -> bytes:
    lines = [header.media_type(file.kind), "Content-Transfer-Encoding: base64", identity]
    lines.append(f"Content-Disposition: {disposition};\r\n {header.parameter('filename', file.name)}")
    head = "\r\n".join(line for line in lines if line) + "\r\n\r\n"
    return head.encode() + base64_bytes(file.content)
