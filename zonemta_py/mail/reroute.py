"""Where a reroute sends mail instead: another pool, zone or smart host, or past one MX host.

    pool NAME          by the sources of that pool
    zone NAME          through that zone, with its settings and limits
    host HOST:PORT     to that smart host ([IPv6]:PORT; without a port: 25)
    skip HOST          by the other MX hosts

Whose mail: that of a zone, for a destination (a domain, site or provider); "*" for either means any. Failures:
`RerouteTarget.of` and `name_of` raise ValueError, one sentence.
"""

from __future__ import annotations

import re
from typing import NamedTuple

REROUTE = "reroute"
POOL, ZONE, HOST, SKIP = KINDS = ("pool", "zone", "host", "skip")
ANY = "*"
_FORMS = "'pool NAME', 'zone NAME', 'host NAME:PORT' or 'skip MX-HOST'"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9][A-Za-z0-9._-]{0,252}))(?::(\d{1,5}))?")
_DESTINATION = re.compile(r"[^\s*]{1,255}")


class RerouteTarget(NamedTuple):
    """kind: one of KINDS. name: of the pool, zone or host. port: of a smart host, else 0."""

    kind: str
    name: str
    port: int = 0

    @classmethod
    def of(cls, text: str) -> RerouteTarget:
        """Raises ValueError."""
        kind, _, name = text.strip().partition(" ") if isinstance(text, str) else ("", "", "")
        name = name.strip()
        if kind == HOST:
            found = _HOST_PORT.fullmatch(name)
            if found and 1 <= int(found[3] or 25) <= 65535:
                return cls(HOST, (found[1] or found[2]).lower(), int(found[3] or 25))
        elif kind == SKIP and _HOST.fullmatch(name.rstrip(".")):
            return cls(SKIP, name.rstrip(".").lower())
        elif kind in (POOL, ZONE) and _NAME.fullmatch(name):
            return cls(kind, name)
        raise ValueError(f"{text!r} says nowhere to reroute to; write {_FORMS}")

    @property
    def text(self) -> str:
        """As `of` reads it."""
        if self.kind != HOST:
            return f"{self.kind} {self.name}"
        return f"host [{self.name}]:{self.port}" if ":" in self.name else f"host {self.name}:{self.port}"


class Bypass(NamedTuple):
    """Where some mail goes instead. name: of the reroute, "" of a zone's own. why: for people."""

    name: str
    to: RerouteTarget
    why: str


def name_of(zone: str, destination: str) -> str:
    """What a reroute of that mail is called; "" for any. Raises ValueError."""
    destination = destination.strip().lower().rstrip(".")
    if not zone and not destination:
        raise ValueError("a reroute is for the mail of a zone, for a destination, or both; name one of them")
    if destination and not _DESTINATION.fullmatch(destination):
        raise ValueError(f"{destination!r} is no destination; give one domain, site or provider")
    if zone and not _NAME.fullmatch(zone):
        raise ValueError(f"{zone!r} is not the name of a zone")
    return f"{zone or ANY} {destination or ANY}"


def parts_of(name: str) -> tuple[str, str]:
    """Zone and destination of that name; "" for any."""
    zone, _, destination = name.partition(" ")
    return zone if zone != ANY else "", destination if destination != ANY else ""
