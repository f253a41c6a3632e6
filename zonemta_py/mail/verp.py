"""Return paths that say which message to which recipient came back (VERP), signed so that nobody can invent bounces.

b<day><tag><id>-<local>=<domain>@ours: two characters of base32 for the day, eight for the tag, thirteen for the
message's id; then the recipient, in which what is unusual is ~ and two hex digits. Case may change on the way.

Recipients of more than 39 characters make a local part of more than 64, which most servers take; a path that would not
fit at all is left as it is. Failures: `decode` raises VerpRefused with one sentence.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zonemta_py.mail import token
from zonemta_py.mail.srs import ADDRESS_MAX

_UNUSUAL = re.compile(rb"[^A-Za-z0-9_.+-]")
_PATH = re.compile(r"b(?P<day>[a-z2-7]{2})(?P<tag>[a-z2-7]{8})(?P<id>[a-z2-7]{13})-(?P<recipient>.+)", re.IGNORECASE)
_HEX = re.compile(rb"~([0-9A-Fa-f]{2})")
_ID_BITS = 64


class VerpRefused(ValueError):
    """It is not ours, forged or too old; says which."""


class Return(NamedTuple):
    """What a return path says. recipient: its case may have been lost. days: how long ago it was made."""

    id: str
    recipient: str
    days: int


def encode(message_id: str, recipient: str, domain: str, secret: str, today: int) -> str:
    """message_id: 16 hex digits. today: days since 1970. "" if the path would be too long."""
    local, _, host = recipient.rpartition("@")
    shown = f"{_escaped(local)}={_escaped(host)}"
    day, number = token.stamp(today), token.packed(int(message_id, 16), 13)
    path = f"b{day}{token.tag(secret, 'verp', day, number, shown)}{number}-{shown}@{domain}"
    return path if len(path) <= ADDRESS_MAX else ""


def decode(address: str, secret: str, today: int, days: int) -> Return:
    """days: how old it may be. Raises VerpRefused."""
    found = _PATH.fullmatch(address.rpartition("@")[0] or address)
    if found is None or "=" not in found["recipient"] or token.unpacked(found["id"]) >> _ID_BITS:
        raise VerpRefused("it is no VERP address")
    if not token.genuine(found["tag"], secret, "verp", found["day"], found["id"], found["recipient"]):
        raise VerpRefused("its tag is not ours, or the secret has changed")
    age = token.age(found["day"], today)
    if age > days:
        raise VerpRefused(f"it is {age} days old")
    local, _, host = found["recipient"].rpartition("=")
    recipient = f"{_unescaped(local)}@{_unescaped(host)}" if local else _unescaped(host)
    return Return(f"{token.unpacked(found['id']):016x}", recipient, age)


def _escaped(text: str) -> str:
    plain = _UNUSUAL.sub(lambda found: b"~%02X" % found[0][0], text.encode("utf-8", "surrogateescape")).decode()
    return re.sub(r"^\.|\.(?=\.)|\.$", "~2E", plain)


def _unescaped(text: str) -> str:
    octets = _HEX.sub(lambda found: bytes((int(found[1], 16),)), text.encode())
    return octets.decode("utf-8", "surrogateescape")
