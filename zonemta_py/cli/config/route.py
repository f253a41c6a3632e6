"""`zonemta route`: which zone and which source addresses a recipient's mail would take, and why. Nothing is sent.

The message goes the way of any other: a receiver's own code reads its header section, and leaves of it what stays with
the envelope; account, zones and plugins see that and nothing else. Asks the configuration, not the running MTA: rests
and blocks that were learnt are in `zonemta explain`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields
from ipaddress import ip_address
from typing import Annotated, Any

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration, readable
from zonemta_py.cli.terminal.output import print_json, print_table, printable
from zonemta_py.config import Config, Listener, Source, Zone
from zonemta_py.mail.address import AddressRefused, parse_mail, parse_rcpt
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Routing
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.queue_hooks import PluginHooks
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, PluginFailed, Verdict
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.hooks import Routed, chosen
from zonemta_py.zones.destinations import Destinations
from zonemta_py.zones.pool import disabled
from zonemta_py.zones.router import Router
from zonemta_py.zones.zone import destination

_COLUMNS = ("looked at", "value", "rule", "zone", "why")


@readable
def route(
    sender: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Return path; <> for the null sender.")],
    to: Annotated[list[str], typer.Option("--to", metavar="ADDRESS", help="Recipient; repeatable.")],
    origin: Annotated[str, typer.Option(metavar="IP", help="IP address of the submitting client.")] = "127.0.0.1",
    header: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help='A header field, "Name: value"; repeatable.')
    ] = None,
    zone_header: Annotated[
        str | None, typer.Option("--zone-header", metavar="ZONE", help="Value of X-Sending-Zone.")
    ] = None,
    user: Annotated[str, typer.Option(metavar="USER", help="Login of the submitting client.")] = "",
    listener: Annotated[
        str | None, typer.Option(metavar="NAME", help="Listener that receives it; default: the first.")
    ] = None,
    plugins: Annotated[
        bool, typer.Option("--plugins", help="Also run the plugins' hooks (message_headers, queue_route).")
    ] = False,
    dns: Annotated[
        bool, typer.Option("--dns", help="Look up the destination's hosts, site and provider in DNS.")
    ] = False,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show which zone a message would be routed to, and why."""
    settings = configuration(config)
    host = _host(settings)
    envelope = _envelope(sender, to, origin, user)
    section = _fields([*(header or []), *([f"X-Sending-Zone: {zone_header}"] if zone_header else [])])
    hooks = _TracedHooks(host) if plugins else None
    answers = asyncio.run(_answers(settings, _listener(settings, listener), host, envelope, section, hooks, dns))
    if json:
        return print_json(answers)
    for answer in answers:
        _show(answer)
    return None


class _TracedHost(Host):
    """The same plugins, asked one by one at queue_route. steps: of the recipient that was asked about last: plugin,
    what it has set, and its verdict, if it had one."""

    def __init__(self, host: Host) -> None:
        super().__init__((call for name in HOOKS for call in host.calls(name)), host.apis)
        self.steps: list[dict[str, Any]] = []
        self.ignored: list[str] = []
        """What they have set in vain."""

    async def call(self, name: str, /, **arguments: Any) -> None:
        if name != "queue_route":
            return await super().call(name, **arguments)
        self.steps, self.ignored, routing = [], [], arguments["routing"]
        for call in self.calls(name):
            before, step = copy.deepcopy(dict(_values(routing))), dict[str, Any](plugin=call.plugin)
            self.steps.append(step)
            try:
                await self.only({call.plugin}).call(name, **arguments)
            except Verdict as verdict:
                step["verdict"] = _in_words(verdict)
                raise
            finally:
                step["set"] = {field: value for field, value in _values(routing) if value != before[field]}
        return None


def _in_words(verdict: Verdict) -> str:
    match verdict:
        case PluginFailed():
            return f"fails: {verdict.problem}"
        case Hold():
            return f"holds this recipient: {verdict.reason}"
        case Drop():
            return f"drops this recipient: {verdict.reason}"
        case Defer():
            return f"puts this recipient off for {verdict.seconds:.0f} s: {verdict.reply}"
    return f"refuses this recipient: {verdict.reply}"


def _values(routing: Routing) -> Iterator[tuple[str, Any]]:
    """For people: of a login the user alone."""
    for one in (one for one in fields(routing) if not one.name.startswith("_")):
        value = getattr(routing, one.name)
        yield one.name, value[0] if one.name == "auth" and value else value


class _TracedHooks(PluginHooks):
    def __init__(self, host: Host) -> None:
        self.traced = _TracedHost(host)
        super().__init__(self.traced)

    def ignore(self, sentence: str) -> None:
        self.traced.ignored.append(sentence)


def _envelope(sender: str, to: list[str], origin: str, user: str) -> Envelope:
    try:
        return_path = parse_mail(f"<{sender.strip('<> ')}> SMTPUTF8").address
        recipients = [parse_rcpt(f"<{address.strip('<> ')}>", smtputf8=True)[0] for address in to]
    except AddressRefused as refused:
        raise CommandError(Exit.USAGE, f"{refused.reply.text}; give --from and --to as user@example.com") from None
    try:
        ip_address(origin)
    except ValueError:
        raise CommandError(
            Exit.USAGE, f"{origin!a} is not an IP address; give --origin as 192.0.2.1 or 2001:db8::1"
        ) from None
    return Envelope(return_path, recipients, origin=origin, user=user or None)


