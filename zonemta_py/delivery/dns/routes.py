"""Which of a destination's addresses an attempt tries: those that are allowed, reachable from the source, and not dead.

An address is checked right before it is connected to, whatever plugins or DNS said earlier. A host named by the
configuration, the queue or a plugin may be anywhere; one found in DNS must be at a public address (`reachability`),
unless the zone has allow_private = true.

Failures: `failure` gives the error for a destination without a usable address: permanent (5.4.4) if all its addresses
are known and none is allowed; otherwise temporary (4.4.4, or no connection).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from zonemta_py.delivery.dns.egress import Egress
from zonemta_py.delivery.dns.reachability import LocalIdentity
from zonemta_py.mail.classify import ConnectionLost, DeliveryError, NoRoute, ReplyTimeout, Unreachable

DEAD_S = 120.0
SILENT_S = 900.0
REMEMBERED_MAX = 10_000

Place = TypeVar("Place", bound=Hashable)


class DeadHosts:
    """Hosts that were unreachable a moment ago: skipped while the destination has another one that may be alive.

    Each sender process keeps its own list. A host that refused, or hung up before its greeting, is dead for DEAD_S; one
    that timed out for SILENT_S, since each try costs a connection for the whole timeout. If all are dead, all are
    tried: resting a whole destination is the scheduler's job. A place is all that a connection depends on: (source,
    address, port). now: steady seconds."""

    def __init__(self) -> None:
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def died(self, place: Hashable, now: float, silent: bool = False, rest_s: float = DEAD_S) -> None:
        """silent: it timed out."""
        self._until[place] = now + (SILENT_S if silent else rest_s)
        self._until.move_to_end(place)
        if len(self._until) > REMEMBERED_MAX:
            self._until.popitem(last=False)

    def lives(self, place: Hashable) -> None:
        """It was reached."""
        self._until.pop(place, None)

    def is_dead(self, place: Hashable, now: float) -> bool:
        until = self._until.get(place)
        if until is None:
            return False
        if until <= now:
            del self._until[place]
            return False
        return True

    def order(self, places: Sequence[Place], now: float) -> list[Place]:
        """The live ones in their order; all of them if none is alive."""
        if not self._until:
            return list(places)
        return [place for place in places if not self.is_dead(place, now)] or list(places)


@dataclass(slots=True, frozen=True)
class AddressTarget:
    """A host to try, and its IP addresses in the order to try them; none if its DNS look-up just failed."""

    host: str
    addresses: tuple[str, ...]


@dataclass(slots=True)
class Routes:
    """What a sender process knows about reachable addresses."""

    ourselves: LocalIdentity
    dead: DeadHosts

    def learn(self, source: str, address: str, port: int, error: DeliveryError | None, now: float) -> None:
        """Records the result of a connection attempt; error: None if the server sent its greeting."""
        place = (source, address, port)
        if error is None:
            self.dead.lives(place)
        elif error.stage in ("connect", "banner") and isinstance(error, (Unreachable, ConnectionLost, ReplyTimeout)):
            self.dead.died(place, now, silent=isinstance(error, ReplyTimeout))


class Choice:
    """The routes of one attempt. free: any address is allowed, since the host is named or the zone allows it."""

    __slots__ = ("_barred", "_free", "_open", "_port", "_routes")

    def __init__(self, routes: Routes, port: int, free: bool) -> None:
        self._routes, self._port, self._free = routes, port, free
        self._barred: dict[str, str] = {}
        self._open = False

    def narrowed(
        self, targets: Iterable[AddressTarget], egress: Egress, source: str, now: float
    ) -> list[AddressTarget]:
        """Without addresses that are not allowed or cannot be connected to; without dead ones, unless all are dead."""
        able = []
        for target in targets:
            permitted = [address for address in target.addresses if self.permits(target.host, address)]
            self._open = self._open or not target.addresses or bool(permitted)
            able.append(replace(target, addresses=tuple(egress.order(permitted))))
        if len(self._routes.dead):
            living = [replace(target, addresses=self._living(target, source, now)) for target in able]
            able = living if any(target.addresses for target in living) else able
        return [target for target in able if target.addresses] or able  # a plugin may know other addresses

    def _living(self, target: AddressTarget, source: str, now: float) -> tuple[str, ...]:
        dead, port = self._routes.dead, self._port
        return tuple(address for address in target.addresses if not dead.is_dead((source, address, port), now))

    def permits(self, host: str, address: str) -> bool:
        """To be asked right before connecting."""
        if self._free:
            return True
        reason = self._routes.ourselves.barred(address, self._port)
        if reason:
            self._barred[address] = f"{host} is at {address}, {reason}"
        return not reason

    def failure(self) -> DeliveryError:
        """Why there was no address to try."""
        if not self._barred:
            return Unreachable("connect", "no address that our source address can reach")
        text = f"{'; '.join([*self._barred.values()][:3])}: mail is not sent there"
        return NoRoute(451, "4.4.4", text) if self._open else NoRoute(550, "5.4.4", text)
