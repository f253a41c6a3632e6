"""What the parts of the queue share: the lines to both disks, the schedule, the counters, the ids, the clock.

Every change of a recipient's state goes through here: a record in the journal, a unit for the store, a count in
`sizes`. `Core` itself decides nothing about mail; `accept`, `lease` and `settle` do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store, StoreDamaged, StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.disk.space import LEAST_BYTES, Space
from zonemta_py.journal.receipts import Receipts
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.logs.mail import MailLog
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.meter import Meter
from zonemta_py.metrics.rates import DestinationRates, Rates
from zonemta_py.queue.core.bodies import Bodies, Uncommitted
from zonemta_py.queue.core.campaigns import Campaigns
from zonemta_py.queue.core.commit import Hire, JournalLine, StoreLine, Thread
from zonemta_py.queue.core.compaction import Compaction
from zonemta_py.queue.core.ended.sent import Sent
from zonemta_py.queue.core.ledger import Ledger
from zonemta_py.queue.core.lifetime import Lifetime
from zonemta_py.queue.core.locator import Places
from zonemta_py.queue.core.messages import Message, Messages
from zonemta_py.queue.core.policy_copy import PolicyCopy
from zonemta_py.queue.core.pull_doubts import PullDoubts
from zonemta_py.queue.core.segments import Segments
from zonemta_py.queue.core.sizes import DEFERRED, QUEUED, Sizes
from zonemta_py.queue.core.sums.quotas import Quotas
from zonemta_py.queue.core.sums.sessions import SessionQuotas
from zonemta_py.queue.core.tasks.table import Tasks
from zonemta_py.queue.hooks import Hooks
from zonemta_py.schedule.batch import Batch
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.shared import QueueCallbacks
from zonemta_py.schedule.sites import DestinationResolver
from zonemta_py.schedule.time.steady import Steady
from zonemta_py.zones import pull
from zonemta_py.zones.router import Router

SETTLED_S = 0.02
"""How long to wait for a store that lags behind."""


class Core:
    """What the parts of the queue share: the lines to both disks, the schedule, the counters."""

    def __init__(
        self, config: Config, store: Store, journal: JournalLine, *, marks: dict[str, dict[str, bytes]],
        segments: Segments, last_id: str, totals: tuple[int, int], batches: int, clock: Steady,
        damaged: Callable[[Exception], None], hooks: Hooks, resolver: DestinationResolver | None = None,
        hire: Hire = Thread, receipts: Receipts | None = None, bodies: Bodies | None = None,
    ) -> None:  # fmt: skip
        self.hooks = hooks
        self.config, self.store, self.journal, self.clock = config, store, journal, clock
        self.damaged = damaged
        self.meter = Meter()
        self.mail_log: MailLog | None = None
        """Where lines about mail go; None: nowhere."""
        self.rates, self.destinations = Rates(self.meter), DestinationRates()
        self.providers: set[str] = set()
        """Those that have a label of their own in metrics."""
        self.quarantine = Quarantine(config.folder / "quarantine")
        self.sizes = Sizes(store)
        self.places = Places(store)
        self.campaigns = Campaigns(store)
        self.sent = Sent(store, config)
        self.quotas = Quotas(store, config, clock)
        self.sessions = SessionQuotas(config)
        self.tasks = Tasks(store)
        self.message_count, self.message_bytes = totals
        self.batches = batches
        self.receipts = receipts or Receipts(config.folder)
        self.lines = StoreLine(store, self, damaged, hire, self.receipts)
        self.space = Space(config.folder, max(LEAST_BYTES, config.queue.reserve_bytes))
        uncommitted = Uncommitted(config.queue, lambda: self.space.room(clock.monotonic()))
        self.bodies = bodies or Bodies(config.folder, uncommitted, self.lines.after_sync)
        self.compaction = Compaction()
        self.pull_doubts = PullDoubts(config, store)
        self.messages = Messages(store, self.bodies, self.compaction, self.pull_doubts)
        self.router = Router(config.zones)
        self.segments = segments
        self.ids = keys.Ids(last_id)
        self.ledger = Ledger(config.queue, journal, segments, self.ids, clock, damaged)
        clock.next_id, clock.on_step = self.ids.following, self._clock_set
        self.arriving: set[str] = set()
        """Ids given out whose envelope record is not in the journal yet."""
        self.known: dict[str, tuple[str, int, int]] = {}
        """By the envelope's token: the receipt of a message for which the previous process may have owed the answer."""
        self.ready = False
        """Recovery is done: from now on the schedule may read the store."""
        self.when_ready = asyncio.Event()
        self.stopping = self.closed = False
        """Nothing more is leased: the process is about to end."""
        self.copied = ""
        """Why nothing may be sent: this is a copy of a queue (`disk.identity`)."""
        self._pump_soon = False
        self._tasks: set[asyncio.Future[Any]] = set()
        self.finished: set[str] = set()
        """Messages whose FINISH record was found by recovery; it must not be written twice."""
        self.before_batch: Callable[[], None] = lambda: None
        """Submits what had to wait until the store could be read again; set by `SuppressionPolicy`."""
        self.pump: Callable[[], None]
        """Lets the schedule read on; set by `Leases`."""
        self.policy_copy = PolicyCopy(store, journal, self.lines)
        self.schedule = self._scheduled(marks, resolver)
        self.schedule.halted = self.halted
        self.lifetime = Lifetime(config, clock, self.campaigns, self.tasks, self.schedule)

    def _scheduled(self, marks: dict[str, dict[str, bytes]], resolver: DestinationResolver | None) -> Schedule:
        """The schedule, with all zones that have mail."""
        callbacks = QueueCallbacks(
            rekey=self._rekey, changed=self.changed, unpin=self._unpin, requeued=self._requeued,
            terms_of=self._terms_of, record=self._stand,
        )  # fmt: skip
        schedule = Schedule(self.config, self.store, marks, self.clock, resolver, callbacks)
        schedule.sites.told = self.sizes.told
        for name, counts in self.sizes.zones.items():
            if any(counts) and pull.settings_of(self.config, name) and name not in schedule.zones:
                schedule.make(name, marks.get(name))
        return schedule

    def configure(self, config: Config, hooks: Hooks, resolver: DestinationResolver | None, out: list[Batch]) -> None:
        """Another configuration from now on, all at once. out: the leases that are out."""
        self.config, self.hooks = config, hooks
        self.router = Router(config.zones)
        self.space.configure(max(LEAST_BYTES, config.queue.reserve_bytes))
        self.bodies.uncommitted.configure(config.queue)
        self.ledger.configure(config.queue)
        self.lifetime.configure(config)
        self.sent.configure(config)
        self.quotas.configure(config)
        self.sessions.configure(config)
        self.pull_doubts.configure(config)
        self.schedule.configure(config, resolver, out)
        for name in [name for name, counts in self.sizes.zones.items() if not any(counts)]:
            if name not in self.schedule.zones:
                del self.sizes.zones[name]
        self.changed()

    def terms(self, message: Message, note: Note) -> dict[str, Any]:
        """When a recipient of that message may go, for `schedule.time.hours`."""
        return self.campaigns.terms(message.metadata, note.values, note.early)

    async def settled(self, most_s: float = SETTLED_S) -> None:
        """Waits a moment for the store, which lags behind: what somebody has done is seen by what they ask next."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: Reply | None) -> None:
            if not written.done():
                written.set_result(None)

        self.lines.submit([], done, sync=False, keep=True)
        self.lines.flush()
        with suppress(TimeoutError):
            await asyncio.wait_for(written, most_s)

    def close(self) -> None:
        """For a process that continues: ends all threads and closes all files. No more is lost than by the process's
        end."""
        self.closed = True
        self.journal.close()
        self.lines.close()
        self.bodies.close()
        self.receipts.close()

    # -- what goes into every batch last (commit.Closing)

    def first(self) -> list[Operation]:
        self.before_batch()
        return self.places.portion()

    def changes(self) -> list[Operation]:
        operations = self.sizes.changes() + self.campaigns.changes() + self.messages.changes()
        operations += self.tasks.changes() + self.quotas.changes() + self.sent.changes()
        self.batches += 1
        operations.append((keys.TRACKED, packing.pack([self.batches, self.places.complete])))
        self.receipts.turn(self.journal.next_seq - 1, self.journal.stable_seq)
        state = (self.ledger.applied(), self.journal.stable_seq, self.message_count, self.message_bytes, self.batches)
        operations.append((keys.STATE, packing.pack(state)))
        return operations

    def again(self) -> None:
        self.sizes.again()
        self.quotas.again()
        self.sent.again()
        self.campaigns.not_written()
        self.tasks.again()
        self.messages.again()
        self.places.again()

    def _rekey(self, operations: list[Operation], done: Callable[[], None]) -> None:
        # Synced: the journal will say that it found the recipient there.
        def written(_: object) -> None:
            done()
            if self.tasks.active:
                self.tasks.moved(operations)

        self.lines.submit(operations, written, sync=True, keep=True)

    def _unpin(self, message_id: str) -> None:
        self.messages.unpin(self.messages.get(message_id))

    def _terms_of(self, message_id: str) -> dict[str, Any]:
        """Empty if they cannot be read: leasing the message deals with that."""
        try:
            return self.messages.peek(message_id)
        except StoreError:
            return {}

    def _stand(self, body: list[object]) -> None:
        """Records a change of the policy state: a suspension, a rest, a learned rate."""
        packed = packing.pack(body)
        self.policy_copy.add(self.ledger.append(Type.STANDING, packed), packed)

    def _clock_set(self, steps: list[list[Any]]) -> None:
        """The machine's clock was set: from now on, times of arrival are known by both clocks."""
        self.meter.add("zonemta_clock_steps_total")
        change = StandingRecord("clock", ["clock", ""], steps, "the machine's clock was set")
        self.ledger.append(Type.STANDING, change.pack())

    def _requeued(self, zone: str, address: str, flow: str) -> None:
        """A deferred recipient became due and was parked: it counts as queued from now on."""
        self.sizes.move(zone, address.rpartition("@")[2], DEFERRED, QUEUED, flow=flow)

    def forget_queues(self) -> None:
        """Drops the queues without a table of their own of which nothing is left."""
        for name in list(filter(pull.is_made, self.schedule.zones)):
            zone = self.schedule.pull_zone(name)
            if zone is not None and zone.idle and not any(self.sizes.zones.get(name, ())):
                self.schedule.drop(zone)
                self.sizes.zones.pop(name, None)

    # -- the end of a message

    def finish(self, message: Message, zone: str) -> None:
        """Its last recipient has ended."""
        self.message_count -= 1
        self.message_bytes -= message.metadata["size"]
        if message.id not in self.finished:
            campaign = message.metadata.get("campaign")
            ended = [message.id, campaign] if campaign else [message.id]
            self.ledger.append(Type.FINISH, packing.pack(ended))  # a `FinishRecord`, for every message
            self.segments.ended(message.id)
        if self.hooks.releases:
            envelope = Envelope.from_metadata(message.metadata, [])
            self.keep(asyncio.ensure_future(self.hooks.released(message.id, zone, envelope)))

    # -- what cannot be read

    def note_damage(self, cases: list[tuple[str, str]] | None = None) -> None:
        """Shows cases of quarantine until an operator acknowledges them. cases: name, and what is wrong; None: those
        that were made since the last call."""
        if cases is None:
            cases, self.quarantine.fresh = self.quarantine.fresh, []
        for name, wrong in cases:
            self.schedule.policy.lost(name, f"{wrong}; what is left is in quarantine/{name}, with a note")

    def read_failed(self, error: StoreError) -> None:
        """A range could not be read: the store must be repaired, by a fresh process."""
        if self.closed:
            return
        self.damaged(error if isinstance(error, StoreDamaged) else StoreDamaged(str(error)))

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Keeps a reference: the loop holds tasks only weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- waking the scheduler

    def halted(self) -> Iterator[tuple[str, str]]:
        """Why nothing at all is sent: kind and sentence, as `schedule.reasons` has them."""
        if self.copied:
            yield "copy", self.copied
        if self.stopping:
            yield "drain", "the MTA is to end: nothing more is begun, and what waits goes on with its next start"
        if not self.ready:
            yield "recovery", "the queue is recovering; mail is sent once that is done"
        if self.store.fenced or self.journal.trouble is not None:
            yield "disk", "the disk of the queue is full or has errors, so nothing can be recorded; the log says why"

    def recovered(self) -> None:
        """Recovery is done: mail may be sent, questions are answered."""
        self.ready = True
        self.when_ready.set()
        self.changed()

    def changed(self) -> None:
        """Something may be allowed now; the scheduler runs at the end of this loop iteration."""
        if self.ready and not (self._pump_soon or self.copied or self.stopping):
            self._pump_soon = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_soon = False
        if not (self.copied or self.stopping or self.closed):
            self.pump()
