"""TLS requirements: of a delivery, whichever host takes it (`Demands`), and then for one host (`TlsPlan`).

Pure. Precedence: DANE over MTA-STS (RFC 8461 2), either over a zone's "opportunistic" or "none", a zone's "required"
over an MTA-STS policy in testing mode. A policy never lowers the zone's requirement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from zonemta_py.delivery.tls.dane import Tlsa, usable
from zonemta_py.delivery.tls.failures import POLICY, UNDECIDED, TlsTrouble
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.tls.mta_sts import Sts


@dataclass(frozen=True, slots=True)
class Demands:
    """Deliveries with equal demands may share connections. shared: what has to be equal.

    mode: "none", "opportunistic", "required" or "implicit". least: "1.2" or "1.3". certificate: PEM file, or "". sts:
    policies, enforced or testing. dane: TLSA records count, since the way to the hosts is DNSSEC-validated.
    require_tls: RFC 8689; vouched: the way to the hosts is DNSSEC-validated under it. domains: the recipients', if
    their MX decides. troubles: (domain, result-type, detail) of policies that could not be fetched. undecided: it is
    unknown whether one of them has a policy.
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
    shared: tuple[Hashable, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        shared = self.mode, self.least, self.certificate, self.sts, self.dane, self.require_tls, self.vouched
        object.__setattr__(self, "shared", shared)

    def proven(self, host: str) -> bool:
        """Whether the host is proven to serve the recipients (RFC 8689 4.2.1): by DNSSEC or MTA-STS; or it is the
        domain itself, which the certificate then names."""
        named = {policy.domain for policy in self.sts if policy.names(host)}
        return self.vouched or all(domain in named or domain == host.lower() for domain in self.domains)


@dataclass(frozen=True, slots=True)
class TlsPlan:
    """TLS for one host. mode: "none"; "opportunistic", the only one that may end in plain text; "required", "implicit".

    verify: "none", "pkix", "mta-sts" or "dane". soft: an invalid certificate is only reported. tlsa: the records to
    check against. names: the host's, and the domains that led to it. source: which policy this comes from, for reports:
    "tlsa", "sts" or "no-policy-found".
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
    """Applies the authenticated TLSA records of the host, at least one. If none is usable: encrypted, not
    authenticated."""
    named = usable(records)
    plan = replace(basic(demands), mode=_at_least_required(demands.mode), source="tlsa", tlsa=named)
    if named:
        return replace(plan, verify="dane", names=(host, *demands.domains))
    return plan


def with_sts(demands: Demands, host: str) -> TlsPlan:
    """Applies MTA-STS. Raises TlsTrouble for a host that an enforced policy does not list."""
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
    """The host is not in the policy. RFC 8460 4.3.2 has no result-type for that, so it gets the general one."""
    why = f"the MTA-STS policy of {policy.domain} does not name {host}"
    return TlsTrouble(POLICY, "validation-failure", why, Reply(451, "4.7.5", why), "sts")


def unproven(demands: Demands, host: str) -> TlsTrouble:
    """REQUIRETLS cannot be met, or not decided if DNS or a policy host did not answer."""
    why = f"neither DNSSEC nor MTA-STS proves that mail for {' and '.join(demands.domains)} goes to {host}"
    return TlsTrouble(POLICY, "validation-failure", why, Reply(451, UNDECIDED if demands.undecided else "4.7.5", why))


def _at_least_required(mode: str) -> str:
    return mode if mode == "implicit" else "required"


@dataclass(frozen=True, slots=True)
class Trial:
    """How TLS went on one connection. local, address: IP addresses, local "" if unknown.

    verified: how the certificate was verified. trouble: None on success.
    """

    plan: TlsPlan
    host: str
    address: str
    local: str = ""
    verified: str = "none"
    trouble: TlsTrouble | None = None
