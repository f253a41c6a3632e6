"""A campaign's template as plain data: what is loaded from files, and stored once as bytes."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any

import msgpack

from zonemta_py.mail.addresses.link import PRINTED

LINKS = frozenset(PRINTED)
"""Names that every template has on a server with [links]: what they stand for is made for each recipient. A column of
that name goes before."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Text:
    """Jinja2 source, lines ending in LF, and where it begins: file, line and column (from 1)."""

    content: str
    file: str = "template"
    line: int = 1
    column: int = 1

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column in the file of the character at an offset."""
        before = self.content[: max(0, offset)]
        lines = before.count("\n")
        column = len(before) - before.rfind("\n")
        return self.line + lines, column if lines else column + self.column - 1


@dataclass(frozen=True, slots=True)
class File:
    """An attachment or inline image. name: as the reader sees it, or its Content-ID. kind: media type."""

    name: str
    kind: str
    content: bytes


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """One template. Of text, html and mjml at least one is there; mjml and html exclude each other.

    sender: "address" or "Name <address>", as is reply_to. to_name: display name beside the recipient's address.
    prepared: the HTML is final, with its CSS inlined, and the text is there. notes: what plugins have noted on it when
    it was taken, for all of its messages (`mail.notes`).
    """

    file: str
    subject: Text
    sender: Text
    reply_to: Text | None = None
    to_name: Text | None = None
    list_unsubscribe: Text | None = None
    one_click: bool = False
    headers: tuple[tuple[str, Text], ...] = ()
    text: Text | None = None
    html: Text | None = None
    mjml: Text | None = None
    attachments: tuple[File, ...] = ()
    images: tuple[File, ...] = ()
    prepared: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Without notes as ever, so that its name stays the same."""
        *values, notes = astuple(self)
        return bytes(msgpack.packb((_VERSION, *values, *([notes] if notes else [])), use_bin_type=True))

    @classmethod
    def unpack(cls, data: bytes) -> TemplateSource:
        """Raises ValueError for what `pack` of this version did not write."""
        version, *values = msgpack.unpackb(data, raw=False)
        if version != _VERSION:
            raise ValueError(f"template of version {version}; this program reads {_VERSION}")
        file, subject, sender, reply_to, to_name, list_unsubscribe, one_click, headers, *rest = values
        text, html, mjml, attachments, images, prepared, *more = rest
        return cls(
            file, Text(*subject), Text(*sender), _text(reply_to), _text(to_name), _text(list_unsubscribe), one_click,
            tuple((name, Text(*value)) for name, value in headers), _text(text), _text(html), _text(mjml),
            tuple(File(*one) for one in attachments), tuple(File(*one) for one in images), prepared,
            *(dict(notes) for notes in more),
        )  # fmt: skip


def _text(values: list[Any] | None) -> Text | None:
    return Text(*values) if values is not None else None
