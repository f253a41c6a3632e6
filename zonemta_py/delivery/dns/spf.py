"""What SPF says (RFC 7208): pyspf's verdict, with answers of our resolver. The only module that imports pyspf."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from zonemta_py.config import Config
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.mail.classify import NoRoute

TIMEOUT_S = 20
NO_NAME = "5.1.2"
"""Of a name that DNS cannot hold."""
AT_ONCE_MAX = 4
"""Threads that pyspf waits in."""


class Spf:
    """SPF checks on one event loop."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver, self._places = resolver, asyncio.Semaphore(AT_ONCE_MAX)

    async def verdict(self, sender: str, address: str, helo: str) -> tuple[str, str]:
        """Of mail from that IP address; sender: the address whose domain is asked. "pass", "fail", "softfail",
        "neutral", "none", "temperror" or "permerror", and why."""
        import spf

        loop, resolver = asyncio.get_running_loop(), self._resolver

        def look_up(name: str, kind: str, *_: Any, timeout: float = TIMEOUT_S, **__: Any) -> list[Any]:
            if kind not in ("A", "AAAA", "MX", "PTR", "TXT"):
                return []
            asked = asyncio.run_coroutine_threadsafe(resolver.records(name, kind, loop.time()), loop)
            try:
                values = asked.result(timeout + 1)
            except NoRoute as error:
                if error.reply.enhanced == NO_NAME:
                    return []
                raise spf.TempError(error.reply.text) from None
            return [((name, kind), (value.encode(),) if kind == "TXT" else value) for value in values.values]

        async with self._places:
            spf.DNSLookup = look_up  # where pyspf asks
            found = await asyncio.to_thread(spf.check2, i=address, s=sender, h=helo, timeout=TIMEOUT_S)
        return found[0], found[1]


def lookups(
    config: Config,
) -> tuple[Callable[[str], Awaitable[list[str]]], Callable[[str, str, str], Awaitable[str]]]:
    """What checks the mail of others asks: for TXT records of a name, and for SPF's verdict on domain, IP address and
    HELO name. Both raise NoRoute if DNS does not answer."""
    resolver = Resolver(config.dns.servers or None, config.dns.port, config.dns.timeout_s)
    asked = Spf(resolver)

    async def texts(name: str) -> list[str]:
        try:
            return await resolver.texts(name, asyncio.get_running_loop().time())
        except NoRoute as error:
            if error.reply.enhanced == NO_NAME:
                return []
            raise

    async def spf(domain: str, address: str, helo: str) -> str:
        said, words = await asked.verdict(f"postmaster@{domain}", address, helo)
        if said == "temperror":
            raise NoRoute(451, "4.4.3", words)
        return said

    return texts, spf
