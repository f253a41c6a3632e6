"""Where a domain's mail goes: its site, or the reason why there is no route (RFC 5321 5.1, RFC 7505).

MX hosts in order of preference, shuffled within one preference; without MX the domain itself; each host with all its
addresses. The list ends before this machine, to avoid mail loops. `now` is steady seconds; randomness is an argument.

Failures: NoRoute. Permanent: the domain does not exist (5.1.2), accepts no mail (null MX, 5.1.10), none of its MX hosts
has an address (5.4.4), or the most preferred one is this machine (5.4.6). Temporary: DNS does not answer, or answers
with a failure (4.4.3), for the domain or for every host that may have addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from dataclasses import dataclass

from zonemta_py.config import Config
from zonemta_py.config.section import shipped
from zonemta_py.delivery.dns.answer import Answer
from zonemta_py.delivery.dns.reachability import LocalIdentity
from zonemta_py.delivery.dns.resolver import FAILURE_S, Resolver, ascii_name
from zonemta_py.delivery.dns.routes import AddressTarget
from zonemta_py.delivery.dns.system import HostsFile
from zonemta_py.mail.classify import NoRoute
from zonemta_py.zones.site import Exchanges, Providers, Site, order, shuffled, site_key, without_ourselves

HOSTS_MAX = 10
"""MX hosts looked up for one domain, so that one record set cannot cause a thousand queries."""
ADDRESSES_MAX = 20
"""Addresses per host."""
LITERAL_S = 86_400.0
"""An address literal needs no DNS, and never changes."""


@dataclass(slots=True, frozen=True)
class Host:
    """What DNS says of one host. secure: DNSSEC-validated addresses. canonical: the name after all CNAMEs. error: why
    the addresses could not be found out."""

    name: str
    canonical: str
    addresses: tuple[str, ...]
    secure: bool
    ttl_s: float
    error: NoRoute | None = None


class DnsDestinationResolver:
    """Resolves whole destinations. Raises ConfigError if the providers' file is invalid."""

    def __init__(
        self, config: Config, chance: random.Random | None = None, resolver: Resolver | None = None,
        hosts: HostsFile | None = None,
    ) -> None:  # fmt: skip
        dns = config.dns
        self._resolver = resolver or Resolver(dns.servers, dns.port, dns.timeout_s, dns.dnssec)
        self._providers = Providers.load(dns.providers or shipped("providers.toml"))
        self._ourselves = LocalIdentity(config)
        self._hosts_file, self._servers = hosts or HostsFile(), dns.servers
        self._chance = chance or random.SystemRandom()

    # destinations

    async def site(self, domain: str, now: float) -> Site:
        """The site of a domain, with its hosts in the order to try them. Raises NoRoute."""
        literal = _literal(domain)
        if literal:
            return self._literal_site(literal)
        name = ascii_name(domain)
        answer = await self._resolver.records(name, "MX", now)
        exchanges = _exchanges(name, answer)
        names = dict.fromkeys(host for _, host in exchanges) or [name]
        hosts = await asyncio.gather(*(self._host(host, now) for host in names))
        usable, kept = self._without_ourselves(name, exchanges, hosts)
        _check_reachable(name, hosts, exchanges)
        if not kept:
            raise NoRoute(554, "5.4.6", f"mail for {name} would come back to this machine, its best mail exchanger")
        site = Site(
            site_key(name, exchanges),
            self._providers.of([host for _, host in exchanges], name),
            tuple((host.name, host.addresses) for host in kept),
            usable,
            min(answer.ttl_s, *(host.ttl_s for host in hosts)),
            answer.secure,
        )
        return _ordered(site, self._chance)

    async def targets(self, domain: str, now: float) -> list[AddressTarget]:
        """The hosts of the domain's site in the order to try them. Raises NoRoute."""
        site = await self.site(domain, now)
        return [AddressTarget(host, addresses) for host, addresses in site.hosts]

    def _literal_site(self, address: str) -> Site:
        if self._ourselves.at(address):
            raise NoRoute(554, "5.4.6", f"mail for [{address}] would come back to this machine")
        return Site(f"[{address}]", "", ((address, (address,)),), (), LITERAL_S, False)

    def _without_ourselves(
        self, name: str, exchanges: Exchanges, hosts: list[Host]
    ) -> tuple[Exchanges, list[Host]]:  # fmt: skip
        """The exchanges before this machine in the list, and those of their hosts that have addresses or may have some
        later."""
        ours = {host.name for host in hosts if self._ourselves.is_host(host.name, host.addresses)}
        usable = without_ourselves(exchanges, ours)
        names = {host for _, host in usable} if exchanges else {name} - ours
        able = [host for host in hosts if host.addresses or (host.error is not None and host.error.temporary)]
        return usable, [host for host in able if host.name in names]

    # single hosts and records

    async def named(self, host: str, now: float) -> tuple[str, ...]:
        """Addresses of a host that the configuration or a plugin names: by the hosts file, then by DNS, then, unless
        dns.servers says which, by the system's resolver with its search list.

        Raises NoRoute as `addresses`.
        """
        listed = self._hosts_file.of(host)
        if listed:
            return tuple(shuffled(listed, self._chance))
        try:
            return await self.addresses(host, now)
        except NoRoute:
            found = () if self._servers else await _by_system(host)
            if not found:
                raise
            return tuple(shuffled(found, self._chance))

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        """Addresses of a host by DNS, without MX.

        Raises NoRoute, always temporary: a configuration mistake can be corrected, so no mail may bounce for it.
        """
        literal = _literal(host)
        if literal:
            return (literal,)
        found = await self._host(host, now)
        if not found.addresses:
            if found.error is not None and found.error.temporary:
                raise found.error
            raise NoRoute(451, "4.4.4", f"host {host} has no address; correct its name or its DNS records")
        return tuple(shuffled(found.addresses, self._chance))

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        """Whether the answer is DNSSEC-validated, and the texts, [] if there are none. Raises NoRoute, temporary."""
        answer = await self._resolver.records(name, "TXT", now)
        return answer.secure, list(answer.values)

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        """Whether the answer is DNSSEC-validated, and the records (usage, selector, matching, data), [] if there are
        none. Raises NoRoute, temporary.

        No query is made for a host without secure addresses: it cannot have secure records, and some name servers fail
        on the query (RFC 7672 2.2.2). The target of a secure CNAME is tried first (2.2.3).
        """
        found = await self._host(host, now)
        if found.error is not None and found.error.temporary:
            raise found.error
        if not found.secure:
            return False, []
        for name in dict.fromkeys((found.canonical, ascii_name(host))):
            answer = await self._resolver.records(f"_{port}._tcp.{name}", "TLSA", now)
            if answer.secure and answer.values:
                break
        return answer.secure, list(answer.values)

    async def _host(self, name: str, now: float) -> Host:
        four, six = await asyncio.gather(self._addresses(name, "A", now), self._addresses(name, "AAAA", now))
        answers = [answer for answer in (four, six) if isinstance(answer, Answer)]
        failures = [answer for answer in (four, six) if isinstance(answer, NoRoute)]
        filled = [answer for answer in answers if answer.values]
        if not filled and failures:
            return Host(name, name, (), False, FAILURE_S, failures[0])
        counted = filled or answers
        texts = tuple(address for answer in filled for address in answer.values[:ADDRESSES_MAX])
        secure = all(answer.secure for answer in counted)
        return Host(name, counted[0].name, texts, secure, min(answer.ttl_s for answer in counted))

    async def _addresses(self, name: str, kind: str, now: float) -> Answer | NoRoute:
        try:
            return await self._resolver.records(name, kind, now)
        except NoRoute as error:
            return error


