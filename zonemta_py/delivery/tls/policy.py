"""The TLS requirements of a delivery: from its zone, its sender, and what the recipients' domains publish (MTA-STS,
DANE).

`demands` is called for each delivery, before a connection is chosen; `plan` for each host, before one is opened. With
neither MTA-STS nor DANE enabled they make no look-ups, except for mail with REQUIRETLS: there DNSSEC or MTA-STS must
prove the way to the host (RFC 8689 4.2.1). Notifications about such mail only request TLS (5). Policies can raise a
zone's requirement, never lower it; only a zone with tls = "none" ignores them (required domains and REQUIRETLS hold
there too). Policies apply to mail that is routed by MX: a host that is named has none (RFC 8461 4). Mail with
TLS-Required: No ignores what domains publish (RFC 8689 4.2), but not what the zone requires.

Failures: `plan` raises DeliveryError for a host that must not be used: a policy does not list it, or DNS does not say
whether it has TLSA records (RFC 7672 2.1.2). `demands` raises nothing: a policy that cannot be fetched counts as none
(RFC 8461 5).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.tls import https
from zonemta_py.delivery.tls import plan as tls_plan
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.failures import POLICY, UNDECIDED, TlsTrouble
from zonemta_py.delivery.tls.ladder import TlsMemory
from zonemta_py.delivery.tls.mta_sts import Names, PolicyFound, StsPolicies
from zonemta_py.delivery.tls.plan import Demands, TlsPlan
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Delivery

_UNKNOWN = Reply(451, UNDECIDED, "DNS does not say whether the host has TLSA records")


class TlsPolicies:
    """For a sender process. contexts, memory: what `open_session` needs. reports: whether results are collected."""

    def __init__(self, config: Config, names: Names, contexts: TlsContexts | None = None) -> None:
        tls = config.tls
        self.contexts = contexts or TlsContexts(tls.ca_file)
        self.memory = TlsMemory(tls.remember_h * 3600)
        self.reports = tls.reports
        self._names, self._dane = names, tls.dane
        self._reporter = reporter_address(config) if tls.reports else None
        self._mta_sts = tls.mta_sts
        self._sts = StsPolicies(config.folder / "tls", names, self.contexts, tls.mta_sts_port, https.barred_by(config))
        self._plain: dict[tuple[str, str, Path | None], Demands] = {}

    async def demands(self, delivery: Delivery, zone: Zone, mode: str, named: bool = False) -> Demands:
        """mode: the zone's, or the one that a plugin or rule chose instead. named: the host is configured, not found by
        MX."""
        looked_up, sts = zone.tls != "none" and (self._mta_sts or self._dane or self.reports), self._mta_sts
        if delivery.routing and (chosen := delivery.routing.get("sts")) is not None:  # a plugin's word
            looked_up, sts = chosen, chosen
        if not (looked_up or zone.tls_required_domains or delivery.require_tls):
            # The usual case: the zone alone decides.
            known = self._plain.get((mode, zone.tls_min, zone.client_certificate))
            return known or self._unasked(zone, mode)
        domains, strict = _domains(delivery), delivery.require_tls and bool(delivery.sender)
        if mode != "implicit" and (delivery.require_tls or _any_required(zone.tls_required_domains, domains)):
            mode = "required"
        whatever = delivery.tls_optional or self._is_report(delivery)
        published = looked_up and not named and (strict or not whatever)
        asked = (published and sts) or (strict and not named)
        found = await self._policies(domains) if asked else []
        return Demands(
            mode, zone.tls_min, str(zone.client_certificate or ""),
            tuple(one.policy for one in found if one.policy is not None and one.policy.mode != "none"),
            self._dane and published and delivery.secure,
            strict,
            strict and delivery.secure and len(domains) == 1,  # known for the first domain only
            () if named else domains,
            tuple((one.domain, one.result, one.detail) for one in found if one.result),
            any(one.detail for one in found),
        )  # fmt: skip

    def _unasked(self, zone: Zone, mode: str) -> Demands:
        found = Demands(mode, zone.tls_min, str(zone.client_certificate or ""))
        self._plain[mode, zone.tls_min, zone.client_certificate] = found
        return found

    async def _policies(self, domains: tuple[str, ...]) -> list[PolicyFound]:
        now = time.monotonic()
        return await asyncio.gather(*(self._sts.of(domain, now) for domain in domains))

    def _is_report(self, delivery: Delivery) -> bool:
        """TLS reports are sent even where TLS fails (RFC 8460 3)."""
        return self._reporter is not None and delivery.sender == self._reporter

    async def plan(self, demands: Demands, host: str, port: int) -> TlsPlan:
        """Raises DeliveryError."""
        if demands.require_tls and not demands.proven(host):
            raise tls_plan.unproven(demands, host)
        if demands.dane:
            try:
                secure, records = await self._names.tlsa(host, port, time.monotonic())
            except NoRoute as error:
                raise TlsTrouble(POLICY, "dnssec-invalid", error.reply.text, _UNKNOWN, "tlsa") from error
            if secure and records:
                return tls_plan.with_dane(demands, host, records)
        return tls_plan.with_sts(demands, host) if demands.sts else tls_plan.basic(demands)


def reporter_address(config: Config) -> str:
    """The address that reports are sent from."""
    return config.tls.report_from or f"postmaster@{config.server.name}"


def _domains(delivery: Delivery) -> tuple[str, ...]:
    """The recipients' domains, each once, in order."""
    return tuple(dict.fromkeys(canonical(recipient.domain) for recipient in delivery.recipients))


def _any_required(rules: list[str], domains: tuple[str, ...]) -> bool:
    return any(_claims(canonical(rule), domain) for rule in rules for domain in domains)


def _claims(rule: str, domain: str) -> bool:
    return rule in ("*", domain) or (rule.startswith("*.") and domain.endswith(rule[1:]))
