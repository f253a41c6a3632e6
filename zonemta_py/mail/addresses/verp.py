"""Return paths that say which message to which recipient came back (VERP), signed so that nobody can invent bounces.

b<day><tag><id>-<local>=<domain>@ours: two characters of base32 for the day, eight for the tag, thirteen for the
message's id; then the recipient, in which unusual characters are ~ and two hex digits. Case may change on the way.

A recipient that would make the local part longer than 64 octets (RFC 5321 4.5.3.1.1: servers refuse such a sender)
is replaced by a hash of 22 characters, after a dot; among the message's recipients `Return.is_to` finds it again.
Failures: `decode` raises VerpRefused with one sentence.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

from zonemta_py.mail.addresses import token
from zonemta_py.mail.addresses.srs import ADDRESS_MAX, LOCAL_MAX, unquoted
from zonemta_py.mail.addresses.token import Secrets

_UNUSUAL = re.compile(rb"[^A-Za-z0-9_.+-]")
_PATH = re.compile(
    r"b(?P<day>[a-z2-7]{2})(?P<tag>[a-z2-7]{8})(?P<id>[a-z2-7]{13})(?P<to>[-.].+)", re.IGNORECASE | re.ASCII
)
_SIMPLE = re.compile(r"[\w+-]+(?:\.[\w+-]+)*@[\w+-]+(?:\.[\w+-]+)*", re.ASCII)
_HEX = re.compile(rb"~([0-9A-Fa-f]{2})")
_ID_BITS = 64
NAMED_MAX = LOCAL_MAX - 2 - 2 - token.TAG_CHARACTERS - 13
"""Characters that the shortest of our addresses has for a recipient (`mail.addresses.leaving`)."""
_MARK_CHARACTERS = 22


class VerpRefused(ValueError):
    """It is not ours, forged or too old; says which."""


class Return(NamedTuple):
    """What a return path says. recipient: its case may have been lost; "" if a hash is in its place. days: how
    long ago it was made."""

    id: str
    recipient: str
    days: int
    mark: str = ""

    def is_to(self, recipient: str) -> bool:
        """Whether it was made for that recipient, case apart."""
        if self.mark:
            return self.mark.lower() == _mark(recipient)
        return self.recipient.lower() == recipient.lower()


def encode(message_id: str, recipient: str, domain: str, secret: str, today: int) -> str:
    """message_id: 16 hex digits. today: days since 1970. "" if the path would be too long."""
    day, number = token.stamp(today), token.packed(int(message_id, 16), 13)
    to = put(recipient, LOCAL_MAX - 1 - len(day) - token.TAG_CHARACTERS - len(number))
    path = f"b{day}{token.tag(secret, 'verp', day, number, to)}{number}{to}@{domain}"
    return path if len(path) <= ADDRESS_MAX else ""


def decode(address: str, secret: Secrets, today: int, days: int) -> Return:
    """days: how old it may be. Raises VerpRefused."""
    found = _PATH.fullmatch(unquoted(address.rpartition("@")[0] or address))
    if found is None or token.unpacked(found["id"]) >> _ID_BITS or not is_put(found["to"]):
        raise VerpRefused("it is not a VERP address")
    if not token.genuine(found["tag"], secret, "verp", found["day"], found["id"], found["to"]):
        raise VerpRefused("its tag is not ours, or the secret has changed")
    age = token.age(found["day"], today)
    if age > days:
        raise VerpRefused(f"it is {age} days old")
    return taken(found["id"], found["to"], age)


def looks(local: str) -> bool:
    """Whether it may be one, genuine or not."""
    return _PATH.fullmatch(local) is not None


def put(recipient: str, characters: int) -> str:
    """How an address of ours names a recipient: -local=domain, or a dot and a hash if that needs more characters."""
    local, _, host = recipient.rpartition("@")
    to = f"-{_escaped(local)}={_escaped(host)}"
    return to if len(to) <= characters else f".{_mark(recipient)}"


def mark_of(recipient: str) -> str:
    """The hash that stands in the recipient's place, in some of our addresses at least; "": all have room for it."""
    if len(recipient) < NAMED_MAX and _SIMPLE.fullmatch(recipient):
        return ""
    return _mark(recipient) if put(recipient, NAMED_MAX)[0] == "." else ""


def is_put(to: str) -> bool:
    """Whether a recipient may be named so."""
    return to[0] == "." or (to[0] == "-" and "=" in to)


def taken(number: str, to: str, age: int) -> Return:
    """number: the message's id in base32. to: of `put`, which a tag has proven."""
    message_id = f"{token.unpacked(number):016x}"
    if to[0] == ".":
        return Return(message_id, "", age, to[1:].lower())
    local, _, host = to[1:].rpartition("=")
    return Return(message_id, f"{_unescaped(local)}@{_unescaped(host)}" if local else _unescaped(host), age)


def _mark(recipient: str) -> str:
    """110 bits: not secret, since the tag vouches for it; no two recipients have the same one."""
    digest = hashlib.sha256(recipient.lower().encode("utf-8", "surrogateescape")).digest()
    return base64.b32encode(digest)[:_MARK_CHARACTERS].decode().lower()


def _escaped(text: str) -> str:
    plain = _UNUSUAL.sub(lambda found: b"~%02X" % found[0][0], text.encode("utf-8", "surrogateescape")).decode()
    return re.sub(r"^\.|\.(?=\.)|\.$", "~2E", plain)


def _unescaped(text: str) -> str:
    octets = _HEX.sub(lambda found: bytes((int(found[1], 16),)), text.encode())
    return octets.decode("utf-8", "surrogateescape")
