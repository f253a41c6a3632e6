"""Whether an address takes what comes back: decided from the address alone, so that RCPT can be answered at once.

VERP, SRS and unsubscribe addresses are ours if their tag is genuine and young enough; addresses of bounces, complaints
and reports if they are configured; postmaster and abuse at these domains always (RFC 5321 4.5.1, RFC 2142). All else is
not:
`find` returns None for what does not look like ours at all, and raises NotOurs with one sentence for what does, but was
forged, changed on its way, or is too old.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from zonemta_py.mail.addresses import leaving, srs, verp
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.srs import unquoted

Purpose = Literal["verp", "srs", "unsubscribe", "bounce", "complaint", "postmaster", "report"]
_BATV = re.compile(r"(?:prvs=[0-9a-z]+=|btv1==[0-9a-z]+==|msprvs1=[^=]+=)(?P<local>.+)", re.IGNORECASE | re.DOTALL)
"""What servers on the way put before the local part of a return path, to know their own bounces
(draft-levine-smtp-batv; Barracuda, SAP)."""
_OFFICES: dict[str, Purpose] = {"postmaster": "postmaster", "abuse": "complaint"}


class NotOurs(ValueError):
    """One sentence: why an address that looks like ours is refused."""


class Ours(NamedTuple):
    """purpose: what comes to it. address: as it was given. returned: message, recipient and age, where a tag proves
    them. forward: to whom an SRS address leads. scope: what leaving stops (`leaving.Leaving`)."""

    purpose: Purpose
    address: str
    returned: verp.Return | None = None
    forward: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ReturnDomains:
    """Which addresses are ours: domains of VERP, SRS and unsubscribe addresses ("" none), whole addresses that bounces,
    complaints and reports come to; secrets of which any may have signed, and how old what they signed may be (days)."""

    verp: str = ""
    srs: str = ""
    unsubscribe: str = ""
    bounces: frozenset[str] = frozenset()
    complaints: frozenset[str] = frozenset()
    secrets: tuple[str, ...] = ()
    srs_days: int = 21
    days: int = 21
    unsubscribe_days: int = 365
    reports: frozenset[str] = frozenset()
    more: Callable[[str], bool] | None = field(default=None, compare=False)
    """Whether VERP addresses may be at that domain, too: of domains that come and go."""

    def holds(self, address: str) -> bool:
        """Whether it is at a domain that only takes what comes back."""
        domain = canonical(address.rpartition("@")[2])
        return bool(domain) and (domain in (self.verp, self.srs, self.unsubscribe) or self._more(domain))

    def _more(self, domain: str) -> bool:
        return self.more is not None and self.more(domain)

    def find(self, address: str, today: int) -> Ours | None:
        """today: days since 1970. Raises NotOurs."""
        local, _, domain = address.rpartition("@")
        domain, local = canonical(domain), unquoted(local)
        if "=" in local and (tagged := _BATV.fullmatch(local)):
            local = tagged["local"]
        whole = f"{local}@{domain}".lower()
        if whole in self.bounces:
            return Ours("bounce", address)
        if whole in self.complaints:
            return Ours("complaint", address)
        if whole in self.reports:
            return Ours("report", address)
        if not self.holds(address):
            return None
        if (office := _OFFICES.get(local.lower())) is not None:
            return Ours(office, address)
        return self._signed(address, local, domain, today)

    def _signed(self, address: str, local: str, domain: str, today: int) -> Ours | None:
        try:
            if verp.looks(local) and (domain == self.verp or self._more(domain)):
                return Ours("verp", address, verp.decode(f"{local}@", self.secrets, today, self.days))
            if domain == self.unsubscribe and leaving.looks(local):
                left = leaving.decode(f"{local}@", self.secrets, today, self.unsubscribe_days)
                return Ours("unsubscribe", address, left.returned, scope=left.scope)
            if domain == self.srs and srs.looks(local):
                return Ours("srs", address, forward=srs.reverse(f"{local}@", self.secrets, today, self.srs_days))
        except ValueError as error:  # what stands where a tag or a day should be may be anything
            raise NotOurs(str(error)) from None
        return None
