"""DNS queries, with answers as plain values: the only module that imports dnspython.

One bounded cache for all record types, which keeps answers for their TTL. Negative answers are kept for the SOA's
minimum, at most NEGATIVE_MAX_S (RFC 2308 5), failures for FAILURE_S, so that a flood of mail does not repeat the query.
Concurrent identical queries share one answer. The clock (`now`, steady seconds) is an argument.

Failures: `records` raises NoRoute, 4.4.3, if DNS does not answer, or answers with a failure (SERVFAIL is also what a
validating resolver returns for forged answers). NXDOMAIN and NODATA are answers, not failures.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.resolver

from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.classify import NoRoute

CACHE_ENTRIES_MAX = 60_000
AT_ONCE_MAX = 256
"""Queries in progress; further ones wait. Each has a socket of its own."""
TTL_MAX_S = 86_400.0
TTL_MIN_S = 1.0
"""Also for a TTL of 0: the recipients of one message share one query."""
NEGATIVE_MAX_S = 3600.0
"""Upper limit for caching "does not exist", whatever the zone says."""
FAILURE_S = 10.0
RECORDS_MAX = 100
"""Records of one answer that are used."""
QUERY_TIMEOUT_S = 10.0
TRY_TIMEOUT_S = 2.0
"""Seconds until a query is repeated, or sent to the next name server."""
UDP_BYTES = 1232
"""Largest UDP answer: what fits without fragmentation (DNS flag day 2020); larger ones use TCP."""
NAME_BYTES_MAX = 253


@dataclass(slots=True, frozen=True)
class Answer:
    """values: MX: (preference, host); A, AAAA: address; TXT: text; PTR: name; TLSA: (usage, selector, matching, data).

    exists: False for NXDOMAIN. secure: DNSSEC-validated, negative answers included. name: the name after all CNAMEs.
    ttl_s: how long it may be kept.
    """

    values: tuple[Any, ...]
    exists: bool
    secure: bool
    name: str
    ttl_s: float


Found = Answer | NoRoute


class Cache:
    """Answers by question, evicting the least recently used; identical queries in flight are shared."""

    def __init__(self, entries_max: int = CACHE_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._kept: OrderedDict[tuple[str, str], tuple[float, Found]] = OrderedDict()
        self._asked: dict[tuple[str, str], asyncio.Task[Found]] = {}

    async def get(self, name: str, kind: str, now: float, ask: Callable[[str, str], Awaitable[Found]]) -> Found:
        """From the cache, from a query already in flight, or from `ask`. Its `ttl_s` is what remains of it."""
        question = (name, kind)
        kept = self._kept.get(question)
        if kept is not None and kept[0] > now:
            self._kept.move_to_end(question)
            return _aged(kept[1], kept[0] - now)
        task = self._asked.get(question)
        if task is None:
            task = asyncio.ensure_future(self._fill(question, now, ask))
            self._asked[question] = task
            task.add_done_callback(lambda _: self._asked.pop(question, None))
        return await asyncio.shield(task)  # the first caller may be canceled while others still wait

    async def _fill(
        self, question: tuple[str, str], now: float, ask: Callable[[str, str], Awaitable[Found]]
    ) -> Found:  # fmt: skip
        found = await ask(*question)
        self._kept[question] = (now + (found.ttl_s if isinstance(found, Answer) else FAILURE_S), found)
        self._kept.move_to_end(question)
        if len(self._kept) > self._entries_max:
            self._kept.popitem(last=False)
        return found


def _aged(found: Found, ttl_s: float) -> Found:
    if isinstance(found, Answer):
        return Answer(found.values, found.exists, found.secure, found.name, ttl_s)
    return found


class Resolver:
    """nameservers: IP addresses to ask, empty for the system's; port: their port. dnssec: trust their AD bit."""

    def __init__(
        self, nameservers: list[str] | None = None, port: int = 53, timeout_s: float = QUERY_TIMEOUT_S,
        dnssec: bool = False,
    ) -> None:  # fmt: skip
        self._nameservers, self._port, self._timeout_s, self._dnssec = nameservers, port, timeout_s, dnssec
        self._dns: dns.asyncresolver.Resolver | None = None
        self._cache = Cache()
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    async def records(self, name: str, kind: str, now: float) -> Answer:
        """kind: "MX", "A", "AAAA", "TXT", "PTR", "TLSA". Raises NoRoute, temporary; 5.1.2 if it is not a valid name."""
        found = await self._cache.get(ascii_name(name), kind, now, self._ask)
        if isinstance(found, NoRoute):
            # A new exception each time: raising a cached one again and again would grow its traceback.
            raise NoRoute(found.reply.code, found.reply.enhanced, found.reply.text)
        return found

    async def texts(self, name: str, now: float = 0.0) -> list[str]:
        """TXT records, the strings of each joined; [] if there are none. Raises NoRoute if DNS does not answer."""
        return list((await self.records(name, "TXT", now)).values)

    async def _ask(self, name: str, kind: str) -> Found:
        try:
            async with self._places:
                answer = await self._asker().resolve(
                    dns.name.from_text(f"{name}."), kind, raise_on_no_answer=False, search=False,
                    lifetime=self._timeout_s,
                )  # fmt: skip
            return self._answer(answer.response, True)
        except dns.resolver.NXDOMAIN as error:
            return self._nothing(name, error)
        except NoRoute as error:
            return error
        except (dns.exception.DNSException, OSError) as error:
            reason = "no answer" if isinstance(error, dns.exception.Timeout) else "name server failure"
            return NoRoute(451, "4.4.3", f"DNS lookup of {name} ({kind}) failed: {reason}")

    def _nothing(self, name: str, error: dns.resolver.NXDOMAIN) -> Found:
        asked: Any = error
        [response] = asked.responses().values()
        try:
            return self._answer(response, False)
        except dns.exception.DNSException:  # malformed, such as an answer section for a missing name
            return NoRoute(451, "4.4.3", f"DNS lookup of {name} failed: name server failure")

    def _answer(self, response: dns.message.QueryMessage, exists: bool) -> Answer:
        chain = response.resolve_chaining()
        values = tuple(_value(record) for record in list(chain.answer or ())[:RECORDS_MAX])
        longest = TTL_MAX_S if values else NEGATIVE_MAX_S
        return Answer(
            values,
            exists,
            self._dnssec and bool(response.flags & dns.flags.AD),
            chain.canonical_name.to_text(omit_final_dot=True).lower(),
            min(max(float(chain.minimum_ttl), TTL_MIN_S), longest),
        )

    def _asker(self) -> dns.asyncresolver.Resolver:
        """Created on first use: a relay with a fixed host never reads resolv.conf."""
        if self._dns is None:
            try:
                made = dns.asyncresolver.Resolver(configure=not self._nameservers)
            except dns.resolver.NoResolverConfiguration:
                raise NoRoute(
                    451, "4.4.3", "no name server: /etc/resolv.conf is missing or empty; correct it, or set dns.servers"
                ) from None
            if self._nameservers:
                made.nameservers = list(self._nameservers)
                made.port = self._port
            made.timeout = min(TRY_TIMEOUT_S, self._timeout_s)
            made.use_edns(0, 0, UDP_BYTES)
            made.flags = dns.flags.RD | dns.flags.AD  # AD without the signatures (RFC 6840 5.7)
            self._dns = made
        return self._dns


def _value(record: Any) -> Any:
    match record.rdtype.name:
        case "MX":
            return record.preference, record.exchange.to_text(omit_final_dot=True).lower()
        case "TXT":
            return b"".join(record.strings).decode("utf-8", "replace")
        case "TLSA":
            return record.usage, record.selector, record.mtype, bytes(record.cert)
        case "PTR":
            return record.target.to_text(omit_final_dot=True).lower()
    return str(record.address)


def ascii_name(domain: str) -> str:
    """Lower-case A-labels without the final dot. Raises NoRoute, 5.1.2, for a name that DNS cannot hold."""
    name = canonical(domain)
    labels = name.split(".")
    if len(name) > NAME_BYTES_MAX or not all(map(_is_label, labels)):
        raise NoRoute(550, "5.1.2", f"{domain!r} is not a domain name" if labels != [""] else "the domain is empty")
    return name


def _is_label(label: str) -> bool:
    """Letters, digits, hyphens and (they do occur) underscores."""
    return 0 < len(label) <= 63 and label.isascii() and label.replace("-", "a").replace("_", "a").isalnum()
