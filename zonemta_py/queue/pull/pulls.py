"""Pulling: hands what waits in pull zones to those who come for it, each with a start record that is stable before.

What is pulled is a lease, as a sender's. A plain one lasts as long as the connection over which it was asked for; a
reservation until its time is over, whatever becomes of the connection. Either ends with an acknowledgement, or is given
back; what ends otherwise may have been taken, so it is in doubt, and back in its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from zonemta_py.disk.leveldb.store import StoreError, StoreFenced
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, DELIVERED, HELD, RELEASED, Delivery, Outcome, QueueRefusal, Result
from zonemta_py.queue.core import sizes
from zonemta_py.queue.lifecycle import in_doubt
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.lifecycle.lease import Lease, Taker, delivery_of
from zonemta_py.queue.questions.question import Refused
from zonemta_py.schedule.batch import Batch
from zonemta_py.schedule.pull_zone import PullZone
from zonemta_py.zones import pull

RESERVED = "reserved"
"""Whose lease a reservation is: no connection's."""
MOST = 100
"""Messages that are taken at once."""
SECONDS_MOST = 1_000_000_000
ZONES_AT_ONCE = 200
"""Queues that are looked at before the event loop runs."""
AT_ONCE_S = 1.0
"""How long somebody who does not want to wait does so while nothing is handed out, as the queue is about to end."""
STAGE = "pull"
TAKEN = Reply(250, "2.0.0", "taken")
GIVEN_BACK = Reply(450, "4.3.0", "given back")
NO_BODY = Reply(450, "4.3.0", "a merged message has no body that could be taken; move it to a zone that is sent from")
COPY = Reply(450, "4.3.2", "this is a copy of a queue, from which nothing is taken before `zonemta queue adopt`")

Done = Callable[[bool], None]
"""Called with False if the lease is not out any more."""


def check_seconds(*values: float) -> None:
    """Raises ValueError for what is no time to wait."""
    for value in values:
        if not 0 <= value <= SECONDS_MOST:
            raise Refused(f"{value} is no number of seconds from 0 to {SECONDS_MOST}")


class Puller:
    """Somebody who waits at a zone. at_once: only as long as it takes to look."""

    __slots__ = ("at_once", "taker", "timer", "zone")

    def __init__(self, zone: str, taker: Taker, at_once: bool) -> None:
        self.zone, self.taker, self.at_once = zone, taker, at_once
        self.timer: asyncio.TimerHandle | None = None


