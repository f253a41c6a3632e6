"""Expires mail whose lifetime is over and that is not being delivered: it is leased only to be bounced.

Failures: on a disk error nothing ends; the next sweep finds it again.
"""

from __future__ import annotations

import math
from itertools import islice

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreError, StoreFenced
from zonemta_py.disk.notes import Note
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.schedule.batch import Batch, Entry, FlowQueue
from zonemta_py.schedule.time.pace import Pace
from zonemta_py.schedule.zone import ZoneSchedule
from zonemta_py.zones import pull

AT_ONCE = 50
"""Recipients of one range that are read before the event loop runs."""
WALKED_AT_ONCE, ENDED_AT_ONCE = 5_000, 1_000
"""Of one range, in a sweep; the next one goes on from there."""
PUSHED_TO = f"@{pull.DOMAIN}"


class Expiry:
    """Finds recipients whose lifetime is over, and bounces them."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue, self._core = queue, queue.core
        self._walks: dict[FlowQueue, bytes] = {}

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

    async def expire(self, zone: ZoneSchedule, flow_queue: FlowQueue, now_ms: int) -> bool:
        """Ends parked recipients whose lifetime is over, in portions. True: there may be more. Raises StoreError."""
        prefix = keys.parked_range(zone.zone.name, flow_queue.key)
        start, ended, pace = self._walks.pop(flow_queue, prefix), 0, Pace(math.inf)
        for _ in range(WALKED_AT_ONCE // AT_ONCE):
            rows = list(islice(self._core.disk.store.scan(start, keys.end(prefix)), AT_ONCE))
            dead, younger = self._over(flow_queue, rows, now_ms)
            self.end(zone, flow_queue, dead)
            ended += len(dead)
            if younger or len(rows) < AT_ONCE:
                return ended >= AT_ONCE  # others have come into the window meanwhile
            start = rows[-1][0] + b"\0"
            await pace.turn()
            if self._core.disk.store.fenced or zone.flow_queues.by_key.get(flow_queue.key) is not flow_queue:
                return False
            if ended >= ENDED_AT_ONCE:
                return True
        self._walks[flow_queue] = start  # at the next sweep
        return False

    def _over(self, flow_queue: FlowQueue, rows: list[tuple[bytes, bytes]], now_ms: int) -> tuple[list[Entry], bool]:
        """Those whose lifetime is over. True: the last one is too young, and so are all behind it."""
        dead = list[Entry]()
        for key, value in rows:
            place = keys.place(key)
            if not self._core.lifetime.perhaps_over(place.id, now_ms):
                return dead, True  # ids grow with time
            entry = Entry(key, place.id, place.recipient, Note.of(value))
            if key not in self._core.schedule.busy and self.over(flow_queue, now_ms, entry):
                dead.append(entry)
        return dead, False

    def forget(self) -> None:
        """Drops walks of flow queues that no longer exist."""
        self._walks = {one: key for one, key in self._walks.items() if one.zone.flow_queues.by_key.get(one.key) is one}

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
