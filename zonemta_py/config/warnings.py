"""What a configuration says that may be meant, but most likely is not: each a warning of `zonemta config check`, with
the key. Pure: nothing but the configuration is looked at."""

from __future__ import annotations

import difflib
import fnmatch
import ipaddress
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from zonemta_py.config.limits import Throttle, rate
from zonemta_py.config.root import Config
from zonemta_py.config.services.pull import names_queue
from zonemta_py.config.suppression import GROUPS
from zonemta_py.config.values import is_ip
from zonemta_py.config.without_effect import idle, is_set
from zonemta_py.config.zone import Retry, SmartHost, Zone
from zonemta_py.mail.addresses.domain import canonical

_SLOW_BYTES_S = 1000


def doubts(config: Config) -> Iterator[str]:
    """Sentences."""
    for sentence in (
        *_unset(config.model_dump(mode="json")), *_unused(config), *_zones(config), *_loops(config), *_ports(config),
        *_rates(config), *_reception(config), *_services(config), *_people(config), *_networks(config),
        *_quotas(config), *_returns(config), *_times(config), *_tenants(config), *_refusals(config), *_plugins(config),
        *_cluster(config), *idle(config),
    ):  # fmt: skip
        yield f"warning: {sentence}"


def _unset(value: Any, where: str = "") -> Iterator[str]:
    """Names of variables in the place of values: nothing puts anything there."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _unset(one, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            label = one.get("name", number) if isinstance(one, dict) else number
            yield from _unset(one, f"{where}[{label}]")
    elif isinstance(value, str) and _VARIABLE.fullmatch(value):
        yield f"{where}: {value} is taken as it stands, since variables have no value here; write what it stands for"
    elif isinstance(value, str) and (found := _IN_PATH.search(value)):
        yield f"{where}: {found[1]} is taken as it stands, since variables have no value here; write what it is"
    elif isinstance(value, str) and _SECRET.search(where) and (_SAMPLE.match(value) or 0 < len(set(value)) < 3):
        yield f"{where}: is no secret, since anybody would guess it; write one of your own"


_SECRET = re.compile(r"\.(secrets?|earlier_secrets|password|system_password)(\[\d+\])?$")
_SAMPLE = re.compile(r"change[-_ ]?(me|it)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{\w+\}")
_IN_PATH = re.compile(r"^(?=/)(?:.*/)?(\$(?:\w+|\{\w+\}))(?:/|$)")


def _unused(config: Config) -> Iterator[str]:
    """Tables that nothing names."""
    pools = {zone.pool for zone in config.zones} | {table.pool for table in config.destinations}
    for pool in config.pools:
        if pool.name not in pools:
            yield f"pools[{pool.name}]: no zone and no destination sends from it; name it as `pool` there, or remove it"
    named = {source.warmup for pool in config.pools for source in pool.sources}
    for warmup in config.warmups:
        if warmup.name not in named:
            yield f"warmups[{warmup.name}]: no source has it; name it as `warmup` in [[pools.sources]], or remove it"


def _cluster(config: Config) -> Iterator[str]:
    cluster = config.cluster
    if not cluster.name:
        return
    if cluster.replicas == 1:
        yield "cluster.replicas: with 1 all mail waits for one server, and is lost with it; raise it to 3"
    elif cluster.replicas % 2 == 0:
        yield (
            f"cluster.replicas: with {cluster.replicas} no more servers may be away than with {cluster.replicas - 1};"
            f" write {cluster.replicas + 1}"
        )
    if len(cluster.servers) == 1 and cluster.replicas > 1:
        yield "cluster.servers: has one server only, without which this node does not start; name the others, too"


def _zones(config: Config) -> Iterator[str]:
    usual = Zone.model_construct(name="")
    for zone in config.zones:
        where = f"zones[{zone.name}]"
        if zone.port != usual.port and not zone.host and not zone.pulled:
            yield f"{where}.port: {zone.port} is for MX hosts too, which listen on 25; set host, or remove it"
        if zone.host == "mx":
            yield f"{where}.host: mx is a host of that name here; for the MX hosts of each domain remove it"
        if zone.password and not zone.username:
            yield f"{where}.password: is used with a username only; set username, or remove it"
        for host in zone.hosts:
            if host.password and not host.username:
                yield f"{where}.hosts: {host.host}: password is used with a username only; set username, or remove it"
        most = zone.connections_per_destination
        if most > zone.connections and most != usual.connections_per_destination:
            yield (
                f"{where}.connections_per_destination: {most} is more than its connections, {zone.connections}; raise"
                " those, or lower it"
            )
        if zone.campaigns and "unsubscribe" not in zone.suppress and not zone.pulled:
            yield (
                f"{where}.suppress: lacks unsubscribe, though campaigns is true: those who have unsubscribed get its"
                " mail; add it"
            )
        yield from _smart_hosts(where, zone.hosts)
        if zone.default and len(config.zones) > 1 and (zone.sender_domains == ["*"] or zone.recipient_domains == ["*"]):
            yield f"{where}: is the default, and claims * too; remove the rule"
    for throttle in config.throttles:
        if throttle.bytes and (found := rate(throttle.bytes)).amount / found.seconds < _SLOW_BYTES_S:
            yield (
                f"throttles[{throttle.name}].bytes: {throttle.bytes} is less than 1 KB a second; write it like 10MB/s,"
                " or use messages"
            )
        for key in ("zone", "source", "provider", "tenant", "campaign"):
            if (
                throttle.only
                and key in throttle.only
                and key in throttle.per
                and not set("*?[") & set(throttle.only[key])
            ):
                yield f"throttles[{throttle.name}].per: {key} is one only, by `only`; remove it from per"
        there = [zone for zone in config.zones if fnmatch.fnmatchcase(zone.name, throttle.only.get("zone", "*"))]
        if there and throttle.connections > (most := sum(zone.connections for zone in there)):
            yield (
                f"throttles[{throttle.name}].connections: {throttle.connections} is more than connections of the zones"
                f" there are, {most}; lower it, or raise those"
            )
    widest = max(zone.connections for zone in config.zones)
    for table in config.destinations:
        if (most := table.connections_per_destination or 0) > widest:
            yield (
                f"destinations[{table.name}].connections_per_destination: {most} is more than connections of any zone,"
                f" {widest}; lower it, or raise those"
            )
    initial, most = config.learning.initial, max(zone.connections_per_destination for zone in config.zones)
    if is_set(config.learning, "initial") and initial > most:
        yield f"learning.initial: {initial} is more than any zone's connections_per_destination, {most}; lower it"


def _ports(config: Config) -> Iterator[str]:
    """Ports at which the other kind of TLS is spoken (RFC 8314)."""
    known: list[tuple[str, int, str]] = [(f"listeners[{one.name}]", one.port, one.tls) for one in config.listeners]
    for zone in config.zones:
        if zone.tls == "implicit" and not zone.places:
            yield f"zones[{zone.name}].tls: implicit is for smart hosts, MX hosts offer STARTTLS; write required"
        known += [(f"zones[{zone.name}]", zone.port, zone.tls)] if zone.host else []
        known += [(f"zones[{zone.name}].hosts", one.port, one.tls or zone.tls) for one in zone.hosts]
    for table in config.destinations:
        hosts = table.hosts or ()
        known += [(f"destinations[{table.name}].hosts", one.port, one.tls or table.tls or "") for one in hosts]
    for where, port, tls in known:
        if port == _IMPLICIT and tls and tls != "implicit":
            yield f"{where}: at port 465 TLS begins with the first byte (RFC 8314); write tls = 'implicit'"
        elif port in _STARTTLS and tls == "implicit":
            yield f"{where}: at port {port} TLS begins with STARTTLS; write port = 465, or tls other than implicit"


_IMPLICIT = 465
_STARTTLS = (25, 587)


def _rates(config: Config) -> Iterator[str]:
    """Limits on the same thing, of which the lower one alone counts."""
    seen: dict[tuple[object, ...], Throttle] = {}
    for throttle in config.throttles:
        messages, recipients = (rate(text) if text else None for text in (throttle.messages, throttle.recipients))
        if messages and recipients and recipients.amount / recipients.seconds <= messages.amount / messages.seconds:
            yield (
                f"throttles[{throttle.name}].messages: {throttle.messages} is never reached, since each has a recipient"
                f" (recipients: {throttle.recipients}); raise those, or remove it"
            )
        for key in ("messages", "recipients", "new_connections", "bytes"):
            if not getattr(throttle, key) or throttle.burst:
                continue
            same = seen.setdefault((key, *sorted(throttle.per), "|", *sorted(throttle.only.items())), throttle)
            if same is not throttle:
                yield f"throttles[{throttle.name}].{key}: throttle {same.name!r} limits the same; keep one of them"


def _smart_hosts(where: str, hosts: list[SmartHost]) -> Iterator[str]:
    """Weights that are shared with nobody."""
    for number, host in enumerate(hosts):
        beside = [*hosts[max(0, number - 1) : number], *hosts[number + 1 : number + 2]]
        if host.weight and not any(other.weight for other in beside):
            yield f"{where}.hosts: {host.host} has a weight, and no host beside it has one; give one to those, too"


def _loops(config: Config) -> Iterator[str]:
    """Smart hosts that are listeners of this very file."""
    hosts = [(f"zones[{zone.name}].host", zone.places) for zone in config.zones]
    hosts += [
        (f"destinations[{table.name}].hosts", [(one.host, one.port) for one in table.hosts or ()])
        for table in config.destinations
    ]
    for where, places in hosts:
        for name, port in places:
            for one in config.listeners:
                if one.port == port and _is_here(name, ipaddress.ip_address(one.address)):
                    yield f"{where}: {name} port {port} is listener {one.name!r}, so mail goes in a circle; correct it"


def _is_here(name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a smart host of that name leads to a listener's address."""
    local = name == "localhost" or (is_ip(name) and ipaddress.ip_address(name).is_loopback)
    if address.is_unspecified:
        return local
    return name == str(address) or (name == "localhost" and address.is_loopback)


