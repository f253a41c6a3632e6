"""Which source IP of a pool a message takes: weighted rendezvous hashing.

Each address draws a number for each key (the message's id), and the least of number / weight wins (D. Thaler,
C. Ravishankar: A Name-Based Mapping Scheme for Rendezvous, 1998; with exponential draws shares follow the weights).

Promise: the same key always finds the same address, after a restart and in every process, while it is usable. Mail of
an address that is blocked or removed goes to the others as their weights, and no other mail moves; so greylisting
servers see one address (RFC 6647 section 2.3).

Pure: the caller is asked whether an address is usable, and only for those that would win.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import inf, log

from zonemta_py.config.sources import Source
from zonemta_py.mail.addresses.domain import canonical

_DRAWS = 2.0**64


def choose(sources: Sequence[Source], key: str, usable: Callable[[Source], bool]) -> Source | None:
    """The source for this key; None: none is usable. key: the same for all attempts, such as the message's id."""
    best, lowest = None, inf
    for source in sources:
        place = _draw(key, source.address) / source.weight
        if place < lowest and usable(source):
            best, lowest = source, place
    return best


def _draw(key: str, address: str) -> float:
    """An exponentially distributed number that is always the same for this key and address."""
    digest = blake2b(f"{key} {address}".encode(), digest_size=8).digest()
    return -log((int.from_bytes(digest, "big") + 0.5) / _DRAWS)


def disabled(source: Source, domain: str) -> bool:
    """Whether the configuration keeps this address from that recipient domain (`disabled_domains`).

    "*.example.com" matches every subdomain, not example.com itself; "*" matches all.
    """
    rules = source.disabled_domains
    return bool(rules) and _matches(_compiled(tuple(rules)), domain)


@lru_cache(1024)
def _compiled(rules: tuple[str, ...]) -> frozenset[str]:
    """Exact names as they are, wildcards as ".example.com" and "."."""
    return frozenset(
        "." + canonical(rule[2:]) if rule.startswith("*") else canonical(rule)
        for rule in rules
    )  # fmt: skip


def _matches(rules: frozenset[str], domain: str) -> bool:
    rest = canonical(domain)
    if rest in rules or "." in rules:
        return True
    while rest:
        rest = rest.partition(".")[2]
        if "." + rest in rules:
            return True
    return False
