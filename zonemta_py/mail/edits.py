"""Edits: what plugins have changed in a header section after the message was stored, having seen its body.

They stand in the message's metadata, [fields before, [from, to, [field …]] …]: the last so many fields of the stored
section are meant, as our Received stands before them; those from `from` to `to` are replaced. Whoever shows or sends
the message applies them first.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

from zonemta_py.mail.headers import Headers, split

EDITED_BYTES_MAX = 65_536
"""Of the fields that are put in."""
SECTION_BYTES_MAX = 262_144
"""Of a header section that can still be changed then."""


def between(before: list[bytes], after: list[bytes]) -> list[Any]:
    """What makes these fields of those, [] if they are the same. Raises ValueError with one sentence."""
    if before == after:
        return []
    changed = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    parts = [(first, last, after[start:end]) for tag, first, last, start, end in changed if tag != "equal"]
    put_in = sum(len(field) for _, _, fields in parts for field in fields)
    if put_in > EDITED_BYTES_MAX:
        raise ValueError(f"puts {put_in:,} bytes of fields in; after the body was seen, {EDITED_BYTES_MAX:,} may be")
    if sum(map(len, before)) > SECTION_BYTES_MAX:
        raise ValueError(
            f"changes a header section of more than {SECTION_BYTES_MAX:,} bytes; do that in message_headers"
        )
    return [len(before), *map(list, parts)]


def applied(message: bytes, edits: list[Any]) -> bytes:
    """A message, or its beginning with the whole header section, with these edits; one that is cut off in the header
    section is left as it is."""
    if b"\r\n\r\n" not in message and not message.startswith(b"\r\n"):
        return message
    headers, end = split(message)
    return section(headers, edits) + message[end:]


def section(headers: Headers, edits: list[Any]) -> bytes:
    count, *changes = edits
    fields, offset = list(headers.fields), len(headers.fields) - count
    for first, last, put_in in reversed(changes):
        fields[offset + first : offset + last] = put_in
    return Headers(fields).build()


def set_fields(headers: Headers, fields: list[list[Any]]) -> None:
    """fields: [name, value], which takes the place of that field, or [name, None], which takes it out."""
    for name, value in fields:
        if value is None:
            headers.remove(name)
        else:
            headers.replace(name, value)
