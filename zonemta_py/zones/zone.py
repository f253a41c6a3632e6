"""What a zone makes of a recipient's domain: the destination that connections, limits and rests are counted by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from zonemta_py.config import SmartHost, Zone
from zonemta_py.zones.pull import queue_of


class Destination(NamedTuple):
    """key: what is counted by: "host:port" for a smart host (several: see `group`), "queue/NAME" for a pull zone, else
    the domain. host: "" means MX lookup of the key."""

    key: str
    host: str
    port: int


def destination(zone: Zone, domain: str) -> Destination:
    """Where mail of this zone for this domain goes: its smart host, whoever comes to take it, or else whoever the
    domain's MX records name."""
    if zone.hosts:
        return group(zone.hosts)
    if zone.host:
        return named(zone.host, zone.port)
    if zone.pulled:
        return Destination(f"queue/{queue_of(zone)}", "", 0)
    return Destination(domain.lower().rstrip("."), "", zone.port)


def group(hosts: Sequence[SmartHost]) -> Destination:
    """The destination for smart hosts in an order: "host:port" of the first, and if there are others "+" and a hash."""
    first = named(hosts[0].host, hosts[0].port)
    if len(hosts) == 1:
        return first
    text = "\n".join(f"{host.host} {host.port} {host.weight}" for host in hosts)
    return first._replace(key=f"{first.key}+{hashlib.sha256(text.encode()).hexdigest()[:8]}")


def named(host: str, port: int) -> Destination:
    """The destination for a host that a zone or a plugin names; IPv6 addresses get brackets in the key."""
    return Destination(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", host, port)
