"""What a POST to a link says: fields of a form, of which one means a click on "unsubscribe" (RFC 8058 3.2).

Mailbox providers send `List-Unsubscribe=One-Click` as multipart/form-data or application/x-www-form-urlencoded, and
some mail programs with another type or none; the body decides. Pure; never raises, whatever the bytes are.
"""

from __future__ import annotations

import email.policy
from email.parser import BytesParser
from typing import Final
from urllib.parse import parse_qsl

BODY_BYTES_MAX: Final = 8_192
FIELDS_MAX = 20
_ONE_CLICK = ("list-unsubscribe", "one-click")


def fields(kind: str, body: bytes) -> dict[str, str]:
    """Names and values; of several with one name the first. kind: Content-Type of the request, "" none."""
    rows = _multipart(kind, body) if kind.lower().lstrip().startswith("multipart/") else _urlencoded(body)
    found: dict[str, str] = {}
    for name, value in rows:
        found.setdefault(name.strip(), value.strip())
    return found


def is_one_click(said: dict[str, str]) -> bool:
    """Whether it is the request of a mailbox provider, or of the button on our page."""
    name, value = _ONE_CLICK
    return any(key.lower() == name and text.lower() == value for key, text in said.items())


def _urlencoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="replace"
        )
    except ValueError:
        return []


def _multipart(kind: str, body: bytes) -> list[tuple[str, str]]:
    """RFC 7578: parts with a Content-Disposition that names each field."""
    head = f"Content-Type: {' '.join(kind.split())}\r\n\r\n".encode("utf-8", "replace")
    try:
        message = BytesParser(policy=email.policy.compat32).parsebytes(head + body)
        parts = message.get_payload()
    except (ValueError, LookupError, TypeError):
        return []
    found: list[tuple[str, str]] = []
    for part in parts[:FIELDS_MAX] if isinstance(parts, list) else []:
        if isinstance(part, str):
            continue
        name = part.get_param("name", header="content-disposition")
        value = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(value, bytes):
            found.append((name, value.decode("utf-8", "replace")))
    return found
