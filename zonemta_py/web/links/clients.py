"""Who asks, and how often: a client's address behind proxies that are trusted, and limits per minute for each.

Memory is bounded: of so many clients at once the one that came first is forgotten. An IPv6 client is its /64.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from zonemta_py.reception.connection_limits import Networks, network_of, plain_ip

CLIENTS_MAX = 20_000
_MINUTE_S = 60.0


class Clients:
    """trusted: networks of proxies. clock: seconds of a steady clock."""

    def __init__(self, trusted: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.trusted, self._clock = Networks(trusted).contain, clock
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def address(self, peer: str, forwarded: list[str]) -> str:
        """peer: the connection's. forwarded: the X-Forwarded-For fields; each proxy adds whom it has talked to."""
        named = [plain_ip(_bare(one.strip())) for field in forwarded for one in field.split(",")]
        address = plain_ip(peer)
        while self.trusted(address) and named:
            address = named.pop()
        return address

    def excess(self, what: str, client: str, most: int) -> bool:
        """Counts it; whether there were more than so many in this minute."""
        now, key = self._clock(), (what, network_of(client))
        began, count = self._counts.get(key, (now, 0))
        if now - began >= _MINUTE_S:
            began, count = now, 0
        self._counts[key] = began, count + 1
        if len(self._counts) > CLIENTS_MAX:
            self._counts.popitem(last=False)
        return count >= most


def _bare(address: str) -> str:
    """Without a port: "192.0.2.1:4711", "[2001:db8::1]:4711"."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address
