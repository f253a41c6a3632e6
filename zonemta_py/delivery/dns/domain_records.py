"""The DNS records of a sender domain: what has to be published, and what is there.

DKIM (RFC 6376 3.6.1) for each of its keys; for return paths an MX that leads here, and SPF (RFC 7208) that passes for
each source address, so that it is aligned with From (RFC 7489 3.1.2); for links an address that they can be asked at.
DMARC is advised. What DNS could not be asked for is unknown, which changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zonemta_py.config import Config
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.delivery.dns.spf import Spf
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.sender_domain import LINK, RETURN_PATH, SPF

DMARC = "dmarc"
_STRING_MAX = 255
_SOURCES_MAX = 64
OK, MISSING, WRONG, UNKNOWN = "ok", "missing", "wrong", "unknown"


class WantedRecord(NamedTuple):
    """record: a key's selector, RETURN_PATH, SPF, LINK or DMARC. why: what it is for."""

    record: str
    name: str
    type: str
    value: str
    why: str

    @property
    def line(self) -> str:
        """As it stands in a zone file: strings of at most 255 octets."""
        if self.type != "TXT":
            return f"{self.name}. IN {self.type} {self.value}."
        strings = [self.value[at : at + _STRING_MAX] for at in range(0, len(self.value), _STRING_MAX)]
        return f"{self.name}. IN TXT " + " ".join(f'"{string}"' for string in strings)


def wanted(config: Config, domain: Mapping[str, Any]) -> list[WantedRecord]:
    """What has to be published. domain: as the queue answers (`questions.DomainRow`)."""
    rows = [
        WantedRecord(key["selector"], key["name"], "TXT", key["record"], _WHY[key["state"]]) for key in domain["keys"]
    ]
    if path := domain["return_path"]:
        mechanisms = " ".join(_mechanism(one) for one in sources(config)) or f"a:{config.server.name}"
        rows.append(WantedRecord(RETURN_PATH, path, "MX", f"10 {config.server.name}", "bounces come back here"))
        rows.append(WantedRecord(SPF, path, "TXT", f"v=spf1 {mechanisms} ~all", "its sources may send for it"))
    if link := domain["link"]:
        rows.append(WantedRecord(LINK, link, "CNAME", _links_host(config), "links in its mail lead here"))
    rows.append(WantedRecord(DMARC, f"_dmarc.{domain['name']}", "TXT", "v=DMARC1; p=none", "big receivers ask for it"))
    return rows


_WHY = {
    "waits": "its key signs once this is there", "signs": "its key signs", "retired": "mail on its way is signed by it"
}  # fmt: skip


def sources(config: Config) -> list[str]:
    """Addresses that mail is sent from, as others see them; those that nobody else can see are left out."""
    there = {source.address for zone in config.zones if not zone.host for source in config.sources(zone)}
    return sorted(one for one in there if not refusal(one))[:_SOURCES_MAX]


async def look(resolver: Resolver, config: Config, domain: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """By record, what DNS says: OK, MISSING, WRONG or UNKNOWN, and what is there instead."""
    rows = wanted(config, domain)
    found = await asyncio.gather(*(_one(resolver, config, row) for row in rows))
    return {row.record: said for row, said in zip(rows, found, strict=True)}


async def _one(resolver: Resolver, config: Config, row: WantedRecord) -> tuple[str, str]:
    try:
        if row.record == RETURN_PATH:
            return await _leads_here(resolver, config, row.name)
        if row.record == SPF:
            return await _spf(resolver, config, row.name)
        if row.record == LINK:
            return await _link(resolver, config, row.name)
        if row.record == DMARC:
            return await _dmarc(resolver, row.name)
        return _dkim(await resolver.texts(row.name), row.value)
    except NoRoute as error:
        return UNKNOWN, error.reply.text


def _dkim(texts: Iterable[str], record: str) -> tuple[str, str]:
    from zonemta_py.mail.dkim.record import parse

    there = [tags for tags in map(parse, texts) if "p" in tags]
    public = parse(record)["p"]
    if not there:
        return MISSING, "there is no such record"
    if len(there) > 1:
        return WRONG, f"there are {len(there)} records, and there may be one"
    if "".join(there[0]["p"].split()) != public:
        return WRONG, "it has another key" if there[0]["p"].strip() else "the key is revoked (p= is empty)"
    if "y" in there[0].get("t", "").split(":"):
        return WRONG, "it is only being tested (t=y); remove that flag"
    return OK, ""


async def _leads_here(resolver: Resolver, config: Config, domain: str) -> tuple[str, str]:
    hosts = [str(host).rstrip(".").lower() for _, host in (await resolver.records(domain, "MX", 0.0)).values]
    if not hosts:
        return MISSING, "there is no MX"
    if config.server.name.lower() in hosts:
        return OK, ""
    here = await _addresses(resolver, config.server.name) | {
        str(ipaddress.ip_address(one.address)) for one in config.listeners if one.feedback
    }
    for host in hosts:
        if here & await _addresses(resolver, host):
            return OK, ""
    return WRONG, f"mail for it goes to {', '.join(hosts)}"


async def _spf(resolver: Resolver, config: Config, domain: str) -> tuple[str, str]:
    places = sources(config)
    if not places:
        texts = [text for text in await resolver.texts(domain) if text.lower().startswith("v=spf1")]
        return (OK, "") if texts else (MISSING, "there is no SPF record")
    async for address, result, words in _verdicts(resolver, config, domain, places):
        if result == "temperror":
            return UNKNOWN, words
        if result == "none":
            return MISSING, "there is no SPF record"
        if result != "pass":
            return WRONG, f"{result} for {address}"
    return OK, ""


async def _verdicts(
    resolver: Resolver, config: Config, domain: str, places: list[str]
) -> AsyncIterator[tuple[str, str, str]]:
    for address in places:
        yield address, *await Spf(resolver).verdict(f"postmaster@{domain}", address, config.server.name)


async def _link(resolver: Resolver, config: Config, name: str) -> tuple[str, str]:
    there = await _addresses(resolver, name)
    if not there:
        return MISSING, "it has no address"
    if there & await _addresses(resolver, _links_host(config)):
        return OK, ""
    return WRONG, f"it leads to {', '.join(sorted(there))}"


async def _dmarc(resolver: Resolver, name: str) -> tuple[str, str]:
    labels = name.removeprefix("_dmarc.").split(".")
    for at in range(len(labels) - 1):
        texts = await resolver.texts(f"_dmarc.{'.'.join(labels[at:])}")
        if found := [text for text in texts if text.lower().startswith("v=dmarc1")]:
            return (OK, "") if len(found) == 1 else (WRONG, f"there are {len(found)} records, which count as none")
    return MISSING, "there is no such record"


async def _addresses(resolver: Resolver, name: str) -> set[str]:
    """Of both kinds, in one spelling. Raises NoRoute."""
    found = await asyncio.gather(*(resolver.records(name, kind, 0.0) for kind in ("A", "AAAA")))
    return {str(ipaddress.ip_address(address)) for answer in found for address in answer.values}


def _links_host(config: Config) -> str:
    return urlsplit(config.links.url).hostname or config.server.name


def _mechanism(address: str) -> str:
    return f"ip{ipaddress.ip_address(address).version}:{address}"
