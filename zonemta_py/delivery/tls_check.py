"""Probes a domain's servers as a delivery would, without sending anything: for `zonemta tls check`.

Two connections to each address: one with the TLS that policies require (`tls_explain`), one that validates the
certificate by name. Failures: `Checked.problem` if there is no route to the domain; results of single hosts are in
their rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.smtp.session import Route, SmtpSession, open_session
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.mail import uris
from zonemta_py.delivery.tls.plan import TlsPlan
from zonemta_py.delivery.tls_explain import HostTerms, TlsExplainer, TlsTerms
from zonemta_py.mail.classify import DeliveryError

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
    explainer = TlsExplainer(config)
    terms = await explainer.of(zone, domain)
    if terms.problem:
        return Checked(problem=terms.problem)
    checked = Checked(notes=terms.notes)
    if any(host.mx for host in terms.hosts):
        checked.notes.append(await _reports(explainer.resolver, domain))
    for host in terms.hosts:
        async for row in _rows(explainer.contexts, terms, host, terms.zone.hostname or config.server.name):
            checked.rows.append(row)
    return checked


async def _reports(resolver: DnsDestinationResolver, domain: str) -> str:
    try:
        return f"Reports wanted: {', '.join(await uris(resolver, domain)) or 'none'}"
    except DeliveryError as error:
        return f"Reports wanted: not known, {error.reply.text}"


async def _rows(contexts: TlsContexts, terms: TlsTerms, host: HostTerms, hostname: str) -> AsyncIterator[Row]:
    if not host.addresses:
        yield Row(host.host or terms.domain, "", "", f"no, {host.problem}", "")
    for address in host.addresses:
        if host.mx and not terms.zone.allow_private and (what := refusal(address)):
            yield Row(host.host, address, "", f"no, it is {what} (see allow_private)", "")
        elif host.plan is None:
            yield Row(host.host, address, "forbids it", f"no, {host.problem}", "")
        else:
            yield await _row(contexts, host, host.plan, hostname, address)


async def _row(contexts: TlsContexts, host: HostTerms, plan: TlsPlan, hostname: str, address: str) -> Row:
    route = Route(host.host, address, host.port, hostname, connect_timeout_s=TIMEOUT_S, reply_timeout_s=TIMEOUT_S)
    route.tls = plan
    delivers, demands = await _said(route, contexts), host.demands
    route.tls = TlsPlan("implicit" if demands.mode == "implicit" else "required", "pkix", least=demands.least)
    found = await _said(route, contexts)
    certificate = "valid" if found.startswith("yes") else found.removeprefix("no, ")
    return Row(host.host, address, _policy(plan), delivers, certificate)


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
