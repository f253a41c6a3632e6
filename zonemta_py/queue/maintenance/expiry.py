"""Expires mail whose lifetime is over and that is not being delivered: it is leased only to be bounced.

Failures: on a disk error nothing ends; the next sweep finds it again.
"""

from __future__ import annotations

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError, StoreFenced
from zonemta_py.disk.notes import Note
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.schedule.batch import Batch, Entry, FlowQueue
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones import queues

AT_ONCE = 1_000
PUSHED_TO = f"@{queues.DOMAIN}"
WALKED_AT_ONCE = 5_000
"""Recipients of one range that are read before the event loop runs."""


class Expiry:
    """Finds recipients whose lifetime is over, and bounces them."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue, self._core = queue, queue.core

    def over(self, flow_queue: FlowQueue, now_ms: int, entry: Entry) -> bool:
        """Whether its lifetime is over."""
        core = self._core
        if not core.lifetime.perhaps_over(entry.id, now_ms) or (
            entry.address.endswith(PUSHED_TO) and flow_queue.zone.zone.pulled and not core.config.pull.life_h
        ):  # what was pushed lives for ever, and there may be very much of it
            return False
        try:
            message = core.messages.look(entry.id)
        except StoreFenced:
            return False
        except StoreError:
            return True  # leasing deals with it
        return core.lifetime.over(flow_queue, message, entry.address, entry.note, now_ms)

    def expire(self, zone: ZoneSchedule, flow_queue: FlowQueue, now_ms: int) -> bool:
        """Ends parked recipients whose lifetime is over. True: there may be more."""
        prefix = keys.parked_range(zone.zone.name, flow_queue.key)
        dead: list[Entry] = []
        for count, (key, value) in enumerate(self._core.store.scan(prefix, keys.end(prefix))):
            place = keys.place(key)
            if len(dead) >= AT_ONCE or count >= WALKED_AT_ONCE:
                break
            if not self._core.lifetime.perhaps_over(place.id, now_ms):
                break  # ids grow with time: later ones are younger
            entry = Entry(key, place.id, place.recipient, Note.of(value))
            if key not in self._core.schedule.busy and self.over(flow_queue, now_ms, entry):
                dead.append(entry)
        self.end(zone, flow_queue, dead)
        return len(dead) >= AT_ONCE

    def end(self, zone: ZoneSchedule, flow_queue: FlowQueue, dead: list[Entry], late: bool = False) -> None:
        """Bounces them; they are not leased otherwise. late: because of their deadline."""
        self._core.schedule.busy.update([entry.key for entry in dead])  # each end lets the flow queue read on
        if self._core.tasks.active:
            dead = self._core.tasks.divert(zone, dead)
        for entry in dead:
            batch = Batch(flow_queue, [entry])
            zone.begin(batch)
            try:
                lease = self._queue.leases.grant(batch, "expiry")
            except (StoreFenced, OSError):  # at the next sweep, then
                zone.done(batch)
                zone.put_back(batch, batch.entries)
                continue
            if lease is not None:
                why = waited_for(zone, flow_queue)
                cause = past_deadline(why) if late else why or "its time in the queue is over"
                self._queue.leases.end(lease, BOUNCED, Reply(554, "5.4.7", cause))


def waited_for(zone: ZoneSchedule, flow_queue: FlowQueue) -> str:
    """Why it waited so long; "" if nothing in memory says."""
    hold = flow_queue.held or zone.held
    unfetched = "nobody has fetched it in time" if zone.zone.pulled else ""
    return flow_queue.path.reason or (hold.cause if hold else unfetched)


def past_deadline(why: str) -> str:
    return f"its delivery deadline has passed ({why})" if why else "its delivery deadline has passed"
