"""A recipient in the queue as a row: where it is, what was tried, when it goes next, and what it waits for."""

from __future__ import annotations

from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.mail.metadata import about, told
from zonemta_py.queue.core.state import State
from zonemta_py.queue.core.tasks import Ordered
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.queue.tasks.facts import Candidate, Sight
from zonemta_py.schedule.reasons import reasons, whole
from zonemta_py.schedule.time import hours

Row = dict[str, Any]
ITS_TURN = "its turn"


class Rows:
    """Makes the rows of one answer. What holds a flow queue is found out once for all of them."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue, self._core = queue, queue.core
        self.sight = Sight(queue.core, queue.core.clock.steady_ms())
        self._leases: dict[bytes, Lease] | None = None
        self._ordered: dict[bytes, Ordered] = {}
        """What tasks are about to delete or to hold."""
        self._causes: dict[tuple[str, str], str] = {}

    @property
    def leases(self) -> dict[bytes, Lease]:
        """By the key of each recipient that is being delivered."""
        if self._leases is None:
            self._leases = {entry.key: lease for lease in self._queue.leases.out.values() for entry in lease.open}
        return self._leases

    def lease(self, key: bytes) -> Lease | None:
        """Of a recipient that is being delivered."""
        return self.leases.get(key) if key in self._core.schedule.busy else None

    def of(self, key: bytes, value: bytes) -> Candidate:
        """The recipient, as filters see it."""
        if self.lease(key) is not None:
            return self.sight.of(key, value, State.LEASED)
        ordered = self._core.tasks.ordered(key, value) if self._core.tasks.active else None
        if ordered is None:
            return self.sight.of(key, value)
        self._ordered[key] = ordered
        return self.sight.of(key, value, ordered.state)

    def row(self, one: Candidate, key: bytes) -> Row:
        """Raises StoreFenced."""
        place, note, core = one.place, one.note, self._core
        try:
            metadata = one.metadata
        except StoreError:
            metadata = {}
        site, source, provider = one.site, one.source, one.provider
        path = core.schedule.zones.get(place.zone)
        flow_queue = path.flow_queues.by_key.get(place.destination) if path and place.destination else None
        return {
            "id": place.id,
            "zone": place.zone,
            "recipient": place.recipient,
            "sender": metadata.get("sender", ""),
            "user": metadata.get("user") or "",
            "state": str(one.state),
            "attempts": note.attempts,
            "due_ms": place.due_ms and place.due_ms - core.clock.apart_ms(),
            "received_ms": metadata.get("received_ms") or keys.id_ms(place.id),
            "size": metadata.get("size", 0),
            "subject": metadata.get("headers", {}).get("subject", ""),
            "last": note.last or (flow_queue.path.reason if flow_queue else ""),
            "cause": self._cause(one, key),
            "priority": one.priority,
            "tenant": one.tenant,
            "campaign": one.campaign,
            "site": site,
            "source": source,
            "provider": provider,
            "notes": note.notes or {},
            **self._told(metadata, note, place.recipient),
        }

    @staticmethod
    def _told(metadata: dict[str, Any], note: Note, recipient: str) -> Row:
        """Its metadata, and the header fields that come back with them."""
        found = told(about(metadata, [(recipient, note.meta)]), recipient) if "meta" in metadata else {}
        return {"metadata": found.get("metadata", {}), "headers": found.get("headers", {})}

    def _cause(self, one: Candidate, key: bytes) -> str:
        """What it waits for, the nearest thing, in a few words."""
        place, note, core = one.place, one.note, self._core
        if (lease := self.lease(key)) is not None:
            return f"{lease.worker or 'a sender'} delivers it"
        if (ordered := self._ordered.get(key)) is not None:
            return ordered.cause
        if place.family == "held":
            return f"an operator: {note.last}" if note.last else "an operator"
        if place.family == "deleted":
            return f"nothing: task {place.task} has deleted it, which can be undone"
        if place.family == "bounced":
            return "nothing: it has bounced, and can be queued again"
        if halted := whole(core.schedule):
            return str(halted[0]["cause"])
        if place.family == "deferred" and place.due_ms > core.clock.steady_ms():
            if note.attempts:
                return "its next try"
            asked = hours.hold_ms(one.metadata, core.clock.apart_ms()) >= place.due_ms
            return "the time that its sender asked for" if asked else "its time"
        return self._queued(one)

    def _queued(self, one: Candidate) -> str:
        zone = self._core.schedule.zones.get(one.zone)
        if zone is None:
            return ITS_TURN
        name = one.place.destination or zone.flow_queues.where(one.id, one.recipient, one.note)[0]
        known = self._causes.get((one.zone, name))
        if known is None:
            flow_queue = zone.flow_queues.by_key.get(name)
            schedule = self._core.schedule
            found = reasons(schedule, flow_queue) if flow_queue is not None else whole(schedule)
            known = self._causes[one.zone, name] = found[0]["cause"] if found else ITS_TURN
        return known