async def _by_system(host: str) -> tuple[str, ...]:
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(row[4][0]) for row in rows))


def _exchanges(name: str, answer: Answer) -> Exchanges:
    """By preference, () if the domain has none. Raises NoRoute: no such domain, or null MX."""
    if not answer.exists:
        raise NoRoute(550, "5.1.2", f"domain {name} does not exist")
    records = sorted(set(answer.values))
    named = tuple((preference, host) for preference, host in records if host not in ("", "."))
    if records and not named:
        raise NoRoute(556, "5.1.10", f"domain {name} takes no mail (null MX, RFC 7505)")
    return named[:HOSTS_MAX]


def _check_reachable(name: str, hosts: list[Host], exchanges: Exchanges) -> None:
    """Raises NoRoute if no host has an address."""
    if any(host.addresses for host in hosts):
        return
    for host in hosts:
        if host.error is not None and host.error.temporary:
            raise host.error
    if exchanges:
        raise NoRoute(550, "5.4.4", f"no mail exchanger of {name} has an address")
    raise NoRoute(550, "5.1.2", f"domain {name} has neither MX nor address records")


def _ordered(site: Site, chance: random.Random) -> Site:
    hosts = tuple((host, tuple(addresses)) for host, addresses in order(site, chance))
    return Site(site.key, site.provider, hosts, site.mx, site.ttl_s, site.secure)


def _literal(domain: str) -> str:
    """The IP address of [192.0.2.1], [IPv6:2001:db8::1] (RFC 5321 4.1.3) or of a bare address; "" for a name."""
    text = domain
    if domain.startswith("[") and domain.endswith("]"):
        text = domain[1:-1]
        if text.lower().startswith("ipv6:"):
            text = text[5:]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if text is not domain:
            raise NoRoute(550, "5.1.2", f"{domain} is not an address literal") from None
        return ""
