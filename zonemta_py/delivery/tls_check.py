"""Probes a domain's servers as a delivery would, without sending anything: for `zonemta tls check`.

Two connections to each address: one with the TLS that policies require, one that validates the certificate by name.
Failures: `Checked.problem` if there is no route to the domain; results of single hosts are in their rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.smtp.session import Route, SmtpSession, open_session
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.mail import uris
from zonemta_py.delivery.tls.plan import Demands, TlsPlan
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.mail.classify import DeliveryError
from zonemta_py.mail.envelope import Recipient
from zonemta_py.queue.api import Delivery
from zonemta_py.zones.site import Site

TIMEOUT_S = 10.0


class Row(NamedTuple):
    """policy: which applies. delivers: "yes, TLSv1.3 …", "yes, in plain", "no, …". certificate: "valid" or why not."""

    host: str
    address: str
    policy: str
    delivers: str
    certificate: str


@dataclass(slots=True)
class Checked:
    """notes: about the domain as a whole."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""


async def look(config: Config, zone: Zone, domain: str) -> Checked:
    """Never raises for what DNS or servers do."""
    resolver, contexts, now = DnsDestinationResolver(config), TlsContexts(config.tls.ca_file), time.monotonic()
    policies = TlsPolicies(config, resolver, contexts)
    try:
        site = await resolver.site(domain, now)
    except DeliveryError as error:
        return Checked(problem=f"no route to {domain}: {error.reply.text}")
    delivery = Delivery(
        0, "check", zone.name, domain, "", [Recipient(f"postmaster@{domain}")], 0, 0, secure=site.secure
    )
    demands = await policies.demands(delivery, zone, zone.tls)
    checked = Checked(notes=[*_notes(config, demands, site), await _reports(resolver, domain)])
    for host, addresses in site.hosts:
        for address in addresses:
            checked.rows.append(await _row(policies, demands, zone, config.server.name, host, address))
    return checked


def _notes(config: Config, demands: Demands, site: Site) -> list[str]:
    notes = [f"Zone: tls = {demands.mode}, at least TLS {demands.least}"]
    if config.tls.dane:
        notes.append(f"DANE: {'DNSSEC vouches for the hosts' if site.secure else 'not without DNSSEC'}")
    else:
        notes.append("DANE: off (tls.dane)")
    for policy in demands.sts:
        notes.append(f"MTA-STS: {policy.mode}, id {policy.id}, mx {', '.join(policy.mx)}, {policy.max_age_s} s")
    for _, result, detail in demands.troubles:
        notes.append(f"MTA-STS: {result}, {detail}")
    if not config.tls.mta_sts:
        notes.append("MTA-STS: off (tls.mta_sts)")
    elif not demands.sts and not demands.troubles:
        notes.append("MTA-STS: no policy in force")
    return notes


async def _reports(resolver: DnsDestinationResolver, domain: str) -> str:
    try:
        return f"Reports wanted: {', '.join(await uris(resolver, domain)) or 'none'}"
    except DeliveryError as error:
        return f"Reports wanted: not known, {error.reply.text}"


async def _row(policies: TlsPolicies, demands: Demands, zone: Zone, hostname: str, host: str, address: str) -> Row:
    if not zone.allow_private and (what := refusal(address)):
        return Row(host, address, "", f"no, it is {what} (see allow_private)", "")
    route = Route(host, address, zone.port, hostname, connect_timeout_s=TIMEOUT_S, reply_timeout_s=TIMEOUT_S)
    try:
        route.tls = await policies.plan(demands, host, zone.port)
    except DeliveryError as error:
        return Row(host, address, "forbids it", f"no, {error.reply.text}", "")
    delivers = await _said(route, policies.contexts)
    policy = _policy(route.tls)
    route.tls = TlsPlan("implicit" if demands.mode == "implicit" else "required", "pkix", least=demands.least)
    found = await _said(route, policies.contexts)
    return Row(host, address, policy, delivers, "valid" if found.startswith("yes") else found.removeprefix("no, "))


def _policy(plan: TlsPlan) -> str:
    if plan.source == "tlsa":
        return "; ".join(["DANE", *map(str, plan.tlsa)]) if plan.tlsa else "DANE, no usable record: encrypted only"
    if plan.source == "sts":
        return f"MTA-STS, {'testing' if plan.soft else 'enforce'}"
    return "none"


async def _said(route: Route, contexts: TlsContexts) -> str:
    try:
        session: SmtpSession = await open_session(route, contexts)
    except DeliveryError as error:
        return f"no, {error.reply.text}"
    session.dialogue.quit()
    return f"yes, {session.tls or 'in plain'}"
