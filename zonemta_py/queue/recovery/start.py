"""Recovery: the only way to start. Opens the store, reads the journal from the last position record, makes them agree.

The positions of a restart are in the journal itself (seed 000's restart, adapted). The records after the last position
record are the working suffix; the position record names the leases that were out when it was written, so nothing before
it is needed. Each result in the suffix that the store lacks is applied (the recipient's key is still where the record
found it); each start record without a result is in doubt, and listed; a message without an envelope record gets one;
chunks of messages that were never committed are deleted.

Mail is accepted earlier, as soon as the store is open, the suffix is read and no damage was found (seed 000: receiving
need not wait for recovery, sending must): new ids are above all old ones, suppressions and campaign orders of the
suffix apply already (`Replay.foresee`), and all later steps look at older ids only.

Damage is copied to quarantine/ with a note; then the store is repaired, the journal restored, everything in the journal
applied, and only then all is compared (`check`) and corrected (`repair`). Nothing is deleted because it is damaged.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Store, StoreDamaged
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import families, segments, version
from zonemta_py.journal import repair as journal_repair
from zonemta_py.journal.receipts import Receipts
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Writer
from zonemta_py.queue.campaigns.commands import begun
from zonemta_py.queue.core import policy_copy
from zonemta_py.queue.core.bodies import Bodies
from zonemta_py.queue.core.commit import Hire, Inline, JournalLine, Replica, Thread
from zonemta_py.queue.core.core import Callbacks, Core
from zonemta_py.queue.fsck import bodies as check_bodies
from zonemta_py.queue.fsck import compare
from zonemta_py.queue.fsck.repair import repair
from zonemta_py.queue.hooks import Hooks, NoHooks
from zonemta_py.queue.lifecycle import in_doubt, moved, settle
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import doubts, journal_tail, owed, restore, unrecorded
from zonemta_py.queue.recovery.once import Once
from zonemta_py.queue.recovery.open_store import open_store, say, stop_to_recover
from zonemta_py.queue.recovery.replay import Replay
from zonemta_py.queue.recovery.rezoning import adopt
from zonemta_py.queue.recovery.suffix import Suffix, read_suffix
from zonemta_py.schedule.sites import DestinationResolver
from zonemta_py.schedule.time.clock import Clock
from zonemta_py.schedule.time.steady import Steady

Progress = Callable[[str], None]
ORDERS_MARK = "orders-lost"
"""A file in the queue's folder: the journal was restored, but does not say yet that orders may be lost."""
_STANDING, _SUPPRESSIONS = "standing", "suppression list"
_SHOWN = {_STANDING: "orders", _SUPPRESSIONS: "suppressions"}
"""Where a check found a loss, and what `zonemta standing` calls it."""


@dataclass(frozen=True)
class Rebuild:
    """How a queue is built from its files. hire: creates the workers that wait for the disk. receipts, bodies:
    replacements for those on disk. replica: what keeps both disks elsewhere too."""

    config: Config
    hooks: Hooks
    clock: Clock
    damaged: Callable[[Exception], None]
    resolver: DestinationResolver | None = None
    hire: Hire = Inline
    receipts: Receipts | None = None
    bodies: Bodies | None = None
    replica: Replica | None = None

    def opening(self, store: Store, writer: Writer, suffix: Suffix, next_seq: int, marks: bool) -> Opening:
        """marks: the marks of the last position can be trusted. Raises StoreError, OSError."""
        state = compare.state_of(store)
        last_id = max(compare.last_id(store, suffix.floor), *suffix.enveloped, *suffix.opened, suffix.floor)
        ids = keys.Ids(last_id, self.config.queue_number)

        def make(callbacks: Callbacks) -> Core:
            steady = Steady(
                self.clock, suffix.clock, suffix.clock_ms, next_id=ids.following,
                on_step=lambda steps: core.clock_set(steps),
            )  # fmt: skip
            core = Core(
                self.config,
                store,
                JournalLine(writer, next_seq, self.hire, self.replica),
                marks=suffix.marks if marks else {},
                segments=suffix.segments,
                ids=ids,
                totals=(state.messages, state.bytes),
                batches=max(state.batches, suffix.batches),  # anything lost has been reported by then
                clock=steady,
                damaged=self.damaged,
                callbacks=callbacks,
                hooks=self.hooks,
                resolver=self.resolver,
                hire=self.hire,
                receipts=self.receipts,
                bodies=self.bodies,
                replica=self.replica,
            )
            _take_up(core, suffix)
            if steady.stepped:
                steady.tell()
            return core

        return Opening(LocalQueue(make, first_lease=next_seq), suffix, self.damaged)


