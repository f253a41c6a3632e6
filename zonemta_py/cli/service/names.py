"""What DNS says about this machine and the domains it sends for: names of addresses, SPF, DKIM, DMARC.

Big receivers ask for a name that leads back to the address (RFC 5321 4.1.4, RFC 8601 2.7.3), SPF (RFC 7208) or DKIM for
each sender, and DMARC (RFC 7489) from those who send much. A record that DNS could not be asked for is a note, since it
says nothing about the record.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterable

from zonemta_py.cli.service.diagnosis import Diagnosis, note, ok, problem, warning
from zonemta_py.config import Config
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.delivery.dns.spf import Spf
from zonemta_py.mail.classify import NoRoute


def of(config: Config) -> Resolver:
    """A resolver as the MTA has one."""
    dns = config.dns
    return Resolver(dns.servers or None, dns.port, timeout_s=dns.timeout_s)


async def hostname(resolver: Resolver, name: str, addresses: list[str]) -> AsyncIterator[Diagnosis]:
    """The name in EHLO exists; that of each address leads back to it."""
    about = f"host name {name}"
    if "." not in name:
        yield problem(about, "is not a full name", 'set server.hostname = "mail.example.com", a name that is in DNS')
        return
    try:
        there = await addresses_of(resolver, name)
    except NoRoute as error:
        yield note(about, error.reply.text)
        return
    if not there:
        yield problem(about, "has no address in DNS", f"publish: {name}. IN A {addresses[0] if addresses else '…'}")
    elif addresses and not there & set(addresses):
        yield warning(
            about, f"is {', '.join(sorted(there))}, from where nothing is sent", "let it be an address that sends"
        )
    else:
        yield ok(about, f"is {', '.join(sorted(there))}")


async def reverse(resolver: Resolver, address: str) -> Diagnosis:
    """Whether the address has a name that leads back to it."""
    about = f"source address {address}"
    if why := refusal(address):
        return note(
            about, f"cannot be checked: {why}", "give the address that others see, such as `--address 192.0.2.10`"
        )
    try:
        names = (await resolver.records(ipaddress.ip_address(address).reverse_pointer, "PTR", 0.0)).values
        for name in names:
            if address in await addresses_of(resolver, name):
                return ok(about, f"is {name}, and {name} is {address}")
    except NoRoute as error:
        return note(about, error.reply.text)
    if not names:
        return problem(
            about, "has no name in DNS (PTR), so that many servers refuse its mail", "ask the provider of the address"
        )
    return problem(
        about, f"is {', '.join(names)}, which does not lead back to it", f"publish: {names[0]}. IN A {address}"
    )


async def spf(resolver: Resolver, domain: str, addresses: Iterable[str], helo: str) -> AsyncIterator[Diagnosis]:
    """Whether each address may send for the domain."""
    for address in addresses:
        about = f"SPF of {domain} for {address}"
        if refusal(address):
            yield note(about, "cannot be checked: the address that others see is not known")
            continue
        result, words = await Spf(resolver).verdict(f"postmaster@{domain}", address, helo)
        remedy = f'publish: {domain}. IN TXT "v=spf1 {_mechanism(address)} ~all", or add {_mechanism(address)} to it'
        if result == "pass":
            yield ok(about, "pass")
        elif result == "temperror":
            yield note(about, f"DNS could not be asked: {words}")
        elif result == "permerror":
            yield problem(about, f"the record is wrong: {words}", "correct it")
        elif result == "fail":
            yield problem(about, "fail: receivers are asked to refuse this mail", remedy)
        else:
            yield warning(about, f"{result}: no record authorizes it", remedy)


def _mechanism(address: str) -> str:
    return f"ip{ipaddress.ip_address(address).version}:{address}"


async def dmarc(resolver: Resolver, domain: str) -> Diagnosis:
    """Whether there is a policy, for the domain or for the one above it."""
    about = f"DMARC of {domain}"
    labels = domain.split(".")
    try:
        for at in range(len(labels) - 1):
            name = f"_dmarc.{'.'.join(labels[at:])}"
            texts = [text for text in await resolver.texts(name) if text.lower().startswith("v=dmarc1")]
            if len(texts) > 1:
                return problem(about, f"{name} has {len(texts)} records, which count as none", "leave one")
            if texts:
                return ok(about, f"{name}: {texts[0]}")
    except NoRoute as error:
        return note(about, error.reply.text)
    return warning(
        about, "none, which big receivers ask of those who send much",
        f'publish: _dmarc.{domain}. IN TXT "v=DMARC1; p=none"',
    )  # fmt: skip


async def returns(resolver: Resolver, domain: str) -> Diagnosis:
    """Whether mail to a sender's domain, a bounce for one, can arrive anywhere."""
    about = f"mail to {domain}"
    try:
        hosts = [host for _, host in (await resolver.records(domain, "MX", 0.0)).values]
        if hosts == ["."] or hosts == [""]:
            return problem(
                about, "is not accepted (null MX), so mail from there is refused", "send from another domain"
            )
        if hosts:
            return ok(about, f"is taken by {', '.join(hosts)}")
        if await addresses_of(resolver, domain):
            return ok(about, "is taken by the domain's own host")
    except NoRoute as error:
        return note(about, error.reply.text)
    return problem(
        about, "has nowhere to go: no MX, no address; many servers refuse such senders", f"publish an MX of {domain}"
    )


async def addresses_of(resolver: Resolver, name: str) -> set[str]:
    """Of both kinds, in one spelling. Raises NoRoute."""
    found = await asyncio.gather(*(resolver.records(name, kind, 0.0) for kind in ("A", "AAAA")))
    return {str(ipaddress.ip_address(address)) for answer in found for address in answer.values}
