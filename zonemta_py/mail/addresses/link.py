"""Links in mail that say by themselves what they are for: which message, to whom, of which campaign and tenant.

A token is URL-safe base64 of a head of 13 octets (what it is for and the format's version, which secret signed it, the
day it was made, the message's id), the texts with a NUL between them, and 16 octets of HMAC-SHA256 over all of it.
What it says can be read by whoever has the link; nobody can make one. The first secret signs, all of them verify, so
that secrets can be changed while links are out. Failures: `decode` raises LinkRefused with one sentence.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from zonemta_py.mail.list_id import campaign_scope, list_scope

Purpose = Literal["unsubscribe", "preferences", "open", "click"]
Scope = Literal["campaign", "list", "campaigns", "all"]
PURPOSES: tuple[Purpose, ...] = ("unsubscribe", "preferences", "open", "click")
WIDENING: tuple[Scope, ...] = ("campaign", "list", "campaigns", "all")
"""What leaving may stop, from the narrowest on: a campaign is of one list."""
_SCOPES: tuple[Scope, ...] = ("campaign", "campaigns", "all", "list")
"""By their number in tokens."""
PATHS: dict[Purpose, str] = {"unsubscribe": "u", "preferences": "p", "open": "o", "click": "c"}
"""Below the listener's URL: what comes before the token."""
PRINTED: dict[str, Purpose] = {"unsubscribe_url": "unsubscribe", "preferences_url": "preferences"}
"""Names of links in templates."""
UNKNOWN = "0" * 16
"""The id of a message that had none when the link was made."""
TOKEN_CHARACTERS_MAX = 8_192
"""No link that is longer is looked at; the longest that we make has 3,000 characters."""
_VERSION = 1
_HEAD = struct.Struct(">BBBHQ")
_TAG_BYTES = 16
_TEXTS = 6
_DAYS = 1 << 16


class LinkRefused(ValueError):
    """It is not ours, or was changed on its way; says which."""


class Link(NamedTuple):
    """id: the message's, 16 hexadecimal digits. day: since 1970, when it was made. target: where a click leads.
    list_name, list_title: of the list that it is of (`mail.list_id`), "" none. Earlier versions read no title."""

    purpose: Purpose
    id: str
    recipient: str
    campaign: str = ""
    tenant: str = ""
    scope: Scope = "campaigns"
    day: int = 0
    target: str = ""
    list_name: str = ""
    list_title: str = ""

    @property
    def entry_scope(self) -> str:
        """The scope of the entry in the suppression list that leaving by this link makes. It never reaches beyond the
        tenant whose mail it was."""
        return self.entry_for(self.scope)

    def entry_for(self, scope: Scope) -> str:
        """The same, if that much is left."""
        return scope_for(scope, self.campaign, self.tenant, self.list_name)


def scope_for(scope: Scope, campaign: str, tenant: str, list_name: str) -> str:
    """As the suppression list writes it: campaign:TENANT/NAME, campaign:NAME, list:TENANT/NAME, list:NAME,
    campaigns:TENANT, campaigns, tenant:NAME or all. Of no campaign, or of no list: as all campaigns."""
    if scope == "campaign" and campaign:
        return campaign_scope(campaign, tenant)
    if scope == "list" and list_name:
        return list_scope(list_name, tenant)
    if scope == "all":
        return f"tenant:{tenant}" if tenant else "all"
    return f"campaigns:{tenant}" if tenant else "campaigns"


def encode(link: Link, secrets: Sequence[str]) -> str:
    """The token. secrets: the first one signs."""
    texts = (link.recipient, link.campaign, link.tenant, link.target, link.list_name, link.list_title)
    kind = _VERSION << 4 | PURPOSES.index(link.purpose)
    head = _HEAD.pack(kind, _number(secrets[0]), _SCOPES.index(link.scope), link.day % _DAYS, int(link.id, 16))
    said = head + "\0".join(texts).rstrip("\0").encode("utf-8", "surrogateescape")
    return base64.urlsafe_b64encode(said + _tag(secrets[0], said)).rstrip(b"=").decode()


def url(base: str, link: Link, secrets: Sequence[str]) -> str:
    """base: of the listener (links.url)."""
    return f"{base}/{PATHS[link.purpose]}/{encode(link, secrets)}"


def printed(base: str, link: Link, secrets: Sequence[str]) -> dict[str, str]:
    """What a template prints by the names in PRINTED. link: of any purpose."""
    return {name: url(base, link._replace(purpose=one), secrets) for name, one in PRINTED.items()}


def decode(token: str, secrets: Sequence[str]) -> Link:
    """How old it is, is for who asks to judge (`age`). Raises LinkRefused."""
    try:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise ValueError
        whole = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise LinkRefused("it is not a link of ours, or part of it is missing") from None
    said, given = whole[:-_TAG_BYTES], whole[-_TAG_BYTES:]
    if len(said) <= _HEAD.size or said[0] >> 4 != _VERSION:
        raise LinkRefused("it is not a link of ours, or part of it is missing")
    if base64.urlsafe_b64encode(whole).rstrip(b"=").decode() != token:
        raise LinkRefused("it is not spelt as we spell it")  # one link has one spelling
    candidates = [secret for secret in secrets if _number(secret) == said[1]]
    if not any(hmac.compare_digest(given, _tag(secret, said)) for secret in candidates):
        raise LinkRefused("its signature is not ours, or its secret is no longer in force")
    return _read(said)


def _read(said: bytes) -> Link:
    """Raises LinkRefused."""
    kind, _, scope, day, number = _HEAD.unpack_from(said)
    texts = said[_HEAD.size :].decode("utf-8", "surrogateescape").split("\0")
    recipient, campaign, tenant, target, list_name, list_title = (texts + [""] * _TEXTS)[:_TEXTS]
    if kind & 15 >= len(PURPOSES) or scope >= len(_SCOPES):
        raise LinkRefused("it asks for what this version does not know; a newer one made it")
    purpose, stops = PURPOSES[kind & 15], _SCOPES[scope]
    return Link(purpose, f"{number:016x}", recipient, campaign, tenant, stops, day, target, list_name, list_title)


def age(link: Link, today: int) -> int:
    """Days since it was made; one made tomorrow (clocks differ) is of today."""
    days = (today - link.day) % _DAYS
    return 0 if days == _DAYS - 1 else days


@lru_cache(64)
def _number(secret: str) -> int:
    """Of a secret, so that the right one is found among several; tells nothing of it."""
    return hashlib.sha256(b"link key\0" + secret.encode()).digest()[0]


def _tag(secret: str, said: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"link\0" + said, "sha256")[:_TAG_BYTES]
