"""Group commit on both disks: one synced LevelDB batch, one fdatasync, serves every caller that waits at that moment.

Each line has one thread; while it waits for the disk, new work is collected for its next turn. Before that begins, the
loop reads its sockets once more: what has come meanwhile shares the sync. All methods are called in the event loop, and
all callbacks run there.

Failures. Store: units with mail being accepted fail (their clients get 451 or 452); all others are kept and written
again once the store has been closed and reopened (after an error LevelDB may lose later writes), and so is everything
written since the last successful sync; whatever a failed batch may have left of refused mail is deleted. Journal:
nothing fails; everything waits and is written again into a new file. `trouble` says why mail is refused now.

Where other machines keep what is written (`Replica`), they have a batch before the store, and records are stable once
they are there and here. While they do not answer, mail is refused, and all else waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from zonemta_py.disk import keys
from zonemta_py.disk.frame import Record, record
from zonemta_py.disk.leveldb.store import Operation, Store, StoreDamaged, StoreError, bytes_of
from zonemta_py.disk.leveldb.trouble import NO_QUORUM, NO_SPACE, refusal, tell
from zonemta_py.journal.receipts import Receipts
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Writer
from zonemta_py.mail.reply import Reply

log = logging.getLogger(__name__)

RETRY_S = 0.5
PATIENT_S = 0.02
"""How long records wait for company whose writers can wait: what comes back, and what follows from it."""
CROWD = 5
"""So many callers that wait for the next batch can as well wait for records on their way to the log: one message there
for both costs much less than two."""
UNSYNCED_BYTES_MAX = 2 * 1024 * 1024
"""Written to the store but not synced: kept in memory until then, since a failing sync may lose it."""


class Worker(Protocol):
    """Waits for a disk: one job at a time; `then(error)` is called in the loop."""

    def run(self, job: Callable[[], None], then: Callable[[Exception | None], None]) -> None: ...

    def end(self) -> None:
        """Waits for all jobs it has been given; it accepts no more."""


class Thread:
    """The worker of a serving queue: the loop continues meanwhile."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Callable[[], None], Callable[[Exception | None], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        self._jobs.put((job, then))

    def end(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, then = given
            error: Exception | None = None
            try:
                job()
            except Exception as caught:  # passed to the loop, which handles it
                error = caught
            try:
                self._loop.call_soon_threadsafe(then, error)
            except RuntimeError:  # the loop is closed: no client is left to answer
                return


class Inline:
    """The worker of a queue that nobody waits for (an offline command's, a replay's): it does the job at once, and
    `then` is called in the loop's next iteration."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._ended = loop, False

    def end(self) -> None:
        self._ended = True

    def run(self, job: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        if self._ended:
            return
        error: Exception | None = None
        try:
            job()
        except Exception as caught:  # passed on, as from a thread
            error = caught
        self._loop.call_soon(then, error)


Hire = Callable[[str, asyncio.AbstractEventLoop], Worker]
"""(name, loop) → a worker for one line."""


class Unit:
    """Operations that go into one batch together. `done(reply)`: None once written, else the reply for the client.

    keep: survives a write error and is tried again (results); otherwise it fails (mail being accepted). envelope: the
    body of the accepted message's ENVELOPE record, for its receipt.
    """

    __slots__ = ("done", "envelope", "keep", "operations", "sync")

    def __init__(
        self, operations: list[Operation], sync: bool, keep: bool, done: Callable[[Reply | None], None],
        envelope: bytes = b"",
    ) -> None:  # fmt: skip
        self.operations, self.sync, self.keep, self.done, self.envelope = operations, sync, keep, done, envelope


class Closing(Protocol):
    """What goes into every batch last: counters, and how far the journal has been applied; and what goes `first`."""

    batches: int

    def first(self) -> list[Operation]: ...
    def changes(self) -> list[Operation]: ...

    def again(self) -> None:
        """The batch with the last changes failed."""


class Replica(Protocol):
    """What both lines write, kept by other machines too (`cluster.log`): a batch is there before it is written here."""

    records: int
    """The last record of the journal that it has, or is about to have."""

    def watch(self, late: Callable[[], None], back: Callable[[], None]) -> None:
        """late: called when it has not answered for too long; back: when it does again."""

    def store(
        self, number: int, operations: list[Operation], then: Callable[[bytes], None], records: Sequence[Record] = ()
    ) -> tuple[int, int]:
        """A batch, and records that go with it. then(the value of the key `log` for it): once it is kept. Returns as
        `journal`."""

    def written(self, store: Store) -> None:
        """The batch is written here too, and no other one is under way."""

    def journal(self, records: list[Record]) -> tuple[int, int]:
        """Records, in their order; returns what `agreed` and `kept` are told."""

    def agreed(self, place: tuple[int, int], then: Callable[[], None]) -> None:
        """Calls `then` once it has all records up to there."""

    def kept(self, place: tuple[int, int]) -> None:
        """These are stable here too."""

    def body(self, folder: Path, message_id: str) -> Awaitable[None]:
        """The file of a large body, on its way in: before the batch that accepts its message."""

    def erased(self) -> None:
        """A person was erased: what it has had until now is to be gone soon."""

    def begin(self, store: Store, folder: Path, applied: int, anew: bool) -> None:
        """Once, before anything is written: both disks are as they will be opened. folder: the journal's. applied: of
        its last position. anew: they have been repaired, so that what the log has is not what was here."""


class StoreLine:
    """Writes to the store."""

    lazy_s = 0.05

    def __init__(
        self,
        store: Store,
        closing: Closing,
        damaged: Callable[[StoreDamaged], None],
        hire: Hire = Thread,
        receipts: Receipts | None = None,
        replica: Replica | None = None,
    ) -> None:
        self.store, self.replica = store, replica
        self.syncs = 0
        self._receipts = receipts
        self.trouble: Reply | None = None
        self._closing, self._damaged = closing, damaged
        self._loop = asyncio.get_running_loop()
        self._worker = hire("store", self._loop)
        self._waiting: deque[Unit] = deque()
        self._unsynced: list[list[Operation]] = []
        self._unsynced_bytes = 0
        self._after_sync: list[Callable[[], None]] = []
        self._after_this: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._busy = False
        self._underway: list[Unit] = []
        """Units of the batch that the log is to keep."""
        self._refused: list[Operation] = []
        self._eager = 0
        """So many callers wait for the next batch."""
        self._journal: JournalLine | None = None
        self._waits_for_company = False
        if replica is not None:
            replica.watch(self._late, self._back)

    def share(self, journal: JournalLine) -> None:
        """Records that wait while there is much to do go to the log with the next batch."""
        self._journal, journal.company, journal.over = journal, self._is_next, self._journal_over

    def _journal_over(self) -> None:
        if self._waits_for_company:
            self._waits_for_company = False
            self._kick()

    def _is_next(self) -> bool:
        """Whether a batch begins at once, or as soon as this one has ended."""
        begins = self._soon or self._waits_for_company or (self._busy and self._eager > 0)
        return begins and bool(self._waiting) and self.trouble is None

    def submit(
        self,
        operations: list[Operation],
        done: Callable[[Reply | None], None],
        *,
        sync: bool,
        keep: bool,
        envelope: bytes = b"",
    ) -> None:
        """Queues a unit. New mail fails at once while the disk has errors."""
        if self.trouble is not None and not keep:
            self._loop.call_soon(done, self.trouble)
            return
        self._waiting.append(Unit(operations, sync, keep, done, envelope))
        if sync or not keep or len(self._waiting) > 500:
            self._eager += 1
            self._kick()
        elif self._timer is None and not self._soon:
            self._timer = self._loop.call_later(self.lazy_s, self._start)

    def after_sync(self, then: Callable[[], None]) -> None:
        """Calls `then` once all that was submitted, up to the end of the next loop iteration, is on stable storage.

        It requests no sync of its own. On a full disk it is called at once, since the store needs the space.
        """
        self._after_sync.append(then)

    def flush(self) -> None:
        """Writes what waits without further delay."""
        self._kick()

    async def stable(self) -> None:
        """Waits until everything submitted so far is on stable storage."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.submit([], lambda _: future.set_result(None), sync=True, keep=True)
        await asyncio.shield(future)

    def _kick(self) -> None:
        if not (self._busy or self._soon or self._waits_for_company):
            self._soon = True
            self._loop.call_soon(self._loop.call_soon, self._start)

    def _start(self) -> None:
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy or self._waits_for_company:
            return
        if not self._waiting or self.trouble is not None:
            if self._journal is not None:
                self._journal.alone()
            return
        if self._journal is not None and self._eager >= CROWD and self._journal.is_under_way:
            self._waits_for_company = True
            return
        # Always all that waits: `closing` covers everything that was ever submitted.
        operations = self._closing.first()  # which may submit more
        units, self._waiting, self._eager = list(self._waiting), deque(), 0
        sync, envelopes = self._unsynced_bytes > UNSYNCED_BYTES_MAX, list[bytes]()
        for unit in units:
            operations += unit.operations
            sync = sync or unit.sync
            if unit.envelope:
                envelopes.append(unit.envelope)
        operations += self._closing.changes()
        self._busy = True
        self._after_this += self._after_sync
        self._after_sync = []
        if self.replica is not None:
            self._underway = units
            then = partial(self._kept, units, operations, sync, envelopes)
            records = self._journal.boarding() if self._journal is not None else []
            place = self.replica.store(self._closing.batches, operations, then, records)
            if records and self._journal is not None:
                self._journal.aboard(records, place)
            return
        self._worker.run(
            partial(self._write, operations, sync, self._closing.batches, envelopes),
            partial(self._finish, units, operations, sync),
        )

    def _kept(
        self, units: list[Unit], operations: list[Operation], sync: bool, envelopes: list[bytes], mark: bytes
    ) -> None:
        """The log has the batch: now it is written here. mark: up to where store and journal have what the log has."""
        self._underway = []
        operations.append((keys.LOG, mark))
        self._worker.run(
            partial(self._write, operations, sync, self._closing.batches, envelopes),
            partial(self._finish, units, operations, sync),
        )

    def _late(self) -> None:
        """The log does not answer: mail is refused until it does. It may have the batch that is under way, or get it
        yet, so the next one deletes what was refused."""
        if self.trouble is None:
            self.trouble = NO_QUORUM
        waiting, self._waiting = self._waiting, deque(unit for unit in self._waiting if unit.keep)
        refused = [unit for unit in self._underway if not unit.keep]
        self._refused += [(key, None) for unit in refused for key, _ in unit.operations]
        for unit in [*refused, *(unit for unit in waiting if not unit.keep)]:
            done, unit.done = unit.done, immediately
            done(NO_QUORUM)
        if self._journal is not None:
            self._journal.alone()

    def _back(self) -> None:
        if self.trouble is NO_QUORUM:
            self.trouble = None
            log.warning("the cluster keeps what is written again; mail is accepted")
            self._kick()

    def _write(self, operations: list[Operation], sync: bool, number: int, envelopes: list[bytes]) -> None:
        self.store.write(operations, sync)
        if envelopes and self._receipts is not None:
            self._receipts.write(number, envelopes)

    def _finish(self, units: list[Unit], operations: list[Operation], sync: bool, error: Exception | None) -> None:
        self._busy = False
        if error is None:
            self._written(operations, sync)
            for unit in units:
                unit.done(None)
            if self.replica is not None:
                self._written_too(self.replica)
            if self._waiting:
                self._kick()
            elif self._journal is not None:
                self._journal.alone()
            return
        self._fail(units, error)

    def _written_too(self, replica: Replica) -> None:
        replica.written(self.store)
        if self._refused:
            self._waiting.appendleft(Unit(self._refused, False, True, immediately))
            self._refused = []

    def _written(self, operations: list[Operation], sync: bool) -> None:
        if sync:
            self.syncs += 1
            self._unsynced, self._unsynced_bytes = [], 0
            synced, self._after_this = self._after_this, []
            for then in synced:
                then()
        else:
            self._unsynced.append(operations)
            self._unsynced_bytes += bytes_of(operations)

    def _fail(self, units: list[Unit], error: Exception) -> None:
        if isinstance(error, StoreDamaged) or not isinstance(error, StoreError):
            self._damaged(error if isinstance(error, StoreDamaged) else StoreDamaged(repr(error)))
            return
        before = self.trouble
        self.trouble = refusal(error)
        tell(before, self.trouble, error)
        if units:
            self._closing.again()
        everything = [*units, *self._waiting]
        # A failed batch may be on disk all the same. Ids are never reused, so deleting its keys is always right.
        refused = [(key, None) for unit in units if not unit.keep for key, _ in unit.operations]
        self._waiting = deque(unit for unit in everything if unit.keep)
        if refused:
            self._waiting.appendleft(Unit(list(refused), False, True, immediately))
        for unit in everything:
            if not unit.keep:
                unit.done(self.trouble)
        self._after_sync, self._after_this = self._after_this + self._after_sync, []
        if self.trouble is NO_SPACE:
            waiting, self._after_sync = self._after_sync, []
            for then in waiting:
                then()
        if self._journal is not None:
            self._journal.alone()
        self._loop.call_later(RETRY_S, self._reopen)

    def _reopen(self) -> None:
        self._busy = True
        self._worker.run(partial(self._reopen_and_try, list(self._unsynced)), self._reopened)

    def _reopen_and_try(self, unsynced: list[list[Operation]]) -> None:
        self.store.reopen()
        for operations in unsynced:
            self.store.write(operations, False)
        self.store.write([(b"probe", b"x" * 4096)], True)
        self.store.write([(b"probe", None)], True)

    def close(self) -> None:
        """Unacknowledged writes may be lost."""
        self._worker.end()
        self.store.close()

    def _reopened(self, error: Exception | None) -> None:
        self._busy = False
        if error is not None:
            self._fail([], error)
            return
        self._unsynced, self._unsynced_bytes = [], 0
        self.trouble = None
        log.warning("%s can be written again; mail is accepted", self.store.folder)
        self._kick()


class JournalLine:
    """Appends to the journal. `stable_seq`: everything up to it is on stable storage."""

    lazy_s = 0.1

    def __init__(self, writer: Writer, next_seq: int, hire: Hire = Thread, replica: Replica | None = None) -> None:
        self.next_seq = next_seq
        self._replica = replica
        self._place = self._agreed = (0, 0)
        self.stable_seq = next_seq - 1
        self.syncs = 0
        self.trouble: Reply | None = None
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._worker = hire("journal", self._loop)
        self._buffer: list[Record] = []
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._urgent = next_seq - 1
        """The last record that somebody waits for who is not patient."""
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._busy = False
        self.company: Callable[[], bool] | None = None
        """Whether the store's next batch, which takes records along, begins as soon as it has ended the one before."""
        self._waits_for_company = False
        self.over: Callable[[], None] | None = None
        """Called when what was under way has ended."""

    def append(self, kind: Type, body: bytes, now_ms: int, awaited: bool = False) -> int:
        """Returns the record's sequence number. It is written within `lazy_s`, and synced when something waits for it.
        awaited: that is said next (`when_stable`)."""
        seq = self.next_seq
        self.next_seq = seq + 1
        self._buffer.append(record((seq, now_ms, int(kind), body)))
        if self._timer is None and not (awaited or self._soon or self._busy):
            self._later(self.lazy_s)
        return seq

    def when_stable(self, then: Callable[[], None], patient: bool = False) -> None:
        """Calls `then` once everything appended so far is on stable storage; in the order of the calls. patient: that
        may take PATIENT_S, in which others may share the sync; none is made for it alone while others are."""
        self._waiting.append((self.next_seq - 1, then))
        if not patient:
            self._urgent = self.next_seq - 1
            self._kick()
        elif not self._soon and not self._busy:
            self._later(PATIENT_S)

    async def stable(self) -> None:
        """Waits for the same."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.when_stable(partial(future.set_result, None))
        await asyncio.shield(future)

    def _start(self) -> None:
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy:
            return
        if self.company is not None and self._buffer and self.company():
            self._waits_for_company = True
            return
        records, self._buffer = self._buffer, []
        sync, last = bool(self._waiting), self.next_seq - 1
        self._busy, self._waits_for_company = True, False
        if self._replica is not None:
            self._place = self._replica.journal(records)
        self._worker.run(partial(self._writer.write, records, sync), partial(self._finish, last, sync))

    def boarding(self) -> list[Record]:
        """What goes to the log with the store's batch that begins now; unless it is nothing, `aboard` is said next."""
        if self._busy or not self._waiting or not self._buffer:
            return []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._buffer = self._buffer, []
        self._busy, self._waits_for_company = True, False
        return records

    def aboard(self, records: list[Record], place: tuple[int, int]) -> None:
        self._place = place
        self._worker.run(partial(self._writer.write, records, True), partial(self._finish, self.next_seq - 1, True))

    @property
    def is_under_way(self) -> bool:
        """To the log, and to the disk."""
        return self._busy and self.trouble is None

    def alone(self) -> None:
        """There is no company after all."""
        if self._waits_for_company:
            self._waits_for_company = False
            self._kick()

    def _finish(self, last: int, sync: bool, error: Exception | None) -> None:
        self._busy = False
        if error is not None:
            before, self.trouble = self.trouble, refusal(error)
            tell(before, self.trouble, error)
            if self.over is not None:
                self.over()
            self._busy = True  # nothing else goes to the disk until the retry
            self._loop.call_later(RETRY_S, self._retry)
            return
        if self.trouble is not None:
            self.trouble = None
            log.warning("the journal can be written again; mail is accepted")
        if sync and self._replica is not None and self._place > self._agreed:
            self._busy = True  # until other machines have it too
            self._replica.agreed(self._place, partial(self._there, last))
            return
        if sync:
            self.syncs += 1
            self.stable_seq = last
            while self._waiting and self._waiting[0][0] <= last:
                self._waiting.popleft()[1]()
        if self._urgent > last:
            self._kick()
        elif self._waiting or self._buffer:
            self._later(PATIENT_S if self._waiting else self.lazy_s)
        if self.over is not None:
            self.over()

    def _there(self, last: int) -> None:
        """Other machines have it."""
        self._agreed = self._place
        if self._replica is not None:
            self._replica.kept(self._place)
        self._finish(last, True, None)

    def _later(self, after_s: float) -> None:
        """At the latest; one timer is enough."""
        at_s = self._loop.time() + after_s
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._start)

    def _kick(self) -> None:
        if not (self._busy or self._soon or self._waits_for_company):
            self._soon = True
            self._loop.call_soon(self._loop.call_soon, self._start)

    def close(self) -> None:
        """Unsynced records may be lost."""
        self._worker.end()
        self._writer.close()

    def _retry(self) -> None:
        self._busy = False
        self._start()


def immediately(_: Any = None) -> None:
    """For callers that need no callback."""
