"""Which zone a recipient's mail takes: rules compiled from the configuration into lookups.

In this order, the first that matches decides: header X-Sending-Zone (if it names a zone), other header fields, the
sender's domain, the recipient's domain, the network the mail was handed in from, the default zone. Plugins may change
it afterwards (queue_route). Within one kind the most exact rule wins: "a.example.com" before "*.a.example.com" before
"*.example.com" before "*"; the longest network prefix before shorter ones; of header rules one without * before others,
and then the longer one. "*.example.com" matches every subdomain, not example.com itself.

Promise: the order of zones in the file never matters (two zones with the same rule are refused by the configuration);
a repeated question costs about a microsecond and the memory for answers is bounded.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from zonemta_py.config import Zone
from zonemta_py.mail.addresses.domain import canonical

_CACHE_ENTRIES_MAX = 16_384


class Route(NamedTuple):
    """zone: its name. reason: the rule that chose it, in words, for logs and `zonemta queue show`."""

    zone: str
    reason: str


class Step(NamedTuple):
    """One kind of rule, for display. looked_at: what it was held against; rule and zone: what matched, "" if nothing.

    decides: the first one that matched. why: in words, also where nothing did.
    """

    kind: str
    looked_at: str
    rule: str
    zone: str
    decides: bool
    why: str


class Router:
    """The zones' rules, compiled. `zones` must hold at least one; without a default the first one is it."""

    def __init__(self, zones: list[Zone]) -> None:
        self._zones = {zone.name: Route(zone.name, "header X-Sending-Zone") for zone in zones}
        default = next((zone for zone in zones if zone.default), zones[0])
        self._default = Route(default.name, "default")
        self._headers = _Headers(zones)
        self._senders = _Domains({d: zone.name for zone in zones for d in zone.sender_domains}, "sender domain")
        self._recipients = _Domains(
            {d: zone.name for zone in zones for d in zone.recipient_domains}, "recipient domain"
        )
        self._origins = _Networks({network: zone.name for zone in zones for network in zone.origins})
        self._cache: dict[tuple[str, str, str], Route] = {}

    def route(
        self, sender: str, recipient: str, origin: str = "", sending_zone: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Route:  # fmt: skip
        """sender, recipient: addresses ("" is the null sender). origin: the client's IP address, "" if none.

        headers: lower-case name → value, all that the zones' rules name (`Envelope.headers`).
        """
        if sending_zone:
            chosen = self._zones.get(sending_zone.strip().lower())
            if chosen:
                return chosen
        if headers and self._headers.fields:
            chosen = self._headers.find(headers)
            if chosen:
                return chosen
        key = (sender.rpartition("@")[2], recipient.rpartition("@")[2], origin)
        return self._cache.get(key) or self._learn(key)

    def _learn(self, key: tuple[str, str, str]) -> Route:
        sender, recipient, origin = key
        route = (
            self._senders.find(canonical(sender))
            or self._recipients.find(canonical(recipient))
            or self._origins.find(origin)
            or self._default
        )
        if len(self._cache) >= _CACHE_ENTRIES_MAX:
            self._cache.clear()
        self._cache[key] = route
        return route

    def explain(
        self, sender: str, recipient: str, origin: str = "", sending_zone: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> list[Step]:  # fmt: skip
        """Every kind of rule in the order in which `route` checks them, with the result of each."""
        headers = headers or {}
        given = ", ".join(f"{name}: {headers[name]}" for name in self._headers.fields if name in headers)
        domains = [canonical(address.rpartition("@")[2]) for address in (sender, recipient)]
        wish = (sending_zone or "").strip()
        said = [
            (
                "header X-Sending-Zone",
                wish,
                self._zones.get(wish.lower()),
                bool(self._zones),
                f"no zone has the name {wish!r}",
            ),
            ("other headers", given, self._headers.find(headers), bool(self._headers.fields), ""),
            ("sender domain", domains[0], self._senders.find(domains[0]), self._senders.any, ""),
            ("recipient domain", domains[1], self._recipients.find(domains[1]), self._recipients.any, ""),
            ("origin network", origin, self._origins.find(origin), self._origins.any, ""),
            ("default", "", self._default, True, ""),
        ]
        steps: list[Step] = []
        for kind, looked_at, route, rules, otherwise in said:
            decides = route is not None and not any(step.decides for step in steps)
            why = _why(kind, looked_at, route, rules, otherwise, decides)
            rule = route.reason if route else ""
            steps.append(Step(kind, looked_at, rule, route.zone if route else "", decides, why))
        return steps


def _why(kind: str, looked_at: str, route: Route | None, rules: bool, otherwise: str, decides: bool) -> str:
    if route is not None:
        return "decides" if decides else "matches too, but comes later"
    if not rules:
        return "no zone has such a rule"
    if not looked_at:
        return "the message has none" if "header" in kind else "nothing to look at"
    return otherwise or "no rule matches"


class _Headers:
    """Header rules: patterns by field; the most exact one of all fields that match wins."""

    def __init__(self, zones: list[Zone]) -> None:
        rules = [(name.lower(), pattern.strip(), zone.name) for zone in zones for name, pattern in zone.headers.items()]
        rules.sort(key=lambda rule: ("*" in rule[1], -len(rule[1].replace("*", "")), rule))
        self.fields = tuple(sorted({name for name, _, _ in rules}))
        self._rules = [
            (name, re.split(r"\*+", pattern.lower()), Route(zone, f"header {name}: {pattern}"))
            for name, pattern, zone in rules
        ]
        self._cache: dict[tuple[str | None, ...], Route | None] = {}

    def find(self, headers: dict[str, str]) -> Route | None:
        if not self._rules:
            return None
        key = tuple([headers.get(name) for name in self.fields])
        if key in self._cache:
            return self._cache[key]
        if len(self._cache) >= _CACHE_ENTRIES_MAX:
            self._cache.clear()
        found = (route for name, match, route in self._rules if name in headers and _fits(headers[name].lower(), match))
        return self._cache.setdefault(key, next(found, None))


def _fits(value: str, parts: list[str]) -> bool:
    """Whether the value is these parts with any text between them; in time that grows with the value only, which a
    regular expression does not promise, and anybody may write a header field."""
    first, *between = parts
    if not between:
        return value == first
    *between, last = between
    if not value.startswith(first) or not value.endswith(last):
        return False
    at, end = len(first), len(value) - len(last)
    for part in between:
        at = value.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return at <= end


class _Domains:
    """Domain rules: exact names in one table, "*.suffix" in another; "*" is the empty suffix."""

    def __init__(self, rules: dict[str, str], kind: str) -> None:
        self._exact: dict[str, Route] = {}
        self._suffixes: dict[str, Route] = {}
        self.any = bool(rules)
        for rule, zone in rules.items():
            route = Route(zone, f"{kind} {rule}")
            if rule.startswith("*"):
                self._suffixes[canonical(rule[2:])] = route
            else:
                self._exact[canonical(rule)] = route

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
        self.any = bool(rules)
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