def _reception(config: Config) -> Iterator[str]:
    for one in config.listeners:
        where = f"listeners[{one.name}]"
        if one.certificate is not None and one.tls == "none":
            yield f"{where}.certificate: is not used, since tls is none; set tls = 'starttls' or 'implicit'"
        if one.auth and not config.users and not config.plugins.enabled:
            yield f"{where}.auth: nobody can log in, since [users] is empty; add users"
        if not (one.relay_networks or one.auth or one.feedback):
            yield f"{where}: nobody may hand in mail there; set relay_networks, auth or feedback"
        if one.proxy_protocol and not one.proxy_networks:
            yield f"{where}.proxy_networks: is empty, so every client is cut off; name the proxy's network"
    if config.users and not any(one.auth for one in config.listeners):
        yield "users: no listener has auth = true, so nobody can log in; set it in one of [[listeners]]"
    if config.links.enabled and any(_wide(network) for network in config.links.trusted_proxies):
        yield "links.trusted_proxies: believes everybody's X-Forwarded-For; name the proxy's network only"
    if config.tls.reports and not (config.tls.mta_sts or config.tls.dane):
        yield "tls.reports: there is little to report without mta_sts or dane; set one of them"


def _services(config: Config) -> Iterator[str]:
    """What is set where it has no effect."""
    for kind, keys in (("http", ("keys", "webhooks", "dashboard")), ("pull", ("tokens",)), ("links", ("url",))):
        section = getattr(config, kind)
        said = keys if "enabled" in section.model_fields_set else sorted(section.model_fields_set)
        if not section.enabled and (there := [key for key in said if is_set(section, key)]):
            yield f"{kind}.enabled: is false, though {' and '.join(there)} are set; set enabled = true in [{kind}]"
    if config.dns.dnssec and (far := [one for one in config.dns.servers if not ipaddress.ip_address(one).is_loopback]):
        yield f"dns.dnssec: believes dns.servers {far[0]}, and whoever is on the way there; ask one on this machine"
    for sink in config.event_sinks:
        if sink.username and "@" in urlsplit(sink.url).netloc:
            yield f"event_sinks[{sink.name}].url: has a login in it, besides username; remove it there"
        for key, kind in _OF_KIND.items():
            if sink.kind != kind and getattr(sink, key) != type(sink).model_fields[key].get_default(
                call_default_factory=True
            ):
                yield f"event_sinks[{sink.name}].{key}: is of kind {kind}, and this is a {sink.kind}; remove it"


