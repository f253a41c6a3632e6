"""Reroutes that are in force: which mail goes another way now, and which does when that changes.

A reroute is kept as a stop is (`PolicyState.reroutes`): so it survives, ends by itself, and all queues know it. Here is
what holds at this moment: `Schedule` looks whenever something may have changed, and lets what waits go where it belongs
then. Of several for the same mail the most exact counts: one for its domain, then site, then
provider, then for all of its zone; of two for the same, the one that names the zone. Then comes the zone's own, for
recipients that were tried several times ([zones.reroute]).

One whose pool or zone the configuration lacks does not hold: its mail goes as ever. A recipient that was sent to
another zone is not sent on from there: `hop` in a step of its note says where it came from (`queue.tasks.change`), and
it goes back once no reroute sends it there any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from zonemta_py.config import Config, Zone
from zonemta_py.disk.notes import Note
from zonemta_py.mail.reroute import ANY, HOST, POOL, ZONE, Bypass, RerouteTarget, parts_of
from zonemta_py.schedule.policy.state import PolicyState
from zonemta_py.zones.zone import destination, named

HOP = "hop"


class Reroutes:
    """Of all zones."""

    def __init__(self) -> None:
        self.by_name: dict[str, Bypass] = {}
        self.seen = -1
        """The state of the policy (`PolicyState.rerouted`) that this is."""
        self.until = math.inf
        """When the first of them ends, steady seconds."""
        self.ever = False
        """There has been one since the start."""
        self._zones: dict[str, Zone] = {}
        self._pools: set[str] = set()

    def configure(self, config: Config) -> None:
        self._zones = {zone.name: zone for zone in config.zones}
        self._pools = {pool.name for pool in config.pools}
        self.seen = -1

    def look(self, policy: PolicyState) -> list[Bypass]:
        """Those that have begun or ended since the last look."""
        before, found, until = self.by_name, dict[str, Bypass](), math.inf
        for name, stop in policy.reroutes_now().items():
            to = RerouteTarget.of(stop.to)
            if self.lacks(to) or (to.kind == ZONE and parts_of(name)[0] == to.name):
                continue
            found[name] = Bypass(name, to, stop.cause)
            until = min(until, stop.until_ms / 1000 if stop.until_ms else math.inf)
        self.by_name, self.until, self.seen = found, until, policy.rerouted
        self.ever = self.ever or bool(found)
        changed = [one for name, one in before.items() if found.get(name, one)[:2] != one[:2] or name not in found]
        return changed + [one for name, one in found.items() if before.get(name, ("", None))[:2] != one[:2]]

    def lacks(self, to: RerouteTarget) -> str:
        """What the configuration does not have of it; "" nothing."""
        return lacking(to, self._pools, {name for name, zone in self._zones.items() if not zone.pulled})

    # -- which way

    def of(self, zone: Zone, domain: str, site: str, provider: str, note: Note) -> Bypass | None:
        """The way that a recipient in that zone goes instead. site, provider: where it would go, as far as known."""
        home = hop_home(note)
        if home and (there := self._zones.get(home)) is not None:
            place = destination(there, "").key if there.smart else site
            sent = self._find(there, domain, place, provider, note.attempts)
            if sent is None or sent.to[:2] != (ZONE, zone.name):
                return Bypass("", RerouteTarget(ZONE, home), "the reroute is over")
        found = self._find(zone, domain, site, provider, note.attempts)
        return None if found is not None and found.to.kind == ZONE and (home or found.to.name == zone.name) else found

    def _find(self, zone: Zone, domain: str, site: str, provider: str, attempts: int) -> Bypass | None:
        if self.by_name:
            for place in (domain, site, site.partition("+")[0], provider, ANY):
                for name in (zone.name, ANY) if place else ():
                    if (found := self.by_name.get(f"{name} {place}")) is not None:
                        return found
        own = zone.reroute
        if own is None or attempts < own.after_tries:
            return None
        to = RerouteTarget.of(own.to)
        return None if self.lacks(to) else Bypass("", to, f"zone {zone.name} reroutes after {own.after_tries} tries")


def lacking(to: RerouteTarget, pools: Iterable[str], zones: Iterable[str]) -> str:
    """What of it is not there: "pool 'x'"; "" nothing. zones: that send."""
    missing = (to.kind == POOL and to.name not in pools) or (to.kind == ZONE and to.name not in zones)
    return f"{to.kind} {to.name!r}" if missing else ""


def hop_home(note: Note) -> str:
    """The zone from which a reroute has sent the recipient; "" if it is where its mail came in."""
    for step in reversed(note.done or ()):
        if HOP in step[4]:
            return str(step[4]["zone"])
    return ""


def places(bypass: Bypass) -> tuple[str, set[str]]:
    """Zone ("" any), and what sites, providers and domains it is about, with where it sends their mail."""
    zone, place = parts_of(bypass.name)
    found = {place or ANY}
    if bypass.to.kind == HOST:
        found.add(named(bypass.to.name, bypass.to.port).key)
    return zone, found
