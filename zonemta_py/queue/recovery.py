"""Recovery: the only way up. Opens the store, reads the journal from the last position record, makes both agree.

Seed 000's restart, with the positions in the journal itself. What lies behind the last position record is the working
suffix; the record names the leases that were out when it was written, so the suffix never begins before it. Each result
in the suffix that the store has not seen is applied now (the recipient's key is still where the record found it); each
start record without a result is in doubt, and listed; a message without an envelope record gets one; chunks of messages
that were never committed are deleted.

Mail is taken before that, as soon as the store is open, the suffix read and no damage in sight (seed 000: receiving
need not wait for recovery, sending must): new ids are above all that went before, what the suffix says of suppression
and of campaigns holds already (`Replay.foresee`), and all below looks at older ids only.

Damage is copied to quarantine/ with a note; then the store is repaired, the journal mended, and everything compared
(`check`). Nothing is deleted for being damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk import journal, keys, records
from zonemta_py.disk.frame import Record
from zonemta_py.disk.once import Once
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.disk.records import Type
from zonemta_py.disk.store import Store, StoreDamaged
from zonemta_py.queue import check, doubt, journal_tail, judging, restoring, strays, unrecorded
from zonemta_py.queue.adoption import adopt
from zonemta_py.queue.campaigning import begun
from zonemta_py.queue.campaigns import BEGIN, ORDERS
from zonemta_py.queue.commit import Hire, JournalLine, Thread
from zonemta_py.queue.core import Core
from zonemta_py.queue.hooks import Hooks, NoHooks
from zonemta_py.queue.opening import REPAIR_MARK, open_store, say
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.replay import Replay
from zonemta_py.queue.segments import Segments
from zonemta_py.schedule.clock import Clock
from zonemta_py.schedule.sites import Scout
from zonemta_py.schedule.steady import Steady

RESULTS = (Type.DELIVERY, Type.IN_DOUBT, Type.REMOVED, Type.MOVED, Type.SUPPRESS, Type.UNSUPPRESS)


class Suffix:
    """What the journal says since the last position record (or since its beginning, if there is none)."""

    def __init__(self, position: Record | None) -> None:
        body: dict[str, Any] = records.unpack(position.body) if position else {}
        self.position_seq = position.seq if position else 0
        self.applied = int(body.get("applied", 0))
        self.batches = int(body.get("batches", 0))
        self.floor = str(body.get("floor", "0" * 16))
        self.arriving: set[str] = set(body.get("opened", []))
        self.marks: dict[str, dict[str, bytes]] = body.get("marks", {})
        self.segments = Segments(body.get("segments", []))
        self.working: dict[int, list[Any]] = {row[0]: row for row in body.get("working", [])}
        self.opened = set(self.arriving)
        self.ended: list[str] | None = body.get("ended")
        self.enveloped: set[str] = set()
        self.finished: set[str] = set()
        self.tried: set[str] = set()
        self.known: dict[str, tuple[str, int, int]] = {}
        """See `Core.known`."""
        self.results: list[Record] = []
        self.last: Record | None = position
        self.permits: dict[str, Any] = body.get("permits", {})
        self.standing: dict[str, Any] = body.get("standing", {})
        self.changes: list[list[Any]] = []
        """Changes of standing since the position."""
        self.results_since: list[list[Any]] = []
        self.begun: set[str] = set()
        """Campaigns that began since then."""
        self.since_ms = position.ms if position else 0
        self.clock: dict[str, Any] = body.get("clock", {})
        self.clock_ms = position.ms if position else 0
        """The machine's clock at the last record that is not the end of a file: that is written by the next start."""
        self.given: list[tuple[int, list[Any]]] = []
        """START records since the position, with their (steady) times: what limits were charged for."""

    def take(self, record: Record) -> None:
        """One more record. Segments are counted by the position record up to it, and from here behind it."""
        self.last = record
        if record.type != Type.END:
            self.clock_ms = record.ms
        if record.type in RESULTS:
            self.results.append(record)
        if record.type == Type.POSITION:
            return
        body = records.unpack(record.body)
        counts = record.seq > self.position_seq
        if record.type == Type.START:
            self.working[body[0]] = body
            if counts:
                self.given.append((record.ms + self._apart_ms(), body))
        elif record.type == Type.STANDING:
            self._stand(record, body, counts)
        elif record.type == Type.DELIVERY:
            self._heard(body[0], body[4])
            self.tried.add(body[1])
            if counts:
                self.results_since.append(body)
        elif record.type == Type.REMOVED:
            self.tried.add(body[0])
            if len(body) > 4:
                self._owed(body[0], body[4].get("envelope", {}), 0)
        elif record.type == Type.IN_DOUBT:
            for lease in body[0]:
                self.working.pop(lease, None)
        elif record.type == Type.ENVELOPE:
            self.enveloped.add(body[0])
            self._owed(body[0], body[1], len(body[2]))
            self.opened.discard(body[0])
            if counts:
                self.segments.born(body[0])
        elif record.type == Type.OPEN:
            self.opened.add(body[0])
        elif record.type == Type.FINISH:
            self.finished.add(body[0])
            if counts:
                self.segments.ended(body[0])
        elif record.type == Type.SEGMENT and counts:
            self.segments.begin(body["first"], body["floor"])
            self.clock = body.get("clock", self.clock)

    def _heard(self, lease: int, outcomes: list[list[Any]]) -> None:
        """The others of the lease may be under way still."""
        row = self.working.get(lease)
        if row is None:
            return
        known = {_address(who) for outcome in outcomes for who in outcome[5]}
        left = [who for who in row[4] if _address(who) not in known]
        if left:
            self.working[lease] = [*row[:4], left, *row[5:]]
        else:
            del self.working[lease]

    def _owed(self, message_id: str, metadata: dict[str, Any], accepted: int) -> None:
        """The client of what was accepted since the position may not have heard of it."""
        if token := metadata.get("token"):
            self.known[token] = message_id, accepted, 0

    def _apart_ms(self) -> int:
        steps = self.clock.get("steps")
        return int(steps[-1][1]) if steps else 0

    def _stand(self, record: Record, body: list[Any], counts: bool) -> None:
        what, (kind, name) = body[:2]
        if what == "clock":
            if counts:
                self.clock["steps"] = body[2]
            return
        if kind == "campaign" and what in ORDERS:
            self.results.append(record)
        elif kind == "campaign" and what == BEGIN:
            self.begun.add(name)
        elif counts:
            self.changes.append(body)


