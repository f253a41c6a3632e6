"""Leasing: hands deliveries to sender processes, each with a start record that is stable before the sender gets it.

A lease is a permission: it counts as a connection of its zone and of its destination until it is settled. Senders wait
here; whenever something changes, `pump` lets the schedule read on and serves the waiting senders in turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from zlib import crc32

from zonemta_py.disk import packing
from zonemta_py.disk.leveldb.store import StoreError, StoreFenced
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import InDoubtRecord
from zonemta_py.logs.causes import cause
from zonemta_py.mail.classify import of_route
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, POSTPONED, Delivery, Outcome, Result
from zonemta_py.queue.core.campaigns import canceled
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.hooks import why_dropped
from zonemta_py.queue.lifecycle import observe
from zonemta_py.queue.lifecycle.lease import DAMAGED, Lease, Taker, delivery_of, wait_s
from zonemta_py.queue.lifecycle.lost import RETURNED, DamagedMessages
from zonemta_py.queue.lifecycle.removal import remove_leased
from zonemta_py.queue.suppression.register import SuppressionList
from zonemta_py.schedule.batch import Batch, Blocked, EgressPath, Entry, FlowQueue
from zonemta_py.schedule.time import hours
from zonemta_py.zones.throttle import Scope

log = logging.getLogger(__name__)
PATIENCE_S = 1.0
LATE_MAX = 10_000
FRUITLESS_MAX = 50
_EARLIER = "earlier senders"
FENCED_S = 0.1
"""How soon to check whether the store can be read again."""
TOO_LATE = Reply(554, "5.4.7", "its delivery deadline has passed")
OUTLIVED = Reply(554, "5.4.7", "its time in the queue is over")
EXPIRED = "expired"
"""The class of these two."""
OUT_OF_HOURS = Reply(450, "4.3.2", "outside of its sending hours")


class Leases:
    """The leases that are out, and the senders that wait for more."""

    def __init__(self, core: Core, first_number: int, suppression: SuppressionList, damaged: DamagedMessages) -> None:
        self.out: dict[int, Lease] = {}
        self.late: dict[int, Lease] = {}
        """Leases of senders that hang and may continue, the latest LATE_MAX."""
        self.before: set[int] = set()
        """Processes that may have connections open which an earlier process of the queue has leased."""
        self._core, self._suppression, self._damaged = core, suppression, damaged
        self._next = first_number
        self._takers: deque[Taker] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._workers: set[str] = set()
        self._held: dict[str, list[FlowQueue]] = {}
        """Flow queues that wait for their sender to ask for more."""
        self._fruitless = 0
        """Batches of this round of which nothing was left: tasks, the suppression list or a cancellation took it."""
        self._missed: dict[str, float] = {}
        """Since when a sender was needed and did not ask."""

    def take(self, most: int, worker: str, deliver: Callable[[list[Delivery]], None]) -> Taker:
        """`deliver` is called once, with 1…most deliveries, when some may go."""
        taker = Taker(worker, most, deliver)
        self._takers.append(taker)
        self._workers.add(worker)
        self._let_go(worker)
        self._core.changed()
        return taker

    def leave(self, taker: Taker) -> None:
        """The sender waits no longer; what it was to get goes back. Harmless after it was served."""
        if taker.gone:
            return
        taker.gone = True
        self._takers = deque(other for other in self._takers if other is not taker)
        for lease in taker.leases:
            if not lease.sent:
                self.take_back(lease)

    def take_back(self, lease: Lease) -> None:
        """Takes back a lease that never reached its sender. The journal records its end; no recipient is in doubt."""
        if self.out.pop(lease.number, None) is not None:
            self._core.disk.ledger.append(Type.IN_DOUBT, InDoubtRecord([lease.number], []).pack())
            self._put_back(lease.batch)

    def _put_back(self, batch: Batch) -> None:
        """Returns a batch that was given to no sender."""
        self._core.schedule.admission.untouched(batch)
        batch.zone.done(batch)
        batch.zone.put_back(batch, batch.entries)

    def pump(self) -> None:
        """Lets the schedule read on, and serves the waiting senders."""
        core = self._core
        now = core.clock.steady()
        now_ms = round(now * 1000)
        if core.disk.store.fenced:  # nothing can be read, but nothing is damaged: try again in a moment
            self._sleep(FENCED_S)
            return
        try:
            core.schedule.timers.wake(now)
            more = core.schedule.fill(now_ms)
            served, readable = self._serve(now_ms)
            if core.schedule.stirred:
                pullers, legible = core.callbacks.serve_pullers(now_ms)
                served, readable = served + pullers, readable and legible
        except StoreFenced:
            self._sleep(FENCED_S)
            return
        except StoreError as error:
            core.disk.read_failed(error)
            return
        for taker in served:
            core.disk.journal.when_stable(partial(self._deliver, taker))
        if not readable or core.disk.store.fenced:
            self._sleep(FENCED_S)
        elif more:
            core.changed()
        else:
            self._sleep(core.schedule.next_wake(now))

    def _sleep(self, seconds: float) -> None:
        """At most so long: a timer that ends sooner stays, for waking too early costs less than another timer."""
        loop, seconds = asyncio.get_running_loop(), max(seconds, 0.001)
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._core.changed()

    def _serve(self, now_ms: int) -> tuple[list[Taker], bool]:
        """The senders that were served; False: the disk has an error, try again in a moment."""
        served: dict[int, Taker] = {}
        readable, self._fruitless = True, 0
        while self._takers and not self.before:
            if self._fruitless >= FRUITLESS_MAX:  # the loop has its turn, however much was deleted
                self._core.changed()
                break
            batch = self._core.schedule.next()
            if batch is None:
                break
            taker = self._taker_of(batch)
            try:
                given = taker is not None and self.give(taker, batch, now_ms)
            except (StoreFenced, OSError) as error:
                log.info("%s; it is tried again", cause(error))
                readable = False
                break
            if taker is not None and given:
                served[id(taker)] = taker
                self._takers.remove(taker)
                if len(taker.deliveries) < taker.most:
                    self._takers.append(taker)
        if served:
            self._takers = deque(taker for taker in self._takers if id(taker) not in served)
        return list(served.values()), readable

    def _taker_of(self, batch: Batch) -> Taker | None:
        """The sender that gets the batch: any, unless connections are limited; None: it waits for the path's own
        sender.

        An egress path with limited connections belongs to one sender, which reuses its idle connections before it opens
        another: so there are never more open than may be leased. If that sender does not ask for PATIENCE_S, the path
        passes to another one, as soon as the first has no connection open.
        """
        flow_queue, first = batch.flow_queue, self._takers[0]
        if not self._core.schedule.admission.counts_connections(flow_queue):
            return first
        schedule, path = self._core.schedule, batch.path
        if schedule.admission.idle.unsaid:
            self._wait(batch, _EARLIER, "senders of the earlier configuration are to say which connections they have")
            return None
        bound = path.owner in self._workers and schedule.admission.keeps(batch)
        mine = path.owner if bound else self._first_choice(path) or first.worker
        taker = next((taker for taker in self._takers if taker.worker == mine), None)
        if taker is not None:
            self._missed.pop(mine, None)
            path.owner = mine
            return taker
        now = schedule.now()
        if now - self._missed.setdefault(mine, now) >= PATIENCE_S and not bound:
            path.owner = first.worker
            return first
        self._wait(batch, mine, "its sender is busy")
        return None

    def _wait(self, batch: Batch, sender: str, cause: str) -> None:
        """For that sender, PATIENCE_S at most."""
        flow_queue, until = batch.flow_queue, self._core.schedule.now() + PATIENCE_S
        flow_queue.zone.hold(flow_queue, Blocked("sender", cause, until, self._core.clock.ms()))
        self._held.setdefault(sender, []).append(flow_queue)
        self._put_back(batch)

    def _first_choice(self, path: EgressPath) -> str:
        workers = sorted(self._workers)
        return workers[crc32(f"{path.site} {path.source}".encode()) % len(workers)] if workers else ""

    def gone(self, worker: str) -> None:
        """A sender has died: its egress paths pass to others."""
        self._pass_on(worker)

    def retire(self, worker: str) -> None:
        """A sender gets nothing more, and ends what it has: the same."""
        self._core.schedule.admission.idle.retire(worker)
        self._pass_on(worker)

    def left_open(self, worker: str, name: int, lease: int, scope: Scope) -> None:
        """A retired sender has that connection open. lease: that goes over it, and counts for it while it is out."""
        idle = self._core.schedule.admission.idle
        if not lease:
            self._core.schedule.admission.left_open(worker, name, scope)
        elif lease not in self.out:
            idle.told_late(lease, name)

    def all_said(self, worker: str) -> None:
        """A retired sender has made known all that it has open."""
        self._core.schedule.admission.idle.all_said(worker)
        self.look_again()

    def look_again(self) -> None:
        """A sender has ended, or said what it has."""
        if not self._core.schedule.admission.idle.unsaid:
            self._let_go(_EARLIER)
        self._core.changed()

    def _pass_on(self, worker: str) -> None:
        self._workers.discard(worker)
        self._missed.pop(worker, None)
        self._let_go(worker)

    def _let_go(self, worker: str) -> None:
        for flow_queue in self._held.pop(worker, ()):
            if flow_queue.held is not None and flow_queue.held.kind == "sender":
                flow_queue.free()
                flow_queue.enlist()

    def give(self, taker: Taker, batch: Batch, now_ms: int) -> bool:
        """Raises StoreFenced, OSError: the disk has an error; the batch is back where it was."""
        lease = None
        try:
            if self._core.tasks.active and self._diverted(batch):
                return False
            chosen = batch.entries[0].note.routing
            if chosen and "dropped" in chosen and not self._remove(batch, batch.entries, why_dropped(chosen)):
                return False
            if (
                self._core.campaigns.canceled
                and self._canceled(batch)
                and not self._remove(batch, batch.entries, self._reason(batch))
            ):
                return False
            for reason, entries in self._suppression.listed(batch).items():
                if not self._remove(batch, entries, reason):
                    return False
            lease = self.grant(batch, taker.worker)
            return lease is not None and self._hand(taker, lease, now_ms)
        except (StoreFenced, OSError):
            if lease is None:
                self._put_back(batch)
            else:
                self.take_back(lease)
            raise

    def _diverted(self, batch: Batch) -> bool:
        """Leaves to tasks what they apply to; True: nothing of the batch is left."""
        batch.entries = self._core.tasks.divert(batch.zone, batch.entries)
        if batch.entries:
            return False
        self._core.schedule.admission.untouched(batch)
        batch.zone.done(batch)
        self._fruitless += 1
        return True

    def _remove(self, batch: Batch, entries: list[Entry], reason: str) -> bool:
        left = remove_leased(self._core, self._damaged, batch, entries, reason)
        self._fruitless += not left
        return left

    def _canceled(self, batch: Batch) -> bool:
        """Whether its campaign was canceled."""
        campaigns, name, entry = self._core.campaigns, batch.flow_queue.flow_id.campaign, batch.entries[0]
        return name in campaigns.canceled and entry.note.tallied and campaigns.owns(name, entry.id)

    def _reason(self, batch: Batch) -> str:
        return canceled(self._core.campaigns.get(batch.flow_queue.flow_id.campaign))

    def _hand(self, taker: Taker, lease: Lease, now_ms: int) -> bool:
        """Gives a lease to a sender, unless it ends here."""
        batch = lease.batch
        routing = batch.entries[0].note.routing or {}
        if refused := routing.get("refused"):
            self.end(lease, BOUNCED, Reply(*refused), by=routing.get("refused_by"))
            return False
        if batch.refusal is not None:
            self.end(lease, BOUNCED, batch.refusal, kind=of_route(batch.refusal))
            return False
        if "deadline_mode" in lease.message.metadata and hours.too_late(lease.message.metadata, now_ms):
            self.end(lease, BOUNCED, TOO_LATE, kind=EXPIRED)
            return False
        lived = lease.message.metadata.get("life_h") or batch.entries[0].note.life_h
        if lived and self._outlived(lease, now_ms):
            self.end(lease, BOUNCED, OUTLIVED, kind=EXPIRED)
            return False
        seconds = wait_s(self._core, lease)
        if seconds is not None:  # outside its sending hours: it waits, without an attempt
            self.end(lease, POSTPONED, OUT_OF_HOURS, seconds)
            return False
        try:
            body = self._core.messages.body(lease.message)
        except StoreFenced:
            raise
        except StoreError as error:
            self._damaged.set_aside(lease.message.id, str(error), RETURNED)
            self.end(lease, BOUNCED, DAMAGED)
            return False
        taker.leases.append(lease)
        observe.leased(self._core, lease)
        taker.deliveries.append(delivery_of(self._core, lease, body))
        return True

    def end(
        self, lease: Lease, verdict: int, reply: Reply, delay_s: float | None = None, kind: str = "",
        by: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Settles a lease that has reached no sender: it expired, a plugin refused it, it is outside its hours … kind:
        as of `Outcome`. by: [plugin, hook] whose verdict that is."""
        everyone = list(range(len(lease.batch.entries)))
        outcome = Outcome(verdict, reply, "plugin" if by else "queue", everyone, delay_s, kind=kind)
        outcome.by = [*by, ""] if by else None
        connection = self._core.schedule.admission.connection(lease.batch) or 0  # as it was
        self._core.callbacks.settle(Result(lease.number, [outcome], kept=True, connection=connection), lambda: None)

    def _outlived(self, lease: Lease, now_ms: int) -> bool:
        """Whether campaign mail's lifetime is over. Other mail is still tried, however long it had to wait."""
        life, message, first = self._core.lifetime, lease.message, lease.batch.entries[0]
        return life.perhaps_over(message.id, now_ms) and life.over(
            lease.batch.flow_queue, message, first.address, first.note, now_ms
        )

    def grant(self, batch: Batch, worker: str) -> Lease | None:
        """A lease with its start record; None if the message's metadata are damaged (which has been dealt with).

        Raises StoreFenced, OSError: nothing has been done, and it may work in a moment.
        """
        core = self._core
        try:
            message = core.messages.get(batch.entries[0].id)
        except StoreFenced:
            raise
        except StoreError as error:
            self._damaged.end(batch, error)
            return None
        # The time at which its limits were charged, so that a restart charges them for the same time.
        now_ms = core.clock.ms()
        since_ms = batch.zone.ms_at(batch.taken) if batch.taken else now_ms
        lease = Lease(self._next, batch, message, worker, since_ms)
        batch.worker, batch.number = worker, lease.number
        self._next += 1
        for entry in batch.entries:
            if not entry.pinned:
                entry.pinned = True
                message.pins += 1
        self.out[lease.number] = lease
        core.disk.ledger.append(Type.START, packing.pack(lease.row()), now_ms)
        return lease

    def _deliver(self, taker: Taker) -> None:
        if taker.gone:
            return
        taker.gone = True
        for lease in taker.leases:
            lease.sent = True
        taker.deliver(taker.deliveries)

    def remember(self, leases: list[Lease]) -> None:
        """Their sender may still report results."""
        self.late |= {lease.number: lease for lease in leases}
        for number in list(self.late)[:-LATE_MAX]:
            del self.late[number]

    def of(self, worker: str) -> list[Lease]:
        return [lease for lease in self.out.values() if lease.worker == worker]
