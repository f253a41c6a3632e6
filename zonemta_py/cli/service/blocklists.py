"""Whether source addresses and sender domains are on blocklists that answer by DNS (RFC 5782)."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterable, Sequence

from zonemta_py.cli.service.diagnosis import Diagnosis, note, ok, problem
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.mail.classify import NoRoute

OF_ADDRESSES = ("zen.spamhaus.org", "bl.spamcop.net", "b.barracudacentral.org", "psbl.surriel.com")
OF_DOMAINS = ("dbl.spamhaus.org", "multi.surbl.org")
_LISTED = ipaddress.ip_network("127.0.0.0/8")
_REFUSED = ipaddress.ip_network("127.255.255.0/24")
"""What Spamhaus answers to those whom it does not answer: public resolvers, and those who ask too much."""


async def addresses(resolver: Resolver, given: Iterable[str], lists: Sequence[str]) -> AsyncIterator[Diagnosis]:
    """One line an address, or one for each list that has it."""
    for address in given:
        if refusal(address):
            continue
        pointer = ipaddress.ip_address(address).reverse_pointer
        backwards = pointer.removesuffix(".in-addr.arpa").removesuffix(".ip6.arpa")
        async for finding in _on(resolver, f"{address} on blocklists", backwards, lists):
            yield finding


async def domains(resolver: Resolver, given: Iterable[str], lists: Sequence[str]) -> AsyncIterator[Diagnosis]:
    for domain in given:
        async for finding in _on(resolver, f"{domain} on blocklists", domain, lists):
            yield finding


_TESTS = ("2.0.0.127", "test", "dbltest.com")
"""Entries that a list always has, by which one sees whether it answers (RFC 5782, 5): of addresses, of names, and that
of Spamhaus' list of domains."""


async def _answers(resolver: Resolver, one: str) -> bool:
    """Whether it says of a test entry that it has that: else what it says of others means nothing."""
    return any(await asyncio.gather(*(_asked(resolver, f"{name}.{one}") for name in _TESTS)))


async def _on(resolver: Resolver, about: str, name: str, lists: Sequence[str]) -> AsyncIterator[Diagnosis]:
    answers = await asyncio.gather(*(_asked(resolver, f"{name}.{one}") for one in lists))
    there = [answer or await _answers(resolver, one) for one, answer in zip(lists, answers, strict=True)]
    silent = [one for one, answer, heard in zip(lists, answers, there, strict=True) if answer is None or not heard]
    free = [one for one, answer, heard in zip(lists, answers, there, strict=True) if answer == "" and heard]
    for one, answer in zip(lists, answers, strict=True):
        if answer:
            yield problem(
                about, f"{one} lists it: {answer}", f"find out why at the site of {one}, then ask to be removed"
            )
    if free:
        yield ok(about, f"not listed by {', '.join(free)}")
    if silent:
        yield note(
            about,
            f"{', '.join(silent)} did not answer, not even for a test entry; many refuse public resolvers",
            "set dns.servers to your own",
        )


async def _asked(resolver: Resolver, name: str) -> str | None:
    """Why it is listed; "" if it is not; None: there was no answer that counts."""
    try:
        found = [ipaddress.ip_address(value) for value in (await resolver.records(name, "A", 0.0)).values]
        if any(address in _REFUSED for address in found):
            return None
        if not any(address in _LISTED for address in found):
            return ""
        texts = await resolver.texts(name)
    except NoRoute:
        return None
    return "; ".join(texts) or ", ".join(map(str, found))
