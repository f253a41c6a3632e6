"""Sender rewriting (SRS): a return path in another domain becomes one of ours that can be reversed.

user@there.example becomes SRS0=<tag>=<day>=there.example=user@ours; a path that another server has rewritten already
becomes SRS1=<tag>=<that server>=…@ours and leads back to that server, without growing on each hop (M. S. Wong, 2004).

A rewritten local part longer than 64 octets (RFC 5321 4.5.3.1.1: servers refuse such a sender) is not used: that return
path stays as it was, as does one that begins with SRS1 without being such a path.

Promise: only paths with our tag are reversed, and only for a number of days, so that this is not an open relay.
Case may change on the way. Failures: `reverse` raises SrsRefused with one sentence.
"""

from __future__ import annotations

import re

from zonemta_py.mail.addresses import token
from zonemta_py.mail.addresses.token import Secrets

ADDRESS_MAX = 254
"""Longest address that fits a path of 256 octets (RFC 5321 4.5.3.1.3)."""
LOCAL_MAX = 64
"""Octets of a local part (RFC 5321 4.5.3.1.1)."""
_SRS = re.compile(r"srs([01])([-+=])(.*)", re.IGNORECASE | re.DOTALL | re.ASCII)
_SPECIAL = r'\x00-\x20\x7f"(),:;<>@\[\\\]'
_DOT_ATOM = re.compile(rf"[^.{_SPECIAL}]+(\.[^.{_SPECIAL}]+)*")
_DOTTED = re.compile(rf"[^{_SPECIAL}]+")


class SrsRefused(ValueError):
    """It is not ours, forged or too old; says which."""


def rewrite(sender: str, domain: str, secret: str, today: int) -> str:
    """The return path at `domain`; today: days since 1970. It stays as it is if null, or if it would be too long."""
    local, at, host = sender.rpartition("@")
    if not at:
        return sender
    local = _content(local)
    found = _SRS.fullmatch(local)
    if found is None:
        day = token.stamp(today)
        rewritten = f"SRS0={token.tag(secret, 'srs0', day, host, local)}={day}={host}={local}"
    else:
        rest = found[2] + found[3]
        if found[1] == "1":
            _, _, behind = found[3].partition("=")
            host, _, rest = behind.partition("=")
            if not host or rest[:1] not in ("-", "+", "="):
                return sender
        rewritten = f"SRS1={token.tag(secret, 'srs1', host, rest)}={host}={rest}"
    ours = requoted(rewritten)
    address = f"{ours}@{domain}"
    fits = len(ours.encode()) <= LOCAL_MAX and len(address.encode()) <= ADDRESS_MAX
    return address if fits else sender


def reverse(address: str, secret: Secrets, today: int, days: int) -> str:
    """The address that `rewrite` was given (or, for SRS1, the first server's). Raises SrsRefused."""
    local, at, _ = address.rpartition("@")
    found = _SRS.fullmatch(unquoted(local if at else address))
    if found is None:
        raise SrsRefused("it is not an SRS address")
    return _first(found[3], secret, today, days) if found[1] == "0" else _second(found[3], secret)


def looks(local: str) -> bool:
    """Whether it may be one, genuine or not."""
    return _SRS.fullmatch(local) is not None


def _first(rest: str, secret: Secrets, today: int, days: int) -> str:
    parts = rest.split("=", 3)
    if len(parts) < 4:
        raise SrsRefused("it is not a complete SRS0 address")
    given, day, host, local = parts
    if not token.genuine(given, secret, "srs0", day, host, local):
        raise SrsRefused("its tag is not ours, or the secret has changed")
    if token.age(day, today) > days:
        raise SrsRefused(f"it is {token.age(day, today)} days old")
    return f"{local if _written(local) else requoted(local)}@{host}"


def _second(rest: str, secret: Secrets) -> str:
    parts = rest.split("=", 2)
    if len(parts) < 3:
        raise SrsRefused("it is not a complete SRS1 address")
    given, host, inner = parts
    if not token.genuine(given, secret, "srs1", host, inner):
        raise SrsRefused("its tag is not ours, or the secret has changed")
    return f"{requoted('SRS0' + inner)}@{host}"


def _content(local: str) -> str:
    """As `unquoted`, but a dotted local part that is no dot-atom (user..name) keeps the quotes it has or has not: so it
    goes back as it came."""
    content = unquoted(local)
    return local if _written(content) else content


def _written(local: str) -> bool:
    """Whether a local part out of one of our addresses is written already."""
    content = unquoted(local)
    return _DOTTED.fullmatch(content) is not None and _DOT_ATOM.fullmatch(content) is None


def unquoted(local: str) -> str:
    """A local part's content, without quotes and backslashes (RFC 5321 4.1.2)."""
    if len(local) > 1 and local[0] == local[-1] == '"':
        return re.sub(r"\\(.)", r"\1", local[1:-1], flags=re.DOTALL)
    return local


def requoted(local: str) -> str:
    """The local part as it must be written."""
    return local if _DOT_ATOM.fullmatch(local) else '"' + re.sub(r'(["\\])', r"\\\1", local) + '"'
