"""What the parts of the queue share: both disks (`disk`), what is counted (`counters`), the schedule, the clock.

Every change of a recipient's state goes through here: a record in the journal, a unit for the store, a count in
`counters`. `Core` itself decides nothing about mail; `accept`, `lease` and `settle` do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store, StoreError
from zonemta_py.disk.notes import Note
from zonemta_py.journal.receipts import Receipts
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.logs.mail import MailLog
from zonemta_py.mail.envelope import Envelope
from zonemta_py.queue.api import Membership, Result
from zonemta_py.queue.core.bodies import Bodies
from zonemta_py.queue.core.campaigns import Campaigns
from zonemta_py.queue.core.commit import Hire, JournalLine, Replica, Thread, immediately
from zonemta_py.queue.core.counters import QueueCounters
from zonemta_py.queue.core.disk import Disk
from zonemta_py.queue.core.lifetime import Lifetime
from zonemta_py.queue.core.messages import Message, Messages
from zonemta_py.queue.core.pull_doubts import PullDoubts
from zonemta_py.queue.core.segments import Segments
from zonemta_py.queue.core.sizes import DEFERRED, QUEUED
from zonemta_py.queue.core.tasks import Tasks
from zonemta_py.queue.hooks import Hooks
from zonemta_py.queue.questions.question import is_given, is_repeated
from zonemta_py.schedule.batch import Batch
from zonemta_py.schedule.schedule import Schedule
from zonemta_py.schedule.shared import QueueCallbacks
from zonemta_py.schedule.sites import DestinationResolver
from zonemta_py.schedule.time.steady import Steady
from zonemta_py.zones import pull
from zonemta_py.zones.router import Router

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rules import Rules


FOREIGN = "the configuration of this node does not have its zone; which node has it is being asked"


class Callbacks(NamedTuple):
    """What parts of the queue call that are made after them; given when the queue is made, and never changed.

    pump(): lets the schedule read on, and serves who waits. before_batch(): submits what had to wait until the store
    could be read. settle(result, done): ends a lease that no sender has had. serve_pullers(now_ms): as
    `Leases._serve`, for those who take from pull zones.
    """

    pump: Callable[[], None]
    before_batch: Callable[[], None]
    settle: Callable[[Result, Callable[[], None]], None]
    serve_pullers: Callable[[int], tuple[list[Any], bool]]


class Prepared(NamedTuple):
    """Another configuration with all that it brings along. What may fail has been done when there is one."""

    config: Config
    router: Router
    rules: Rules
    hooks: Hooks
    resolver: DestinationResolver | None
    mail_log: MailLog | None


class Written(Protocol):
    """A part of the queue that is in memory, and whose changes go into every batch. unwritten: what is to be written;
    written: what the last batch had, to be written again if that fails. Where both are empty it is not asked."""

    @property
    def unwritten(self) -> Collection[Any]: ...
    @property
    def written(self) -> Collection[Any]: ...
    def changes(self) -> list[Operation]: ...
    def not_written(self) -> None: ...


class Core:
    """What the parts of the queue share."""

    def __init__(
        self, config: Config, store: Store, journal: JournalLine, *, marks: dict[str, dict[str, bytes]],
        segments: Segments, ids: keys.Ids, totals: tuple[int, int], batches: int, clock: Steady,
        damaged: Callable[[Exception], None], callbacks: Callbacks, hooks: Hooks,
        resolver: DestinationResolver | None = None, hire: Hire = Thread, receipts: Receipts | None = None,
        bodies: Bodies | None = None, replica: Replica | None = None,
    ) -> None:  # fmt: skip
        self.config, self.hooks, self.clock, self.callbacks = config, hooks, clock, callbacks
        self.mail_log: MailLog | None = None
        """Where lines about mail go; None: nowhere."""
        self.batches = batches
        self.counters = QueueCounters(store, config, clock, totals)
        self.disk = Disk(
            config, store, journal, self, segments=segments, ids=ids, clock=clock, damaged=damaged, hire=hire,
            receipts=receipts, bodies=bodies, replica=replica,
        )  # fmt: skip
        self.campaigns = Campaigns(store)
        self.tasks = Tasks(store)
        self.pull_doubts = PullDoubts(config, store)
        self.messages = Messages(store, self.disk.bodies, self.disk.compaction, self.pull_doubts)
        counters = self.counters
        self._parts: tuple[Written, ...] = (
            counters.sizes, counters.sizes.flows, self.campaigns.counters, self.campaigns, self.messages, self.tasks,
            counters.quotas, counters.sent,
        )  # fmt: skip
        self.router = Router(config.zones)
        self.arriving: set[str] = set()
        """Ids given out whose envelope record is not in the journal yet."""
        self.known: dict[str, tuple[str, int, int]] = {}
        """By the envelope's token: the receipt of a message for which the previous process may have owed the answer."""
        self.ready = False
        """Recovery is done: from now on the schedule may read the store."""
        self.when_ready = asyncio.Event()
        self.stopping = False
        """Nothing more is leased: the process is about to end."""
        self.copied = ""
        """Why nothing may be sent: this is a copy of a queue (`disk.identity`)."""
        self.membership: Membership | None = None
        """In a set of several queues."""
        self._pump_soon = False
        self._tasks: set[asyncio.Future[Any]] = set()
        self.finished: set[str] = set()
        """Messages whose FINISH record was found by recovery; it must not be written twice."""
        self.schedule = self._scheduled(marks, resolver)
        self.lifetime = Lifetime(config, clock, self.campaigns, self.tasks, self.schedule)

    def _scheduled(self, marks: dict[str, dict[str, bytes]], resolver: DestinationResolver | None) -> Schedule:
        """The schedule, with all zones that have mail."""
        callbacks = QueueCallbacks(
            rekey=self._rekey, changed=self.changed, unpin=self._unpin, requeued=self._requeued,
            terms_of=self._terms_of, record=self._stand, looked_up=self.counters.sizes.told, halted=self.halted,
            rehome=lambda zone, other, entries: self.tasks.rehome(zone, other, entries),
        )  # fmt: skip
        schedule = Schedule(self.config, self.disk.store, marks, self.clock, resolver, callbacks)
        for name, counts in self.counters.sizes.zones.items():
            if any(counts) and pull.settings_of(self.config, name) and name not in schedule.zones:
                schedule.make(name, marks.get(name))
        if self.config.cluster.enabled:
            self._wait_for_zones(schedule, marks)
        return schedule

    def _wait_for_zones(self, schedule: Schedule, marks: dict[str, dict[str, bytes]]) -> None:
        """Mail of zones that the configuration lacks waits for a node that has them, for a while."""
        most_ms, now_ms = self.config.cluster.zone_wait_s * 1000, self.clock.ms()
        lacking = [name for name, counts in self.counters.sizes.zones.items() if any(counts)]
        for name in lacking:
            since = self.disk.store.get(keys.moving_away(name))
            waited_ms = now_ms - packing.unpack(since) if since is not None else 0
            if name not in schedule.zones and not pull.is_made(name) and waited_ms < most_ms:
                schedule.add_foreign(name, marks.get(name))
        schedule.set_away(dict.fromkeys(schedule.foreign, FOREIGN))

    def configure(self, prepared: Prepared, out: list[Batch]) -> None:
        """Another configuration from now on, all at once. out: the leases that are out."""
        config = prepared.config
        self.config, self.router, self.hooks = config, prepared.router, prepared.hooks
        if self.mail_log is not None:
            self.mail_log.flush()
        self.mail_log = prepared.mail_log
        self.disk.configure(config)
        self.lifetime.configure(config)
        self.counters.configure(config)
        self.pull_doubts.configure(config)
        self.schedule.configure(config, prepared.resolver, out)
        if self.membership is not None:
            self.membership.configure(config)
        zones = self.counters.sizes.zones
        for name in [name for name, counts in zones.items() if not any(counts)]:
            if name not in self.schedule.zones:
                del zones[name]
        self.changed()

    def terms(self, message: Message, note: Note) -> dict[str, Any]:
        """When a recipient of that message may go, for `schedule.time.hours`."""
        return self.campaigns.terms(message.metadata, note.values, note.early)

    # -- what goes into every batch last (commit.Closing)

    def first(self) -> list[Operation]:
        self.callbacks.before_batch()
        return self.disk.places.portion()

    def changes(self) -> list[Operation]:
        disk, counters, operations = self.disk, self.counters, list[Operation]()
        for part in self._parts:
            if part.unwritten or part.written:
                operations += part.changes()
        self.batches += 1
        operations.append((keys.TRACKED, packing.pack([self.batches, disk.places.complete])))
        disk.receipts.turn(disk.journal.next_seq - 1, disk.journal.stable_seq)
        totals = (counters.message_count, counters.message_bytes, self.batches)
        operations.append((keys.STATE, packing.pack((disk.ledger.applied(), disk.journal.stable_seq, *totals))))
        return operations

    def again(self) -> None:
        for part in self._parts:
            part.not_written()
        self.disk.places.again()

    def _rekey(self, operations: list[Operation], done: Callable[[], None]) -> None:
        # Synced: the journal will say that it found the recipient there.
        def written(_: object) -> None:
            done()
            if self.tasks.active:
                self.tasks.moved(operations)

        self.disk.lines.submit(operations, written, sync=True, keep=True)

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
        if self.membership is not None:
            if not is_given():
                self.disk.lines.submit(self.membership.lesson("stand", body), immediately, sync=False, keep=True)
            elif is_repeated():
                body = [*body[:4], True]
        packed = packing.pack(body)
        self.disk.policy_copy.add(self.disk.ledger.append(Type.STANDING, packed), packed)

    def stand(self, body: list[Any]) -> None:
        """Another of several queues has stopped, lifted or learned it: it holds here too, and that one tells of it."""
        self._stand([*body[:4], True])
        self.schedule.policy.apply(body)
        self.schedule.lift()
        self.schedule.source_health.look()
        self.changed()

    def clock_set(self, steps: list[list[Any]]) -> None:
        """The machine's clock was set: from now on, times of arrival are known by both clocks."""
        self.counters.meter.add("zonemta_clock_steps_total")
        change = StandingRecord("clock", ["clock", ""], steps, "the machine's clock was set")
        self.disk.ledger.append(Type.STANDING, change.pack())

    def _requeued(self, zone: str, address: str, flow: str) -> None:
        """A deferred recipient became due and was parked: it counts as queued from now on."""
        self.counters.sizes.move(zone, address.rpartition("@")[2], DEFERRED, QUEUED, flow=flow)

    def forget_queues(self) -> None:
        """Drops the queues without a table of their own of which nothing is left."""
        for name in list(filter(pull.is_made, self.schedule.zones)):
            zone = self.schedule.pull_zone(name)
            if zone is not None and zone.idle and not any(self.counters.sizes.zones.get(name, ())):
                self.schedule.drop(zone)
                self.counters.sizes.zones.pop(name, None)

    # -- the end of a message

    def finish(self, message: Message, zone: str) -> None:
        """Its last recipient has ended."""
        self.counters.message_count -= 1
        self.counters.message_bytes -= message.metadata["size"]
        if message.id not in self.finished:
            campaign = message.metadata.get("campaign")
            ended = [message.id, campaign] if campaign else [message.id]
            self.disk.ledger.append(Type.FINISH, packing.pack(ended))  # a `FinishRecord`, for every message
            self.disk.segments.ended(message.id)
        if self.hooks.releases:
            envelope = Envelope.from_metadata(message.metadata, [])
            self.keep(asyncio.ensure_future(self.hooks.released(message.id, zone, envelope)))

    # -- what cannot be read

    def note_damage(self, cases: list[tuple[str, str]] | None = None) -> None:
        """Shows cases of quarantine until an operator acknowledges them. cases: name, and what is wrong; None: those
        that were made since the last call."""
        if cases is None:
            cases, self.disk.quarantine.fresh = self.disk.quarantine.fresh, []
        for name, wrong in cases:
            self.schedule.policy.lost(name, f"{wrong}; what is left is in quarantine/{name}, with a note")

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Keeps a reference: the loop holds tasks only weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_tasks(self) -> None:
        """For a process that goes on without this queue."""
        for task in list(self._tasks):
            task.cancel()

    # -- waking the scheduler

    def halted(self) -> Iterator[tuple[str, str]]:
        """Why nothing at all is sent: kind and sentence, as `schedule.reasons` has them."""
        if self.copied:
            yield "copy", self.copied
        if self.stopping:
            yield "drain", "the MTA is shutting down: waiting mail continues with its next start"
        if not self.ready:
            yield "recovery", "the queue is recovering; mail is sent once that is done"
        if self.membership is not None and not self.membership.may_lease():
            yield "orders", "the queue waits for orders that were given while it did not run; see the log if it goes on"
        if self.disk.store.fenced or self.disk.journal.trouble is not None:
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
        member = self.membership
        if member is not None and not member.may_lease():
            return
        if not (self.copied or self.stopping or self.disk.closed):
            self.callbacks.pump()
            if member is not None:
                member.turn()