async def open_queue(
    config: Config,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    damaged: Callable[[Exception], None] | None = None,
    resolver: DestinationResolver | None = None,
    hire: Hire = Thread,
) -> LocalQueue:
    """Recovers and returns a queue that is ready to `start`. hire: creates the workers that wait for the disk.

    Raises ConfigError (rules that cannot be read), StoreError, OSError.
    """
    settle.load(config)
    opening = await begin(config, hooks, clock, damaged, resolver, hire)
    await opening.finish()
    return opening.queue


class Opening:
    """A queue that accepts mail already, but delivers none before `finish` has returned."""

    def __init__(self, queue: LocalQueue, suffix: Suffix, damaged: Callable[[Exception], None]) -> None:
        self.queue = queue
        self._suffix, self._damaged = suffix, damaged
        self._replay = Replay(queue, suffix.results, suffix.finished)
        self._replay.foresee()
        self._last_id = queue.core.disk.ids.last

    async def finish(self) -> None:
        """The rest of recovery. Raises StoreError."""
        try:
            await self._finish()
        except StoreDamaged as error:
            self._damaged(error)  # found only now, in a part that opening does not read
            raise

    async def apply(self, clear: bool = False, whole: bool = True) -> None:
        """Makes store and journal agree. Raises StoreError.

        clear: also delete body files that belong to no message. whole: as for `Replay.run`.
        """
        await self._replay.run(whole)
        await _leftovers(self.queue, self._suffix, self._last_id, clear)
        await self.queue.core.disk.journal.stable()
        await self.queue.core.disk.lines.stable()

    async def _finish(self) -> None:
        core = self.queue.core
        await self.apply(clear=True)
        for sentence in await adopt(core):
            say(sentence)
        await core.disk.journal.stable()
        await core.disk.lines.stable()
        core.disk.receipts.forget()
        found = Once(core.config.folder / "quarantine")
        core.note_damage(found.cases_begun())
        found.done()
        self.queue.tasks.engine.begin()
        core.recovered()
        self.queue.policy.begin()


async def begin(
    config: Config,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    damaged: Callable[[Exception], None] | None = None,
    resolver: DestinationResolver | None = None,
    hire: Hire = Thread,
    replica: Replica | None = None,
) -> Opening:
    """Opens the disk, and repairs it if it is damaged; `Opening.finish` does the rest. replica: what keeps both disks
    elsewhere too.

    Raises StoreError, OSError.
    """
    version.check(config.folder)
    store, repaired = open_store(config, Once(config.folder / "quarantine"))
    damaged = damaged or stop_to_recover(config.folder)
    rebuild = Rebuild(config, hooks or NoHooks(), clock or Clock(), damaged, resolver, hire, replica=replica)
    try:
        opening, found = await recover(rebuild, store, repaired)
    except StoreDamaged as error:
        damaged(error)  # found only now, in a part that opening does not read
        raise
    for problem in found.problems if found is not None else ():
        say(f"repaired: {problem}")
    core = opening.queue.core
    if not segments.files(config.folder / "journal"):
        core.disk.ledger.rotate()  # before anything is acknowledged: a journal that has no file after this has lost it
        await core.disk.journal.stable()
    return opening


