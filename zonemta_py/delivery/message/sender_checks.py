"""Looks at a message as it is about to be sent for what big receivers ask of who sends much, and DMARC of everybody.

What is judged is what is sent: its own header section with our fields and signatures, its return path for MAIL, and all
source addresses of its zone. What DNS cannot be asked for is no fault. Answers of DNS are kept for an hour. Notices and
other mail with the null return path are not looked at.

Failures: `look` raises NotFit, with the outcome for the recipients.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import NamedTuple

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.mail.addresses.authors import author_domain
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.report import count
from zonemta_py.queue.api import Delivery

log = logging.getLogger(__name__)

KEPT_S, KEPT_MAX = 3_600.0, 5_000
SAID_S = 600.0
"""How often a line says the same of one domain."""
_UNFOLDED = re.compile(rb"\r\n(?=[ \t])")
_TAG_D = re.compile(rb";\s*d\s*=\s*([^\s;]+)", re.IGNORECASE)
_ONE_CLICK = re.compile(rb"list-unsubscribe\s*=\s*one-click", re.IGNORECASE)


class NotFit(Exception):
    """Mail that is not to be sent so. hold: it waits for an operator; else it bounces."""

    def __init__(self, sentence: str, hold: bool) -> None:
        super().__init__(sentence)
        self.reply, self.hold = Reply(550, "5.7.1", sentence), hold


class Found(NamedTuple):
    """What a check has found. words: what is wrong, after the name of what was looked at."""

    check: str
    words: str


class SenderChecks:
    """For one process."""

    def __init__(self, config: Config) -> None:
        dns = config.dns
        self._resolver = Resolver(dns.servers or None, dns.port, timeout_s=dns.timeout_s)
        self._config = config
        self._kept = OrderedDict[tuple[str, str], tuple[float, str]]()
        self._said = OrderedDict[tuple[str, str, str], float]()

    async def look(self, zone: Zone, delivery: Delivery, return_path: str, section: bytes) -> None:
        """Raises NotFit. return_path: for MAIL. section: the header section as it is sent."""
        if not delivery.sender or (zone.sender_check_tenants and delivery.tenant not in zone.sender_check_tenants):
            return
        found = [one async for one in self._found(zone, delivery, return_path, section)]
        for check in {one.check for one in found}:
            count("zonemta_sender_checks_total", (zone.name, check, zone.sender_checks))
        if not found:
            return
        sentence = "not fit to be sent: " + "; ".join(one.words for one in found)
        if zone.sender_checks == "warn":
            self._warn(zone, delivery, sentence)
        else:
            raise NotFit(sentence[:900], zone.sender_checks == "hold")

    async def _found(
        self, zone: Zone, delivery: Delivery, return_path: str, section: bytes
    ) -> AsyncIterator[Found]:  # fmt: skip
        checks = zone.sender_check_names
        fields = _fields(section)
        author = author_domain(fields.get(b"from", [b""])[0])
        back = canonical(return_path.rpartition("@")[2])
        signers = [d for one in fields.get(b"dkim-signature", []) if (d := _signer(one))]
        if "signed" in checks and not signers:
            yield Found("signed", f"no key signs mail from {author or 'nobody'}")
        if "aligned" in checks and not any(_aligned(author, one) for one in (*signers, back)):
            others = ", ".join(dict.fromkeys((*signers, back)))
            yield Found("aligned", f"From is at {author or 'no domain'}, signature and return path are of {others}")
        if "unsubscribe" in checks and _is_bulk(zone, delivery, fields) and not _has_one_click(fields):
            yield Found("unsubscribe", "a newsletter without a one-click unsubscribe (RFC 8058)")
        for address in self._sources(zone) if {"spf", "reverse"}.intersection(checks) else ():
            if "spf" in checks and back and (words := await self._cached("spf", back, address)):
                yield Found("spf", words)
            if "reverse" in checks and (words := await self._cached("reverse", "", address)):
                yield Found("reverse", words)

    def _sources(self, zone: Zone) -> list[str]:
        """As others see them; those that nobody can see are left out, and where a smart host sends."""
        if zone.host:
            return []
        return [one.address for one in self._config.sources(zone) if not refusal(one.address)]

    async def _cached(self, check: str, domain: str, address: str) -> str:
        """What is wrong; "": nothing, or it is not known."""
        place, now = (f"{check} {domain}", address), time.monotonic()
        kept = self._kept.get(place)
        if kept is None or now >= kept[0] + KEPT_S:
            words = await (self._spf(domain, address) if check == "spf" else self._reverse(address))
            kept = self._kept[place] = now, words
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return kept[1]

    async def _spf(self, domain: str, address: str) -> str:
        from zonemta_py.delivery.dns.spf import Spf  # here: pyspf, where it is wanted

        result, _ = await Spf(self._resolver).verdict(f"postmaster@{domain}", address, self._config.server.name)
        return f"SPF of {domain} says {result} of {address}" if result not in ("pass", "temperror") else ""

    async def _reverse(self, address: str) -> str:
        try:
            names = (await self._resolver.records(ipaddress.ip_address(address).reverse_pointer, "PTR", 0.0)).values
            for name in names:
                for kind in ("A", "AAAA"):
                    there = (await self._resolver.records(str(name), kind, 0.0)).values
                    if ipaddress.ip_address(address) in map(ipaddress.ip_address, there):
                        return ""
        except NoRoute:
            return ""
        return f"{address} has no name in DNS (PTR) that leads back to it"

    def _warn(self, zone: Zone, delivery: Delivery, sentence: str) -> None:
        """Once in a while."""
        place, now = (zone.name, delivery.sender.rpartition("@")[2], sentence), time.monotonic()
        if now < self._said.get(place, float("-inf")) + SAID_S:
            return
        self._said[place] = now
        self._said.move_to_end(place)
        if len(self._said) > KEPT_MAX:
            self._said.popitem(last=False)
        log.warning("zone %s: mail of %s (message %s) is %s", zone.name, place[1], delivery.id, sentence)


def _fields(section: bytes) -> dict[bytes, list[bytes]]:
    """Unfolded values, by name in lower case."""
    found = dict[bytes, list[bytes]]()
    for line in _UNFOLDED.sub(b"", section).split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.strip().lower(), []).append(value)
    return found


def _signer(signature: bytes) -> str:
    found = _TAG_D.search(b";" + signature)
    return canonical(found[1].decode("ascii", "replace")) if found else ""


def _aligned(author: str, other: str) -> bool:
    """Relaxed (RFC 7489 3.1), without a list of public suffixes: one is at or below the other, or they share the three
    labels, or the two where the last one but one is long."""
    if not author or not other:
        return False
    if author == other or author.endswith(f".{other}") or other.endswith(f".{author}"):
        return True
    ours, theirs = author.split("."), other.split(".")
    labels = 2 if len(ours) > 1 and len(ours[-2]) > 3 else 3
    return len(ours) > labels - 1 and ours[-labels:] == theirs[-labels:]


def _is_bulk(zone: Zone, delivery: Delivery, fields: dict[bytes, list[bytes]]) -> bool:
    return zone.campaigns or bool(delivery.campaign) or b"list-id" in fields


def _has_one_click(fields: dict[bytes, list[bytes]]) -> bool:
    links = b"".join(fields.get(b"list-unsubscribe", []))
    return b"<https://" in links.lower() and any(map(_ONE_CLICK.search, fields.get(b"list-unsubscribe-post", [])))