_OF_KIND = {
    "exchange": "amqp", "routing_key": "amqp", "mandatory": "amqp", "subject": "nats", "acknowledged": "nats",
    "stream": "redis", "stream_max": "redis", "replicas": "redis", "topic": "kafka", "bootstrap": "kafka",
    "sasl_mechanism": "kafka", "idempotent": "kafka", "path": "file", "rotate_bytes": "file", "rotate_daily": "file",
    "compress": "file", "facility": "syslog", "format": "webhook", "secret": "webhook",
}  # fmt: skip
"""Keys of event sinks that say something for one kind only."""


def _wide(network: str) -> bool:
    return ipaddress.ip_network(network).prefixlen == 0


def _people(config: Config) -> Iterator[str]:
    by_plugin = bool(config.plugins.enabled)
    mute = [f"senders.{user}" for user, rules in config.senders.items() if not rules]
    mute += [f"accounts[{one.name}].senders" for one in config.accounts if one.senders == []]
    mute += [f"http.keys[{one.name}].senders" for one in config.http.keys if one.senders == []]
    for where in mute:
        yield f'{where}: is empty, so nothing can be sent; name addresses or domains, or ["*"] for any'
    for user in config.senders:
        if user not in config.users and not by_plugin:
            yield f"senders.{user}: there is no user {user!r} in [users]; add it there, or remove it here"
    for account in config.accounts:
        if not (account.users or account.keys or account.networks):
            yield f"accounts[{account.name}]: has no users, keys or networks, so nobody is of it; name some"
    signed = {name.lower() for name in config.signing.headers}
    if any(key.state == "active" for key in config.dkim) and "from" not in signed | set(
        map(str.lower, config.signing.oversign)
    ):
        yield "signing.headers: lacks From, which every signature must have (RFC 6376 5.4); add it"


