"""Where a domain's mail goes: MX hosts by preference, their addresses, or why there is no way (RFC 5321 5.1, RFC 7505).

The only door to dnspython. One cache for all, bounded, as old as the records' TTLs allow; failures are kept briefly.
The same question is never asked twice at once. Clock (`now`, seconds) and randomness are arguments.

Failures: `targets` raises NoRoute. Permanent: the domain does not exist (5.1.2), takes no mail (null MX, 5.1.10), or
its MX hosts have no address at all (5.4.4). Temporary: DNS does not answer, or answers with a failure (4.4.3).
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from zonemta_py.mail.classify import NoRoute

CACHE_ENTRIES_MAX = 20_000
TTL_MAX_S = 86_400.0
TTL_MIN_S = 1.0
NEGATIVE_S = 60.0
"""How long "does not exist" is believed."""
FAILURE_S = 10.0
"""How long a server failure or silence is believed, so that a flood of mail does not repeat the question."""
HOSTS_MAX = 10
"""MX hosts looked up for one domain: nobody may make us ask a thousand questions with one record set."""
QUERY_TIMEOUT_S = 10.0

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Target:
    """A host to try and its IP addresses, IPv4 first, in the order to try them."""

    host: str
    addresses: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Found(Generic[T]):
    """An answer, or the error that stands for it, and how long it may be kept."""

    value: T | NoRoute
    ttl_s: float


class Cache(Generic[T]):
    """Answers by question, least recently used going first; questions on their way are shared."""

    def __init__(self, entries_max: int = CACHE_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._kept: OrderedDict[str, tuple[float, T | NoRoute]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Found[T]]] = {}

    async def get(self, question: str, now: float, ask: Callable[[str], Awaitable[Found[T]]]) -> Found[T]:
        """From memory, from whoever is asking the same already, or from `ask`."""
        kept = self._kept.get(question)
        if kept is not None and kept[0] > now:
            self._kept.move_to_end(question)
            return Found(kept[1], kept[0] - now)
        task = self._asked.get(question)
        if task is None:
            task = asyncio.ensure_future(ask(question))
            self._asked[question] = task
            task.add_done_callback(lambda _: self._asked.pop(question, None))
        found = await asyncio.shield(task)  # who asked first may be cancelled, the others still wait
        self._keep(question, now, found)
        return found

    def _keep(self, question: str, now: float, found: Found[T]) -> None:
        self._kept[question] = (now + found.ttl_s, found.value)
        self._kept.move_to_end(question)
        if len(self._kept) > self._entries_max:
            self._kept.popitem(last=False)


class Resolver:
    """nameservers: IP addresses to ask, empty for the system's; port: of those. chance: shuffles equal preferences."""

    def __init__(
        self, nameservers: list[str] | None = None, port: int = 53, chance: random.Random | None = None,
        timeout_s: float = QUERY_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self._nameservers, self._port, self._timeout_s = nameservers, port, timeout_s
        self._chance = chance or random.SystemRandom()
        self._dns: dns.asyncresolver.Resolver | None = None
        self._mx: Cache[list[tuple[int, str]]] = Cache()
        self._addresses: Cache[tuple[str, ...]] = Cache()

    async def targets(self, domain: str, now: float) -> list[Target]:
        """Hosts in the order to try them, at least one, each with at least one address. Raises NoRoute."""
        literal = _literal(domain)
        if literal:
            return [Target(literal, (literal,))]
        name = _ascii(domain)
        exchanges = _value(await self._mx.get(name, now, self._ask_mx))
        order = sorted(exchanges, key=lambda exchange: (exchange[0], self._chance.random()))
        hosts = [host for _, host in order[:HOSTS_MAX]] or [name]
        return _reachable(
            domain, hosts, await asyncio.gather(*(self._host(host, now) for host in hosts)), not exchanges
        )

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        """Addresses of a named host, without MX. Raises NoRoute."""
        literal = _literal(host)
        if literal:
            return (literal,)
        name = _ascii(host)
        return _reachable(host, [name], [await self._host(name, now)], True)[0].addresses

    async def _host(self, host: str, now: float) -> Found[tuple[str, ...]]:
        return await self._addresses.get(host, now, self._ask_addresses)

    async def _ask_mx(self, domain: str) -> Found[list[tuple[int, str]]]:
        found = await self._ask(domain, "MX")
        if isinstance(found.value, NoRoute):
            return Found(found.value, found.ttl_s)
        exchanges = [(record.preference, record.exchange.to_text(omit_final_dot=True)) for record in found.value]
        if len(exchanges) == 1 and exchanges[0][1] in ("", "."):
            return Found(
                NoRoute(556, "5.1.10", f"domain {domain.rstrip('.')} takes no mail (null MX, RFC 7505)"), found.ttl_s
            )
        return Found([exchange for exchange in exchanges if exchange[1] not in ("", ".")], found.ttl_s)

    async def _ask_addresses(self, host: str) -> Found[tuple[str, ...]]:
        four, six = await asyncio.gather(self._ask(host, "A"), self._ask(host, "AAAA"))
        with_records = [found for found in (four, six) if found.value and not isinstance(found.value, NoRoute)]
        ttl_s = min(found.ttl_s for found in with_records or (four, six))
        failures = [found.value for found in (four, six) if isinstance(found.value, NoRoute)]
        if not with_records and failures:
            return Found(next((error for error in failures if error.temporary), failures[0]), ttl_s)
        texts = [record.address for found in with_records for record in _value(found)]
        return Found(tuple(texts), ttl_s)

    async def _ask(self, name: str, kind: str) -> Found[list[Any]]:
        """The records, [] if there are none of that kind."""
        try:
            answer = await self._asker().resolve(
                dns.name.from_text(name), kind, raise_on_no_answer=False, search=False, lifetime=self._timeout_s
            )
        except dns.resolver.NXDOMAIN:
            return Found(NoRoute(550, "5.1.2", f"domain {name.rstrip('.')} does not exist"), NEGATIVE_S)
        except (dns.exception.DNSException, OSError) as error:
            reason = "no answer" if isinstance(error, dns.exception.Timeout) else "name server failure"
            return Found(
                NoRoute(451, "4.4.3", f"DNS lookup of {name.rstrip('.')} ({kind}) failed: {reason}"), FAILURE_S
            )
        if answer.rrset is None:
            return Found([], NEGATIVE_S)
        return Found(list(answer.rrset), min(max(float(answer.rrset.ttl), TTL_MIN_S), TTL_MAX_S))

    def _asker(self) -> dns.asyncresolver.Resolver:
        """Made when first needed: a relay with a fixed host never reads resolv.conf."""
        if self._dns is None:
            try:
                self._dns = dns.asyncresolver.Resolver(configure=self._nameservers is None)
            except dns.resolver.NoResolverConfiguration:
                raise NoRoute(451, "4.4.3", "no name server: /etc/resolv.conf is missing or empty, mend it") from None
            if self._nameservers is not None:
                self._dns.nameservers = list(self._nameservers)
                self._dns.port = self._port
        return self._dns


def _value(found: Found[T]) -> T:
    if isinstance(found.value, NoRoute):
        raise _again(found.value)
    return found.value


def _again(error: NoRoute) -> NoRoute:
    """A new one with the same reply: an error that is kept and raised time and again would grow its traceback."""
    return NoRoute(error.reply.code, error.reply.enhanced, error.reply.text)


def _reachable(
    domain: str, hosts: list[str], answers: list[Found[tuple[str, ...]]], implicit: bool
) -> list[Target]:  # fmt: skip
    """Hosts that have addresses. implicit: the only host is the domain itself, for want of MX (RFC 5321 5.1)."""
    targets, failures = [], []
    for host, found in zip(hosts, answers, strict=True):
        if isinstance(found.value, NoRoute):
            failures.append(found.value)
        elif found.value:
            targets.append(Target(host, found.value))
    if targets:
        return targets
    for error in failures:
        if error.temporary or implicit:
            raise _again(error)
    if implicit:
        raise NoRoute(550, "5.1.2", f"domain {domain} has neither MX nor address records")
    raise NoRoute(550, "5.4.4", f"no mail exchanger of {domain} has an address")


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


def _ascii(domain: str) -> str:
    """Lower-case A-labels with the final dot, so that no search list is ever applied."""
    try:
        if not domain.strip("."):
            raise NoRoute(550, "5.1.2", "the domain is empty")
        return dns.name.from_unicode(domain.lower()).to_text().lower()
    except (dns.exception.DNSException, UnicodeError, ValueError):
        raise NoRoute(550, "5.1.2", f"{domain!r} is not a domain name") from None