def _address(who: Any) -> str:
    return str(who[0] if isinstance(who, list) else who)


def read_suffix(folder: Path, faults: list[journal.Fault]) -> Suffix:
    suffix = Suffix(journal.last_of(folder, Type.POSITION))
    for record in journal.read(folder, suffix.applied + 1 if suffix.position_seq else 0, faults):
        suffix.take(record)
    return suffix


async def open_queue(
    config: Config,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    damaged: Callable[[StoreDamaged], None] | None = None,
    scout: Scout | None = None,
    hire: Hire = Thread,
) -> LocalQueue:
    """Recovers and returns a queue that is ready to `start`. hire: who waits for its disk.

    Raises ConfigError (rules that cannot be read), StoreError, OSError.
    """
    judging.load(config)
    opening = await begin(config, hooks, clock, damaged, scout, hire)
    await opening.finish()
    return opening.queue


class Opening:
    """A queue that takes mail already, and gives none away before `finish` has returned."""

    def __init__(self, queue: LocalQueue, suffix: Suffix, damaged: Callable[[StoreDamaged], None]) -> None:
        self.queue = queue
        self._suffix, self._damaged = suffix, damaged
        self._replay = Replay(queue, suffix.results, suffix.finished)
        self._replay.foresee()
        self._last_id = queue.core.ids.last

    async def finish(self) -> None:
        """The rest of recovery. Raises StoreError."""
        try:
            await self._finish()
        except StoreDamaged as error:
            self._damaged(error)  # met only now, in a part that opening does not read
            raise

    async def _finish(self) -> None:
        core = self.queue.core
        await self._replay.run()
        await _leftovers(self.queue, self._suffix, self._last_id)
        await core.lines.stable()
        for zone, count in (await adopt(core)).items():
            home = core.config.default_zone.name
            say(f"zone {zone!r} is gone from the configuration: its {count} recipients go on in zone {home!r}")
        await core.lines.stable()
        await core.journal.stable()
        core.receipts.forget()
        Once(core.config.folder / "quarantine").done()
        core.recovered()


