"""`zonemta fsck`: opens a stopped queue, and reports what is wrong with it, or repairs it.

Without repair nothing is changed: the queue is checked as the next start would restore it (`view`), because results
that are only in the journal after a crash are not damage. With repair it is first recovered as at a start, then
compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Store, StoreDamaged, is_empty
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import receipts, segments, version
from zonemta_py.journal import repair as journal_repair
from zonemta_py.queue.core.commit import Inline
from zonemta_py.queue.fsck.compare import FsckReport, compare, state_of
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.recovery import restore, start
from zonemta_py.queue.recovery.once import Once
from zonemta_py.queue.recovery.open_store import REPAIR_MARK, keep, open_store
from zonemta_py.queue.recovery.suffix import read_suffix
from zonemta_py.queue.recovery.view import LookedAt, NoReceipts, Unwritten, View
from zonemta_py.schedule.time.clock import Clock

Progress = Callable[[str], None]
_REPAIRS_MAX = 3
"""A repair may find damage that the one before has not read."""


def _silent(_: str) -> None:
    """Shows no progress."""


async def check(
    config: Config, repair: bool = False, progress: Progress = _silent, clock: Clock | None = None
) -> FsckReport:
    """What was found (and repaired). Raises StoreLocked, StoreError, OSError."""
    clock = clock or Clock()
    version.check(config.folder)
    if repair:
        return await _repaired(config, progress, clock)
    if is_empty(config.folder / "store") and restore.was_here(config.folder):
        report = FsckReport()
        report.add(
            "damage", "the store is gone", "store", "put it back, or run zonemta fsck --repair to list what is lost"
        )
        return report
    acknowledged, quarantine = receipts.last(config.folder), Quarantine(config.folder / "quarantine")
    store = Store(config.folder / "store", config.queue.write_buffer_bytes, acknowledged, keep(quarantine))
    try:
        return await _judged(config, store, progress, clock)
    except StoreDamaged as error:
        report = FsckReport()
        report.add("damage", f"the store cannot be read: {error}", "store", "zonemta fsck --repair")
        return report
    finally:
        store.close()


async def _judged(config: Config, store: Store, progress: Progress, clock: Clock) -> FsckReport:
    folder, archive, view = config.folder / "journal", config.folder / "archive", View(store)
    fresh, faults = Unwritten(folder), list[segments.Fault]()
    progress("checking what the next start would do")
    suffix, state = read_suffix(folder, []), state_of(store)
    behind = start.store_is_behind(store, state, suffix)
    rebuild = start.Rebuild(
        config, NoHooks(), clock, _raise, None, Inline, NoReceipts(config.folder), LookedAt(config.folder)
    )
    opening = rebuild.opening(view, fresh, suffix, max(suffix.last_seq, state.stable) + 1, marks=False)
    await opening.apply()
    rows = chain(_records(folder, archive, state.stable, faults), fresh.records)
    report = compare(config, view, rows, faults, progress, () if behind else None).report
    progress("reading the archive")
    for fault in _archived(folder, archive):
        report.add("damage", f"the archive: {fault.what}", str(fault.path), "zonemta fsck --repair keeps the rest")
    known = suffix.floor, suffix.arriving, suffix.enveloped
    for envelope in restore.unknown(config, store, state.batches, *known):
        report.add("damage", "a message is lost from the store", envelope.id, "send it again from its source")
    for first, last in restore.missing(config, suffix.segments.rows()):
        report.add("damage", f"the journal's records {first} to {last} are gone", str(folder), "zonemta fsck --repair")
    if behind:
        report.add("damage", "the end of the store is missing", "store", "zonemta fsck --repair")
    return report


def _archived(folder: Path, archive: Path) -> list[segments.Fault]:
    """Faults of segments older than the journal, which no restart reads. A gap at their end shows in the journal's
    first file."""
    before = start.archived_before(folder, archive)
    found = journal_repair.damaged([*before, *segments.files(folder)[:1]])
    return [
        fault for one in found for fault in one.faults if one.path in before or fault.what == journal_repair.MISSING
    ]


def _records(folder: Path, archive: Path, stable: int, faults: list[segments.Fault]) -> Iterator[Record]:
    """All records. `faults` then has what a crash does not explain: a crash may tear anything after `stable`."""
    found, last = list[segments.Fault](), 0
    for record in segments.read(folder, 0, found, archive):
        last = record.seq
        yield record
    files = segments.files(folder)
    if files and last >= stable:
        end = segments.tail(files[-1]).end
        found = [fault for fault in found if fault.path != files[-1] or fault.offset < end]
    elif last < stable:
        where = files[-1] if files else folder
        found.append(segments.Fault(where, 0, f"it ends before record {stable}, which was on stable storage"))
        yield segments.lost_record(last + 1, stable)  # as a repair would write it
    faults += found


async def _repaired(config: Config, progress: Progress, clock: Clock) -> FsckReport:
    for _ in range(_REPAIRS_MAX - 1):
        try:
            return await _repaired_once(config, progress, clock)
        except StoreDamaged as error:  # in a part that opening does not read
            (config.folder / REPAIR_MARK).write_text(str(error))
    return await _repaired_once(config, progress, clock)


async def _repaired_once(config: Config, progress: Progress, clock: Clock) -> FsckReport:
    progress("recovering the queue")
    store, repaired = open_store(config, Once(config.folder / "quarantine"))
    found: asyncio.Future[FsckReport] = asyncio.get_running_loop().create_future()
    repairing = asyncio.create_task(_recovered(config, store, repaired, progress, clock, partial(_tell, found)))
    try:
        await asyncio.wait({found, repairing}, return_when=asyncio.FIRST_COMPLETED)
        if found.done():  # LevelDB met the damage while writing: waiting for that write would never end
            repairing.cancel()
            await asyncio.wait({repairing})
        report = await (found if found.done() else repairing)
    finally:
        found.cancel()
        store.close()
    if repaired:
        report.add("damage", "the store was damaged", "store", "what could be read was kept")
    return report


async def _recovered(
    config: Config,
    store: Store,
    repaired: bool,
    progress: Progress,
    clock: Clock,
    damaged: Callable[[Exception], None],
) -> FsckReport:
    rebuild = start.Rebuild(config, NoHooks(), clock, damaged, None, Inline)
    opening, report = await start.recover(rebuild, store, repaired, thorough=True, progress=progress)
    assert report is not None
    await opening.finish()
    await opening.queue.position()  # the next start begins here
    await opening.queue.core.disk.lines.stable()  # the second copy of the policy state comes after it
    await opening.queue.core.disk.bodies.settled()
    opening.queue.close()
    return report


def _tell(found: asyncio.Future[FsckReport], error: Exception) -> None:
    if not found.done():
        found.set_exception(error)


def _raise(error: Exception) -> None:
    raise error
