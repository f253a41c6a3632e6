"""What all zones of the schedule share: clock, limits, standing, sites, weights, and what the queue does for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Operation
from zonemta_py.schedule.admission.admission import Admission
from zonemta_py.schedule.batch import Entry
from zonemta_py.schedule.policy.state import PolicyState
from zonemta_py.schedule.reroutes import Reroutes
from zonemta_py.schedule.sites import DestinationResolver, Sites
from zonemta_py.schedule.time.clock import Clock, Timers
from zonemta_py.zones.destinations import Destinations
from zonemta_py.zones.fair import Weights


class QueueCallbacks(NamedTuple):
    """What the schedule asks of the queue.

    rekey(operations, done): writes to the store, synced. changed(): something may be allowed now that was not before.
    unpin(id): a recipient of that message has left the window. requeued(zone, address, flow): a deferred recipient was
    parked.
    rehome(zone, other, entries): sends recipients of a zone, taken out of its window, to another zone.
    terms_of(id): a message's metadata, as far as it can be read. record(body): a change of policy, for the journal.
    looked_up(domain, provider): DNS has said whose the domain is. halted(): why nothing at all is sent, by kind
    (`reasons.WHOLE`) and sentence.
    """

    rekey: Callable[[list[Operation], Callable[[], None]], None]
    changed: Callable[[], None]
    unpin: Callable[[str], None]
    requeued: Callable[[str, str, str], None]
    terms_of: Callable[[str], dict[str, Any]]
    record: Callable[[list[object]], None]
    looked_up: Callable[[str, str], None]
    halted: Callable[[], Iterable[tuple[str, str]]]
    rehome: Callable[[str, str, list[Entry]], None]


class Shared:
    """Made once, for all zones. busy: keys in use in memory."""

    def __init__(
        self, config: Config, clock: Clock, resolver: DestinationResolver | None, queue: QueueCallbacks
    ) -> None:
        self.reroutes = Reroutes()
        self._read(config)
        self.rekey, self.changed, self.unpin, self.requeued = queue.rekey, queue.changed, queue.unpin, queue.requeued
        self.terms_of, self.halted, self.rehome = queue.terms_of, queue.halted, queue.rehome
        self.timers = Timers(clock)
        self.now, self.now_ms = self.timers.now, self.timers.now_ms
        self.wake_at = self.timers.wake_at
        self.busy: set[bytes] = set()
        self.sites = Sites(resolver, self.now, queue.looked_up)
        self.policy = PolicyState(config, self.now, self.now_ms, queue.record)
        self.admission = Admission(config, self.timers, self.terms_of, self.policy)

    def _read(self, config: Config) -> None:
        self.config, self.retry, self.window = config, config.retry, config.queue.window
        self.weights = Weights(config.shares)
        self.destinations = Destinations(config)
        self.reroutes.configure(config)

    def _configure(self, config: Config, resolver: DestinationResolver | None) -> None:
        self.sites.configure(resolver, anew=config.dns != self.config.dns)
        self._read(config)
        self.policy.configure(config)
        self.admission.configure(config)