def _fields(header: list[str]) -> bytes:
    """A header section."""
    section = b""
    for field in header:
        name, colon, value = field.partition(":")
        if not colon or not name.strip() or "\n" in field or "\r" in field:
            raise CommandError(Exit.USAGE, f'{field!a} is not a header field; give it as --header "Name: value"')
        section += f"{name.strip()}: {value.strip()}\r\n".encode("utf-8", "surrogateescape")
    return section + b"\r\n"


def _listener(config: Config, name: str | None) -> Listener:
    there = config.listeners + ([config.http.listener] if config.http.enabled else [])
    found = next((one for one in there if name in (None, one.name)), None)
    if found is None:
        names = ", ".join(one.name for one in there)
        raise CommandError(Exit.USAGE, f"there is no listener {name!a}; give --listener one of {names}")
    return found


def _host(config: Config) -> Host:
    """Also where plugins are not asked: what they need of a message is kept with it."""
    return Host.of(config)


async def _answers(
    config: Config, listener: Listener, host: Host, envelope: Envelope, section: bytes, hooks: _TracedHooks | None,
    dns: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    if (refusal := await handed_in(config, listener, host, envelope, section, hooks is not None)) is not None:
        raise CommandError(Exit.DATA, f"the message would be refused: {refusal}")
    router = Router(config.zones)
    return [await _answer(config, router, envelope, recipient, hooks, dns) for recipient in envelope.recipients]


async def handed_in(
    config: Config, listener: Listener, host: Host, envelope: Envelope, fields: bytes, plugins: bool
) -> Reply | None:
    """What reception makes of the envelope of a message with that header section; or why it is refused. plugins: ask
    those with message_headers."""
    from zonemta_py.reception.ingest import Ingest
    from zonemta_py.reception.listener import ingest_rules, unix_ms
    from zonemta_py.reception.permission import Accounts, bind

    accounts, host = Accounts(config), host.at(listener.name)
    envelope.account = accounts.of(envelope.origin, user=envelope.user or "")
    envelope.received_ms = unix_ms()
    rules = ingest_rules(config, listener, host)
    account = accounts.by_name.get(envelope.account)
    if account is not None and not account.trust_headers:
        rules = rules.distrusting()
    ingest = Ingest(rules, envelope, "", "route", envelope.received_ms)
    ingest.add(fields)
    ingest.finish()
    if ingest.refusal is None and account is not None:
        ingest.refusal = bind(account, envelope)
    if ingest.refusal is None and plugins and host.listens("message_headers"):
        try:
            await host.call("message_headers", envelope=envelope, headers=ingest.headers)
        except Verdict as verdict:
            who = f"plugin {verdict.plugin}, hook {verdict.hook}"
            raise CommandError(Exit.DATA, f"the message would be refused: {verdict.reply} ({who})") from None
        ingest.note_headers()
    return ingest.refusal


async def _answer(
    config: Config, router: Router, envelope: Envelope, recipient: Recipient, hooks: _TracedHooks | None, dns: bool
) -> dict[str, Any]:
    """What JSON shows of one recipient; the table is made of it."""
    question = (envelope.sender, recipient.address, envelope.origin, envelope.sending_zone, envelope.headers)
    steps = router.explain(*question)
    routed = Routed(recipient, router.route(*question).zone)
    answer: dict[str, Any] = {"recipient": recipient.address, "steps": [step._asdict() for step in steps]}
    if hooks is not None:
        routed = await _asked(hooks, envelope, routed, answer)
    zone = config.zone(routed.zone)
    assert zone is not None
    asked = dns and not zone.pulled
    given = routed.routing or {}
    found = await _destination(config, "", recipient.domain) if asked and not (given.get("host") or zone.smart) else {}
    site = destination(zone, "").key if zone.smart else found.get("site", "")
    terms = Destinations(config).of(zone, recipient.domain, site, found.get("provider", "")).terms
    settings = terms.zone
    places = [(given["host"], given.get("port") or 25)] if given.get("host") else settings.places
    host, port = places[0] if places else ("", settings.port)
    answer |= {"zone": zone.name, "destinations": list(terms.names), "hosts": [list(place) for place in places]}
    answer |= {"sources": _sources(config, settings, recipient.domain, given), "host": host, "port": port}
    answer |= {"protocol": given.get("protocol") or zone.protocol, "tls": given.get("tls") or settings.tls}
    answer["delivery"] = zone.delivery
    answer |= {"schedule_min": terms.retry.schedule_min, "life_h": terms.retry.life_h}
    if asked:
        answer["destination"] = await _destination(config, host, recipient.domain) if host else found
    return answer


async def _asked(hooks: _TracedHooks, envelope: Envelope, routed: Routed, answer: dict[str, Any]) -> Routed:
    before = routed.zone
    if not hooks.routes:
        answer["plugins"] = {"said": "none has the hook queue_route"}
        return routed
    try:
        routed = await hooks.route(envelope, routed)
    except QueueRefusal as refusal:
        answer["plugins"] = {"said": f"refuse the message: {refusal.reply}", "steps": hooks.traced.steps}
        return routed
    answer["plugins"] = {
        "said": _verdict(routed, before), "zone": routed.zone, "routing": chosen(routed.routing or {}),
        "steps": hooks.traced.steps, "ignored": hooks.traced.ignored,
    }  # fmt: skip
    return routed


def _verdict(routed: Routed, before: str) -> str:
    if routed.refusal is not None:
        return f"refuse this recipient: {routed.refusal}"
    if routed.drop is not None:
        return f"drop this recipient: {routed.drop[2]}"
    if routed.held is not None:
        return f"hold this recipient for an operator: {routed.held[2].text.removeprefix('Held: ')}"
    said = [f"zone {routed.zone} instead of {before}"] if routed.zone != before else []
    said += [f"{name} {value}" for name, value in chosen(routed.routing or {}).items()]
    if routed.delay_s:
        said.append(f"wait {routed.delay_s:g} s first")
    return ", ".join(said) or "change nothing"


def _sources(config: Config, zone: Zone, domain: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """share: of this domain's mail, among the addresses that may be used for it. given: what plugins have chosen."""
    sources = config.sources(zone, given.get("pool", ""))
    if own := given.get("source"):
        sources = [one for one in sources if one.address == own] or [Source(address=own)]
    usable = [source for source in sources if not disabled(source, domain)]
    total = sum(source.weight for source in usable)
    return [_source(config, zone, source, source.weight / total if source in usable else 0.0) for source in sources]


def _source(config: Config, zone: Zone, source: Source, share: float) -> dict[str, Any]:
    hostname = source.hostname or zone.hostname or config.server.name
    row: dict[str, Any] = {"address": source.address, "hostname": hostname, "share": round(share, 4)}
    return row | {"proxy": source.proxy.rpartition("@")[2], "warmup": source.warmup}


def _show(answer: dict[str, Any]) -> None:
    rows: list[Sequence[object]] = [
        (step["kind"], step["looked_at"], step["rule"], step["zone"], step["why"]) for step in answer["steps"]
    ]
    if "plugins" in answer:
        said = answer["plugins"]
        for step in said.get("steps", ()):
            said_of = [f"{name} = {value!r}" for name, value in step["set"].items()]
            said_of += [step["verdict"]] if "verdict" in step else []
            what = ", ".join(said_of) or "sets nothing"
            rows.append((f"plugin {step['plugin']}", "", "", step["set"].get("zone", ""), what))
        rows.append(
            ("hook queue_route", "", "", said.get("zone", ""), "; ".join([said["said"], *said.get("ignored", ())]))
        )
    hosts = ["the MX hosts" if host == "mx" else f"{host} port {port}" for host, port in answer["hosts"]]
    way = ", else to ".join(hosts) or "the MX hosts"
    tables = f", destinations {', '.join(answer['destinations'])}" if answer["destinations"] else ""
    footer = f"zone {answer['zone']}{tables}, to {way} by {answer['protocol'].upper()}, TLS {answer['tls']}"
    if answer["delivery"] == "pull":
        footer = f"zone {answer['zone']}, where it waits until a client fetches it"
    print_table(answer["recipient"], _COLUMNS, rows, footer)
    if answer["sources"]:
        print_table("Source addresses", ("address", "EHLO name", "share ", "proxy", "warm-up"), _shown(answer))
    if "destination" in answer:
        _show_destination(answer["destination"])


def _shown(answer: dict[str, Any]) -> list[Sequence[object]]:
    return [
        (*row[:2], f"{row[2]:.1%}" if row[2] else "disabled", *row[3:])
        for row in (tuple(source.values()) for source in answer["sources"])
    ]


async def _destination(config: Config, host: str, domain: str) -> dict[str, Any]:
    """What DNS says: hosts in an order to try them, site and provider; or why there is no route."""
    from zonemta_py.delivery.dns.destination import DnsDestinationResolver

    resolver = DnsDestinationResolver(config)
    try:
        if host:
            return {"site": host, "provider": "", "hosts": [[host, list(await resolver.named(host, 0.0))]]}
        site = await resolver.site(domain, 0.0)
    except NoRoute as error:
        return {"error": str(error.reply)}
    hosts = [[name, list(addresses)] for name, addresses in site.hosts]
    return {"site": site.key, "provider": site.provider, "hosts": hosts, "ttl_s": site.ttl_s, "dnssec": site.secure}


def _show_destination(found: dict[str, Any]) -> None:
    if "error" in found:
        print(f"No route: {printable(found['error'])}")
        return
    provider = f", provider {found['provider']}" if found["provider"] else ""
    rows = [(host, ", ".join(addresses) or "unknown for now") for host, addresses in found["hosts"]]
    print_table(f"Site {found['site']}{provider}", ("host", "addresses"), rows)
