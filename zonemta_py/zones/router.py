"""Which zone a recipient's mail takes: rules compiled from the configuration into lookups.

In this order, the first that matches decides: header X-Sending-Zone (if it names a zone), the sender's domain, the
recipient's domain, the network the mail was handed in from, the default zone. Within one kind the most exact rule wins:
"a.example.com" before "*.a.example.com" before "*.example.com" before "*"; the longest network prefix before shorter
ones. "*.example.com" matches every subdomain, not example.com itself.

Promise: the order of zones in the file never matters (two zones with the same rule are refused by the configuration);
a repeated question costs less than a microsecond and the memory for answers is bounded.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from zonemta_py.config import Zone

_CACHE_ENTRIES_MAX = 16_384


class Route(NamedTuple):
    """zone: its name. reason: the rule that chose it, in words, for logs and `zonemta queue show`."""

    zone: str
    reason: str


class Router:
    """The zones' rules, compiled. `zones` must hold at least one; without a default the first one is it."""

    def __init__(self, zones: list[Zone]) -> None:
        self._zones = {zone.name: Route(zone.name, "header X-Sending-Zone") for zone in zones}
        default = next((zone for zone in zones if zone.default), zones[0])
        self._default = Route(default.name, "default")
        self._senders = _Domains({d: zone.name for zone in zones for d in zone.sender_domains}, "sender domain")
        self._recipients = _Domains(
            {d: zone.name for zone in zones for d in zone.recipient_domains}, "recipient domain"
        )
        self._origins = _Networks({network: zone.name for zone in zones for network in zone.origins})
        self._cache: dict[tuple[str, str, str], Route] = {}

    def route(self, sender: str, recipient: str, origin: str = "", sending_zone: str | None = None) -> Route:
        """sender, recipient: addresses ("" is the null sender). origin: the client's IP address, "" if none."""
        if sending_zone:
            chosen = self._zones.get(sending_zone.strip().lower())
            if chosen:
                return chosen
        key = (sender.rpartition("@")[2], recipient.rpartition("@")[2], origin)
        return self._cache.get(key) or self._learn(key)

    def _learn(self, key: tuple[str, str, str]) -> Route:
        sender, recipient, origin = key
        route = (
            self._senders.find(_canonical(sender))
            or self._recipients.find(_canonical(recipient))
            or self._origins.find(origin)
            or self._default
        )
        if len(self._cache) >= _CACHE_ENTRIES_MAX:
            self._cache.clear()
        self._cache[key] = route
        return route


class _Domains:
    """Domain rules: exact names in one table, "*.suffix" in another; "*" is the empty suffix."""

    def __init__(self, rules: dict[str, str], kind: str) -> None:
        self._exact: dict[str, Route] = {}
        self._suffixes: dict[str, Route] = {}
        for rule, zone in rules.items():
            route = Route(zone, f"{kind} {rule}")
            if rule.startswith("*"):
                self._suffixes[_canonical(rule[2:])] = route
            else:
                self._exact[_canonical(rule)] = route

    def find(self, domain: str) -> Route | None:
        found = self._exact.get(domain) if domain else None
        if found or not domain or not self._suffixes:
            return found
        rest = domain
        while rest and not found:
            rest = rest.partition(".")[2]
            found = self._suffixes.get(rest)
        return found


class _Networks:
    """Network rules: for each IP version and prefix length, longest first, a table of network numbers."""

    def __init__(self, rules: dict[str, str]) -> None:
        tables: dict[tuple[int, int], dict[int, Route]] = {}
        for rule, zone in rules.items():
            network = ipaddress.ip_network(rule)
            shift = network.max_prefixlen - network.prefixlen
            table = tables.setdefault((network.version, shift), {})
            table[int(network.network_address) >> shift] = Route(zone, f"origin {rule}")
        self._tables = sorted(tables.items(), key=lambda item: item[0])

    def find(self, origin: str) -> Route | None:
        if not self._tables:
            return None
        try:
            address = ipaddress.ip_address(origin)
        except ValueError:
            return None
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        address = mapped or address
        for (version, shift), table in self._tables:
            found = table.get(int(address) >> shift) if version == address.version else None
            if found:
                return found
        return None


def _canonical(domain: str) -> str:
    """Lower case, without a final dot, in A-labels: the same domain always looks the same (RFC 5890 2.3.2.1)."""
    domain = domain.lower().rstrip(".")
    if domain.isascii():
        return domain
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return domain