class Pulls:
    """Who waits, and what is reserved."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue, self._core, self._leases = queue, queue.core, queue.leases
        self._waiting: dict[str, deque[Puller]] = {}
        self.reserved: dict[int, float] = {}
        """Until when, in steady seconds, by the number of the lease."""

    # -- who waits

    def pull(
        self, queue: str, most: int, reserve_s: float, wait_s: float, worker: str,
        deliver: Callable[[list[Delivery]], None], remote: str = "",
    ) -> Puller | None:  # fmt: skip
        """`deliver` is called once: with 1…most deliveries, or none if there are none until `wait_s` is over.

        None: it has been called. remote: its address, "" if unknown. Raises ValueError, QueueRefusal.
        """
        check_seconds(reserve_s, wait_s)
        if self._core.copied:
            raise QueueRefusal(COPY)
        zone = pull.zone_of(self._core.config, queue)
        wait_s = 0.0 if self._core.stopping else wait_s
        if wait_s <= 0 and self._core.schedule.pull_zone(zone) is None:
            deliver([])
            return None
        taker = Taker(RESERVED if reserve_s else worker, min(max(1, most), MOST), deliver)
        puller = Puller(zone, taker, wait_s <= 0)
        taker.deliver = partial(self._deliver, taker.leases, reserve_s, remote, deliver)
        puller.timer = asyncio.get_running_loop().call_later(wait_s if wait_s > 0 else AT_ONCE_S, self._over, puller)
        self._waiting.setdefault(zone, deque()).append(puller)
        self._core.schedule.awaits(zone, True)
        self._core.changed()
        return puller

    def leave(self, puller: Puller) -> None:
        """It waits no longer; what it was to get goes back. Harmless after it was served."""
        self._away(puller)
        self._leases.leave(puller.taker)

    def _away(self, puller: Puller) -> bool:
        """Takes it out of its line; False: it stood in none."""
        if puller.timer is not None:
            puller.timer.cancel()
        line = self._waiting.get(puller.zone, ())
        if puller not in line:
            return False
        assert isinstance(line, deque)
        line.remove(puller)
        if not line:
            del self._waiting[puller.zone]
            self._core.schedule.awaits(puller.zone, False)
        return True

    def _over(self, puller: Puller) -> None:
        """Its time is over; who does not want to wait is told that there is nothing only if that is known."""
        member = self._core.membership
        unknown = self._core.disk.store.fenced or not (self._core.ready or self._core.stopping)
        unknown = unknown or (member is not None and not member.may_lease())
        if puller.at_once and unknown:
            puller.timer = asyncio.get_running_loop().call_later(AT_ONCE_S, self._over, puller)
        else:
            self._give_up(puller)

    def give_up(self) -> None:
        """Whoever waits gets nothing: this process is to end."""
        for puller in [one for line in self._waiting.values() for one in line]:
            self._give_up(puller)

    def _give_up(self, puller: Puller) -> None:
        if self._away(puller):
            puller.taker.gone = True
            puller.taker.deliver([])

    def serve(self, now_ms: int) -> tuple[list[Taker], bool]:
        """Those who were served; False: the disk has an error, try again in a moment."""
        served, store = list[Taker](), self._core.disk.store
        for zone in list(self._core.schedule.stirred):
            line = self._waiting[zone.zone.name]
            try:
                more = zone.fill(now_ms)
                self._at(zone, line, now_ms, served)
            except (StoreFenced, OSError):
                return served + self._served(line), False
            if more:
                self._core.changed()
            elif not (zone.moving or store.fenced):
                for puller in [one for one in line if one.at_once]:
                    self._give_up(puller)
                if line:
                    zone.rest()
        return served, True

    def _at(self, zone: PullZone, line: deque[Puller], now_ms: int, served: list[Taker]) -> None:
        """Serves those who wait at a zone in turn. Raises StoreFenced, OSError."""
        while line and (batch := zone.next()) is not None:
            taker = line[0].taker
            if batch.entries[0].note.values is not None:
                self._set_aside(batch)
            elif self._leases.give(taker, batch, now_ms) and len(taker.deliveries) >= taker.most:
                served += self._served(line)
        served += self._served(line)

    def _served(self, line: deque[Puller]) -> list[Taker]:
        """The first in the line, if it has got anything."""
        if not line or not line[0].taker.deliveries:
            return []
        puller = line[0]
        self._away(puller)
        return [puller.taker]

    def _set_aside(self, batch: Batch) -> None:
        """Merged messages are made by senders; an operator may move them to another zone."""
        lease = self._leases.grant(batch, RESERVED)
        if lease is not None:
            self._leases.end(lease, HELD, NO_BODY)

    def _deliver(
        self, leases: list[Lease], reserve_s: float, remote: str, deliver: Callable[[list[Delivery]], None],
        deliveries: list[Delivery],
    ) -> None:  # fmt: skip
        for lease in leases:
            lease.holder = remote
            if reserve_s:
                self._reserve(lease, reserve_s)
        deliver(deliveries)

    # -- what is out

    def _reserve(self, lease: Lease, seconds: float) -> None:
        number, until = lease.number, self._core.schedule.now() + seconds
        self.reserved[number] = lease.until_s = until
        self._core.schedule.wake_at(until, partial(self._expire, number, until))
        self._core.changed()

    def _expire(self, number: int, until: float) -> None:
        """Its time is over, unless it was extended, or has ended."""
        if self.reserved.get(number) != until:
            return
        del self.reserved[number]
        lease = self._leases.out.get(number)
        if lease is not None and not lease.settling:
            in_doubt.give_up(self._queue, lease)

    def _out(self, number: int, message_id: str) -> Lease | None:
        """The lease, unless it has ended; its number alone may be another's after a restart."""
        lease = self._leases.out.get(number)
        if lease is None or not lease.sent or lease.settling or lease.message.id != message_id:
            return None
        return lease if lease.zone.pulled else None

    def queue_of(self, number: int, message_id: str) -> str | None:
        """Whose message is leased; None if it is not out any more."""
        lease = self._out(number, message_id)
        return pull.queue_of(lease.zone) if lease is not None else None

    def extend(self, number: int, message_id: str, reserve_s: float) -> bool:
        """It is reserved for so long from now on; False: it is not out any more. Raises ValueError."""
        check_seconds(reserve_s)
        lease = self._out(number, message_id)
        if lease is None:
            return False
        lease.worker = RESERVED
        self._reserve(lease, reserve_s)
        return True

    def ack(self, number: int, message_id: str, remote: str, done: Done) -> None:
        """It has been taken; `done` is called when that is on stable storage."""
        self._settle(number, message_id, Outcome(DELIVERED, TAKEN, STAGE, []), remote, done, partial(done, True))

    def nack(self, number: int, message_id: str, delay_s: float, remote: str, done: Done) -> None:
        """It is given back; `done` is called when it can be taken again, or waits for its time. Raises ValueError."""
        check_seconds(delay_s)

        def back() -> None:
            self._core.disk.lines.submit([], lambda _: done(True), sync=False, keep=True)
            self._core.disk.lines.flush()

        outcome = Outcome(RELEASED, GIVEN_BACK, STAGE, [])
        if delay_s > 0:
            outcome = Outcome(DEFERRED, GIVEN_BACK, STAGE, [], delay_s=delay_s)
        self._settle(number, message_id, outcome, remote, done, back)

    def abandon(self, number: int, message_id: str, done: Done) -> None:
        """Nobody knows whether it has been taken."""
        lease = self._out(number, message_id)
        if lease is None:
            done(False)
            return
        self.reserved.pop(number, None)
        in_doubt.give_up(self._queue, lease)
        self._core.disk.journal.when_stable(partial(done, True))

    def _settle(
        self, number: int, message_id: str, outcome: Outcome, remote: str, done: Done, then: Callable[[], None]
    ) -> None:
        lease = self._out(number, message_id)
        if lease is None:
            done(False)
            return
        self.reserved.pop(number, None)
        outcome.recipients = list(range(len(lease.batch.entries)))
        took_ms = max(0, self._core.clock.ms() - lease.since_ms)
        self._queue.settling.settle(
            Result(number, [outcome], remote=remote, started_ms=lease.since_ms, took_ms=took_ms), then
        )

    # -- what waits

    def gauges(self) -> dict[str, list[list[Any]]]:
        """For metrics."""
        waiting = sum(map(len, self._waiting.values()))
        return {
            "zonemta_pull_waiting": [[[], waiting]],
            "zonemta_pull_reservations": [[[], len(self.reserved)]],
        }

    async def peek(self, queue: str, most: int) -> list[Delivery]:
        """What would be taken next; it is leased to nobody. Raises StoreError."""
        await self._core.when_ready.wait()
        zone = self._core.schedule.pull_zone(pull.zone_of(self._core.config, queue))
        if zone is None:
            return []
        zone.fill(self._core.clock.steady_ms())
        while zone.moving:
            await self._core.disk.lines.stable()
        messages, found = self._core.messages, list[Delivery]()
        for flow_queue, entry in zone.peek(min(most, MOST)):
            if self._core.tasks.active and self._core.tasks.meant(entry):
                continue  # a task is about to take it away
            message = messages.look(entry.id)
            lease = Lease(0, Batch(flow_queue, [entry]), message, "", 0)
            found.append(delivery_of(self._core, lease, messages.body(message)))
        return found

    async def _bring_due(self) -> None:
        """What has become due is read, though nobody waits for it. Raises StoreError."""
        core = self._core
        for number, name in enumerate(list(core.schedule.zones), 1):
            if number % ZONES_AT_ONCE == 0:
                await asyncio.sleep(0)
            zone = core.schedule.pull_zone(name)
            while zone is not None and zone.fill(core.clock.steady_ms()):  # noqa: ASYNC110 (others get their turn)
                await asyncio.sleep(0)
            while zone is not None and zone.moving:
                await core.disk.lines.stable()

    async def rows(self) -> list[dict[str, Any]]:
        """Every queue: how much is ready, delayed, held and leased, and how many wait to take something."""
        with suppress(StoreError):  # then what has become due just now counts as delayed
            await self._bring_due()
        core, rows = self._core, list[dict[str, Any]]()
        leased: dict[str, list[int]] = {}
        for lease in self._leases.out.values():
            if lease.zone.pulled:
                counts = leased.setdefault(lease.zone.name, [0, 0])
                for entry in lease.open:
                    counts[entry.key.startswith(b"deferred ")] += 1
        for number, name in enumerate(list(core.schedule.zones), 1):
            if number % ZONES_AT_ONCE == 0:
                await asyncio.sleep(0)
            zone = core.schedule.pull_zone(name)
            if zone is None:
                continue
            ready, delayed, held, deleted, bounced = core.counters.sizes.zones.get(name, sizes.NONE)
            out = leased.get(name, [0, 0])
            due = sum(entry.key.startswith(b"deferred ") for entry in zone.in_memory())
            ready, delayed = ready + due, delayed - due
            row = {"queue": pull.queue_of(zone.zone), "zone": name, "ready": ready - out[0]}
            row |= {
                "delayed": delayed - out[1],
                "held": held,
                "deleted": deleted,
                "bounced": bounced,
                "leased": sum(out),
            }
            pushed = core.counters.sizes.domains.get((name, pull.DOMAIN), ())  # in all; the others came as mail
            row["pushed"] = sum(pushed)
            rows.append(row | {"pullers": len(self._waiting.get(name, ()))})
        return sorted(rows, key=lambda row: str(row["queue"]))
