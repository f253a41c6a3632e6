"""The lifetime of mail: how long a recipient may wait before it expires (5.4.7). The rule is here, in one place.

A recipient lives `life_h` hours: the campaign's if it is merged, those of [pull] if it was pushed into a pull zone
(without end, if none are set), else those of its destination, else those of [retry]. They are counted in steady time
(`schedule.steady`: setting the clock makes no mail older), from when it may first be sent: its message was accepted,
its hold is over (X-Deliver-After, a campaign's `at`), its sending hours are open. Not counted is waiting by choice:
while its zone, destination, domain, tenant, campaign or source is stopped by an order or a campaign's threshold, while
it is held, and while its sending hours are closed. All of it is derived from what was stopped since when
(`schedule/policy/state.py:Pauses`) and from the hours: nothing is written for a recipient. All other waiting counts,
including limits, a rule's rest, an unreachable destination, and time when the machine was off; but after more than an
hour of that, nothing expires before it could be tried for an hour.

It expires at the first failed attempt after its end or, if it cannot be tried, by the sweep (`expiry`).
"""

from __future__ import annotations

from typing import Any

from zonemta_py.config import Config, Zone
from zonemta_py.disk import keys
from zonemta_py.disk.notes import Note
from zonemta_py.journal.records.mail import DeliveryRecord
from zonemta_py.queue.core.campaigns import Campaigns
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.core.tasks import Tasks
from zonemta_py.schedule.batch import FlowQueue
from zonemta_py.schedule.flow import apart_of, split_key
from zonemta_py.schedule.flow_queues import domain_of
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.time import hours
from zonemta_py.schedule.time.steady import Steady
from zonemta_py.zones.pull import PUSHED

HOUR_MS = 3_600_000
EVER_H = 1000 * 366 * 24
"""Later than anything is shown."""


class Lifetime:
    """Lifetimes of all mail in the queue. Times are steady."""

    def __init__(
        self, config: Config, clock: Steady, campaigns: Campaigns, tasks: Tasks, schedule: Schedule
    ) -> None:  # fmt: skip
        self._config, self._clock, self._schedule = config, clock, schedule
        self._campaigns, self._tasks = campaigns, tasks

    def configure(self, config: Config) -> None:
        """Another life from now on, for all mail that names none itself."""
        self._config = config

    def perhaps_over(self, message_id: str, now_ms: int) -> bool:
        """False: its lifetime is certainly not over. Does not read the message; if False, also False for all later
        ids."""
        config = self._config
        shortest_h = min(
            self._schedule.destinations.shortest_life_h, self._campaigns.shortest_life_h, config.pull.life_h or EVER_H
        )
        shortest_h = min(shortest_h, self._tasks.shortest_life_h)
        return now_ms - self._clock.born_ms(message_id) >= shortest_h * HOUR_MS

    def over(self, flow_queue: FlowQueue, message: Message, address: str, note: Note, now_ms: int) -> bool:
        """Whether its lifetime is over."""
        terms = self._terms(message, note)
        begins_ms = self._begins_ms(flow_queue, message, note, terms)
        life_ms = int(self.life_h(flow_queue, message, address, note) * HOUR_MS)
        if now_ms - begins_ms < life_ms or now_ms < self._clock.grace_until_ms:
            return False
        return now_ms - begins_ms - self._chosen_ms(flow_queue, address, note, terms, begins_ms, now_ms) >= life_ms

    def ends_ms(self, flow_queue: FlowQueue, message: Message, address: str, note: Note, now_ms: int) -> int:
        """When its lifetime ends, if nothing is stopped or held from now on."""
        terms = self._terms(message, note)
        begins_ms = self._begins_ms(flow_queue, message, note, terms)
        chosen_ms = self._chosen_ms(flow_queue, address, note, terms, begins_ms, now_ms)
        ends_ms = begins_ms + int(self.life_h(flow_queue, message, address, note) * HOUR_MS) + chosen_ms
        at_ms, zone = max(now_ms, begins_ms), flow_queue.zone.zone
        ends_ms = hours.later_ms(self._config, zone, terms, at_ms, ends_ms - at_ms, self._clock.apart_ms())
        return max(ends_ms, self._clock.grace_until_ms)

    def chosen_ms(self, flow_queue: FlowQueue, message: Message, address: str, note: Note, now_ms: int) -> int:
        """How much of its waiting does not count, because it was stopped or held, or its hours were closed."""
        terms = self._terms(message, note)
        begins_ms = self._begins_ms(flow_queue, message, note, terms)
        return self._chosen_ms(flow_queue, address, note, terms, begins_ms, now_ms)

    def life_h(self, flow_queue: FlowQueue, message: Message, address: str, note: Note) -> float:
        """How long it may be tried, in hours."""
        if note.life_h:
            return note.life_h
        terms = message.metadata
        if said_h := terms.get("life_h"):
            return float(said_h)
        if terms.get("protocol") == PUSHED:
            return self._config.pull.life_h or EVER_H
        return flow_queue.zone.flow_queues.terms_of(flow_queue.path, address).retry.life_h

    def first_h(self, zone: Zone, domain: str) -> float:
        """How long mail for that domain lives, as far as that is known before it is tried."""
        destinations = self._schedule.destinations
        terms = destinations.for_domain(destinations.terms(zone, ()), zone, domain)
        return terms.retry.life_h

    def notice_h(self, key: bytes, tried: DeliveryRecord | None = None) -> float:
        """After how long a delay is told, for a recipient of which only the key is known: as its domain says, and where
        it was tried."""
        place, destinations = keys.place(key), self._schedule.destinations
        zone = self._config.zone(place.zone) if destinations else None
        if zone is None:
            return self._config.retry.delay_notice_h
        terms = destinations.terms(zone, ())
        if tried is not None:
            apart, site = apart_of(tried.destination), tried.trace.site or split_key(tried.destination)[0]
            terms = destinations.there(zone, apart, site, tried.trace.provider)
        terms = destinations.for_domain(terms, zone, domain_of(place.recipient))
        return terms.retry.delay_notice_h

    def _terms(self, message: Message, note: Note) -> dict[str, Any]:
        return self._campaigns.terms(message.metadata, note.values)

    def _begins_ms(self, flow_queue: FlowQueue, message: Message, note: Note, terms: dict[str, Any]) -> int:
        zone = flow_queue.zone.zone
        apart_ms = self._clock.apart_ms()
        begins_ms = message.created_ms + self._clock.apart_of(message.id)
        begins_ms = hours.first_ms(self._config, zone, terms, begins_ms, apart_ms)
        if note.first_ms and (zone.window or terms.get("window")):
            begins_ms = max(begins_ms, note.first_ms + apart_ms)
        return begins_ms

    def _chosen_ms(
        self, flow_queue: FlowQueue, address: str, note: Note, terms: dict[str, Any], since_ms: int, now_ms: int
    ) -> int:  # fmt: skip
        """How long it was stopped or held by choice, or its hours were closed."""
        policy, zone = self._schedule.policy, flow_queue.zone.zone
        path, flow_id = flow_queue.path, flow_queue.flow_id
        closed = hours.closed(self._config, zone, terms, since_ms, now_ms, self._clock.apart_ms())
        paused_ms = policy.paused_ms(path, flow_id, zone.name, domain_of(address), since_ms, now_ms, closed)
        return max(0, note.kept_ms) + paused_ms