async def recover(
    rebuild: Rebuild, store: Store, repaired: bool, thorough: bool = False, progress: Progress = lambda _: None
) -> tuple[Opening, compare.FsckReport | None]:
    """Builds a queue from the disk as it is; if something was damaged (or thorough), also what a check found and
    repaired.

    repaired: the store was repaired. Raises StoreError, OSError.
    """
    config, clock = rebuild.config, rebuild.clock
    folder, quarantine = config.folder / "journal", Once(config.folder / "quarantine")
    faults: list[segments.Fault] = []
    suffix = read_suffix(folder, faults)
    state, gone = compare.state_of(store), not segments.files(folder)
    restored = restore.restore(config, store, state.stable, suffix, quarantine, repaired)
    if restored:
        faults = []
        suffix = read_suffix(folder, faults)
    repaired = repaired or (gone and not state.stable and restore.was_here(config.folder))
    lost_tail = suffix.last_seq < state.stable
    loss = doubts.Loss(state.applied, lost_tail, max(suffix.last_seq, state.stable) + 1)
    if lost_tail:
        doubts.note(config.folder, loss)
    if lost_tail and not gone:
        _keep_tail(folder, quarantine, state.stable)
    next_seq = _seal(folder, suffix, clock.ms(), lambda: doubts.note(config.folder, loss._replace(end=True)))
    if faults and not lost_tail:  # every crash may leave a torn tail: it is cut off now
        faults = []
        suffix = read_suffix(folder, faults)
    if faults:
        doubts.note(config.folder, loss)
    if not gone and not (repaired and lost_tail):
        next_seq = _tell_lost(config, store, 0 if repaired else state.batches, suffix, next_seq, clock.ms())
    if not repaired and store_is_behind(store, state, suffix):
        repaired = True
        say("damage in the store: its end is missing; what the journal still knows of it is listed here")
        note = {"error": "the end of the store is missing", "remedy": "send what is listed again from its source"}
        quarantine.case("store", note)
    marked = (config.folder / ORDERS_MARK).exists() or doubts.noted(config.folder) is not None
    if not (faults or lost_tail or repaired or thorough or marked):
        _keep_elsewhere(rebuild, store, suffix, restored)
        return rebuild.opening(store, Writer(folder), suffix, next_seq, marks=True), None
    faults = _repair_journal(config, quarantine, state.stable if lost_tail else 0, thorough)
    if (faults or gone or lost_tail) and (repaired or not policy_copy.is_kept(store)):
        (config.folder / ORDERS_MARK).touch()
    found = await _checked(rebuild, store, quarantine, progress, repaired)
    for fault in faults:
        found.report.add("damage", f"the journal: {fault.what}", str(fault.path), "what could be read was kept")
    if (config.folder / ORDERS_MARK).exists():
        what = "stops, lifts, warm-up days and learned limits of the time that is lost in the journal may be lost"
        found.report.add(
            "damage", what, _STANDING, "check zonemta standing before mail is sent; repeat orders that are missing"
        )
    suffix = read_suffix(folder, [])
    next_seq = _seal(folder, suffix, clock.ms())
    _keep_elsewhere(rebuild, store, suffix, True)
    opening = rebuild.opening(store, Writer(folder), suffix, next_seq, marks=not repaired)
    opening.queue.core.disk.segments.count_again(found.living())
    await _remember(opening.queue.core, found)
    return opening, found.report


def _keep_elsewhere(rebuild: Rebuild, store: Store, suffix: Suffix, anew: bool) -> None:
    """Both disks are as the queue begins. anew: they were repaired."""
    if rebuild.replica is not None:
        applied = suffix.applied if suffix.position_seq else 0
        rebuild.replica.begin(store, rebuild.config.folder / "journal", applied, anew)


async def _remember(core: Core, found: compare.Comparison) -> None:
    """Makes `zonemta standing` show which orders may be lost, until an operator has lifted it, and suspends campaigns
    that have lost their template."""
    policy, campaigns = core.schedule.policy, core.campaigns
    for problem in found.report.problems:
        if problem.id in _SHOWN and problem.severity == "damage":
            policy.lost(_SHOWN[problem.id], f"{problem.what}; {problem.remedy}")
    for campaign in filter(None, map(campaigns.registered, found.textless)):
        if not campaign.canceled_ms:
            cause = "its template was lost by damage"
            policy.stop("campaign", campaign.name, math.inf, cause, chosen=True, tenants=campaign.tenants)
    await core.disk.journal.stable()
    (core.config.folder / ORDERS_MARK).unlink(missing_ok=True)


