"""Composes a message from the parts in a JSON request (RFC 5322, RFC 2045-2049): all 7-bit, except for international
addresses (RFC 6532). Date and Message-ID are added later, as to all mail without them.

Values have been checked (`models`); fields are written by `merge.header`, which lets no value end a field.
"""

from __future__ import annotations

from collections.abc import Sequence

from zonemta_py.merge import header
from zonemta_py.merge.encoding import base64, base64_bytes, join, piece
from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.models import MessageDocument, PersonDocument

_DENSE = 6
"""If one character in this many is not ASCII, base64 is shorter than quoted-printable, and no less readable."""


def compose(message: MessageDocument, files: list[AttachedFile]) -> bytes:
    """message: not raw. files: its attachments. Raises RenderRefused."""
    assert message.from_ is not None
    fields = [header.mailbox("From", message.from_.name, message.from_.address), _list("To", message.to)]
    if message.cc:
        fields.append(_list("Cc", message.cc))
    if message.reply_to is not None:
        fields.append(header.mailbox("Reply-To", message.reply_to.name, message.reply_to.address))
    fields.append(header.unstructured("Subject", message.subject))
    fields += [header.unstructured(name, value) for name, value in message.headers.items()]
    fields.append(b"MIME-Version: 1.0\r\n")
    return b"".join(fields) + _content(message, files) + b"\r\n"


def _list(name: str, people: Sequence[PersonDocument]) -> bytes:
    """Each on a line of its own."""
    fields = [header.mailbox(name, person.name, person.address).removesuffix(b"\r\n") for person in people]
    return b",\r\n".join([fields[0], *(field[len(name) + 1 :] for field in fields[1:])]) + b"\r\n"


def _content(message: MessageDocument, files: list[AttachedFile]) -> bytes:
    """The body and its MIME fields: text, alternatives, inline images, attachments."""
    shown = [_file(one) for one in files if one.content_id and message.html is not None]
    attached = [_file(one) for one in files if not one.content_id or message.html is None]
    texts = [] if message.text is None else [_text("plain", message.text)]
    if message.html is not None:
        html = _text("html", message.html)
        texts.append(_multipart("related", [html, *shown]) if shown else html)
    content = texts[0] if len(texts) == 1 else _multipart("alternative", texts)
    return _multipart("mixed", [content, *attached]) if attached else content


def _text(kind: str, text: str) -> bytes:
    dense = len(text) and sum(map(str.isascii, text)) < len(text) * (1 - 1 / _DENSE)
    encoding, body = ("base64", base64(text)) if dense else ("quoted-printable", join([piece(text)]))
    head = f"Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    return head.encode() + body


def _multipart(kind: str, entities: list[bytes]) -> bytes:
    """No part can contain the boundary: no encoded line has "=_" in it, and each kind has a boundary of its own."""
    boundary = f"=_{kind}"
    between = f"\r\n--{boundary}\r\n".encode()
    opening = f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n'.encode()
    return opening + between + between.join(entities) + f"\r\n--{boundary}--".encode()


def _file(attachment: AttachedFile) -> bytes:
    disposition = "inline" if attachment.content_id else "attachment"
    lines = [f"Content-Type: {attachment.type}", "Content-Transfer-Encoding: base64"]
    if attachment.content_id:
        lines.append(f"Content-ID: <{attachment.content_id}>")
    lines.append(f"Content-Disposition: {disposition};\r\n {header.parameter('filename', attachment.name)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + base64_bytes(attachment.content)
