"""`zonemta doctor`: looks at all that the MTA depends on, and says what to do about what is wrong.

Nothing is changed, no mail is sent, and nothing is connected to but our own `links.url`, a cluster's NATS servers, and
what `--probe` names.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from textwrap import fill
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from zonemta_py.cli.service.diagnosis import Diagnosis, Level, note, ok, problem, warning
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, tabled
from zonemta_py.cli.terminal.output import as_records, columns_chosen, print_aside, print_json, print_table, printable
from zonemta_py.config import Config, ConfigError
from zonemta_py.processes.privileges import seen_by

_INDENT = 9
_NAMED_MAX = 20
FAILED = "DNS lookup of"
"""How the resolver begins to tell of a lookup without an answer."""

if TYPE_CHECKING:
    from zonemta_py.delivery.dns.resolver import Resolver


@tabled
def doctor(
    config: ConfigFile = None,
    folder: Folder = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="IP", help="Public address, if it differs from the source addresses (NAT)."),
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option("--domain", metavar="DOMAIN", help="Also check this sender domain.")
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option("--probe", metavar="DOMAIN", help="Connect to port 25 of this domain's first MX, and disconnect."),
    ] = None,
    blocklist: Annotated[
        list[str] | None,
        typer.Option("--blocklist", metavar="NAME", help="Query these blocklists instead of the default ones."),
    ] = None,
    dns: Annotated[bool, typer.Option("--dns/--no-dns", help="Query DNS.")] = True,
    json: AsJson = False,
) -> None:
    """Check what the MTA depends on: ports, system limits, disk, clock, cluster, certificates, DNS, blocklists.

    Exit status 1: a problem was found.
    """
    from zonemta_py.cli.service import machine

    settings, address = configuration(config, folder), [_address(one) for one in address or ()]
    findings = asyncio.run(
        _all(settings, [*machine.user_findings(settings)], address, domain or [], probe, blocklist, dns)
    )
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        rank = list(Level)
        _print(sorted(findings, key=lambda one: -rank.index(one.level)))
        counts = Counter(one.level for one in findings)
        print_aside(", ".join(f"{counts[level]} × {level}" for level in reversed(Level) if counts[level]))
    if any(one.level is Level.PROBLEM for one in findings):
        raise CommandError(Exit.PROBLEMS)


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise CommandError(Exit.USAGE, f"--address: {text!a} is not an IP address; write one like 192.0.2.10") from None


def _print(findings: Sequence[Diagnosis]) -> None:
    """A table for programs, and for who chooses columns; for people lines, which have room on any terminal."""
    if as_records() or columns_chosen():
        return print_table("", ("level", "about", "found", "remedy"), [(one.level, *one[1:]) for one in findings])
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for one in findings:
        lines = [
            f"{one.level:<{_INDENT}}{one.about}: {one.words}",
            *[f"{'':<{_INDENT}}-> {one.remedy}"] * bool(one.remedy),
        ]
        for line in lines:
            print(printable(fill(line, width, subsequent_indent=" " * _INDENT, break_long_words=False)))
    return None


async def _all(
    config: Config, before: Sequence[Diagnosis], given: Sequence[str], domains: Sequence[str], probe: str | None,
    lists: Sequence[str] | None, ask_dns: bool,
) -> list[Diagnosis]:  # fmt: skip
    from zonemta_py.cli.service import machine, return_path

    with seen_by(config):
        findings = [*before, *_certificates(config)]
    findings += await asyncio.to_thread(lambda: list(machine.findings(config, _runs(config))))
    findings += return_path.doubts(config)
    if config.cluster.enabled:
        from zonemta_py.cli.service import cluster_health

        findings += await cluster_health.findings(config)
    if not ask_dns:
        return [*findings, note("DNS", "was not asked (--no-dns)")]
    direct = [zone for zone in config.zones if not (zone.host or zone.pulled)]
    addresses = [*given] or sorted({source.address for zone in direct for source in config.sources(zone)})
    addresses = addresses or (machine.outward() if direct else [])
    if direct and not addresses:
        findings.append(warning(
            "way out", "this machine has no route to other networks",
            "give it an address and a default route, or send through a smart host on its own network",
        ))  # fmt: skip
    if not direct:
        findings.append(note("DNS", "all mail goes to smart hosts, whose addresses others see: see to theirs"))
    names = sorted({*domains, *_domains(config)})
    by_dns = [one async for one in _by_dns(config, addresses, names, probe, lists)]
    linked = [await reached(config)] if config.links.enabled else []
    return [*findings, *unanswered(by_dns), *by_dns, *linked]


def unanswered(by_dns: Sequence[Diagnosis]) -> list[Diagnosis]:
    """What it means if DNS has answered nothing at all."""
    failed = [one for one in by_dns if one.level is Level.NOTE and FAILED in one.words]
    if not failed or any(one.level in (Level.OK, Level.PROBLEM) for one in by_dns):
        return []
    remedy = "mend /etc/resolv.conf, or set dns.servers to name servers that answer"
    return [problem("DNS", "no name server answers, so no mail finds its way", remedy)]


async def _by_dns(
    config: Config, addresses: list[str], domains: list[str], probe: str | None, lists: Sequence[str] | None
) -> AsyncIterator[Diagnosis]:
    from zonemta_py.cli.service import blocklists, machine, names, return_path

    resolver = names.of(config)
    if addresses:
        async for finding in names.hostname(resolver, config.server.name, addresses):
            yield finding
    for one in addresses:
        yield await names.reverse(resolver, one)
    for domain in domains:
        yield await names.returns(resolver, domain)
        async for finding in names.spf(resolver, domain, addresses, config.server.name):
            yield finding
        yield await names.dmarc(resolver, domain)
    async for finding in return_path.found(resolver, config, addresses or machine.outward()):
        yield finding
    for finding in await _dkim(config):
        yield finding
    if config.server.sender_domains:
        for finding in await _sender_domains(config):
            yield finding
    async for finding in blocklists.addresses(resolver, addresses, lists or blocklists.OF_ADDRESSES):
        yield finding
    if not lists:
        async for finding in blocklists.domains(resolver, domains, blocklists.OF_DOMAINS):
            yield finding
    if probe:
        host = await _first_host(resolver, probe)
        yield (
            await asyncio.to_thread(machine.port_25, host)
            if host
            else problem(f"way out to {probe}", "it has no mail host in DNS", "name a domain that gets mail")
        )


async def _first_host(resolver: Resolver, domain: str) -> str:
    from zonemta_py.mail.classify import NoRoute

    try:
        hosts = sorted((await resolver.records(domain, "MX", 0.0)).values)
        return str(hosts[0][1]) if hosts else domain if (await resolver.records(domain, "A", 0.0)).values else ""
    except NoRoute:
        return ""


async def _dkim(config: Config) -> list[Diagnosis]:
    from zonemta_py.cli.config.dkim import examine

    if not config.dkim and config.server.sender_domains:
        return []
    if not config.dkim:
        return [warning("DKIM", "nothing is signed", "`zonemta dkim new DOMAIN SELECTOR` makes a key")]
    findings = []
    for one in await examine(config, config.dkim):
        about, words = f"DKIM key {one.name}", ": ".join(filter(None, (one.status, "; ".join(one.notes))))
        if one.good:
            findings.append(ok(about, words))
        elif one.status == "no answer":
            findings.append(note(about, words))
        else:
            findings.append(problem(about, words, "`zonemta dkim check` prints the record to publish"))
    return findings


async def _sender_domains(config: Config) -> list[Diagnosis]:
    """As DNS was asked last; of few, each that lacks something is named."""
    from zonemta_py.cli.service import domain

    about, remedy = "sender domains", "`zonemta domain check` asks DNS, and prints what to publish"
    try:
        rows = await asyncio.to_thread(lambda: list(domain.every(config)))
    except CommandError as error:
        return [note(about, f"the queue cannot be asked: {error}")]
    lacking = [(row["name"], domain.lacking(row)) for row in rows if domain.lacking(row)]
    if not lacking:
        return [ok(about, f"{len(rows):,}, whose records were all right when DNS was asked last")]
    named = [problem(f"sender domain {name}", f"lacks in DNS: {words}", remedy) for name, words in lacking[:_NAMED_MAX]]
    more = len(lacking) - len(named)
    return [*named, *[problem(about, f"{more:,} more lack something in DNS", remedy)] * bool(more)]


def _certificates(config: Config) -> list[Diagnosis]:
    from zonemta_py.cli.config import certificates

    remedy = "renew it; `zonemta config check FILE` says more"
    try:
        soon = [warning("certificates", one.removeprefix("warning: "), remedy) for one in _soon(config)]
    except (ConfigError, OSError, ValueError) as error:
        return [problem("certificates", str(error), remedy)]
    return soon or [ok("certificates", f"none ends within {certificates.SOON.days} days")]


def _soon(config: Config) -> list[str]:
    from zonemta_py.cli.config import certificates

    return list(certificates.doubts(config, datetime.now(UTC)))


def _domains(config: Config) -> set[str]:
    """Domains that mail is sent from, as far as the configuration names them."""
    named = {domain for zone in config.zones for domain in zone.sender_domains}
    named |= {key.domain for key in config.dkim if key.state == "active"}
    named |= {domain for domain in (config.return_path.verp, config.return_path.srs) if domain}
    return {domain.lower().rstrip(".") for domain in named if "*" not in domain and "@" not in domain}


def _runs(config: Config) -> bool | None:
    """None: that cannot be seen by who asks."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(config.folder / "socket"))
        except PermissionError:
            return None
        except OSError:
            return False
    return True


HELLO = b"zonemta links\n"


async def reached(config: Config) -> Diagnosis:
    """Of a configuration that has links."""
    from zonemta_py.delivery.tls.https import HttpsFailed, get

    about, url = f"links {config.links.url}", urlsplit(config.links.url)
    host, port = url.hostname or "", url.port or 443
    try:
        loop = asyncio.get_running_loop()
        rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return problem(about, f"{host} cannot be looked up ({error.strerror})", "publish its address in DNS")
    context = ssl.create_default_context(cafile=str(config.tls.ca_file) if config.tls.ca_file else None)
    addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
    try:
        said = await get(
            host, port, f"{url.path}/health", addresses, context, kind="text/plain", bytes_max=1_000,
            barred=lambda _: "",
        )  # fmt: skip
    except HttpsFailed as failed:
        remedy = "start the MTA, let the proxy pass it on, or renew the certificate; providers give up on what fails"
        return problem(about, str(failed), remedy)
    if said != HELLO:
        return problem(about, "another program answers there", f"pass {url.path}/ on to links.address and links.port")
    return ok(about, "is answered by this program")
