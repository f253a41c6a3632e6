"""DNS queries (`query.py`), with answers as plain values, and their cache.

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
from typing import TYPE_CHECKING

from zonemta_py.delivery.dns.answer import Answer, Found
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.classify import NoRoute

if TYPE_CHECKING:
    from zonemta_py.delivery.dns.query import Asker

CACHE_ENTRIES_MAX = 60_000
AT_ONCE_MAX = 256
"""Queries in progress; further ones wait. Each has a socket of its own."""
FAILURE_S = 10.0
QUERY_TIMEOUT_S = 10.0
NAME_BYTES_MAX = 253


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
        self._asker: Asker | None = None
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
        if self._asker is None:
            from zonemta_py.delivery.dns.query import Asker  # here: mail for one host needs no DNS

            self._asker = Asker(self._nameservers, self._port, self._timeout_s, self._dnssec)
        async with self._places:
            return await self._asker.ask(name, kind)


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
