"""The ways of an attempt: the smart hosts of a zone or destination in the order to try them, or just one way.

Hosts next to each other that have a weight are shuffled by it (as SRV records are, RFC 2782). One that failed a while
ago comes after the others: so it is tried again when its rest is over, or when no other can be reached. Each sender
process finds that out for itself.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from zonemta_py.config import SmartHost, Zone
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.dns.routes import DeadHosts
from zonemta_py.mail.classify import DeliveryError
from zonemta_py.plugin.arguments import ConnectOptions
from zonemta_py.queue.api import Delivery

REFUSED_MAX = 1_000
_VALIDATED = ("required", "implicit")


@dataclass(frozen=True, slots=True)
class Way:
    """options: how to connect. login: user and password. mx: by the MX hosts of the recipient's domain, as the last
    resort."""

    options: ConnectOptions
    login: tuple[str, str] | None = None
    mx: bool = False

    @property
    def place(self) -> tuple[str, str, int, str, tuple[str, str] | None]:
        """All that it depends on whether it can be used."""
        options = self.options
        return options.source, options.host, options.port, options.tls, self.login


async def secure(way: Way, delivery: Delivery, resolver: DnsDestinationResolver) -> bool:
    """Whether DNSSEC vouches for the MX hosts: as the queue says, which has no need to ask where they are the last
    resort of smart hosts. An error of DNS comes again when they are looked up."""
    if not way.mx:
        return delivery.secure and not delivery.host
    try:
        return (await resolver.site(delivery.destination, time.monotonic())).secure
    except DeliveryError:
        return False


class Ways:
    """What a sender process knows of smart hosts. now: steady seconds."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._resting = DeadHosts()
        self._refused = DeadHosts()
        self._replies: dict[Hashable, DeliveryError] = {}
        self._chance = chance or random.Random()

    def of(self, zone: Zone, delivery: Delivery, options: ConnectOptions, now: float) -> list[Way]:
        """At least one. options: as the zone and plugins say, for the first host."""
        given, chosen = delivery.routing.get("auth"), delivery.routing.get("host") or options.host != delivery.host
        if given:
            login: tuple[str, str] | None = (given[0], given[1])
        else:
            login = (zone.username, zone.password) if zone.username and delivery.host == zone.host else None
        if not zone.hosts or chosen:
            return [Way(options, login)]
        if delivery.host.startswith("/") and not delivery.routing.get("tls") and options.tls == "none":
            options = replace(options, tls=zone.tls)  # that none is needed holds for this socket only
        ways = [self._way(host, options, delivery, zone.port) for host in self._shuffled(zone.hosts)]
        return sorted(ways, key=lambda way: self._resting.is_dead(way.place, now))

    def _way(self, host: SmartHost, options: ConnectOptions, delivery: Delivery, port: int) -> Way:
        if host.mx:
            return Way(replace(options, host="", port=port), None, True)
        tls = delivery.routing.get("tls") or ("none" if host.host.startswith("/") else host.tls or options.tls)
        own = (host.username, host.password) if host.username else None
        given = delivery.routing.get("auth")
        login = (given[0], given[1]) if given else own
        if login and tls not in _VALIDATED and not host.host.startswith("/"):  # a password goes to nobody else
            tls = "required"
        return Way(replace(options, host=host.host, port=host.port, tls=tls), login)

    def _shuffled(self, hosts: Sequence[SmartHost]) -> list[SmartHost]:
        found: list[SmartHost] = []
        for weighted, group in groupby(hosts, lambda host: bool(host.weight)):
            some = list(group)
            found += sorted(some, key=self._draw) if weighted else some
        return found

    def _draw(self, host: SmartHost) -> float:
        return -math.log(1.0 - self._chance.random()) / host.weight

    def failed(self, way: Way, now: float, rest_s: float) -> None:
        """It could not be used, for no fault of the message."""
        if rest_s and not way.mx:
            self._resting.died(way.place, now, rest_s=rest_s)

    def refused(self, way: Way, error: DeliveryError, now: float, rest_s: float) -> None:
        """The server does not take a login that was chosen for some mail: that login rests there, and no other."""
        if len(self._replies) >= REFUSED_MAX:
            self._replies.clear()
        self._replies[way.place] = error
        self._refused.died(way.place, now, rest_s=rest_s)

    def refusal(self, way: Way, now: float) -> DeliveryError | None:
        """What the server said of this login a moment ago."""
        if not len(self._refused) or not self._refused.is_dead(way.place, now):
            return None
        return self._replies.get(way.place)

    def worked(self, way: Way) -> None:
        """It was connected to."""
        if len(self._resting):
            self._resting.lives(way.place)
