"""Which TLS mail for a domain gets, and why: from its zone, [[destinations]], smart hosts, MTA-STS and DANE.

Asks DNS and the hosts of MTA-STS policies, and connects to no mail server (`tls_check` does). Failures:
`TlsTerms.problem` if there is no route to the domain; what forbids a single host is in its row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.plan import Demands, TlsPlan
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.delivery.ways import Way, Ways, secure
from zonemta_py.mail.classify import DeliveryError, NoRoute
from zonemta_py.mail.envelope import Recipient
from zonemta_py.plugin.arguments import ConnectOptions
from zonemta_py.queue.api import Delivery
from zonemta_py.zones.destinations import Destinations, SendingTerms
from zonemta_py.zones.site import Hosts, Site
from zonemta_py.zones.zone import destination

_POLICIES = {"tlsa": "dane", "sts": "mta-sts"}


class HostTerms(NamedTuple):
    """What holds at one host. mx: DNS names it, and not the configuration. plan: None if a policy forbids the host, or
    nothing is known of it; then `problem` says why."""

    host: str
    port: int
    addresses: tuple[str, ...]
    mx: bool
    demands: Demands
    plan: TlsPlan | None
    problem: str = ""

    def row(self) -> dict[str, Any]:
        plan = self.plan
        known = {"host": self.host, "port": self.port, "addresses": list(self.addresses), "mx": self.mx}
        if plan is None:
            return known | {"tls": None, "certificate": None, "policy": None, "problem": self.problem}
        checked = "reported" if plan.soft else plan.verify
        return known | {
            "tls": plan.mode, "certificate": checked, "policy": _POLICIES.get(plan.source, "none"), "problem": "",
        }  # fmt: skip


@dataclass(slots=True)
class TlsTerms:
    """zone: with the settings of the tables that apply. secure: DNSSEC vouches for the MX records."""

    domain: str
    zone: Zone
    tables: tuple[str, ...]
    secure: bool = False
    hosts: list[HostTerms] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    def row(self) -> dict[str, Any]:
        """As the HTTP interface shows it."""
        policies = {one.domain: one for host in self.hosts for one in host.demands.sts}
        return {
            "domain": self.domain, "zone": self.zone.name, "destinations": list(self.tables), "tls": self.zone.tls,
            "tls_min": self.zone.tls_min, "dnssec": self.secure, "problem": self.problem, "notes": self.notes,
            "mta_sts": [
                {"domain": one.domain, "mode": one.mode, "id": one.id, "mx": list(one.mx), "max_age_s": one.max_age_s}
                for one in policies.values()
            ],
            "hosts": [host.row() for host in self.hosts],
        }  # fmt: skip


class TlsExplainer:
    """Of a configuration."""

    def __init__(self, config: Config) -> None:
        self._config, self._destinations = config, Destinations(config)
        self.resolver, self.contexts = DnsDestinationResolver(config), TlsContexts(config.tls.ca_file)
        self.policies = TlsPolicies(config, self.resolver, self.contexts)

    async def of(self, zone: Zone, domain: str) -> TlsTerms:
        """Never raises for what DNS or policy hosts do."""
        if zone.pulled:
            return TlsTerms(domain, zone, (), problem=f"mail of zone {zone.name} waits to be taken")
        site: Site | NoRoute | None = None if zone.smart else await self._site(domain)
        terms = self._terms(zone, domain, site)
        found = TlsTerms(domain, terms.zone, terms.names)
        if not terms.zone.smart:
            if not isinstance(site, Site):
                found.problem = f"no route to {domain}: {site.reply.text if site else 'it has no site'}"
                return found
            found.secure = site.secure
        for way in self._ways(terms.zone, domain, found.secure):
            found.hosts += await self._at(way, found)
        found.notes = _notes(self._config, found)
        return found

    async def _site(self, domain: str) -> Site | NoRoute:
        try:
            return await self.resolver.site(domain, time.monotonic())
        except NoRoute as error:
            return error

    def _terms(self, zone: Zone, domain: str, site: Site | NoRoute | None) -> SendingTerms:
        if isinstance(site, Site):
            return self._destinations.of(zone, domain, site.key, site.provider).terms
        return self._destinations.of(zone, domain, destination(zone, "").key if zone.smart else domain, "").terms

    def _ways(self, zone: Zone, domain: str, vouched: bool) -> Sequence[tuple[Way, Delivery]]:
        host, port = zone.places[0] if zone.places else ("", zone.port)
        to = Recipient(f"postmaster@{domain}")
        delivery = Delivery(0, "explain", zone.name, domain, "", [to], 0, 0, host=host, port=port, secure=vouched)
        options = ConnectOptions(host, port, tls="none" if host.startswith("/") else zone.tls)
        return [(way, delivery) for way in Ways().of(zone, delivery, options, time.monotonic())]

    async def _at(self, way_of: tuple[Way, Delivery], found: TlsTerms) -> list[HostTerms]:
        way, delivery = way_of
        options, zone = way.options, found.zone
        delivery.secure = await secure(way, delivery, self.resolver)
        found.secure = found.secure or delivery.secure
        demands = await self.policies.demands(delivery, zone, options.tls, named=bool(options.host))
        try:
            hosts = await self._hosts(options.host, found.domain)
        except DeliveryError as error:
            return [HostTerms(options.host, options.port, (), not options.host, demands, None, error.reply.text)]
        return [await self._host(demands, host, options.port, addresses, not options.host) for host, addresses in hosts]

    async def _hosts(self, host: str, domain: str) -> Hosts:
        """Raises NoRoute."""
        if host.startswith("/"):
            return ((host, (host,)),)
        if host:
            return ((host, await self.resolver.named(host, time.monotonic())),)
        return (await self.resolver.site(domain, time.monotonic())).hosts

    async def _host(
        self, demands: Demands, host: str, port: int, addresses: tuple[str, ...], mx: bool
    ) -> HostTerms:  # fmt: skip
        try:
            plan = await self.policies.plan(demands, host, port)
        except DeliveryError as error:
            return HostTerms(host, port, addresses, mx, demands, None, error.reply.text)
        return HostTerms(host, port, addresses, mx, demands, plan)


def _notes(config: Config, found: TlsTerms) -> list[str]:
    by_mx = next((host.demands for host in found.hosts if host.mx), None)
    demands = by_mx or (found.hosts[0].demands if found.hosts else Demands(found.zone.tls))
    tables = f", destinations {', '.join(found.tables)}" if found.tables else ""
    notes = [f"Zone {found.zone.name}{tables}: tls = {demands.mode}, at least TLS {demands.least}"]
    if any(not host.mx for host in found.hosts):
        notes.append("Smart hosts: what the domain publishes (MTA-STS, DANE) does not count at them")
    if by_mx is None:
        return notes
    if not config.tls.dane:
        notes.append("DANE: off (tls.dane)")
    else:
        notes.append(f"DANE: {'DNSSEC vouches for the hosts' if found.secure else 'not without DNSSEC'}")
    for policy in demands.sts:
        notes.append(f"MTA-STS: {policy.mode}, id {policy.id}, mx {', '.join(policy.mx)}, {policy.max_age_s} s")
    for _, result, detail in demands.troubles:
        notes.append(f"MTA-STS: {result}, {detail}")
    if not config.tls.mta_sts:
        notes.append("MTA-STS: off (tls.mta_sts)")
    elif not demands.sts and not demands.troubles:
        notes.append("MTA-STS: no policy in force")
    return notes
