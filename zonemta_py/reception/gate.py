"""Who may be connected: counts of connections in all and per client, and the cutting off of those who fall silent.

One gate serves all listeners of a process. One timer goes round all connections, instead of one being set and cancelled
for every command.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import lru_cache
from typing import Protocol

from zonemta_py.config import Limits

_ROUND_S_MAX = 5.0


class Guest(Protocol):
    """A connection as the gate sees it."""

    def cut_off_if_silent(self, silent_since: float) -> None:
        """Ends it if it was last heard of before `silent_since` (the loop's time) and is the one to speak."""


class Gate:
    """share: how many receiver processes divide the limits; each gets its part, at least 1."""

    def __init__(self, limits: Limits, share: int) -> None:
        self._most = max(1, limits.connections // share)
        self._most_per_client = max(1, limits.connections_per_client // share)
        self._timeout_s = limits.timeout_s
        self._guests: set[Guest] = set()
        self._clients: dict[str, int] = {}

    def enter(self, guest: Guest, client: str) -> bool:
        """Counts the connection in, or returns False if that would be too many. client: its IP address."""
        here = self._clients.get(client, 0)
        if len(self._guests) >= self._most or here >= self._most_per_client:
            return False
        self._guests.add(guest)
        self._clients[client] = here + 1
        return True

    def leave(self, guest: Guest, client: str) -> None:
        """Counts it out; harmless for one that was not let in."""
        if guest not in self._guests:
            return
        self._guests.discard(guest)
        left = self._clients[client] - 1
        if left:
            self._clients[client] = left
        else:
            del self._clients[client]

    def __len__(self) -> int:
        return len(self._guests)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Goes round now and then, as long as the loop runs."""
        silent_since = loop.time() - self._timeout_s
        for guest in tuple(self._guests):
            guest.cut_off_if_silent(silent_since)
        loop.call_later(min(_ROUND_S_MAX, self._timeout_s / 4), self.watch, loop)


class Networks:
    """A list of networks that is asked about the same addresses over and over."""

    def __init__(self, networks: list[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self.contain = lru_cache(maxsize=4096)(self._look)

    def _look(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


def plain_ip(address: str) -> str:
    """An IP address without zone id, and IPv4 as IPv4 where it came mapped into IPv6 (RFC 4291 2.5.5.2)."""
    address = address.partition("%")[0]
    return address[7:] if address.lower().startswith("::ffff:") and "." in address else address