def _tenants(config: Config) -> Iterator[str]:
    """Names that are nearly those that accounts and keys have. Mail may name others, so others are no mistake; nor are
    those that differ by numbers."""
    given = {one.tenant for one in config.accounts if one.tenant}
    given |= {name for one in config.http.keys for name in one.tenants}
    given |= {name for one in config.http.webhooks for name in one.tenants}
    said = [
        (f"throttles[{one.name}].only.tenant", one.only["tenant"]) for one in config.throttles if "tenant" in one.only
    ]
    said += [("shares.tenants", name.removesuffix("*")) for name in config.shares.tenants]
    said += [("suppression.tenants", name) for name in config.suppression.tenants]
    said += [("links.track_tenants", name) for name in config.links.track_tenants]
    said += [("notices.tenants", one.tenant) for one in config.notices.tenants]
    said += [(f"event_sinks[{one.name}].tenants", name) for one in config.event_sinks for name in one.tenants]
    for where, name in said:
        if not any(fnmatch.fnmatchcase(one, name) or one.startswith(name) for one in given):
            others = [one for one in given if _NUMBER.sub("", one) != _NUMBER.sub("", name)]
            if near := difflib.get_close_matches(name, others, 1, 0.75):
                yield f"{where}: no account and no key is of tenant {name!r}; did you mean {near[0]!r}?"


_NUMBER = re.compile(r"\d+")


def _networks(config: Config) -> Iterator[str]:
    """Of clients that cannot hand in mail: neither by their network, nor by a login or key."""
    if config.http.enabled or any(one.auth for one in config.listeners):
        return
    relayed = [ipaddress.ip_network(network) for one in config.listeners for network in one.relay_networks]
    named = [(f"accounts[{one.name}].networks", one.networks) for one in config.accounts]
    for where, networks in (*named, *((f"zones[{one.name}].origins", one.origins) for one in config.zones)):
        for network in networks:
            here = ipaddress.ip_network(network)
            if not any(one.version == here.version and one.overlaps(here) for one in relayed):
                yield f"{where}: {network} is in relay_networks of no listener; add it there, or remove it"


def _quotas(config: Config) -> Iterator[str]:
    """Of accounts: what others keep from being reached."""
    for account in config.accounts:
        where = f"accounts[{account.name}]"
        heard = config.http.enabled or any(one.trust_headers or one.trust_sending_zone for one in config.listeners)
        if account.trust_headers and not heard:
            yield f"{where}.trust_headers: says nothing, since no listener has trust_headers; set it there"
        if account.message_bytes > config.limits.message_bytes:
            yield (
                f"{where}.message_bytes: {account.message_bytes} is more than limits.message_bytes,"
                f" {config.limits.message_bytes}; lower it, or raise that"
            )
        for key in ("messages", "recipients"):
            quotas = [(rate(text), text) for text in getattr(account, key)]
            for one, text in quotas:
                for other, bound in quotas:
                    spans = max(1, one.seconds / other.seconds)
                    if bound != text and other.amount * spans <= one.amount and (one, other) != (other, one):
                        yield f"{where}.{key}: {text} is never reached, because of {bound}; remove one of them"