async def _checked(
    rebuild: Rebuild, store: Store, quarantine: Quarantine, progress: Progress, repaired: bool
) -> compare.Comparison:
    """Compares everything, and repairs it.

    Pending results are applied first: otherwise the check would remove mail that is still owed.
    """
    folder = rebuild.config.folder / "journal"
    writer, suffix = Writer(folder), read_suffix(folder, [])
    # Not one number more: what the store takes for stable must be stable.
    opening = replace(rebuild, hire=Inline, replica=None).opening(
        store, writer, suffix, suffix.last_seq + 1, marks=False
    )
    await opening.apply(whole=False)
    core = opening.queue.core
    await core.disk.bodies.settled()
    rows = segments.read(folder, 0, [], rebuild.config.folder / "archive")
    before = archived_before(folder, rebuild.config.folder / "archive") if repaired else None
    older = segments.read_files(before) if before is not None else None
    loss = doubts.noted(rebuild.config.folder)
    own_from = loss.own_from if loss else sys.maxsize
    found = compare.compare(rebuild.config, store, rows, [], progress, older, own_from, core.clock.steady_ms())
    if before is not None:
        _name_what_the_store_alone_had(folder, before, found)
    count = await repair(core, found, quarantine, doubts.rows(core, found, loss))
    doubts.told(rebuild.config.folder)
    if count:
        what = f"{count} recipients that wait may have had their mail: their results may be among what is lost"
        found.report.add("damage", what, "in doubt", "see zonemta queue in-doubt")
    core.disk.receipts.close()
    writer.close()
    return found


def archived_before(folder: Path, archive: Path) -> list[Path]:
    """Archived segments that come before the journal's oldest one."""
    known = {path.name for path in segments.files(folder, archive)}
    return [path for path in segments.every_file(folder, archive) if path.name not in known]


def _name_what_the_store_alone_had(folder: Path, before: list[Path], found: compare.Comparison) -> None:
    oldest, report = [*before, *segments.files(folder)][:1], found.report
    if not found.truth.listed.whole and (not oldest or segments.first_seq(oldest[0]) > 1):
        what = "the journal and its archive do not go back to the beginning: suppressions from before may be missing"
        report.add("damage", what, _SUPPRESSIONS, "import the list again: zonemta suppression import")
    what = f"in the store only are {families.lost()}: what it has lost of these is lost"
    report.add("damage", what, "store", "check zonemta campaign list")


def _take_up(core: Core, suffix: Suffix) -> None:
    """Restores limits, suspensions and learned values, so that a restart does not reset any limit."""
    schedule = core.schedule
    core.disk.compaction.resume(suffix.ended)
    for message_id in suffix.finished:
        core.disk.compaction.ended(message_id)
    policy, admission, changes = policy_copy.taken_up(
        core.disk.store, suffix.position_seq, suffix.policy, suffix.admission, suffix.changes
    )
    schedule.admission.restore(admission)
    schedule.policy.restore(policy)
    for change in changes:
        schedule.policy.apply(change)
    for ms, start in suffix.given:
        count = len(start.recipients)
        schedule.charge_again(start.zone, start.destination, start.provider, count, start.size, ms)
    for delivery in suffix.results_since:
        trace = delivery.trace
        site, provider = trace.site, trace.provider
        schedule.policy.count_again(trace.source, site, provider, delivery.outcomes, trace.started_ms)


def _seal(folder: Path, suffix: Suffix, now_ms: int, damaged: Callable[[], None] = lambda: None) -> int:
    """Ends the file that a crash left open; returns the next sequence number. damaged: called before its end is cut
    off, if more than one record at it is damaged."""
    files = segments.files(folder)
    if suffix.last is None or not files:
        return 1
    if suffix.last.type != Type.END and journal_tail.keep(files[-1], Once(folder.parent / "quarantine")):
        damaged()
    return segments.seal(files[-1], suffix.last, now_ms).seq + 1