async def begin(
    config: Config,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    damaged: Callable[[StoreDamaged], None] | None = None,
    scout: Scout | None = None,
    hire: Hire = Thread,
) -> Opening:
    """Opens the disk, and repairs it where it is damaged; what is left to do is `Opening.finish`.

    Raises StoreError, OSError.
    """
    quarantine = Once(config.folder / "quarantine")
    store, repaired = open_store(config, quarantine)
    damaged = damaged or stop_for_repair(config.folder)
    try:
        return _begin(config, hooks or NoHooks(), clock or Clock(), damaged, scout, hire, store, repaired)
    except StoreDamaged as error:
        damaged(error)  # met only now, in a part that opening does not read
        raise


def _begin(
    config: Config,
    hooks: Hooks,
    clock: Clock,
    damaged: Callable[[StoreDamaged], None],
    scout: Scout | None,
    hire: Hire,
    store: Store,
    repaired: bool,
) -> Opening:
    folder = config.folder
    quarantine = Once(folder / "quarantine")
    faults: list[journal.Fault] = []
    suffix = read_suffix(folder / "journal", faults)
    state = check.state_of(store)
    gone = not journal.files(folder / "journal")
    if restoring.restore(config, store, state.stable, suffix.segments.rows(), quarantine):
        faults = []
        suffix = read_suffix(folder / "journal", faults)
    lost_tail = (suffix.last.seq if suffix.last else 0) < state.stable
    if lost_tail and not gone:
        _keep_tail(folder / "journal", quarantine, state.stable)
    last_ms = suffix.clock_ms
    next_seq = _seal(folder / "journal", suffix, clock.ms())
    if faults and not lost_tail:  # a torn tail is what every crash may leave: it is cut off now
        faults = []
        suffix = read_suffix(folder / "journal", faults)
    if not gone and not (repaired and lost_tail):
        next_seq = _tell_lost(config, store, 0 if repaired else state.batches, suffix, next_seq, clock.ms())
    if not repaired and _store_is_behind(store, state, suffix):
        repaired = True
        say("damage in the store: its end is missing; what the journal still knows of it is named here")
        note = {"error": "the end of the store is missing", "remedy": "send what is named from its source again"}
        quarantine.case("store", note)
    if faults or lost_tail or repaired:
        _mend(config, store, quarantine, faults, lost_tail, state.stable)
        faults = []
        suffix = read_suffix(folder / "journal", faults)
        next_seq = (suffix.last.seq if suffix.last else 0) + 1  # not one more: what the store takes for stable must be
        state = check.state_of(store)
    last_id = max(check.last_id(store, suffix.floor), *suffix.enveloped, *suffix.opened, suffix.floor)
    steady = Steady(clock, suffix.clock, last_ms, keys.Ids(last_id).following())
    core = Core(
        config,
        store,
        JournalLine(journal.Writer(folder / "journal"), next_seq, hire),
        marks={} if repaired else suffix.marks,
        segments=suffix.segments,
        last_id=last_id,
        totals=(state.messages, state.bytes),
        batches=state.batches,
        clock=steady,
        damaged=damaged,
        hooks=hooks,
        scout=scout,
        hire=hire,
    )
    _take_up(core, suffix)
    if steady.stepped:
        steady.tell()
    return Opening(LocalQueue(core, first_lease=next_seq), suffix, damaged)


def _take_up(core: Core, suffix: Suffix) -> None:
    """Limits, suspensions and what was learned go on where they were: a restart grants no second helping."""
    schedule = core.schedule
    core.cleansing.resume(suffix.ended)
    for message_id in suffix.finished:
        core.cleansing.ended(message_id)
    schedule.permits.restore(suffix.permits)
    schedule.standing.restore(suffix.standing)
    for change in suffix.changes:
        schedule.standing.apply(change)
    for ms, body in suffix.given:
        _, _, zone, place, recipients, _, provider, size = [*body, "", 0][:8]
        schedule.charge_again(zone, place, provider, len(recipients), size, ms)
    for _, _, _, _, outcomes, trace in (body[:6] for body in suffix.results_since):
        if len(trace) > 7:
            schedule.standing.count_again(trace[5], trace[6], trace[7], outcomes)


