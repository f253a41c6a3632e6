"""Before a queue starts: its disks get what only its log has.

The log has a batch before the store, and a record at the same time as the journal; so after a crash it may have more
than both, none of which was answered. What the journal has more, and what recovery writes beside the lines, the log
gets when the queue begins (`ReplicatedLog.begin`). Where the two do not belong together the log counts, since all that
was acknowledged is in it, also by other nodes meanwhile: store and journal are made again of it, and the old ones set
aside. Only where the log has nothing that the store does not, it begins anew with what is here.

Failures: Replaced, NotReached, StoreError, OSError: all of it can be repeated.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from zonemta_py.cluster import restore
from zonemta_py.cluster.blocks import BlockKind, Joiner
from zonemta_py.cluster.log import LogMark, Replaced, ReplicatedLog, blocks_of
from zonemta_py.config import Config
from zonemta_py.disk import identity, keys
from zonemta_py.disk.files import sync
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Store, StoreDamaged, is_empty
from zonemta_py.disk.packing import pack
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import receipts, segments
from zonemta_py.journal.segments import Writer
from zonemta_py.queue.fsck.compare import state_of
from zonemta_py.queue.recovery.open_store import REPAIR_MARK, keep, say

_FRESH, _WHOLE, _ASIDE = "from-log", "whole", "before-log-"
"""In the queue's folder: what is being made of the log; a file that says that it is whole; and what was there
before."""


async def catch_up(config: Config, log: ReplicatedLog) -> None:
    """The queue is stopped, and this process has its log."""
    folder = config.folder
    if (folder / _FRESH / _WHOLE).exists():  # a crash came between
        _exchange(folder)
    gone = is_empty(folder / "store") and not segments.files(folder / "journal")
    if gone:
        if log.pen.base:
            say(f"queue {log.number} has no files here; they are made again of its log")
            await _made_again(config, log)
        return
    if (folder / REPAIR_MARK).exists():
        log.needs_base = True  # recovery repairs it
        return
    try:
        store = Store(
            folder / "store", config.queue.write_buffer_bytes, receipts.last(folder),
            keep(Quarantine(folder / "quarantine")),
        )  # fmt: skip
    except StoreDamaged:  # as recovery will find, which repairs it
        log.needs_base = True
        return
    try:
        mark, state = LogMark.of(store.get(keys.LOG)), state_of(store)
        same = bool(mark.base) and mark.base == log.pen.base
        behind = same and min(mark.sequence, mark.journal) + 1 < log.first
        if same and not behind and mark.batches == state.batches and mark.sequence <= log.last:
            await _applied(store, folder / "journal", mark, log)
            return
    finally:
        store.close()
    if behind and mark.batches == state.batches:
        say(f"queue {log.number}: the files here are older than what its log still has of them; they are set aside")
        await _made_again(config, log)
        return
    if log.pen.base and (not same or await _has_more(log, mark)):
        say(f"queue {log.number}: its log does not go on from the files here, which are set aside; the log counts")
        await _made_again(config, log)
        return
    if log.pen.base:
        say(f"queue {log.number}: its files were changed without its log, which begins anew with them")
    log.needs_base = True


async def _has_more(log: ReplicatedLog, mark: LogMark) -> bool:
    """Whether the log has batches that the store does not: they may have been acknowledged, by another node too."""
    joiner = Joiner(max(mark.sequence + 1, log.first))
    async for block in blocks_of(log.stream, joiner.next, log.last, joiner):
        if block.kind in (BlockKind.STORE, BlockKind.BOTH, BlockKind.LIVE) and block.last > mark.sequence:
            return True
    return False


async def _applied(store: Store, journal: Path, mark: LogMark, log: ReplicatedLog) -> None:
    last, records = last_record(journal), mark.record
    writer, joiner, journals = Writer(journal), Joiner(min(mark.sequence, mark.journal) + 1), list[tuple[int, int]]()
    changed = False
    try:
        async for block in blocks_of(log.stream, joiner.next, log.last, joiner):
            if block.kind == BlockKind.TAKEOVER and block.epoch > log.pen.epoch:
                raise Replaced(f"queue {log.number} has another owner now; this one ends")
            if block.kind == BlockKind.STORE and block.last > mark.sequence:
                number, operations = block.value
                mark, changed = mark._replace(sequence=block.last, batches=number), True
                store.write([*map(tuple, operations), (keys.LOG, pack(mark))], sync=False)
            elif block.kind == BlockKind.JOURNAL:
                rows = [Record(*row) for row in block.value]
                journals.append((block.first, rows[0].seq))
                records = max(records, rows[-1].seq)
                if rows := [row for row in rows if row.seq > last]:
                    writer.write(rows, sync=False)
                    last = rows[-1].seq
        writer.write([], sync=True)
    finally:
        writer.close()
    for fault in joiner.faults:
        say(f"queue {log.number}: {fault}; the log begins anew with what is here")
    log.needs_base |= bool(joiner.faults)
    log.resume(mark, records, journals)
    if changed:
        store.write([(keys.LOG, pack(log.mark))], sync=True)


async def _made_again(config: Config, log: ReplicatedLog) -> None:
    folder = config.folder
    fresh = folder / _FRESH
    restored = await restore.restored(log.stream, log.number, log.first, log.last, fresh)
    for sentence in restored.sentences:
        say(f"queue {log.number}: {sentence}")
    with (fresh / _WHOLE).open("wb") as file:
        os.fsync(file.fileno())
    sync(fresh)
    _exchange(folder)
    await catch_up(config, log)


def _exchange(folder: Path) -> None:
    """What was made of the log for what is here, which is set aside. It can be broken off, and repeated."""
    fresh, aside = folder / _FRESH, folder / f"{_ASIDE}{time.time_ns()}"
    for name in ("receipts", "bodies", "journal", "store"):
        if (folder / name).exists() and (name == "receipts" or (fresh / name).exists()):
            aside.mkdir(mode=0o700, exist_ok=True)
            (folder / name).rename(aside / name)
        if (fresh / name).exists():
            (fresh / name).rename(folder / name)
    if not (folder / identity.NAME).exists() and (fresh / identity.NAME).exists():
        (fresh / identity.NAME).rename(folder / identity.NAME)
    sync(folder)
    restore.remove(fresh)


def last_record(journal: Path) -> int:
    """0: there is none."""
    for path in reversed(segments.files(journal)):
        last = 0
        for record in segments.read_file(path, []):
            last = record.seq
        if last:
            return last
    return 0
