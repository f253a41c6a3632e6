"""What is asked of TLS: by a delivery, whichever host takes it (`Demands`), and of one host then (`TlsPlan`).

Pure. The order of authority: DANE over MTA-STS (RFC 8461 2), either over a zone's "opportunistic" or "none", a zone's
"required" over an MTA-STS policy that is only tested. A policy never asks for less than the zone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from zonemta_py.delivery.tls.dane import Tlsa, usable
from zonemta_py.delivery.tls.failures import POLICY, UNDECIDED, TlsTrouble
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.tls.mta_sts import Sts


@dataclass(frozen=True, slots=True)
class Demands:
    """Connections made under equal demands are alike, and may be shared.

    mode: "none", "opportunistic", "required" or "implicit". least: "1.2" or "1.3". certificate: PEM file, or "". sts:
    policies in force or tested. dane: TLSA records count, since DNSSEC vouches for the way to the hosts. require_tls:
    RFC 8689; vouched: DNSSEC does so under it. domains: the recipients', where their MX decides. troubles: (domain,
    result-type, detail) of policies that could not be had. undecided: whether one of them has a policy is not known.
    """

    mode: str
    least: str = "1.2"
    certificate: str = ""
    sts: tuple[Sts, ...] = ()
    dane: bool = False
    require_tls: bool = False
    vouched: bool = False
    domains: tuple[str, ...] = field(default=(), compare=False)
    troubles: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    undecided: bool = field(default=False, compare=False)

    def proven(self, host: str) -> bool:
        """Whether it is certain that the host is the recipients' (RFC 8689 4.2.1): DNSSEC says so, or MTA-STS; or it
        is the domain itself, which the certificate then names."""
        named = {policy.domain for policy in self.sts if policy.names(host)}
        return self.vouched or all(domain in named or domain == host.lower() for domain in self.domains)


@dataclass(frozen=True, slots=True)
class TlsPlan:
    """TLS with one host. mode: "none"; "opportunistic", the only one that may end in plain; "required", "implicit".

    verify: "none", "pkix", "mta-sts" or "dane". soft: a certificate that is not valid is reported, and no more. tlsa:
    the records to check against. names: the host's, and the domains it was found by. source: which policy this comes
    from, for reports: "tlsa", "sts" or "no-policy-found".
    """

    mode: str = "opportunistic"
    verify: str = "none"
    soft: bool = False
    least: str = "1.2"
    certificate: str = ""
    tlsa: tuple[Tlsa, ...] = ()
    names: tuple[str, ...] = ()
    source: str = "no-policy-found"


def basic(demands: Demands) -> TlsPlan:
    """Without any policy of the recipients' domains."""
    validated = demands.mode in ("required", "implicit")
    return TlsPlan(demands.mode, "pkix" if validated else "none", False, demands.least, demands.certificate)


def with_dane(demands: Demands, host: str, records: Iterable[tuple[int, int, int, bytes]]) -> TlsPlan:
    """Takes the authenticated TLSA records of the host, at least one. None usable: encrypted, whoever it is."""
    named = usable(records)
    plan = replace(basic(demands), mode=_at_least_required(demands.mode), source="tlsa", tlsa=named)
    if named:
        return replace(plan, verify="dane", names=(host, *demands.domains))
    return plan


def with_sts(demands: Demands, host: str) -> TlsPlan:
    """Takes what MTA-STS asks. Raises TlsTrouble for a host that a policy in force does not name."""
    plan = basic(demands)
    for policy in demands.sts:
        named = policy.names(host)
        if policy.mode == "enforce":
            if not named:
                raise unnamed(policy, host)
            plan = replace(plan, mode=_at_least_required(plan.mode), verify="mta-sts", soft=False, source="sts")
        elif plan.verify == "none":
            plan = replace(plan, verify="mta-sts", soft=True, source="sts")
    return plan


def unnamed(policy: Sts, host: str) -> TlsTrouble:
    """Its result-type is the one for what has none of its own (RFC 8460 4.3.2)."""
    why = f"the MTA-STS policy of {policy.domain} does not name {host}"
    return TlsTrouble(POLICY, "validation-failure", why, Reply(451, "4.7.5", why), "sts")


def unproven(demands: Demands, host: str) -> TlsTrouble:
    """Under REQUIRETLS; it may pass if DNS or a policy host did not answer."""
    why = f"neither DNSSEC nor MTA-STS proves that mail for {' and '.join(demands.domains)} goes to {host}"
    return TlsTrouble(POLICY, "validation-failure", why, Reply(451, UNDECIDED if demands.undecided else "4.7.5", why))


def _at_least_required(mode: str) -> str:
    return mode if mode == "implicit" else "required"


@dataclass(frozen=True, slots=True)
class Trial:
    """How TLS went on one connection. local, address: IP addresses, local "" if it is not known.

    verified: what the certificate was checked by. trouble: None if it went well.
    """

    plan: TlsPlan
    host: str
    address: str
    local: str = ""
    verified: str = "none"
    trouble: TlsTrouble | None = None