def _returns(config: Config) -> Iterator[str]:
    """Of what comes back, and what is asked of it."""
    path = config.return_path
    if path.list_unsubscribe_zones and not config.unsubscribing.wanted:
        yield (
            "return_path.list_unsubscribe_zones: there is no link to give them; enable [links], or set list_unsubscribe"
            " or unsubscribe_domain"
        )
    if path.reporters and not (config.http.enabled or any(one.feedback for one in config.listeners)):
        yield "return_path.reporters: no listener takes their mail; set feedback = true in one of [[listeners]]"
    for reporter in path.reporters:
        for sender in reporter.senders:
            at = canonical(sender.rpartition("@")[2].removeprefix("*."))
            if at != reporter.domain and not at.endswith(f".{reporter.domain}"):
                yield (
                    f"return_path.reporters[{reporter.domain}].senders: {sender} is not at {reporter.domain}, so its"
                    " signature proves nothing about it; name one that is"
                )
    active = {key.domain for key in config.dkim if key.state == "active"}
    for domain in sorted({key.domain for key in config.dkim if key.state == "retired"} - active):
        yield f"dkim[{domain}].state: its keys are retired, so its mail is not signed; make one active, or add one"
    signing = [key for key in type(config.signing).model_fields if is_set(config.signing, key)]
    if signing and not config.dkim:
        yield f"signing.{signing[0]}: nothing is signed, since there is no [[dkim]] key; add one, or remove this"
    yield from _queues(config)


def _queues(config: Config) -> Iterator[str]:
    """Named queues that are not there, where none is made."""
    if not config.pull.enabled or config.pull.create:
        return
    there = [zone.name for zone in config.zones if zone.pulled]
    if not there:
        yield "pull.create: is false, and no zone has delivery = 'pull', so there is no queue; add one, or remove it"
    parties = [(f"pull.tokens[{one.name}]", one.queues) for one in config.pull.tokens]
    for where, patterns in (*parties, *((f"http.keys[{one.name}]", one.queues) for one in config.http.keys)):
        for pattern in patterns if there else ():
            if not any(names_queue([pattern], name) for name in there):
                yield f"{where}.queues: {pattern!r} is no queue, and none is made; there are {', '.join(there)}"


def _refusals(config: Config) -> Iterator[str]:
    """Numbers of refusals that cannot come together: each is of another day."""
    section = config.suppression
    for where, rules in (("", section), *((f".tenants.{name}", section.of(name)) for name in section.tenants)):
        for group in GROUPS:
            one = rules.tolerance(group)
            if where and one == section.tolerance(group):
                continue
            place = f"suppression{where}.{group}"
            if one.after and one.over_days > one.within_days:
                yield f"{place}: over_days, {one.over_days:g}, is more than within_days, {one.within_days:g}; lower it"
            elif one.after - 2 >= one.within_days:
                yield (
                    f"{place}: {one.after} refusals on as many days do not fit in within_days, {one.within_days:g};"
                    " raise that, or lower after"
                )


def _times(config: Config) -> Iterator[str]:
    usual = Retry.model_construct()
    known = config.retry.model_dump()
    for where, said in (
        ("retry", {key: value for key, value in known.items() if is_set(config.retry, key)}),
        *((f"destinations[{one.name}]", one.model_dump(exclude_none=True)) for one in config.destinations),
    ):
        retry = Retry.model_construct(**{**known, **{key: said[key] for key in said if key in known}})
        delay, life = retry.delay_notice_h, retry.life_h
        if delay >= life and delay not in (0, usual.delay_notice_h) and {"delay_notice_h", "life_h"} & said.keys():
            yield f"{where}.delay_notice_h: {delay:g} is not less than life_h, {life:g}; lower it"
        if retry.down_max_s < retry.down_s and {"down_s", "down_max_s"} & said.keys():
            yield f"{where}.down_max_s: {retry.down_max_s:g} is less than down_s, {retry.down_s:g}; raise it"
        if retry.schedule_min[0] >= retry.life_h * 60 and {"schedule_min", "life_h"} & said.keys():
            first = retry.schedule_min[0]
            yield f"{where}.schedule_min: its first wait, {first:g} minutes, is as long as life_h; shorten it"


def _plugins(config: Config) -> Iterator[str]:
    enabled = {config.plugins.instance(one).name for one in config.plugins.enabled}
    for name in config.plugins.options:
        if name not in enabled:
            near = difflib.get_close_matches(name, enabled, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "add it there, or remove this"
            yield f"plugins.options.{name}: there is no {name!r} in plugins.enabled; {remedy}"
    for one in config.plugins.instances:
        if one.name not in enabled:
            yield f"plugins.instances: there is no {one.name!r} in plugins.enabled; add it there, or remove this"
