"""The schedule: all zones in turns, and the clock for whatever waits for a moment.

Zones take turns; within each, `zone.py` says who is next, and `permits.py` whether that is allowed. Time is steady
seconds (`now`) for rests and limits, UNIX milliseconds for due times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config
from zonemta_py.disk.store import Operation, Store
from zonemta_py.queue.lane import Group, Hold, Path, Strand, split_key
from zonemta_py.queue.permits import Permits
from zonemta_py.queue.sites import Scout, Sites
from zonemta_py.queue.standing import Standing
from zonemta_py.queue.zone import ZoneSchedule
from zonemta_py.zones.fair import Weights
from zonemta_py.zones.throttle import Scope

if TYPE_CHECKING:
    from zonemta_py.queue.core import Clock


class Wants:
    """What the schedule asks of the queue.

    rekey(operations, done): writes to the store, synced. changed(): something may be allowed now that was not before.
    unpin(id): a recipient of that message has left the window. requeued(zone, address): a deferred one was parked.
    terms_of(id): a message's metadata. record(body): a change of standing, for the journal.
    """

    rekey: Callable[[list[Operation], Callable[[], None]], None]
    changed: Callable[[], None]
    unpin: Callable[[str], None]
    requeued: Callable[[str, str], None]
    terms_of: Callable[[str], dict[str, Any]]
    record: Callable[[list[object]], None]


class Schedule:
    """All zones."""

    def __init__(
        self,
        config: Config,
        store: Store,
        marks: dict[str, dict[str, bytes]],
        clock: Clock,
        scout: Scout | None,
        wants: Wants,
    ) -> None:
        self.config, self.retry, self.window = config, config.retry, config.queue.window
        self.rekey, self.changed, self.unpin, self.requeued = wants.rekey, wants.changed, wants.unpin, wants.requeued
        self.terms_of = wants.terms_of
        self.now_ms = clock.ms
        self._monotonic, self._offset = clock.monotonic, clock.ms() / 1000 - clock.monotonic()
        self.busy: set[bytes] = set()
        self.weights = Weights(config.shares)
        self.sites = Sites(scout, self.now)
        self.standing = Standing(config, self.now, clock.ms, wants.record)
        self.permits = Permits(config, self, self.standing)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.zones = {
            zone.name: ZoneSchedule(zone, store, self.busy, marks.get(zone.name, {}), self) for zone in config.zones
        }
        self._turns = deque(self.zones.values())

    def now(self) -> float:
        """Steady seconds: wall time when the process began, and the time since."""
        return self._monotonic() + self._offset

    def next(self) -> Group | None:
        for _ in range(len(self._turns)):
            zone = self._turns[0]
            self._turns.rotate(-1)
            group = zone.next()
            if group is not None:
                return group
        return None

    def fill(self, now_ms: int) -> bool:
        """Every zone reads on where it has room; True: call again soon."""
        more = [zone.fill(now_ms) for zone in self.zones.values()]
        return any(more)

    def strands(self) -> Iterator[Strand]:
        for zone in self.zones.values():
            yield from list(zone.strands.by_key.values())

    def charge_again(self, zone: str, place: str, provider: str, recipients: int, size: int, ms: int) -> None:
        """A lease that was given before the process ended, and is in no saved state of the limits."""
        site, source, flow = split_key(place)
        path = Path.of(flow)
        self.permits.charge_again(Scope(zone, source, site, provider, path.tenant, path.campaign), recipients, size, ms)

    # -- what waits for a moment

    def hold(self, strand: Strand, hold: Hold) -> None:
        """The strand waits until the hold ends, or is lifted (`lift`)."""
        strand.hold(hold)
        self.wake_at(hold.until, lambda: self._over(strand, hold))

    def _over(self, strand: Strand, hold: Hold) -> None:
        if strand.held is hold:
            strand.free()
            strand.zone.unpark(strand)
            strand.zone.enlist(strand)

    def lift(self) -> None:
        """Holds may have ended before their time: everyone looks again."""
        for zone in self.zones.values():
            zone.held = None
        for strand in self.strands():
            if strand.held is not None and strand.held.kind not in ("limit", "dns"):
                self._over(strand, strand.held)
        self.changed()

    def wake_at(self, when: float, then: Callable[[], None]) -> None:
        """Calls `then` at that time (inf: never)."""
        if when != float("inf"):
            self._count += 1
            heapq.heappush(self._timers, (when, self._count, then))

    def wake(self) -> None:
        """Calls what is to be called by now."""
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def next_wake(self, now_ms: int) -> float:
        """Seconds until time alone changes something (a hold ends, a deferred recipient is due); at most 60."""
        waits = [60.0]
        if self._timers:
            waits.append(self._timers[0][0] - self.now())
        waits += [(zone.next_due_ms - now_ms) / 1000 for zone in self.zones.values()]
        return max(0.0, min(waits))

    def marks(self) -> dict[str, dict[str, bytes]]:
        """Low-water marks for the position record."""
        return {name: {"fresh": zone.fresh.mark(), "due": zone.due.mark()} for name, zone in self.zones.items()}
