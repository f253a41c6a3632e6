"""The schedule: all zones in turns, and the clock for whatever waits for a moment.

Zones take turns; within each, `zone.py` says who is next, and `admission/admission.py` whether that is allowed. Time is
steady seconds (`now`) for rests and limits, UNIX milliseconds for due times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.schedule.batch import Batch, FlowQueue
from zonemta_py.schedule.flow import FlowId, split_key
from zonemta_py.schedule.shared import QueueCallbacks, Shared
from zonemta_py.schedule.sites import DestinationResolver
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones.throttle import Scope


class Schedule(Shared):
    """All zones."""

    def __init__(
        self,
        config: Config,
        store: Store,
        marks: dict[str, dict[str, bytes]],
        clock: Clock,
        resolver: DestinationResolver | None,
        queue: QueueCallbacks,
    ) -> None:
        super().__init__(config, clock, resolver, queue)
        self.zones = {
            zone.name: ZoneSchedule(zone, store, self.busy, marks.get(zone.name, {}), self) for zone in config.zones
        }
        self._turns = deque(self.zones.values())

    def next(self) -> Batch | None:
        for _ in range(len(self._turns)):
            zone = self._turns[0]
            self._turns.rotate(-1)
            batch = zone.next()
            if batch is not None:
                return batch
        return None

    def fill(self, now_ms: int) -> bool:
        """Every zone reads more where it has room; True: call again soon."""
        more = [zone.fill(now_ms) for zone in self.zones.values()]
        return any(more)

    def flow_queues(self) -> Iterator[FlowQueue]:
        for zone in self.zones.values():
            yield from list(zone.flow_queues.by_key.values())

    def charge_again(self, zone: str, place: str, provider: str, recipients: int, size: int, ms: int) -> None:
        """A lease that was given before the process ended, and is in no saved state of the limits."""
        site, source, flow = split_key(place)
        flow_id = FlowId.of(flow)
        self.admission.charge_again(
            Scope(zone, source, site, provider, flow_id.tenant, flow_id.campaign), recipients, size, ms
        )

    # -- what waits for a moment

    def lift(self) -> None:
        """Holds may have ended before their time: all are checked again."""
        for zone in self.zones.values():
            zone.held = None
        for flow_queue in self.flow_queues():
            if flow_queue.held is not None and flow_queue.held.kind not in ("limit", "dns"):
                flow_queue.zone.over(flow_queue, flow_queue.held)
        self.changed()

    def wake(self) -> None:
        """Calls what is to be called by now."""
        self.timers.wake()

    def next_wake(self, now_ms: int) -> float:
        """Seconds until time alone changes something (a hold ends, a deferred recipient is due); at most 60."""
        waits = [60.0, self.timers.wait_s()]
        waits += [(zone.next_due_ms - now_ms) / 1000 for zone in self.zones.values()]
        return max(0.0, min(waits))

    def marks(self) -> dict[str, dict[str, bytes]]:
        """Low-water marks for the position record."""
        return {name: {"fresh": zone.fresh.mark(), "due": zone.due.mark()} for name, zone in self.zones.items()}
