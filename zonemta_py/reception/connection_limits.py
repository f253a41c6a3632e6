"""Limits of connections: counts in all and per client, and disconnection of clients that are too slow.

One object serves all listeners of a process. All processes of a service count together (`metrics.connections`), also
those of an earlier configuration. One timer visits all connections, instead of one being set and cancelled for every
command. A quarter of all places is reserved for clients that may relay: unauthenticated strangers cannot take the last
one. Where nobody is known before the first request (HTTP), connections on which nothing is asked give way, those of
the client first that has most. An IPv6 client is its /64, for that is what one subscriber gets.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from zonemta_py.config import Limits
from zonemta_py.metrics.connections import OpenConnections

_ROUND_S_MAX = 5.0
_STRANGERS = 3 / 4
"""Their share of all places."""
_TRIES = 3
"""For the last place, where several processes try at the same instant and each sees that it is one too many."""


class Guest(Protocol):
    """A connection as the limits see it."""

    def cut_off_if_late(self, now: float) -> None:
        """Closes it if the client has taken too long to send, to read or to disconnect. now: the loop's time."""


class Yielding(Guest, Protocol):
    """One that may have to go, because there is no place for somebody who has fewer."""

    def give_way(self) -> bool:
        """Closes it, unless a request is under way; whether it has."""


class ConnectionLimits:
    """opened: what this process counts, with those that share its limits; alone if not said.

    most: connections that all of them let in. timeout_s: as configured. turns: theirs."""

    def __init__(self, limits: Limits, opened: OpenConnections | None = None) -> None:
        self._opened = opened or OpenConnections.alone()
        self.most = limits.connections
        self._most_strangers = max(1, int(self.most * _STRANGERS))
        self._most_per_client = limits.connections_per_client
        self.timeout_s = limits.timeout_s
        self._round_s = min(_ROUND_S_MAX, limits.timeout_s / 4, limits.login_s / 4)
        self._guests: set[Guest] = set()
        self._strangers: set[Guest] = set()
        self._yielding: dict[str, dict[Yielding, None]] = {}
        self.turns = Turns()

    def enter(self, guest: Guest, client: str, stranger: bool = False) -> bool:
        """Counts the connection in, or returns False if that would be too many. client: its IP address."""
        client = network_of(client)
        for _ in range(_TRIES):
            if not self._room(client, stranger, 1):
                return False
            self._opened.add(client, 1, stranger)
            if self._room(client, stranger, 0):
                self._guests.add(guest)
                if stranger:
                    self._strangers.add(guest)
                return True
            self._opened.add(client, -1, stranger)  # another process has let somebody in just now
        return False

    def enter_or_replace(self, guest: Yielding, client: str) -> bool:
        """The same for a guest that may have to give way itself: if there is no place left in all, one of the client
        with most connections goes, if that has more than this one will have."""
        if not self.enter(guest, client) and not (self._made_room(client) and self.enter(guest, client)):
            return False
        self._yielding.setdefault(network_of(client), {})[guest] = None
        return True

    def _made_room(self, client: str) -> bool:
        mine = len(self._yielding.get(network_of(client), ()))
        most = max(self._yielding, key=lambda one: len(self._yielding[one]), default="")
        if mine >= self._most_per_client or len(self._yielding.get(most, ())) <= mine + 1:
            return False
        for guest in self._yielding[most]:
            if guest.give_way():
                self.leave(guest, most)
                return True
        return False

    def _room(self, client: str, stranger: bool, more: int) -> bool:
        """For so many more."""
        total, strangers, here = self._opened.sums(client)
        if total + more > self.most or here + more > self._most_per_client:
            return False
        return not stranger or strangers + more <= self._most_strangers

    def guests(self) -> tuple[Guest, ...]:
        """The connections counted in."""
        return tuple(self._guests)

    def know(self, guest: Guest) -> None:
        """The stranger has authenticated."""
        if guest in self._strangers:
            self._strangers.discard(guest)
            self._opened.know()

    def leave(self, guest: Guest, client: str) -> None:
        """Counts it out; harmless for one that was not let in."""
        if guest in self._guests:
            self._guests.discard(guest)
            self._opened.add(network_of(client), -1, guest in self._strangers)
            self._strangers.discard(guest)
            if guest in (others := self._yielding.get(network_of(client), {})):
                del others[guest]
                if not others:
                    del self._yielding[network_of(client)]

    def __len__(self) -> int:
        return len(self._guests)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Visits all connections periodically, as long as the loop runs."""
        now = loop.time()
        for guest in tuple(self._guests):
            guest.cut_off_if_late(now)
        loop.call_later(self._round_s, self.watch, loop)


class Networks:
    """A list of networks, with cached answers for recurring addresses."""

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


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 that an IPv6 address is in."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    except ValueError:
        return address


SLICE_S = 0.002


class Turns:
    """Turns for clients with much work: between two of them small requests are served, and new clients are accepted.

    All of them in one process get SLICE_S together in each round of the event loop, in the order in which they asked.
    Time is never asked of the loop: its own stands still during a round.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False
        self._until = 0.0

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls go_on when its turn comes; its exceptions affect no other."""
        self._waiting.append(go_on)
        self._come()

    def spent(self) -> bool:
        """Whether this round's slice is used up; the first who asks in a round begins it. Then `wait`, unless what is
        left to do is little."""
        now = time.monotonic()
        if not self._due:
            self._until = now + SLICE_S
            self._come()
        return now >= self._until

    def _come(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._until = time.monotonic() + SLICE_S
        try:
            while self._waiting and not self.spent():
                self._waiting.popleft()()
        finally:
            self._due = False
            if self._waiting:
                self._come()