def _seal(folder: Path, suffix: Suffix, now_ms: int) -> int:
    """Ends the file that a crash left open; returns the next sequence number."""
    files = journal.files(folder)
    if suffix.last is None or not files:
        return 1
    if suffix.last.type != Type.END:
        journal_tail.keep(files[-1], Once(folder.parent / "quarantine"))
    return journal.seal(files[-1], suffix.last, now_ms).seq + 1


def _tell_lost(config: Config, store: Store, batches: int, suffix: Suffix, next_seq: int, now_ms: int) -> int:
    """What was acknowledged last, and only the receipts know, is known to the journal from here on."""
    bodies = restoring.unknown(config, store, batches, suffix.floor, suffix.arriving, suffix.enveloped)
    if not bodies:
        return next_seq
    suffix.enveloped.update(body[0] for body in bodies)
    return restoring.tell(config.folder / "journal", next_seq, bodies, now_ms)


def _store_is_behind(store: Store, state: check.State, suffix: Suffix) -> bool:
    """Whether batches are gone that were on stable storage: LevelDB takes the lost end of its log for a crash's."""
    if state.batches < suffix.batches:
        return True
    known = suffix.enveloped - suffix.finished - suffix.tried
    return any(store.get(keys.existence(message_id)) is None for message_id in known)


def _keep_tail(folder: Path, quarantine: Quarantine, stable: int) -> None:
    """Before the end of the journal is cut: it holds more than what a crash tears."""
    note = {
        "error": f"the journal ends before record {stable}, which was on stable storage",
        "remedy": "none needed",
    }
    say(f"damage in the journal: its end is missing, up to record {stable}; what is queued will be sent")
    quarantine.copy("journal", note, journal.files(folder)[-1:])


def _mend(
    config: Config, store: Store, quarantine: Quarantine, faults: list[journal.Fault], lost_tail: bool, stable: int
) -> None:
    for fault in faults:
        say(f"damage in the journal: {fault}")
    check.mend_journal(config.folder / "journal", quarantine, config.folder / "archive")
    if lost_tail:
        check.bridge(config.folder / "journal", stable)
    for problem in check.compare(config, store, repair=True, quarantine=quarantine).problems:
        say(f"repaired: {problem}")


async def _leftovers(queue: LocalQueue, suffix: Suffix, last_id: str) -> None:
    """What the crash left in the middle: leases in doubt, chunks without a message, messages without a record.

    last_id: what is behind it has come since.
    """
    doubt.recover(queue, list(suffix.working.values()))
    core, among = queue.core, (suffix.floor, suffix.arriving, last_id)
    # Chunks may be there before the OPEN record that names them.
    for message_id in suffix.opened | unrecorded.unfinished(core.store, *among):
        if core.store.get(keys.existence(message_id)) is None:
            prefix = keys.message_range(message_id)
            operations = [(key, None) for key in core.store.keys(prefix, keys.end(prefix))]
            core.lines.submit(list(operations), lambda _: None, sync=False, keep=True)
    known = suffix.opened | suffix.finished | suffix.tried | core.bodies.ending
    strays.clear(core, suffix.floor, last_id, known)
    for message_id, metadata, rows in await unrecorded.without_envelope(core.store, suffix.enveloped, *among):
        core.record(Type.ENVELOPE, b"\x93" + records.pack(message_id) + metadata + records.pack(rows))
        core.segments.born(message_id)
        suffix._owed(message_id, records.unpack(metadata), len(rows))
    core.known = suffix.known
    for campaign in core.campaigns.by_name.values():  # as for messages: the batch is what counts
        since = campaign.seq > suffix.position_seq if campaign.seq else campaign.created_ms > suffix.since_ms
        if since and campaign.name not in suffix.begun:
            begun(core, campaign)


def stop_for_repair(folder: Path) -> Callable[[StoreDamaged], None]:
    """What a running queue does about a damaged store: it leaves a mark and ends; the next start repairs."""

    def stop(error: StoreDamaged) -> None:
        say(f"{error}; starting again to repair it")
        (folder / REPAIR_MARK).write_text(str(error))
        os._exit(os.EX_IOERR)

    return stop
