"""Metadata: what whoever hands in a message says about it, and about each recipient, to get it back.

JSON values by name, in `Envelope.meta` and `Recipient.meta`: from HTTP, a batch's columns, or fields `X-Meta-NAME`.
They come back with all that is told of the message (events, story, log, lake), each recipient's over the message's, and
are sent to nobody. Every record about a recipient has them again, so that it says all by itself: hence the bounds.

Such a record's last value is `about`: [of the message, its chosen header fields, {address: of the recipient}].
Promise: pure; what `fault` has nothing against fits. Failures: InvalidMetadata, with a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from zonemta_py.mail.notes import fit

MESSAGE_BYTES_MAX, RECIPIENT_BYTES_MAX = 2_048, 512
"""Of all metadata of a message, of a recipient, as JSON: with eight header fields, an event still has room for all."""
NAMES_MAX = 32
HEADERS_MAX = 8
"""Header fields that come back likewise, as much of each as `Headers.chosen` takes."""
FIELD = b"x-meta-"
"""How fields begin that say metadata of a message, in lower case."""
COLUMN, COLUMN_PREFIX = "metadata", "meta_"
"""Columns of a batch that are metadata of the recipient: a JSON object; one value each."""
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"
_NAME = re.compile(NAME_PATTERN.strip("^$"))
_SHOWN_MAX = 60
About = list[Any]
"""As in a record."""


class InvalidMetadata(ValueError):
    """One sentence that ends with the remedy."""


def fault(value: Any, most: int) -> str:
    """What is wrong with metadata of at most so many bytes, as a sentence goes on; "": nothing."""
    if not isinstance(value, dict):
        return "is not an object; give names with their values"
    for name in value:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            shown = str(name)[:_SHOWN_MAX]
            return f"has the name {shown!a}; use up to 63 letters, digits, dots, underscores and hyphens"
    if len(value) > NAMES_MAX:
        return f"has {len(value)} names; give {NAMES_MAX} at most"
    if not fit(value, most):
        return f"takes more than {most:,} bytes as JSON, or is no JSON; shorten it"
    return ""


def fits(value: Any, most: int) -> bool:
    return not fault(value, most)


def of_fields(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of a message, from its fields X-Meta-NAME: name and value of each. Names are in lower case; of several of one
    name the first counts. Raises InvalidMetadata."""
    found: dict[str, str] = {}
    for name, value in fields:
        found.setdefault(name.lower()[len(FIELD) :], value)
    if wrong := fault(found, MESSAGE_BYTES_MAX):
        raise InvalidMetadata(f"the metadata in X-Meta fields {wrong}")
    return found


def is_column(name: str) -> bool:
    """Whether that column of a batch is metadata."""
    return name == COLUMN or (name.startswith(COLUMN_PREFIX) and name != COLUMN_PREFIX)


def of_columns(columns: list[str], values: list[str]) -> dict[str, Any]:
    """Of a recipient, from its values; an empty one says nothing. Raises InvalidMetadata."""
    found: dict[str, Any] = {}
    for name, value in zip(columns, values, strict=True):
        if not value or not is_column(name):
            continue
        if name != COLUMN:
            found[name[len(COLUMN_PREFIX) :]] = value
            continue
        try:
            said = json.loads(value)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise InvalidMetadata('is not a JSON object; write it like {"order": 17}')
        found = said | found
    if wrong := fault(found, RECIPIENT_BYTES_MAX):
        raise InvalidMetadata(wrong)
    return found


# -- in records


def about(metadata: Mapping[str, Any], people: Iterable[tuple[str, dict[str, Any] | None]]) -> About | None:
    """Of a message with that stored envelope; None: there is nothing. people: addresses, with their metadata."""
    own, chosen = metadata.get("meta") or {}, metadata.get("chosen") or {}
    theirs = {address: meta for address, meta in people if meta}
    return [own, chosen, theirs] if own or chosen or theirs else None


def of_one(of: About | None, address: str) -> About | None:
    """Of a record about several, what is about one of them."""
    return [*of[:2], {address: of[2][address]} if address in of[2] else {}] if of else None


def told(of: Any, address: str = "") -> dict[str, Any]:
    """What is told of a recipient of a record with that `about`, or of its message: `metadata` and `headers`, as far as
    there are any."""
    if not of:
        return {}
    own, chosen, theirs = of[:3]
    meta = {**own, **theirs.get(address, {})} if theirs else own
    found: dict[str, Any] = {"metadata": meta} if meta else {}
    return found | {"headers": chosen} if chosen else found
