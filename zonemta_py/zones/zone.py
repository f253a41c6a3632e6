"""What a zone makes of a recipient's domain: the destination that connections, limits and rests are counted by."""

from __future__ import annotations

from typing import NamedTuple

from zonemta_py.config import Zone
from zonemta_py.zones.queues import queue_of


class Destination(NamedTuple):
    """key: what is counted by: "host:port" for a smart host, "queue/NAME" for a pull zone, else the domain. host: ""
    means MX lookup of the key."""

    key: str
    host: str
    port: int


def destination(zone: Zone, domain: str) -> Destination:
    """Where mail of this zone for this domain goes: its smart host, whoever comes to take it, or else whoever the
    domain's MX records name."""
    if zone.host:
        return named(zone.host, zone.port)
    if zone.pulled:
        return Destination(f"queue/{queue_of(zone)}", "", 0)
    return Destination(domain.lower().rstrip("."), "", zone.port)


def named(host: str, port: int) -> Destination:
    """The destination for a host that a zone or a plugin names; IPv6 addresses get brackets in the key."""
    return Destination(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", host, port)