def _tell_lost(config: Config, store: Store, batches: int, suffix: Suffix, next_seq: int, now_ms: int) -> int:
    """Adds to the journal the latest acknowledged messages, if only the receipts have them."""
    envelopes = restore.unknown(config, store, batches, suffix.floor, suffix.arriving, suffix.enveloped)
    if not envelopes:
        return next_seq
    for envelope in envelopes:
        suffix.accepted(envelope)
    return restore.tell(config.folder / "journal", next_seq, envelopes, now_ms)


def store_is_behind(store: Store, state: compare.StoreState, suffix: Suffix) -> bool:
    """Whether synced batches are missing: LevelDB takes a lost end of its log for the trace of a crash.

    Mail that only the journal has tells that, unless its end may be in records that the journal itself has lost: the
    store, which saw them (`stable`), is ahead then, and the mail has ended.
    """
    if state.batches < suffix.batches:
        return True
    lost = state.stable if suffix.last_seq < state.stable else min(suffix.missing, state.stable)
    living = (message_id for message_id, left in suffix.left.items() if left and suffix.born[message_id] > lost)
    return any(store.get(keys.existence(message_id)) is None for message_id in living)


def _keep_tail(folder: Path, quarantine: Quarantine, stable: int) -> None:
    """Before the journal's end is cut: keeps a copy of more than what a crash tears."""
    note = {
        "error": f"the journal ends before record {stable}, which was on stable storage",
        "remedy": "none needed",
    }
    say(f"damage in the journal: its end is missing, up to record {stable}; what is queued will be sent")
    quarantine.copy("journal", note, segments.files(folder)[-1:])


def _repair_journal(config: Config, quarantine: Quarantine, stable: int, thorough: bool) -> list[segments.Fault]:
    """Returns what was wrong with it. stable: if not 0, its end is missing, up to that record. thorough: also check
    what only the archive has."""
    folder, archive = config.folder / "journal", config.folder / "archive"
    files = segments.every_file(folder, archive) if thorough else segments.files(folder, archive)
    faults = journal_repair.repair(files, quarantine, archive)
    for fault in faults:
        say(f"damage in the journal: {fault}")
    if stable:
        journal_repair.bridge(folder, stable)
    return faults


async def _leftovers(queue: LocalQueue, suffix: Suffix, last_id: str, clear: bool) -> None:
    """What the crash interrupted: leases in doubt, chunks without a message, messages without a record.

    last_id: later ids came after the start.
    """
    in_doubt.recover(queue, list(suffix.working.values()))
    core, among = queue.core, (suffix.floor, suffix.arriving, last_id)
    # Chunks may be there before the OPEN record that names them.
    for message_id in suffix.opened | unrecorded.unfinished(core.disk.store, *among):
        if core.disk.store.get(keys.existence(message_id)) is None:
            prefix = keys.message_range(message_id)
            operations = [(key, None) for key in core.disk.store.keys(prefix, keys.end(prefix))]
            core.disk.lines.submit(list(operations), lambda _: None, sync=False, keep=True)
    if clear:
        known = suffix.opened | suffix.finished | suffix.tried | core.disk.bodies.ending
        check_bodies.clear_strays(core, suffix.floor, known)
    for message_id, record in list(moved.unrecorded(core.disk.store, suffix.enveloped - suffix.finished)):
        core.disk.ledger.append(Type.TAKEN, record)
        core.disk.segments.born(message_id)
        suffix.enveloped.add(message_id)
        core.disk.journal.when_stable(partial(moved.recorded, core, [message_id]))
    for message_id, metadata, rows in await unrecorded.without_envelope(core.disk.store, suffix.enveloped, *among):
        # An `EnvelopeRecord` whose metadata are packed already.
        core.disk.ledger.append(Type.ENVELOPE, b"\x93" + packing.pack(message_id) + metadata + packing.pack(rows))
        core.disk.segments.born(message_id)
        suffix.owed(message_id, packing.unpack(metadata), len(rows))
    core.known = owed.keep(core.config.folder, suffix.known, core.clock.ms())
    for campaign in core.campaigns.by_name.values():  # as for messages: the batch is the commit
        since = campaign.seq > suffix.position_seq if campaign.seq else campaign.created_ms > suffix.since_ms
        if since and campaign.name not in suffix.begun and not campaign.named:
            begun(core, campaign)
