"""Addresses to which a recipient writes to unsubscribe (RFC 2369 3.2), signed as return paths are (`verp`).

u<day><tag><id><scope>-<local>=<domain>@ours: two characters of base32 for the day, eight for the tag, thirteen for the
message's id, a letter for what leaving stops; then the recipient, or a dot and a hash of one that does not fit. Case
may change on the way. Failures: `decode` raises LeavingRefused with one sentence.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zonemta_py.mail.addresses import token, verp
from zonemta_py.mail.addresses.srs import ADDRESS_MAX, LOCAL_MAX, unquoted
from zonemta_py.mail.addresses.token import Secrets

_PURPOSE = "leave"
_LETTERS = {"campaign": "c", "list": "l", "campaigns": "s", "all": "a"}
_SCOPES = {letter: scope for scope, letter in _LETTERS.items()}
_ADDRESS = re.compile(
    r"u(?P<day>[a-z2-7]{2})(?P<tag>[a-z2-7]{8})(?P<id>[a-z2-7]{13})(?P<scope>[clsa])(?P<to>[-.].+)",
    re.IGNORECASE | re.ASCII,
)


class LeavingRefused(ValueError):
    """It is not ours, forged or too old; says which."""


class Leaving(NamedTuple):
    """returned: message, recipient and age. scope: "campaign", "list", "campaigns" or "all"."""

    returned: verp.Return
    scope: str


def encode(message_id: str, recipient: str, scope: str, domain: str, secret: str, today: int) -> str:
    """message_id: 16 hex digits. today: days since 1970. "" if the address would be too long."""
    day, number, letter = token.stamp(today), token.packed(int(message_id, 16), 13), _LETTERS[scope]
    to = verp.put(recipient, LOCAL_MAX - 2 - len(day) - token.TAG_CHARACTERS - len(number))
    address = f"u{day}{token.tag(secret, _PURPOSE, day, number, letter, to)}{number}{letter}{to}@{domain}"
    return address if len(address) <= ADDRESS_MAX else ""


def looks(local: str) -> bool:
    """Whether it may be one, genuine or not."""
    return _ADDRESS.fullmatch(local) is not None


def decode(address: str, secret: Secrets, today: int, days: int) -> Leaving:
    """days: how old it may be. Raises LeavingRefused."""
    found = _ADDRESS.fullmatch(unquoted(address.rpartition("@")[0] or address))
    if found is None or token.unpacked(found["id"]) >> 64 or not verp.is_put(found["to"]):
        raise LeavingRefused("it is not an unsubscribe address")
    parts = (found["day"], found["id"], found["scope"], found["to"])
    if not token.genuine(found["tag"], secret, _PURPOSE, *parts):
        raise LeavingRefused("its tag is not ours, or the secret has changed")
    age = token.age(found["day"], today)
    if age > days:
        raise LeavingRefused(f"it is {age} days old")
    return Leaving(verp.taken(found["id"], found["to"], age), _SCOPES[found["scope"].lower()])
