"""What a configuration says that may be meant, but most likely is not: each a warning of `zonemta config check`, with
the key. Pure: nothing but the configuration is looked at."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zonemta_py.config.limits import rate
from zonemta_py.config.root import Config
from zonemta_py.config.zone import Retry, Zone

_SLOW_BYTES_S = 1000


def doubts(config: Config) -> Iterator[str]:
    """Sentences."""
    for sentence in (
        *_unset(config.model_dump(mode="json")), *_unused(config), *_zones(config), *_reception(config),
        *_services(config), *_people(config), *_times(config), *_plugins(config),
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


_VARIABLE = re.compile(r"\$\{\w+\}")


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
        if zone.default and len(config.zones) > 1 and (zone.sender_domains == ["*"] or zone.recipient_domains == ["*"]):
            yield f"{where}: is the default, and claims * too; remove the rule"
    for throttle in config.throttles:
        if throttle.bytes and (found := rate(throttle.bytes)).amount / found.seconds < _SLOW_BYTES_S:
            yield (
                f"throttles[{throttle.name}].bytes: {throttle.bytes} is less than 1 KB a second; write it like 10MB/s,"
                " or use messages"
            )
        for key in ("zone", "source"):
            if (
                throttle.only
                and key in throttle.only
                and key in throttle.per
                and not set("*?[") & set(throttle.only[key])
            ):
                yield f"throttles[{throttle.name}].per: {key} is one only, by `only`; remove it from per"


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
        if not section.enabled and (there := [key for key in keys if getattr(section, key)]):
            yield f"{kind}.enabled: is false, though {' and '.join(there)} are set; set enabled = true in [{kind}]"
    if config.dns.dnssec and (far := [one for one in config.dns.servers if not ipaddress.ip_address(one).is_loopback]):
        yield f"dns.dnssec: believes dns.servers {far[0]}, and whoever is on the way there; ask one on this machine"
    for sink in config.event_sinks:
        for key, kind in _OF_KIND.items():
            if sink.kind != kind and getattr(sink, key) != type(sink).model_fields[key].get_default(
                call_default_factory=True
            ):
                yield f"event_sinks[{sink.name}].{key}: is of kind {kind}, and this is a {sink.kind}; remove it"


_OF_KIND = {
    "exchange": "amqp", "routing_key": "amqp", "mandatory": "amqp", "subject": "nats", "acknowledged": "nats",
    "stream": "redis", "stream_max": "redis", "replicas": "redis", "topic": "kafka", "bootstrap": "kafka",
    "idempotent": "kafka", "path": "file", "rotate_bytes": "file", "rotate_daily": "file", "compress": "file",
    "facility": "syslog", "format": "webhook", "secret": "webhook",
}  # fmt: skip
"""Keys of event sinks that say something for one kind only."""


def _wide(network: str) -> bool:
    return ipaddress.ip_network(network).prefixlen == 0


def _people(config: Config) -> Iterator[str]:
    by_plugin = bool(config.plugins.enabled)
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


def _times(config: Config) -> Iterator[str]:
    retry, usual = config.retry, Retry.model_construct()
    if retry.delay_notice_h >= retry.life_h and retry.delay_notice_h not in (0, usual.delay_notice_h):
        yield f"retry.delay_notice_h: {retry.delay_notice_h:g} is not less than life_h, {retry.life_h:g}; lower it"
    if retry.down_max_s < retry.down_s:
        yield f"retry.down_max_s: {retry.down_max_s:g} is less than down_s, {retry.down_s:g}; raise it"
    if retry.schedule_min[0] >= retry.life_h * 60:
        yield f"retry.schedule_min: its first wait, {retry.schedule_min[0]:g} minutes, is as long as life_h; shorten it"


def _plugins(config: Config) -> Iterator[str]:
    enabled = {Path(name).stem for name in config.plugins.enabled}
    for name in config.plugins.options:
        if name not in enabled:
            yield f"plugins.options.{name}: there is no {name!r} in plugins.enabled; add it there, or remove this"
