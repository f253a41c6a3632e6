"""Whether what comes back finds its way: a listener that takes it, on the port that others use, and an MX that leads
there for each domain of return paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address, ip_network

from zonemta_py.cli.service.diagnosis import Diagnosis, note, ok, problem, warning
from zonemta_py.cli.service.names import addresses_of
from zonemta_py.config import Config, Listener
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.mail.classify import NoRoute

_SMTP_PORT = 25


def domains(config: Config) -> list[str]:
    """Those that only take what comes back."""
    path = config.return_path
    return sorted({one for one in (path.verp, path.srs, path.unsubscribe_domain) if one})


def doubts(config: Config) -> Iterator[Diagnosis]:
    """What the configuration itself leaves open."""
    taking, there = [one for one in config.listeners if one.feedback], domains(config)
    if there and not taking:
        yield warning(
            "return path", f"what comes back to {', '.join(there)} is taken by no listener here",
            "set feedback = true in a [[listeners]] table on port 25, unless another program takes it",
        )  # fmt: skip
    for listener in taking:
        yield from _lent(listener)
        about, place = f"listener {listener.name}", f"{listener.address}:{listener.port}"
        if listener.port != _SMTP_PORT or ip_address(listener.address).is_loopback:
            yield warning(
                about, f"takes what comes back at {place}, where no other server looks for it",
                "let it listen on port 25 of the address that the MX leads to, or forward that to it",
            )  # fmt: skip


def _lent(listener: Listener) -> Iterator[Diagnosis]:
    """Rights that strangers would have by a proxy before a listener that is open to everybody."""
    inside = [one for one in listener.relay_networks if ip_network(one).is_loopback]
    if ip_address(listener.address).is_loopback and inside and not listener.proxy_protocol:
        yield problem(
            f"relaying at {listener.name}", "if anything forwards port 25 to it, every client may relay",
            "set relay_networks = [], or proxy_protocol = true and let it say who the client is",
        )  # fmt: skip


def sentences(config: Config) -> Iterator[str]:
    """The same, as `zonemta config check` warns."""
    for one in doubts(config):
        yield f"warning: {one.about}: {one.words}; {one.remedy}"
    there = domains(config)
    if there and any(one.feedback for one in config.listeners):
        records = ", ".join(f'"{one}. IN MX 10 {config.server.name}."' for one in there)
        yield f"note: what comes back needs in DNS: {records}; `zonemta doctor` looks for it"


async def found(resolver: Resolver, config: Config, own: list[str]) -> AsyncIterator[Diagnosis]:
    """Whether an MX of each domain leads here. own: addresses of this machine as others see them."""
    if not any(one.feedback for one in config.listeners):
        return
    here = {str(ip_address(one)) for one in (*own, *(each.address for each in config.listeners if each.feedback))}
    for domain in domains(config):
        about, remedy = f"return path {domain}", f"publish: {domain}. IN MX 10 {config.server.name}."
        try:
            hosts = [str(host) for _, host in (await resolver.records(domain, "MX", 0.0)).values]
            places = {host: await addresses_of(resolver, host) for host in hosts}
        except NoRoute as error:
            yield note(about, error.reply.text)
            continue
        if config.server.name.lower() in places or any(here & where for where in places.values()):
            yield ok(about, "an MX leads here")
        elif hosts:
            yield problem(about, f"goes to {', '.join(hosts)}, not to this machine", remedy)
        else:
            yield problem(about, "has no MX, so that nothing comes back", remedy)
