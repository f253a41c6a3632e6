"""Which list mail belongs to, by its List-Id field (RFC 2919): the identifier between the angle brackets, else the
whole value; in lower case, since lists that differ in case only are the same.

A list's name is its identifier as scopes of the suppression list may have it: what is neither a letter of ASCII, a
digit, a dot, an underscore nor a hyphen becomes an underscore, and a long one is cut. Whatever is changed so gets a
piece of its hash, so that two lists never become one. Its title, which people read, is the phrase before the brackets.
Pure; never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

FIELD = "list-id"
KEPT_MAX = 200
"""Characters of a field's value that are kept with a message (`Headers.chosen`)."""
READ_MAX = 4_096
_IDENTIFIER_MAX = 255
TITLE_MAX = 80
_BRACKETS = re.compile(r"<([^<>]*)>[^<>]*\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_OTHERS = re.compile(r"[^a-z0-9._-]")
_CUT, _HASH = 54, 8


def kept(value: str) -> str:
    """As much of a value as is kept with a message; of a long one, what names the list."""
    return value if len(value) < KEPT_MAX else f"<{_identifier(value)[:_IDENTIFIER_MAX]}>"


def list_of(fields: Mapping[str, str] | None) -> str:
    """The name of the list that a message is of. fields: as kept with it (`Envelope.headers`). "": of none."""
    value = fields.get(FIELD) if fields else None
    return list_name(value) if value else ""


@lru_cache(4_096)
def list_name(value: str) -> str:
    """The name of the list with that List-Id; "" if it says nothing."""
    identifier = _identifier(value)
    if not identifier or _NAME.fullmatch(identifier):
        return identifier
    plain = _OTHERS.sub("_", identifier).lstrip("._-")[:_CUT] or "list"
    return f"{plain}-{sha256(identifier.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH]}"


@lru_cache(4_096)
def list_title(value: str) -> str:
    """What people call the list with that List-Id: one line, without quotation marks; "" if it does not say."""
    found = _BRACKETS.search(value)
    phrase = " ".join(value[: found.start()].split()).replace("\\", "").strip('" ') if found else ""
    return phrase[:TITLE_MAX] if phrase.isprintable() else ""


def title_of(fields: Mapping[str, str] | None) -> str:
    """The same, of a message with these fields."""
    value = fields.get(FIELD) if fields else None
    return list_title(value) if value else ""


def list_scope(name: str, tenant: str) -> str:
    """As the suppression list writes it: two tenants may call their lists the same."""
    return f"list:{tenant}/{name}" if tenant else f"list:{name}"


def campaign_scope(name: str, tenant: str) -> str:
    """The same, of a campaign: senders choose their names, so two tenants' of one name are two."""
    return f"campaign:{tenant}/{name}" if tenant else f"campaign:{name}"


def _identifier(value: str) -> str:
    found = _BRACKETS.search(value)
    return (found[1] if found else value).strip().lower()
